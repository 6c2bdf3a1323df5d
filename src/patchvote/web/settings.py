"""Settings of the server: where it listens, who may talk to it, and the limits of everything that a client can send."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from pathlib import Path

import platformdirs

from ..errors import PatchvoteError
from ..utils.schema import brief

LOOPBACK = "127.0.0.1"
_SHORTEST_TOKEN = 16  # characters; a random one of 16 letters and digits cannot be found by trying


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a client can ask for at most; each is enforced before the work that it limits.

    Parameters
    ----------
    body_bytes : int
        Size of the body of one request that brings photos.
    words_bytes : int
        Size of the body of any other request; the ids of all photos of a workspace take 350 kB.
    model_bytes : int
        Size of an uploaded model file, which is the body of one request.
    bytes_in_flight : int
        Bodies of all requests together that are being read or waited for.
    files : int
        Photos in one request.
    body_seconds : float
        Time in which a body has to arrive.
    header_seconds : float
        Time in which the head of a request has to arrive, and the rest of a body whose request is answered already.
    response_seconds : float
        Time in which a client has to read a response, and a second more per 50 kB of it.
    unread_bytes : int
        Responses of all requests together that clients have not read yet; who adds to them is disconnected.
    answer_seconds : float
        Time after which a request for answers is given up.
    waiting_photos : int
        Photos that wait for the network; further requests are answered with 429.
    connections : int
        Open connections, more than photos may wait: who waits in vain is to be told so.
    streams : int
        Open streams of events.
    decoding_requests : int
        Requests that decode photos for pictures at once, fewer than there are threads for requests (40): photos that
        take long must not keep all others waiting.
    waiting_jobs : int
        Jobs that wait for the one that runs.
    job_seconds : float
        Time after which a job is ended.
    workspaces : int
        Workspaces on disk.
    workspace_photos : int
        Photos in a workspace.
    workspace_bytes : int
        Size of the photos of a workspace.
    classes : int
        Classes of a workspace.
    model_classes : int
        Classes of a workspace after a client's model was opened in it.
    network_pixels : int
        Pixels per photo that the network of an uploaded model may look at; the default recipe looks at a quarter of a
        million, the paper's patches at twenty million.
    """

    body_bytes: int = 64 << 20
    words_bytes: int = 1 << 20
    model_bytes: int = 256 << 20
    bytes_in_flight: int = 512 << 20
    files: int = 100
    body_seconds: float = 60.0
    header_seconds: float = 10.0
    response_seconds: float = 30.0
    unread_bytes: int = 256 << 20
    answer_seconds: float = 60.0
    waiting_photos: int = 200
    connections: int = 600
    streams: int = 32
    decoding_requests: int = 8
    waiting_jobs: int = 16
    job_seconds: float = 3600.0
    workspaces: int = 1000
    workspace_photos: int = 5000
    workspace_bytes: int = 4 << 30
    classes: int = 500
    model_classes: int = 5000
    network_pixels: int = 1 << 25


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a server runs.

    Parameters
    ----------
    data : Path
        Folder of the workspaces.
    models : tuple of Path
        Models that everybody who may use the server can ask.
    network : str or None
        Network of these models, if it is neither embedded nor an ONNX file beside them.
    host, port : str and int
        Address to listen on.
    token : str
        Token that every request must carry; empty if none is needed.
    hosts : tuple of str
        Names by which browsers reach the server, besides the addresses of this machine.
    jobs : int or None
        Threads of the network; one per core by default.
    device : {"cpu", "cuda", "mps"}
        Device on which the network runs.
    static : Path
        Folder of the page.
    limits : Limits
        Limits of everything that a client can send.

    Raises
    ------
    PatchvoteError
        The server would be open to others without a token, or the token is too short.
    """

    data: Path
    models: tuple[Path, ...] = ()
    network: str | None = None
    host: str = LOOPBACK
    port: int = 8000
    token: str = dataclasses.field(default="", repr=False)
    hosts: tuple[str, ...] = ()
    jobs: int | None = None
    device: str = "cpu"
    static: Path = Path(__file__).parent / "static"
    limits: Limits = dataclasses.field(default_factory=Limits)

    def __post_init__(self) -> None:
        plain = self.token.isascii() and self.token.isprintable()
        if self.token and (len(self.token) < _SHORTEST_TOKEN or not plain):
            raise PatchvoteError(
                f"the token must have at least {_SHORTEST_TOKEN} letters and digits. This makes one: "
                'python -c "import secrets; print(secrets.token_urlsafe())"'
            )
        if not self.token and not self.is_local:
            raise PatchvoteError(
                f"--host {brief(self.host)} lets other machines use the server, which needs a token: put one into a "
                "file and name it with --token-file, or into the variable PATCHVOTE_TOKEN."
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server.

        Examples
        --------
        >>> Settings(Path("data")).is_local, Settings(Path("data"), host="::1").is_local
        (True, True)
        """
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.com")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def data_folder() -> Path:
    """Return the folder of the workspaces: `$PATCHVOTE_DATA_FOLDER`, or the system's folder for data of programs."""
    named = os.environ.get("PATCHVOTE_DATA_FOLDER")
    return Path(named or platformdirs.user_data_dir("patchvote", appauthor=False))
