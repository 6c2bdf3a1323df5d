"""Servers for tests: one in the test's own process, and one in a process of its own that can be killed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image
from starlette.testclient import TestClient

from patchvote.web import jobs as jobs_module
from patchvote.web.app import make_app
from patchvote.web.guard import protocol
from patchvote.web.settings import Limits, Settings

from .waiting import wait_for

SOURCES = Path(__file__).resolve().parents[2] / "src"
ADDRESS = "http://127.0.0.1:8000"
ENDLESS = "import sys; sys.stdin.read()"  # a program that does not end before it is told to

Photos = list[tuple[str, bytes]]


def crops(folder: Path, name: str, count: int, seed: int = 0) -> Photos:
    """Return crops of one of scikit-image's photos, as names and contents of PNG files."""
    rng, made = np.random.default_rng(seed), []
    image = Image.open(folder / f"{name}.png").convert("RGB")
    for index in range(count):
        side = int(rng.integers(60, 120))
        left, top = int(rng.integers(image.width - side)), int(rng.integers(image.height - side))
        data = io.BytesIO()
        image.crop((left, top, left + side, top + side)).save(data, "PNG")
        made.append((f"{name} {index}.png", data.getvalue()))
    return made


def files(photos: Photos, part: str = "files") -> list[tuple[str, tuple[str, bytes]]]:
    """Return photos as parts of a form."""
    return [(part, photo) for photo in photos]


def model_file(content: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    """Return a model as a part of a form."""
    return files([("m.patchvote", content)], "file")


def settings(data: Path, limits: dict[str, Any] | None = None, **more: Any) -> Settings:
    """Return settings with some limits changed."""
    return Settings(data, limits=dataclasses.replace(Limits(), **(limits or {})), **more)


@contextlib.contextmanager
def client(wanted: Settings, log: Any = None, **more: Any) -> Iterator[TestClient]:
    """Run a server in this process, and yield a client of it."""
    with TestClient(make_app(wanted, log), base_url=ADDRESS, **more) as made:
        made.folder = wanted.data / "workspaces"
        yield made


def reached(address: str) -> httpx.Client:
    """Return a client of a server at an address."""
    return httpx.Client(base_url=address, timeout=120)


def taught(client: httpx.Client, photos: dict[str, Photos]) -> str:
    """Make a workspace with photos of some classes, and return its id."""
    workspace = client.post("/v1/workspaces", json={}).json()["id"]
    for name, own in photos.items():
        add(client, workspace, own, class_name=name)
    return workspace


def add(client: httpx.Client, workspace: str, photos: Photos, **fields: Any) -> dict[str, Any]:
    """Add photos to a workspace, and return the answer."""
    done = client.post(f"/v1/workspaces/{workspace}/photos", files=files(photos), data=fields)
    assert done.status_code == 200, done.text
    return done.json()


def submitted(client: httpx.Client, workspace: str, **wanted: Any) -> str:
    """Begin to learn, and return the id of the job."""
    job = client.post(f"/v1/workspaces/{workspace}/learn", json=wanted)
    assert job.status_code == 202, job.text
    return job.json()["id"]


def learned(client: httpx.Client, workspace: str, **wanted: Any) -> dict[str, Any]:
    """Learn, follow the events until the end, and return the last state of the job."""
    return list(events(client, submitted(client, workspace, **wanted)))[-1][1]


def events(client: httpx.Client, job: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a job."""
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)


def refusal(response: Any) -> tuple[int, str]:
    """Return the status and the code of an error."""
    return response.status_code, response.json()["error"]["code"]


def let_jobs_run(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let jobs of servers in this process start a small program instead of the one that learns."""

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-S", "-c", program]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(jobs_module, "_start", start)


@contextlib.contextmanager
def threaded(wanted: Settings) -> Iterator[int]:
    """Run a server in a thread, on a free port of this machine, and yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    http = protocol(wanted.limits)
    server = uvicorn.Server(uvicorn.Config(make_app(wanted), http=http, ws="none", log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)


@dataclasses.dataclass
class Live:
    """`patchvote serve` in a process of its own."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(urllib.parse.urlsplit(self.address).port or 0)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def live(data: Path, *words: object, errors: Path | None = None, **environment: str) -> Iterator[Live]:
    """Start the command on a free port of this machine, and end it with the block."""
    command = [sys.executable, "-m", "patchvote", "serve", *map(str, words), "--port", "0", "--data", str(data)]
    surroundings = os.environ | {"PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"} | environment
    with (errors or Path(os.devnull)).open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=surroundings)
    try:
        line = process.stdout.readline()
        assert "http://" in line, line
        yield Live(process, line.split()[-1])
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
