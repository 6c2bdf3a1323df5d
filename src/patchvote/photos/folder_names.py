r"""Names of folders for classes, whatever the classes are called.

The name of a class may come from a model file of a stranger, and may be anything: ``../x``, ``/etc``, a name with NUL,
one that a system reserves, or one longer than any system allows. The name of its folder is one component of a path on
every system, differs from the folders of all other classes even where case does not count, and is the name of the class
itself where that is possible.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping

from ..utils.terminal import printable

_MAX_BYTES = 120  # of a name; systems allow 255, and a number and the name of a temporary file have to fit in as well
_DIGITS = 8  # of the digest that stands for the rest of a long name
# Characters that some system does not allow in a name, or that would read as an escape.
_UNSAFE = re.compile(r'[/\\:*?"<>|]|%(?=[0-9A-Fa-f]{2})')
# At the beginning, a dot hides a folder and a tilde or dash is read by shells and programs; Windows drops a dot or a
# space at the end.
_UNSAFE_ENDS = re.compile(r"^[.~\-\s]|[.\s]$")
_DEVICES = re.compile(r"^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(?:\.|$)", re.IGNORECASE)


def folder_name(label: str) -> str:
    r"""Return a name for the folder of a class: the class itself, with unsafe characters as percent and hexadecimals.

    Examples
    --------
    >>> folder_name("Straße 桜"), folder_name("../x"), folder_name("a\0b"), folder_name("CON")
    ('Straße 桜', '%2E.%2Fx', 'a%00b', '%43ON')
    """
    name = _UNSAFE.sub(_escape, label)
    name = "".join(character if printable(character) == character else _escape(character) for character in name)
    name = _UNSAFE_ENDS.sub(_escape, name)
    name = _DEVICES.sub(lambda match: _escape(match[0][0]) + match[0][1:], name)
    encoded = name.encode()
    if len(encoded) > _MAX_BYTES:
        digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        name = f"{encoded[: _MAX_BYTES - _DIGITS - 1].decode(errors='ignore')}~{digest}"
    return name or "%"


def kept_name(stem: str) -> str:
    """Return a name for a file that is called like a photo of this machine: the same, unless long or unprintable."""
    return stem if printable(stem) == stem and len(stem.encode()) <= _MAX_BYTES else folder_name(stem)


def folder_names(labels: Iterable[str], reserved: Iterable[str] = ()) -> Mapping[str, str]:
    """Return a name for the folder of each class: none is one of those reserved, and no two are the same.

    Examples
    --------
    >>> folder_names(["cat", "Cat", "None of these"], ["none of these"])
    {'cat': 'cat', 'Cat': 'Cat (2)', 'None of these': 'None of these (2)'}
    """
    classes = list(dict.fromkeys(labels))
    return dict(zip(classes, file_names(map(folder_name, classes), reserved), strict=True))


def file_names(names: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    """Return names with numbers, so that no two are the same even where case does not count.

    Examples
    --------
    >>> file_names(["1-evidence", "2-evidence", "1-evidence", "1-Evidence"])
    ['1-evidence', '2-evidence', '1-evidence (2)', '1-Evidence (3)']
    """
    taken = {same_name(name) for name in reserved}
    last: dict[str, int] = {}  # the last number that a name got, so that no number is tried twice
    different = []
    for first in names:
        name, number = first, last.get(same_name(first), 1)
        while same_name(name) in taken:
            number += 1
            name = f"{first} ({number})"
        last[same_name(first)] = number
        taken.add(same_name(name))
        different.append(name)
    return different


def _escape(unsafe: str | re.Match[str]) -> str:
    text = unsafe if isinstance(unsafe, str) else unsafe[0]
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def same_name(name: str) -> str:
    """Return a key that is equal for names that some file system holds equal."""
    return unicodedata.normalize("NFKC", name).casefold()
