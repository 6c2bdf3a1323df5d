"""What a folder holds besides photos that can be read: photos of other types, class folders without photos, and links.

All are easy to miss: a phone writes .heic, a camera .cr2, and a class that is not there is never answered. Files that
are no photos at all (text, spreadsheets, videos) are not mentioned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

# Endings of files that people take for photos, but that are not decoded here.
_MODERN = "heic heif hif avif jxl jp2 j2k jpf mpo"
_EDITORS = "psd xcf tga ppm pgm pnm exr hdr"
_CAMERAS = "raw dng cr2 cr3 crw nef nrw arw srf sr2 orf raf rw2 pef srw x3f 3fr fff iiq erf mrw kdc dcr mef mos rwl"
PHOTO_TYPES = frozenset(f".{ending}" for ending in f"{_MODERN} {_EDITORS} {_CAMERAS}".split())
_NAMED = 5  # endings and folders that are named


@dataclasses.dataclass(frozen=True)
class PassedOver:
    """What was passed over.

    Parameters
    ----------
    types : mapping of str to int
        Files per ending, of photos whose type cannot be read.
    first : str
        Name of the first of them.
    empty : tuple of str
        Class folders in which there is no photo that can be read.
    links : tuple of str
        Links to folders whose photos were found by another name.
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
        """Return what was passed over where classes do not matter."""
        return dataclasses.replace(self, empty=())

    def sentences(self) -> list[str]:
        """Say what was passed over, and what can be done.

        Examples
        --------
        >>> PassedOver({".heic": 2}, "cat/IMG_1.HEIC").sentences()[0]
        'passed over files: 2 with .heic (the first is cat/IMG_1.HEIC): such photos cannot be read. Convert them ...
        >>> PassedOver(empty=("tulip",)).sentences()
        ['no photo was found in the folder tulip: it does not become a class.']
        """
        said = []
        if self.types:
            often = sorted(self.types.items(), key=lambda pair: -pair[1])
            said.append(
                f"passed over files: {_some([f'{count:,} with {ending}' for ending, count in often])} (the first is "
                f"{self.first}): such photos cannot be read. Convert them to .jpg or .png."
            )
        if self.empty:
            several = len(self.empty) > 1
            said.append(
                f"no photo was found in the folder{'s' * several} {_some(list(self.empty))}: "
                + ("they do not become classes." if several else "it does not become a class.")
            )
        if self.links:
            several = len(self.links) > 1
            said.append(
                f"passed over the link{'s' * several} {_some(list(self.links))}: "
                + ("they lead to folders that were" if several else "it leads to a folder that was")
                + " looked at already."
            )
        return said

    def plain(self) -> dict[str, Any]:
        """Return the same as plain values, for JSON."""
        return {"types": dict(self.types), "first": self.first, "empty": list(self.empty), "links": list(self.links)}


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
