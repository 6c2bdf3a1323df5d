"""Record of what was passed over in a folder: photos of unreadable types, class folders without photos, and links.

These are easy to miss: a phone writes .heic, a camera .cr2, and a model never predicts a class that had no photos.
Other files (text, spreadsheets, videos) are not mentioned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .formats import HEIC, how_to_read

# Endings of photos that patchvote does not decode, or not everywhere (`formats.endings`).
_MODERN = "heic heif hif avif jxl jp2 j2k jpf mpo"
_EDITORS = "psd xcf tga ppm pgm pnm exr hdr"
_CAMERAS = "raw dng cr2 cr3 crw nef nrw arw srf sr2 orf raf rw2 pef srw x3f 3fr fff iiq erf mrw kdc dcr mef mos rwl"
PHOTO_TYPES = frozenset(f".{ending}" for ending in f"{_MODERN} {_EDITORS} {_CAMERAS}".split())
_PHONES = frozenset(HEIC)
_RAW = frozenset(f".{ending}" for ending in _CAMERAS.split())
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

    def sentences(self, *, advice: bool = True) -> list[str]:
        """Return sentences that say what was passed over and, unless that is told elsewhere, what to do about it.

        Examples
        --------
        >>> PassedOver({".nef": 2}, "cat/IMG_1.NEF").sentences()[0]
        'passed over files: 2 with .nef (the first is cat/IMG_1.NEF): such photos cannot be read here. Convert ...
        >>> PassedOver(empty=("tulip",)).sentences()
        ['no photo was found in the folder tulip: it does not become a class.']
        """
        sentences = []
        if self.types:
            most_first = sorted(self.types.items(), key=lambda pair: -pair[1])
            how = f" {_how_to_read([ending for ending, _ in most_first])}" if advice else ""
            sentences.append(
                f"passed over files: {_some([f'{count:,} with {ending}' for ending, count in most_first])} (the first "
                f"is {self.first}): such photos cannot be read here.{how}"
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

    def advice(self) -> list[str]:
        """Return sentences that say how photos of the unreadable types can be converted.

        Examples
        --------
        >>> PassedOver({".cr2": 2}).advice()
        [".cr2: cameras write it, undeveloped. Export such photos as .jpg with darktable, RawTherapee or ...
        """
        found = sorted(self.types)
        phones, raw = [one for one in found if one in _PHONES], [one for one in found if one in _RAW]
        others = [one for one in found if one not in _PHONES | _RAW]
        sentences = []
        if phones:
            sentences.append(
                f"{_some(phones)}: iPhones write it. {how_to_read(phones[0])} `magick mogrify -format jpg FILES` "
                "(ImageMagick) or `heif-convert` (libheif) converts them, as does exporting them as JPEG. Settings, "
                "Camera, Formats, Most Compatible makes the phone write .jpg."
            )
        if raw:
            sentences.append(
                f"{_some(raw)}: cameras write it, undeveloped. Export such photos as .jpg with darktable, RawTherapee "
                "or the program of the camera's maker; `darktable-cli PHOTO PHOTO.jpg` converts one."
            )
        if others:
            sentences.append(
                f"{_some(others)}: `magick mogrify -format png FILES` (ImageMagick) converts most such photos, and so "
                "does the program that they were made with."
            )
        return sentences

    def plain(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        return {"types": dict(self.types), "first": self.first, "empty": list(self.empty), "links": list(self.links)}


def _how_to_read(endings: list[str]) -> str:
    """Return what to do about photos with these endings, and which of them an advice is about if there are several."""
    advices: dict[str, list[str]] = {}
    for ending in endings:
        advices.setdefault(how_to_read(ending), []).append(ending)
    if len(advices) == 1:
        return next(iter(advices))
    return " ".join(f"{_some(some)}: {advice}" for advice, some in advices.items())


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {len(names) - _MAX_SHOWN:,} more" if len(names) > _MAX_SHOWN else "")
