"""A small hub on loopback: repositories with commits and files, which may be gated or change."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """The content of the hub, and what it was asked for."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}  # files by repository and commit
        self.heads: dict[str, dict[str, str]] = {}  # commits by repository and branch
        self.gated: set[str] = set()
        self.asked: list[str] = []
        self.endpoint = ""

    def push(self, repository: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Add a commit to a branch, and return it."""
        content = b"".join(name.encode() + data for name, data in sorted(files.items()))
        commit = hashlib.sha1(repository.encode() + content).hexdigest()
        self.repositories.setdefault(repository, {})[commit] = dict(files)
        self.heads.setdefault(repository, {})[branch] = commit
        return commit

    def commit(self, repository: str, revision: str) -> str | None:
        known = self.repositories[repository]
        return revision if revision in known else self.heads[repository].get(revision)

    def downloads(self) -> list[str]:
        return [line for line in self.asked if line.startswith("GET") and "/resolve/" in line]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, body: bool) -> None:
        self.hub.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path):
            self._info(*found.groups())
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*found.groups(), body)
        else:
            self._error(404, "EntryNotFound")

    def _located(self, repository: str, revision: str, gate: bool) -> str | None:
        if repository not in self.hub.repositories:
            self._error(401, "RepoNotFound")
        elif repository in self.hub.gated and gate:
            self._error(403, "GatedRepo")
        elif (commit := self.hub.commit(repository, revision)) is None:
            self._error(404, "RevisionNotFound")
        else:
            return commit
        return None

    def _info(self, repository: str, revision: str) -> None:
        if commit := self._located(repository, revision, gate=False):
            files = sorted(self.hub.repositories[repository][commit])
            info = {"id": repository, "sha": commit, "siblings": [{"rfilename": file} for file in files], "tags": []}
            self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    def _file(self, repository: str, revision: str, file: str, body: bool) -> None:
        commit = self._located(repository, revision, gate=True)
        if commit is None:
            return
        data = self.hub.repositories[repository][commit].get(file)
        if data is None:
            self._error(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        large = ".onnx" in file
        etag = (hashlib.sha256(data) if large else hashlib.sha1(b"blob %d\0" % len(data) + data)).hexdigest()
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}
        headers["Content-Length"] = str(len(data))
        self._send(200, data if body else b"", headers)

    def _error(self, code: int, name: str, headers: dict[str, str] | None = None) -> None:
        self._send(code, b"{}", {"X-Error-Code": name, "Content-Type": "application/json", **(headers or {})})

    def _send(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for key, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@contextlib.contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a hub on loopback."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
