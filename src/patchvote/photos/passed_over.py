"""Record of what was passed over in a folder: photos of unreadable types, class folders without photos, and links.

These are easy to miss: a phone writes .heic, a camera .cr2, and a model never predicts a class that had no photos.
Other files (text, spreadsheets, videos) are not mentioned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

# Endings of photos that patchvote does not decode.
_MODERN = "heic heif hif avif jxl jp2 j2k jpf mpo"
_EDITORS = "psd xcf tga ppm pgm pnm exr hdr"
_CAMERAS = "raw dng cr2 cr3 crw nef nrw arw srf sr2 orf raf rw2 pef srw x3f 3fr fff iiq erf mrw kdc dcr mef mos rwl"
PHOTO_TYPES = frozenset(f".{ending}" for ending in f"{_MODERN} {_EDITORS} {_CAMERAS}".split())
_MAX_SHOWN = 5  # endings, folders or links that a sentence lists


@dataclasses.dataclass(frozen=True)
class PassedOver:
    """Record of what was passed over.

    Parameters
    ----------
    types : mapping of str to int
        Number of photos of unreadable types, per ending.
    first : str
        Name of the first photo of an unreadable type.
    empty : tuple of str
        Class folders without a readable photo.
    links : tuple of str
        Links to folders whose photos were found under another name.
    """

    types: Mapping[str, int] = dataclasses.field(default_factory=dict)
    first: str = ""
    empty: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    def __add__(self, other: PassedOver) -> PassedOver:
        types = {
            ending: self.types.get(ending, 0) + other.types.get(ending, 0) for ending in [*self.types, *other.types]
        }
        empty, links = (tuple(dict.fromkeys(names)) for names in (self.empty + other.empty, self.links + other.links))
        return PassedOver(types, self.first or other.first, empty, links)

    def without_folders(self) -> PassedOver:
        """Return the record without empty class folders, for uses where classes do not matter."""
        return dataclasses.replace(self, empty=())

    def sentences(self) -> list[str]:
        """Return sentences that say what was passed over, and what to do about it.

        Examples
        --------
        >>> PassedOver({".heic": 2}, "cat/IMG_1.HEIC").sentences()[0]
        'passed over files: 2 with .heic (the first is cat/IMG_1.HEIC): such photos cannot be read. Convert them ...
        >>> PassedOver(empty=("tulip",)).sentences()
        ['no photo was found in the folder tulip: it does not become a class.']
        """
        sentences = []
        if self.types:
            most_first = sorted(self.types.items(), key=lambda pair: -pair[1])
            sentences.append(
                f"passed over files: {_some([f'{count:,} with {ending}' for ending, count in most_first])} (the first "
                f"is {self.first}): such photos cannot be read. Convert them to .jpg or .png."
            )
        if self.empty:
            several = len(self.empty) > 1
            sentences.append(
                f"no photo was found in the folder{'s' * several} {_some(list(self.empty))}: "
                + ("they do not become classes." if several else "it does not become a class.")
            )
        if self.links:
            several = len(self.links) > 1
            sentences.append(
                f"passed over the link{'s' * several} {_some(list(self.links))}: "
                + ("they lead to folders that were" if several else "it leads to a folder that was")
                + " searched already."
            )
        return sentences

    def plain(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        return {"types": dict(self.types), "first": self.first, "empty": list(self.empty), "links": list(self.links)}


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {len(names) - _MAX_SHOWN:,} more" if len(names) > _MAX_SHOWN else "")
