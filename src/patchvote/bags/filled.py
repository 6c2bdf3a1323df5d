"""Filled: what was done to fill a store, for progress and for the caller."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..errors import PhotoError


@dataclasses.dataclass
class Filled:
    """What was done so far to fill a store.

    Attributes
    ----------
    photos : int
        Number of requested photos.
    kept : int
        Photos whose bags were in the store already.
    extracted : int
        Photos that went through the network.
    reused : int
        Photos whose content was in the store under another name or label; its bag was reused.
    forgotten : int
        Photos removed from the store: moved to another name, or not readable any more.
    skipped : list of PhotoError
        Photos that could not be read, with the reason.
    others : int
        Photos of the store that were not requested; they stay.
    descriptors : int
        Number of descriptors that were extracted.
    seconds : float
        Time taken so far.
    damaged : list of str
        Shards that were found damaged, and their new names; their photos were extracted again.
    digests : dict
        SHA-256 of the content of each photo as it was read, by name.
    why : str
        Reason why photos are extracted of which something is stored already, for people.
    """

    photos: int
    kept: int = 0
    extracted: int = 0
    reused: int = 0
    forgotten: int = 0
    skipped: list[PhotoError] = dataclasses.field(default_factory=list)
    others: int = 0
    descriptors: int = 0
    seconds: float = 0.0
    damaged: list[str] = dataclasses.field(default_factory=list)
    digests: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    why: str = ""

    @property
    def done(self) -> int:
        """Number of photos that are finished."""
        return self.kept + self.extracted + self.reused + len(self.skipped)


Progress = Callable[[Filled], None]
