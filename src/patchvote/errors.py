"""What can go wrong for a user, as exceptions whose message says what to try next.

Every message names the thing, what was received, and a way on. The command line prints it as it is, without a
traceback, so it has to stand alone.
"""


class PatchvoteError(Exception):
    """Base of every error that a user's input, files or settings can cause."""


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


class ModelError(PatchvoteError):
    """A model file cannot be read, or asks for something that this version or this machine cannot give."""
