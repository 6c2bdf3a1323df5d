"""A browser for tests: opens a page in headless Chromium and tells what it came to.

Chromium is driven over a pair of pipes in its own DevTools protocol: messages of JSON, each ended by a zero byte. So
one process serves many pages, a window can be as narrow as a phone, and neither port nor further package is needed.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Chromium reads messages from its file 3 and writes them to its file 4. The pipes are moved out of the way before.
_LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD_CLOEXEC, 10) for end in sys.argv[1:3]]
os.closerange(3, 10)
for number, end in enumerate(ends, 3):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-breakpad",
    "--hide-scrollbars",
)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a page came to: console messages and errors, addresses that it asked for, and its document."""

    messages: list[str]
    requests: list[str]
    dom: str


class Browser:
    """A Chromium that knows nothing of the user's: make it with `start_browser`."""

    def __init__(self, process: subprocess.Popen[bytes], reader: int, writer: int, limit: float) -> None:
        self._process, self._reader, self._writer, self._limit = process, reader, writer, limit
        self._rest, self._number, self._session = b"", 0, ""
        self._events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(
        self, page: Path | str, *, width: int = 1200, height: int = 800, dark: bool = False, media: str = "screen"
    ) -> Seen:
        """Open a file or an address, in a window of this size, and wait until it has loaded."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        for address in ("about:blank", page.resolve().as_uri() if isinstance(page, Path) else page):
            self._events.clear()  # what the page before said is not this one's
            told = self._ask("Page.navigate", url=address)
            if told.get("errorText"):
                raise RuntimeError(f"{address} cannot be opened: {told['errorText']}")
            self._wait_for("Page.loadEventFired")
        dom = self.evaluate("document.documentElement.outerHTML")
        return Seen(list(self._messages()), list(self._requests()), dom)

    def evaluate(self, expression: str) -> Any:
        """Return what an expression of JavaScript comes to in the page that is open."""
        told = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what the window shows, or the whole page, as PNG."""
        told = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def pdf(self, path: Path) -> None:
        """Print the page that is open."""
        self._ask("Emulation.setEmulatedMedia", media="")  # the screen would stay one on paper
        path.write_bytes(base64.b64decode(self._ask("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def _messages(self) -> Iterator[str]:
        for event in self._events:
            told = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                yield details.get("exception", {}).get("description", details["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                yield " ".join(str(part.get("value", part.get("description"))) for part in told["args"])
            elif event["method"] == "Log.entryAdded":
                yield told["entry"]["text"]

    def _requests(self) -> Iterator[str]:
        for event in self._events:
            if event["method"] == "Network.requestWillBeSent":
                yield event["params"]["request"]["url"]

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._writer, json.dumps(asked).encode() + b"\0")
        deadline = time.monotonic() + self._limit
        while True:
            told = self._receive(deadline, method)
            if told.get("id") == self._number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]

    def _wait_for(self, method: str) -> None:
        deadline = time.monotonic() + self._limit
        while not any(event["method"] == method for event in self._events):
            self._receive(deadline, method)

    def _receive(self, deadline: float, what: str) -> dict[str, Any]:
        """Return the next message; events are kept."""
        while b"\0" not in self._rest:
            if not select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium did not answer within {self._limit} s: {what}")
            more = os.read(self._reader, 1 << 20)
            if not more:
                raise RuntimeError(f"Chromium ended at {what}")
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        told: dict[str, Any] = json.loads(message)
        if "method" in told:
            self._events.append(told)
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._session = ""
            self._ask("Browser.close")


@contextlib.contextmanager
def start_browser(limit: float = 30) -> Iterator[Browser]:
    """Start a Chromium with an empty profile, and end it; skip the test where there is none.

    Parameters
    ----------
    limit : float
        Seconds in which it has to answer anything.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None or os.name == "nt":
        pytest.skip("there is no Chromium here")
    down, up = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", _LAUNCHER),
                str(down[0]),
                str(up[1]),
                program,
                *_FLAGS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(down[0], up[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a group of its own, which can be ended without touching anything else
        )
        os.close(down[0])
        os.close(up[1])
        try:
            with Browser(process, up[0], down[1], limit) as browser:
                yield browser
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(up[0])
            os.close(down[1])
