"""Readers of image sets, each in its published layout.

A reader gives every photo the name and class that results and split lists use, whatever the folders of the copy are
called. For a folder that is not the image set, the error message shows the expected layout.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from patchvote.errors import PatchvoteError, PhotoError
from patchvote.photos.find import Photo, find_photos
from patchvote.utils.terminal import nearest

Lists = list[tuple[list[str], list[str]]]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Photos of an image set, and the lists of training and test photos that were published with it."""

    photos: list[Photo]  # where there are domains, a name begins with its domain
    lists: Lists = dataclasses.field(default_factory=list)


def read_dataset(layout: str, root: Path) -> Dataset:
    """Read the image set at `root`; where it is another or incomplete, the error shows the expected layout."""
    if layout not in LAYOUTS:
        raise PatchvoteError(
            f"there is no layout {layout!r} of an image set.{nearest(layout, LAYOUTS)} There are: {', '.join(LAYOUTS)}."
        )
    read, expected = LAYOUTS[layout]
    try:
        if not root.is_dir():
            raise PatchvoteError("there is no such folder.")
        return read(root)
    except (PatchvoteError, PhotoError) as error:
        raise PatchvoteError(f"{root} does not have the layout {layout!r}: {error} Expected: {expected}.") from None


# --- photos of the user ----------------------------------------------------------------------------------------------


def _any_classes(root: Path) -> Dataset:
    photos = [photo for photo in find_photos(root) if photo.label is not None]
    if len({photo.label for photo in photos}) < 2:
        raise PatchvoteError("it needs folders of at least two classes with photos in them.")
    return Dataset(photos)


def _any_domains(root: Path) -> Dataset:
    photos = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        labelled = [photo for photo in find_photos(folder) if photo.label is not None]
        photos += [dataclasses.replace(photo, name=f"{folder.name}/{photo.name}") for photo in labelled]
    if len({photo.name.partition("/")[0] for photo in photos}) < 2:
        raise PatchvoteError("it needs folders of at least two domains, each with one folder per class.")
    return Dataset(photos)


# --- one folder per class -----------------------------------------------------------------------------------------

# Folders of classes in published copies, besides the name of the class itself.
_SCENES = {
    "bedroom": ("00",),
    "suburb": ("CALsuburb", "01"),
    "industrial": ("02",),
    "kitchen": ("03",),
    "livingroom": ("04",),
    "coast": ("MITcoast", "05"),
    "forest": ("MITforest", "06"),
    "highway": ("MIThighway", "07"),
    "insidecity": ("MITinsidecity", "08"),
    "mountain": ("MITmountain", "09"),
    "opencountry": ("MITopencountry", "10"),
    "street": ("MITstreet", "11"),
    "tallbuilding": ("MITtallbuilding", "12"),
    "office": ("PARoffice", "13"),
    "store": ("14",),
}
_SPORTS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("RockClimbing", "badminton", "bocce", "croquet", "polo", "rowing", "sailing", "snowboarding"), ()
)
_OBJECTS = {
    "backpack": ("back_pack", "003.backpack"),
    "bike": ("touring-bike", "145.touring-bike"),
    "calculator": ("027.calculator",),
    "headphones": ("headphones-101", "101.head-phones", "head-phones"),
    "keyboard": ("computer-keyboard", "045.computer-keyboard"),
    "laptop": ("laptop_computer", "laptop-101", "127.laptop-101"),
    "monitor": ("computer-monitor", "046.computer-monitor"),
    "mouse": ("computer-mouse", "047.computer-mouse"),
    "mug": ("coffee-mug", "041.coffee-mug"),
    "projector": ("video-projector", "238.video-projector"),
}
_DOMAINS: dict[str, tuple[str, ...]] = {"amazon": (), "caltech": ("caltech10", "caltech256"), "dslr": (), "webcam": ()}


def _scene15(root: Path) -> Dataset:
    return Dataset(_classes(root, _SCENES))


def _sports8(root: Path) -> Dataset:
    for inner in (root / "event_dataset" / "event_img", root / "event_img"):
        if inner.is_dir():
            root = inner
    return Dataset(_classes(root, _SPORTS))


def _office_caltech(root: Path) -> Dataset:
    photos = []
    for domain, folder in _folders(root, _DOMAINS, "domain").items():
        inner = folder / "images"  # the layout of Office itself
        try:
            domain_photos = _classes(inner if inner.is_dir() else folder, _OBJECTS)
        except PatchvoteError as error:
            raise PatchvoteError(f"in {folder.name}, {error}") from None
        photos += [dataclasses.replace(photo, name=f"{domain}/{photo.name}") for photo in domain_photos]
    return Dataset(photos)


