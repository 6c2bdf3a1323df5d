"""A small client of the server, which needs nothing but Python: ask a model, teach one, and fetch it."""

from __future__ import annotations

import http.client
import json
import secrets
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError

_Photo = str | Path | tuple[str, bytes]


class ServerError(PatchvoteError):
    """The server refused a request.

    Parameters
    ----------
    status : int
        Status of the response.
    code, message : str
        Code of the error, and what to try (docs/serve.md).
    retry_after : float or None
        Seconds after which to try again, where the server says so.
    """

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"the server answered {status} ({code}): {message}")
        self.status, self.code, self.retry_after = status, code, retry_after


class Client:
    """Talks to one server.

    Parameters
    ----------
    address : str
        Address of the server, such as "http://127.0.0.1:8000".
    token : str
        Token of the server, if it needs one.
    timeout : float
        Seconds to wait for a response.
    patience : float
        Seconds for which requests are repeated that a busy server refused.
    """

    def __init__(self, address: str, *, token: str = "", timeout: float = 120.0, patience: float = 60.0) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PatchvoteError(f"the address of a server begins with http:// or https://, got {address!r:.80}.")
        self._parts, self._token, self._timeout, self._patience = parts, token, timeout, patience

    def predict(self, photos: Sequence[_Photo], model: str | None = None) -> list[dict[str, Any]]:
        """Return one answer per photo, in order; photos are paths, or pairs of name and content."""
        answers: list[dict[str, Any]] = self._upload(_with("/v1/predict", model=model), photos)["answers"]
        return answers

    def explain(self, photo: _Photo, model: str | None = None, **wanted: Any) -> dict[str, Any]:
        """Return the evidence of a photo; `wanted` are parameters such as label, labels, width and height."""
        return self._upload(_with("/v1/explain", model=model, **wanted), [photo])

    def create_workspace(self, title: str = "", model: str | None = None) -> str:
        """Make a workspace, and return its id; `model` names a model of the server to begin with."""
        return str(self._json("POST", "/v1/workspaces", {"title": title, "model": model})["id"])

    def workspace(self, workspace: str) -> dict[str, Any]:
        """Return the state of a workspace."""
        return self._json("GET", f"/v1/workspaces/{workspace}")

    def add_photos(self, workspace: str, photos: Sequence[_Photo], label: str | None = None) -> dict[str, Any]:
        """Add photos to the class of this name, which is made if it is missing; without one, they are unlabelled."""
        fields = {} if label is None else {"class_name": label}
        return self._upload(f"/v1/workspaces/{workspace}/photos", photos, **fields)

    def learn(self, workspace: str, **settings: Any) -> dict[str, Any]:
        """Learn, wait until it is done, and return the report.

        Raises
        ------
        PatchvoteError
            Learning failed or was cancelled.
        """
        job = self._json("POST", f"/v1/workspaces/{workspace}/learn", settings)
        *_, last = self.follow(job["id"])
        if last["status"] != "done":
            raise PatchvoteError(f"learning {last['status']}: {last['message']}")
        return self._json("GET", f"/v1/workspaces/{workspace}/report")

    def follow(self, job: str, pause: float = 0.3) -> Iterator[dict[str, Any]]:
        """Yield the state of a job until it is over."""
        while True:
            state = self._json("GET", f"/v1/jobs/{job}")
            yield state
            if state["status"] not in ("waiting", "running"):
                return
            time.sleep(pause)

    def download(self, model: str) -> bytes:
        """Return the file of a model, or of the model of a workspace."""
        return self._request("GET", f"/v1/models/{urllib.parse.quote(model, safe='')}/file")

    def upload(self, content: bytes) -> str:
        """Upload a model file, and return the id of the workspace that holds it."""
        return str(self._upload("/v1/models", [("model.patchvote", content)], "file")["id"])

    def _json(self, method: str, path: str, value: Any = None) -> dict[str, Any]:
        body = b"" if value is None else json.dumps(value).encode()
        answer: dict[str, Any] = json.loads(self._request(method, path, body, "application/json"))
        return answer

    def _upload(self, path: str, photos: Sequence[_Photo], part: str = "files", **fields: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._request("POST", path, *_form(photos, part, fields)))
        return answer

    def _request(self, method: str, path: str, body: bytes = b"", kind: str = "") -> bytes:
        """Send a request, again after the time that a busy server names, and return the content of the response."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return self._once(method, path, body, kind)
            except ServerError as error:
                wait = error.retry_after
                if error.status not in (429, 503) or wait is None or time.monotonic() + wait > until:
                    raise
                time.sleep(wait)

    def _once(self, method: str, path: str, body: bytes, kind: str) -> bytes:
        secure = self._parts.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = connect(str(self._parts.hostname), self._parts.port, timeout=self._timeout)
        headers = {"Content-Type": kind} if body else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise PatchvoteError(f"{self._parts.geturl()} cannot be reached: {error}. Is the server running?") from None
        finally:
            connection.close()
        if response.status >= 400:
            raise _error(response, content)
        return content


def _error(response: http.client.HTTPResponse, content: bytes) -> ServerError:
    try:
        error = json.loads(content)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):  # of a proxy in between
        code, message = "unknown", response.reason
    seconds = response.getheader("Retry-After", "")
    return ServerError(response.status, code, message, float(seconds) if seconds.isdecimal() else None)


def _with(path: str, **parameters: Any) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urllib.parse.urlencode(given, doseq=True)}" if given else path


def _form(photos: Sequence[_Photo], part: str, fields: dict[str, str]) -> tuple[bytes, str]:
    """Return a body of multipart/form-data, and its type."""
    boundary, parts = secrets.token_hex(16), []
    for name, value in fields.items():
        parts.append((f'name="{name}"', value.encode()))
    for photo in photos:
        name, content = photo if isinstance(photo, tuple) else (Path(photo).name, Path(photo).read_bytes())
        # As browsers do: these characters would end the name.
        quoted = name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
        parts.append((f'name="{part}"; filename="{quoted}"', content))
    lines = []
    for disposition, content in parts:
        head = f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
        lines += [head.encode(errors="replace"), content, b"\r\n"]
    return b"".join([*lines, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"
