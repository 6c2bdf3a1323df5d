"""What can go wrong for a user, as exceptions whose message says what to try next.

Every message names the thing, what was received, and a way on. The command line prints it as it is, without a
traceback, so it has to stand alone.
"""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST_NAME = 300  # characters of a network's name that a message shows


class PatchvoteError(Exception):
    r"""Base of every error that a user's input, files or settings can cause.

    Parameters
    ----------
    message : str
        What is wrong, on one line: a newline in it can only come from a name, and is printed as an escape.
    lines : sequence of str
        Further lines to be printed below it, such as an example of what was expected.

    Examples
    --------
    >>> str(PatchvoteError("there is no such layout. Expected:", lines=["a/", "  b.jpg"]))
    'there is no such layout. Expected:\na/\n  b.jpg'
    """

    def __init__(self, message: str = "", *, lines: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *lines]))
        self.lines = [message, *lines]


class WaitWarning(UserWarning):
    """Something takes time because another process has to finish first."""


class CacheWarning(UserWarning):
    """The cache cannot be written: everything works, but the next run takes as long as this one."""


class PhotoError(PatchvoteError):
    """A photo, or a collection of photos, cannot be read.

    Parameters
    ----------
    name : str
        The photo, as the user named it.
    reason : str
        Why, in words that mean something to somebody who has never heard of decoders.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}" if name else reason)
        self.name = name
        self.reason = reason


class NetworkError(PatchvoteError):
    """A network cannot be loaded, or cannot do what the recipe asks of it."""


class StoreError(PatchvoteError):
    """A store cannot be read or written, or holds something else than was asked for."""


class DamagedShardError(StoreError):
    """A shard holds something else than was written to it."""


class ModelError(PatchvoteError):
    """A model file cannot be read, or asks for something that this version or this machine cannot give."""


class UntypedNetworkError(NetworkError, ModelError):
    """A file names a network that is loaded only when the user types its name.

    Parameters
    ----------
    network : str
        The name.
    file : path, optional
        The file that names it.
    option : str, default "--network"
        The option of the command line that takes the name.
    """

    def __init__(self, network: str, file: object = "a file", option: str = "--network") -> None:
        shown = network if len(network) <= _LONGEST_NAME else network[:_LONGEST_NAME] + "…"
        self.reason = (
            f"{file} names the network {shown!r}, which is neither embedded nor an ONNX file beside it. "
            "Such a name can run code, open files or download, so it is not taken from a file."
        )
        # What cannot be shown cannot be judged, and is not offered for typing.
        self.network = network if shown == network and network.isprintable() else None
        self.option = option
        way = f" If you know this network and trust it, name it yourself: network={network!r}." if self.network else ""
        super().__init__(self.reason + way)


class ModelChangedError(ModelError):
    """A model file was changed by somebody else since it was read, and was therefore not written."""


def first_line(error: BaseException) -> str:
    r"""Return the first line of what an error of somebody else's code says, or its type where it says nothing.

    Examples
    --------
    >>> first_line(OSError("no weights here\nand more lines")), first_line(MemoryError())
    ('no weights here', 'MemoryError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