def _classes(root: Path, known: dict[str, tuple[str, ...]]) -> list[Photo]:
    photos = []
    for label, folder in sorted(_folders(root, known, "class").items()):
        try:
            class_photos = find_photos(folder)
        except PhotoError:
            raise PatchvoteError(f"the folder {folder.name} has no photos.") from None
        photos += [Photo(f"{label}/{photo.name}", photo.source, label) for photo in class_photos]
    return photos


def _folders(root: Path, known: dict[str, tuple[str, ...]], what: str) -> dict[str, Path]:
    """Find the folder of each class or domain, under any of its published names."""
    present = {path.name.lower(): path for path in sorted(root.iterdir()) if path.is_dir()}
    folders, missing = {}, []
    for name, aliases in known.items():
        for alias in (name, *aliases):
            if alias.lower() in present:
                folders[name] = present[alias.lower()]
                break
        else:
            missing.append(name)
    if missing:
        has = ", ".join(sorted(path.name for path in present.values())[:8]) or "no folders"
        raise PatchvoteError(f"no folder for the {what} {', '.join(missing)}. It has: {has}.")
    return folders


# --- published lists ----------------------------------------------------------------------------------------------


def _mit67(root: Path, *, part: bool = False) -> Dataset:
    images = root / "Images" if (root / "Images").is_dir() else root
    return _listed(images, [tuple(_list(root, name) for name in ("TrainImages.txt", "TestImages.txt"))], part)


def _sun397(root: Path, *, part: bool = False) -> Dataset:
    images = root / "SUN397" if (root / "SUN397").is_dir() else root
    lists: list[tuple[list[str], ...]] = []
    for number in range(1, 11):
        try:
            both = [_list(root, f"{use}_{number:02d}.txt") for use in ("Training", "Testing")]
        except PatchvoteError:
            if not lists:
                raise
            break  # some copies have only the first partitions; `make_split` raises an error when more are requested
        lists.append(tuple([name.strip("/") for name in names] for names in both))
    return _listed(images, lists, part)


def _listed(images: Path, lists: Sequence[tuple[list[str], ...]], part: bool) -> Dataset:
    """Return the photos that lists name, each with the folder that it is in as its class.

    Of a `part` of an image set, lists are reduced to the photos that are there.
    """
    names = sorted({name for both in lists for listed in both for name in listed})
    present = {name for name in names if (images / name).is_file()}
    if not part and len(present) < len(names):
        missing = next(name for name in names if name not in present)
        raise PatchvoteError(
            f"{len(names) - len(present):,} of {len(names):,} photos that its lists name are missing, such as "
            f"{missing}."
        )
    photos = [Photo(name, images / name, name.rpartition("/")[0]) for name in sorted(present)]
    if len({photo.label for photo in photos}) < 2:
        raise PatchvoteError("it needs photos of at least two classes of its lists.")
    kept = [tuple([name for name in listed if name in present] for listed in both) for both in lists]
    return Dataset(photos, [(train, test) for train, test in kept])


def _list(root: Path, name: str) -> list[str]:
    """Read a published list, which may be beside the photos or in a folder of lists, and may have a prefix."""
    folders = [root, root / "Partitions", root / "splits", root.parent, root.parent / "splits"]
    pattern = re.compile(rf"(\w+_)?{re.escape(name)}")
    for folder in folders:
        if folder.is_dir():
            for path in sorted(folder.glob(f"*{name}")):
                if pattern.fullmatch(path.name):
                    lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
                    return [line for line in lines if line]
    raise PatchvoteError(f"the list {name} is missing.")


LAYOUTS: dict[str, tuple[Callable[[Path], Dataset], str]] = {
    "folders": (_any_classes, "DIR/<class>/*.jpg"),
    "domains": (_any_domains, "DIR/<domain>/<class>/*.jpg"),
    "scene15": (_scene15, "DIR/<class>/*.jpg, 15 classes: bedroom, suburb (or CALsuburb, or 01) and so on"),
    "sports8": (_sports8, f"DIR/<class>/*.jpg, 8 classes: {', '.join(_SPORTS)}"),
    "mit67": (_mit67, "DIR/Images/<class>/*.jpg, 67 classes; DIR/TrainImages.txt, DIR/TestImages.txt"),
    "sun397": (_sun397, "DIR/SUN397/a/abbey/*.jpg and so on; DIR/Partitions/Training_01.txt, Testing_01.txt to 10"),
    "mit67-part": (functools.partial(_mit67, part=True), "DIR/<class>/*.jpg, some classes of mit67, and its lists"),
    "sun397-part": (
        functools.partial(_sun397, part=True),
        "DIR/<letter>/<class>/*.jpg, some classes of sun397, and its lists",
    ),
    "office-caltech": (_office_caltech, f"DIR/<domain>/<class>/*.jpg, domains {', '.join(_DOMAINS)}, 10 classes each"),
}
