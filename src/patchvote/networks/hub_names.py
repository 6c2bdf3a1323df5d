"""Names of networks on the Hugging Face hub: ``hf:owner/name[@revision][/file.onnx][?key=value&…]``.

A name is *pinned* if it has a commit, a file and the file's SHA-256: it then means the same network wherever and
whenever it is loaded. Models and stores hold the pinned name. Nothing here connects to anything.
"""

from __future__ import annotations

import dataclasses
import re

from ..errors import NetworkError
from .names import NetworkName

ENGINE = "hf"
OPTIONS = ("output", "whole", "size", "stride", "pixels", "sha256")

_FORM = "hf:owner/name[@revision][/file.onnx][?key=value]"
# Names become parts of paths and addresses: no part begins with a dot, and none has a character that needs escaping.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}")
_REVISION = re.compile(_PART)
_FILE = re.compile(rf"(?:{_PART}/){{0,8}}{_PART}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class HubName:
    """The parts of the name of a network on the hub.

    Parameters
    ----------
    repository : str
        Owner and name of the repository.
    revision : str
        Branch, tag or commit; empty means the branch ``main``.
    file : str
        ONNX file in the repository; empty means that the repository's files decide (see `hub_files`).
    options : dict
        Text by key; the keys are `OPTIONS`.

    Examples
    --------
    >>> name = HubName.parse("hf:owner/net@v1/onnx/model.onnx?whole=class")
    >>> name.repository, name.revision, name.file, name.options
    ('owner/net', 'v1', 'onnx/model.onnx', {'whole': 'class'})
    >>> str(name)
    'hf:owner/net@v1/onnx/model.onnx?whole=class'
    """

    repository: str
    revision: str = ""
    file: str = ""
    options: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, name: str) -> HubName:
        """Split a name into its parts, and check them.

        Raises
        ------
        NetworkError
            The name has another form, or an unknown option.
        """
        parsed = NetworkName.parse(name, OPTIONS)
        repository, revision, file = parsed.what, "", ""
        if parsed.layer or "@" in name.partition("?")[0]:
            revision, _, file = parsed.layer.partition("/")
            right = bool(_REVISION.fullmatch(revision))
        else:
            parts = parsed.what.split("/", 2)
            repository, file, right = "/".join(parts[:2]), parts[2] if len(parts) == 3 else "", True
        if not right or not _REPOSITORY.fullmatch(repository) or ".." in name:
            raise NetworkError(f"{name[:200]!r} does not name a network of the hub. Names have the form {_FORM}.")
        if file and not is_plain_file(file, ".onnx"):
            raise NetworkError(f"{file[:200]!r} in {name[:200]!r} is not an ONNX file: its name must end in .onnx.")
        if not _SHA256.fullmatch(parsed.options.get("sha256", "0" * 64)):
            raise NetworkError(f"sha256 of {name[:200]!r} must be 64 hexadecimal digits.")
        return cls(repository, revision, file, parsed.options)

    @property
    def is_pinned(self) -> bool:
        """Whether the name has a commit, a file and its SHA-256."""
        return self.has_commit and bool(self.file) and "sha256" in self.options

    @property
    def has_commit(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return is_commit(self.revision)

    def __str__(self) -> str:
        options = "&".join(f"{key}={value}" for key, value in self.options.items())
        revision, file = self.revision and f"@{self.revision}", self.file and f"/{self.file}"
        return f"{ENGINE}:{self.repository}{revision}{file}" + (f"?{options}" if options else "")


def is_hub_name(name: str) -> bool:
    """Whether a name is one of the hub's engine.

    Examples
    --------
    >>> is_hub_name("hf:owner/net"), is_hub_name("torch:os:abort")
    (True, False)
    """
    return name.startswith(f"{ENGINE}:")


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit, and not a branch or tag."""
    return bool(_COMMIT.fullmatch(revision))


def is_plain_file(file: str, ending: str = "") -> bool:
    """Whether a name is that of a file below the repository's folder, without characters that need escaping.

    Examples
    --------
    >>> is_plain_file("onnx/model.onnx_data"), is_plain_file("../model.onnx"), is_plain_file("/etc/passwd")
    (True, False, False)
    """
    return bool(_FILE.fullmatch(file)) and ".." not in file and file.lower().endswith(ending)
