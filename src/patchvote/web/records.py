"""Records of a workspace: its classes and photos, as values that are written to one JSON file.

Nothing here touches a disk, a photo or a model.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any, Self

from ..voters.settings import MAX_NAME
from ..voters.votes import NONE
from .problems import Problem, missing


@dataclasses.dataclass
class PhotoRecord:
    """A photo: its digest, the name to show, its class, its size, and the answer of a model.

    `answer` has the fields of `models.rows.row` and `run`, the run of learning whose model gave it.
    """

    id: str
    name: str
    label: str | None
    width: int
    height: int
    bytes: int
    answer: dict[str, Any] | None = None


@dataclasses.dataclass
class State:
    """All that a workspace remembers, besides the files of photos and models.

    Parameters
    ----------
    id : str
        Id of the workspace.
    title : str
        Title that the user gave.
    version : int
        Number of changes so far.
    made : int
        Classes that were ever made: ids are not used twice.
    classes : dict
        Names of the classes by id, in the order in which they were made.
    photos : dict
        Photos by id, in the order in which they came.
    run : str or None
        Run whose model is the present one.
    base : str or None
        Run that holds the model that was opened from a file; learning adds to it.
    taught : str
        Fingerprint of the labelled photos that the present model learned from.
    """

    id: str
    title: str = ""
    version: int = 0
    made: int = 0
    classes: dict[str, str] = dataclasses.field(default_factory=dict)
    photos: dict[str, PhotoRecord] = dataclasses.field(default_factory=dict)
    run: str | None = None
    base: str | None = None
    taught: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Return the state as plain values."""
        plain = dataclasses.asdict(self)
        return plain | {"photos": list(plain["photos"].values())}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Return the state that `to_plain` wrote."""
        photos = [PhotoRecord(**photo) for photo in plain["photos"]]
        return cls(**{**plain, "photos": {photo.id: photo for photo in photos}})

    # --- classes ----------------------------------------------------------------------------------------------------

    def name_of(self, label: str) -> str:
        """Return the name of a class.

        Raises
        ------
        Problem
            There is no such class.
        """
        if label not in self.classes:
            raise missing("class")
        return self.classes[label]

    def make_class(self, name: str, most: int) -> str:
        """Make a class, and return its id.

        Raises
        ------
        Problem
            The name cannot be used or is taken, or there are too many classes.
        """
        name = self._usable(name)
        if len(self.classes) >= most:
            raise Problem(413, "full", f"a workspace has at most {most:,} classes.")
        self.made += 1
        label = f"c{self.made}"
        self.classes[label] = name
        return label

    def add_classes(self, names: Iterable[str]) -> None:
        """Make classes of a model that are missing; their names are as the model has them."""
        known = set(self.classes.values())
        for name in names:
            if name not in known:
                known.add(name)
                self.made += 1
                self.classes[f"c{self.made}"] = name

    def class_named(self, name: str, most: int) -> str:
        """Return the id of the class of this name, which is made if it is missing."""
        wanted = name.strip()
        known = next((label for label, own in self.classes.items() if own == wanted), None)
        return known or self.make_class(name, most)

    def rename(self, label: str, name: str) -> None:
        """Rename a class."""
        if self.name_of(label) != name.strip():
            self.classes[label] = self._usable(name)

    def remove_class(self, label: str) -> list[PhotoRecord]:
        """Remove a class, and return its photos, which are unlabelled now."""
        self.name_of(label)
        del self.classes[label]
        photos = [photo for photo in self.photos.values() if photo.label == label]
        for photo in photos:
            photo.label = None
        return photos

    def _usable(self, name: str) -> str:
        name = name.strip()
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise Problem(422, "invalid", f"the name of a class is a line of 1 to {MAX_NAME:,} characters.")
        if name.casefold() == NONE:
            raise Problem(422, "invalid", f'no class can be called "{NONE}": it is the answer for strange photos.')
        if name in self.classes.values():
            raise Problem(409, "conflict", "there is a class of this name already.")
        return name

    # --- photos -----------------------------------------------------------------------------------------------------

    def photo(self, photo: str) -> PhotoRecord:
        """Return a photo.

        Raises
        ------
        Problem
            There is no such photo.
        """
        if photo not in self.photos:
            raise missing("photo")
        return self.photos[photo]

    def some(self, photos: Iterable[str]) -> list[PhotoRecord]:
        """Return photos by their ids, each once; all have to exist."""
        return [self.photo(photo) for photo in dict.fromkeys(photos)]

    @property
    def labelled(self) -> list[PhotoRecord]:
        """Photos that have a class."""
        return [photo for photo in self.photos.values() if photo.label is not None]

    @property
    def unlabelled(self) -> list[PhotoRecord]:
        """Photos that have no class."""
        return [photo for photo in self.photos.values() if photo.label is None]

    def fingerprint(self) -> str:
        """Return a value that changes whenever the labelled photos or the names of their classes do.

        Examples
        --------
        >>> state = State("w", classes={"c1": "cat"})
        >>> before = state.fingerprint()
        >>> state.photos["p"] = PhotoRecord("p", "1.jpg", "c1", 8, 8, 100)
        >>> state.fingerprint() == before
        False
        """
        lines = sorted(f"{photo.id} {self.classes[photo.label]}" for photo in self.labelled if photo.label is not None)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
