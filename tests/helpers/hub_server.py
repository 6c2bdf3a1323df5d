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

    def push(self, repository: str, files: dict[str, bytes]) -> None:
        """Add a commit to the main branch."""
        content = b"".join(name.encode() + data for name, data in sorted(files.items()))
        commit = hashlib.sha1(repository.encode() + content).hexdigest()
        self.repositories.setdefault(repository, {})[commit] = dict(files)
        self.heads[repository] = {"main": commit}

    def downloads(self) -> list[str]:
        return [line for line in self.asked if line.startswith("GET") and "/resolve/" in line]

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Return the status, the body and the headers of the answer to a request."""
        path = path.partition("?")[0]
        found = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/]+)/(?:revision|resolve)/([^/]+)(?:/(.+))?", path)
        if not found or found[1] not in self.repositories:
            return 401, b"{}", {"X-Error-Code": "RepoNotFound"}
        repository, revision, file = found.groups()
        commit = self.heads[repository].get(revision, revision)
        if file and repository in self.gated:
            return 403, b"{}", {"X-Error-Code": "GatedRepo"}
        if commit not in self.repositories[repository]:
            return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
        files, headers = self.repositories[repository][commit], {"X-Repo-Commit": commit}
        if not file:
            info = {"id": repository, "sha": commit, "siblings": [{"rfilename": name} for name in sorted(files)]}
            return 200, json.dumps(info | {"tags": []}).encode(), {"Content-Type": "application/json"}
        if file not in files:
            return 404, b"{}", headers | {"X-Error-Code": "EntryNotFound"}
        data = files[file]
        large = ".onnx" in file
        etag = (hashlib.sha256(data) if large else hashlib.sha1(b"blob %d\0" % len(data) + data)).hexdigest()
        return 200, data, headers | {"ETag": f'"{etag}"'}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.hub.asked.append(f"{self.command} {self.path}")
        code, data, headers = self.hub.answer(self.path)
        self.send_response(code)
        for key, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.do_GET()


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
