"""The page of a check: one HTML file with a small picture of every photo to look at."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from ...errors import PhotoError
from ...utils.terminal import counted
from ..report.html import (
    bullets,
    escaped,
    figure,
    isolated,
    number,
    percent,
    photos,
    prose,
    row,
    section,
    table,
    write_page,
)
from .findings import HEADINGS, Checked, Kind, Suspect

_SIDE = 224  # longest side of a picture in pixels; five fit side by side
_MAX_SHOWN = 120  # photos of a kind, and groups of photos that look alike
_MAX_IN_GROUP = 6  # photos of a group

# What each kind of photo to look at means.
_KINDS = {
    Kind.label: "Each of these photos was held out, and those that were left say with much more confidence that it is "
    "of another class. The surest come first. Some labels are right nevertheless: of photos that are hard, show two "
    "things, or look like no other of their class.",
    Kind.classes: "Copies stand in different classes: one label at least is wrong. Beside each is its copy; a copy "
    "whose label the other photos confirm is not listed itself.",
    Kind.test: "A model that has learned from these photos knows the answers to their copies in the test, so its "
    "accuracy there is too high.",
    Kind.copy: "The content of these files is that of another file of their class.",
    Kind.like_class: "Photos that look alike stand in different classes: copies that were cropped, or different things "
    "that look alike. If they show the same, one label is wrong. Beside each is the other.",
    Kind.like_test: "Copies that were cropped, photos of the same moment, or different things that look alike. Those "
    "that show the same as the test photo make the accuracy there too high.",
    Kind.outlier: "What these photos show is least like anything else in the collection: a wrong file, a scan, a "
    "screenshot, or the only photo of its kind.",
}


def write_check_page(
    path: str | Path,
    checked: Checked,
    load: Callable[[str], Image.Image],
    *,
    title: str,
    command: str,
) -> None:
    """Write the page of a check as one self-contained HTML file, atomically.

    `load` returns the upright image of a photo, given its name, and `command` writes the list of suspects.
    """
    count, total = len(checked.suspects), sum(checked.classes.values())
    body = f'<p class="kind">To look at, of {photos(total)}</p>\n<p class="big{" none" * (not count)}">{count:,}</p>\n'
    body += bullets(escaped(line[0].upper() + line[1:]) for line in checked.sentences(named=0)[1:])
    if count:
        body += (
            f"<p>Nothing was changed. <code>{escaped(command)}</code> writes a list of these photos, in which you say "
            "what is to become of each.</p>\n"
        )
    for kind, words in _KINDS.items():
        if suspects := checked.of(kind):
            shown = "".join(_card(suspect, load) for suspect in suspects[:_MAX_SHOWN])
            more = _more(len(suspects) - _MAX_SHOWN, "photos are in the list")
            body += section(counted(len(suspects), *HEADINGS[kind]), f"<p>{words}</p>\n{_grid(shown)}{more}")
    body += _alike(checked, load) + _classes(checked) + _unread(checked)
    write_page(path, title, body)


def _card(suspect: Suspect, load: Callable[[str], Image.Image]) -> str:
    """Draw a suspect, and beside a photo in several classes the other."""
    caption, other = f"<b>{isolated(suspect.label)}</b>", f"<b>{isolated(suspect.looks_like)}</b>"
    beside = ""
    if suspect.kind is Kind.label:
        caption += f", looks like {other} <em>{percent(suspect.probability or 0)}</em>"
    elif suspect.kind in (Kind.classes, Kind.like_class):
        caption += f", and {other}"
        beside = _figure(suspect.others[0], load, f"{other}<br>{isolated(suspect.others[0])}")
    signs = ["=" if suspect.exact else "≈", *["≈"] * (_MAX_IN_GROUP - 1)]
    copies = "".join(f"<br>{sign} {isolated(one)}" for sign, one in zip(signs, suspect.others, strict=False))
    return _figure(suspect.name, load, f"{caption}<br>{isolated(suspect.name)}{copies}") + beside


def _figure(photo: str, load: Callable[[str], Image.Image], caption: str) -> str:
    try:
        image = load(photo).convert("RGB")
    except PhotoError:  # it was moved meanwhile
        return f'<figure><p class="absent">not there any more</p><figcaption>{caption}</figcaption></figure>\n'
    image.thumbnail((_SIDE, _SIDE))
    return figure(image, photo, caption)


def _grid(figures: str) -> str:
    return f'<div class="photos">\n{figures}</div>\n'


def _more(count: int, what: str) -> str:
    return f"<p>{count:,} more {what}.</p>\n" if count > 0 else ""


def _alike(checked: Checked, load: Callable[[str], Image.Image]) -> str:
    if not checked.alike:
        return ""
    groups = []
    for group in checked.alike[:_MAX_SHOWN]:
        figures = "".join(_figure(one, load, isolated(one)) for one in group[:_MAX_IN_GROUP])
        groups.append(_grid(figures) + _more(len(group) - _MAX_IN_GROUP, "look like these"))
    count = sum(map(len, checked.alike))
    words = "The same photo cropped, resized or encoded again, several of the same moment, or things that look alike."
    return section(
        f"Alike within a class ({count:,} in {counted(len(checked.alike), 'group')})",
        f"<details>\n<summary>{words}</summary>\n{'<hr>'.join(groups)}"
        f"{_more(len(checked.alike) - _MAX_SHOWN, 'groups are in the JSON')}</details>\n",
    )


def _classes(checked: Checked) -> str:
    suspects = collections.Counter(suspect.label for suspect in checked.suspects)
    rows = [
        f'<tr><th scope="row">{isolated(label)}{" <em>few</em>" * (label in checked.few)}</th>{number(count)}'
        f"{number(checked.different.get(label, 0))}{number(suspects[label])}</tr>\n"
        for label, count in sorted(checked.classes.items())
    ]
    return section("Classes", table("class =photos =different =suspect", rows, "sortable"))


def _unread(checked: Checked) -> str:
    body = ""
    if checked.skipped:
        rows = [row(error.name, f"<td>{escaped(error.reason)}</td>") for error in checked.skipped]
        body += table("photo reason", rows[:_MAX_SHOWN]) + _more(len(rows) - _MAX_SHOWN, "cannot be read")
    if passed_over := checked.passed_over.sentences():
        body += bullets(map(prose, passed_over))
    return section("Cannot be read", body) if body else ""
