"""Settings of the server: where it listens, who may talk to it, and the limits of everything that a client can send."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from pathlib import Path

import platformdirs

from ..errors import PatchvoteError
from ..utils.schema import brief

_MIN_TOKEN = 16  # characters; a random one of 16 letters and digits cannot be found by trying


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a client can ask for at most; each limit is enforced before the work that it limits."""

    body_bytes: int = 64 << 20  # body of a request that brings photos
    words_bytes: int = 1 << 20  # body of any other request; the ids of all photos of a workspace take 350 kB
    model_bytes: int = 256 << 20  # body of a request that brings a model file
    bytes_in_flight: int = 512 << 20  # bodies of all requests that are being answered
    files: int = 100  # photos in one request
    body_seconds: float = 60.0  # for a body to arrive
    header_seconds: float = 10.0  # for a head to arrive, and for the rest of a body whose request is answered already
    response_seconds: float = 30.0  # for a client to read a response, and a second more per 50 kB of it
    unread_bytes: int = 256 << 20  # responses that clients have not read yet; who adds to them is disconnected
    answer_seconds: float = 60.0  # until a request for answers is given up
    waiting_photos: int = 200  # photos that wait for the network; further requests are answered with 429
    connections: int = 600  # more than photos may wait: who waits in vain is to be told so
    streams: int = 32  # open streams of events
    decoding_requests: int = 8  # that decode photos at once, fewer than threads for requests (40), which others need
    waiting_jobs: int = 16  # jobs that wait for the one that runs
    job_seconds: float = 3600.0  # until a job is ended
    workspaces: int = 1000
    workspace_photos: int = 5000
    workspace_bytes: int = 4 << 30  # photos of a workspace
    classes: int = 500  # classes of a workspace
    model_classes: int = 5000  # classes of a workspace after a client's model was opened in it
    # Pixels per photo that the network of an uploaded model may look at; the default recipe looks at a quarter of a
    # million, the paper's patches at twenty million.
    network_pixels: int = 1 << 25


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a server runs; one that others can reach needs a token."""

    data: Path  # folder of the workspaces
    models: tuple[Path, ...] = ()  # that everybody who may use the server can ask
    network: str | None = None  # of these models, if it is neither embedded nor an ONNX file beside them
    host: str = "127.0.0.1"
    port: int = 8000
    token: str = dataclasses.field(default="", repr=False)  # that every request must carry; empty if none is needed
    hosts: tuple[str, ...] = ()  # names by which browsers reach the server, besides the addresses of this machine
    jobs: int | None = None  # threads of the network; one per core by default
    device: str = "cpu"
    static: Path = Path(__file__).parent / "static"  # files of the page
    limits: Limits = dataclasses.field(default_factory=Limits)

    def __post_init__(self) -> None:
        plain = self.token.isascii() and self.token.isprintable()
        if self.token and (len(self.token) < _MIN_TOKEN or not plain):
            raise PatchvoteError(
                f"the token must have at least {_MIN_TOKEN} letters and digits. This makes one: "
                'python -c "import secrets; print(secrets.token_urlsafe())"'
            )
        if not self.token and not is_loopback(self.host):
            raise PatchvoteError(
                f"--host {brief(self.host)} lets other machines use the server, which needs a token: put one into a "
                "file and name it with --token-file, or into the variable PATCHVOTE_TOKEN."
            )


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def data_folder() -> Path:
    """Return the folder of the workspaces: `$PATCHVOTE_DATA_FOLDER`, or the system's folder for data of programs."""
    named = os.environ.get("PATCHVOTE_DATA_FOLDER")
    return Path(named or platformdirs.user_data_dir("patchvote", appauthor=False))
