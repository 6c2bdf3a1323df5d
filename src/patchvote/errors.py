"""Exceptions for errors that a user can cause and correct.

Every message says what is wrong, where, what was received, and what to try. The command line prints it without a
traceback, so it must be understandable on its own.
"""

from __future__ import annotations

import copyreg
from typing import Any

_LONGEST_NAME = 300  # characters of a network's name that a message shows; a longer name is cut


class PatchvoteError(Exception):
    """Base of every error that a user's input, files or settings can cause."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with the message alone, and subclasses take other arguments. Errors are pickled on
        # their way from a worker.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class WaitWarning(UserWarning):
    """The call waits for another process to finish."""


class CacheWarning(UserWarning):
    """The cache cannot be used: everything works, but the next run takes as long as this one."""


class PhotoError(PatchvoteError):
    """A photo, or a collection of photos, cannot be read; it has the photo's `name` and the `reason` in plain words."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}" if name else reason)
        self.name = name
        self.reason = reason


class NetworkError(PatchvoteError):
    """A network cannot be loaded, or cannot do what the recipe asks of it."""


class BrokenNetworkError(NetworkError):
    """A network fails, or does not return what its specification says: no photo can be described with it."""


class StoreError(PatchvoteError):
    """A store cannot be read or written, or does not hold what was requested."""


class DamagedShardError(StoreError):
    """The content of a shard is not what was written to it."""


class ModelError(PatchvoteError):
    """A model file cannot be read, or needs something that this version or this machine does not have."""


class UntypedNetworkError(NetworkError, ModelError):
    """A file names a network that is loaded only when the user types its name, in `option` of the command line."""

    def __init__(self, network: str, file: object = "a file", option: str = "--network") -> None:
        shown = network if len(network) <= _LONGEST_NAME else network[:_LONGEST_NAME] + "…"
        self.reason = (
            f"{file} names the network {shown!r}, which is neither embedded nor an ONNX file beside it"
            f"{', nor in the cache of the Hugging Face hub on this machine' if 'hf:' in network else ''}. "
            "Such a name can run code, open files or download, so it is not taken from a file."
            f"{' An ONNX file is found beside it, with its .toml if it has one.' if '.onnx' in network else ''}"
        )
        # The user cannot judge a name that cannot be shown in full, so no command is suggested for it.
        self.network = network if shown == network and network.isprintable() else None
        self.option = option
        advice = (
            f" If you know this network and trust it, name it yourself: network={network!r}." if self.network else ""
        )
        super().__init__(self.reason + advice)


class ModelChangedError(ModelError):
    """Another process changed a model file after it was read, so it was not written."""


def first_line(error: BaseException) -> str:
    """Return the first line of the message of a library's error, or the error's type if there is no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
