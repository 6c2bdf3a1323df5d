"""The page of a check: one HTML file with a small picture of every photo to look at."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from ...errors import PhotoError
from ...utils.terminal import counted
from ..report.card import FEW
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
from .findings import Checked, Kind, Suspect

_SIDE = 224  # longest side of a picture in pixels; five fit side by side
_MAX_SHOWN = 120  # photos of a kind, and groups of photos that look alike
_MAX_IN_GROUP = 6  # photos of a group

# Heading and explanation of each kind of photo to look at.
_KINDS = {
    Kind.label: (
        "Probably mislabelled",
        "Each of these photos was held out, and those that were left say with much more confidence that it is of "
        "another class. The surest come first. Some labels are right nevertheless: of photos that are hard, show two "
        "things, or look like no other of their class.",
    ),
    Kind.classes: (
        "The same photo in several classes",
        "Copies stand in different classes: one label at least is wrong. Beside each is its copy; a copy whose label "
        "the other photos confirm is not listed itself.",
    ),
    Kind.test: (
        "Also among the test photos",
        "A model that has learned from these photos knows the answers to their copies in the test, so its accuracy "
        "there is too high.",
    ),
    Kind.copy: ("The same file twice", "The content of these files is that of another file of their class."),
    Kind.like_class: (
        "Like a photo of another class",
        "Photos that look alike stand in different classes: copies that were cropped, or different things that look "
        "alike. If they show the same, one label is wrong. Beside each is the other.",
    ),
    Kind.like_test: (
        "Like a test photo",
        "Copies that were cropped, photos of the same moment, or different things that look alike. Those that show the "
        "same as the test photo make the accuracy there too high.",
    ),
    Kind.outlier: (
        "Unlike all others",
        "What these photos show is least like anything else in the collection: a wrong file, a scan, a screenshot, or "
        "the only photo of its kind.",
    ),
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
    body = _headline(checked, command)
    for kind, (heading, words) in _KINDS.items():
        if suspects := checked.of(kind):
            shown = "".join(_card(suspect, load) for suspect in suspects[:_MAX_SHOWN])
            more = _more(len(suspects) - _MAX_SHOWN, "photos are in the list")
            body += section(f"{heading} ({len(suspects):,})", f"<p>{words}</p>\n{_grid(shown)}{more}")
    gaps = "".join(f"<p>{escaped(line)}</p>\n" for line in checked.gaps())
    body += _alike(checked, load) + _classes(checked) + (section("Not checked", gaps) if gaps else "")
    write_page(path, title, body + _unread(checked))


def _headline(checked: Checked, command: str) -> str:
    count, total = len(checked.suspects), sum(checked.classes.values())
    found = f"{percent(count / max(total, 1), 1)} of {photos(total)}" if count else f"of {photos(total)}"
    verdict = checked.verdict() or "the photos could not be compared."
    body = f"<p>{escaped(verdict[0].upper() + verdict[1:])}</p>\n"
    if count:
        headings = {kind: heading[0].lower() + heading[1:] for kind, (heading, _) in _KINDS.items()}
        lines = [
            f"{photos(len(of_kind))}: {heading}"
            for kind, heading in (headings | {Kind.unreadable: "cannot be read"}).items()
            if (of_kind := checked.of(kind))
        ]
        body = (
            f"{bullets(lines)}<p>Nothing was changed. <code>{escaped(command)}</code> writes a list of these photos, "
            "in which you say what is to become of each.</p>\n"
        )
    return (
        f'<p class="kind">To look at, {found} in {counted(len(checked.classes), "class", "classes")}</p>\n'
        f'<p class="big{"" if count else " none"}">{count:,}</p>\n{body}'
    )


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
    words = (
        "Copies, or nearly: the same photo cropped, resized or encoded again, several of the same moment, or of things "
        "that look alike on white. They do no harm in training, but teach little more than one photo each; patchvote "
        "holds them out together."
    )
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
    body = table("class =photos =different =suspect", rows, "sortable")
    if checked.few:
        body = f"<p>Of classes with fewer than {FEW} different photos, a few more would help most.</p>\n{body}"
    if empty := checked.passed_over.empty:
        sentence = f"No photo was found in {counted(len(empty), 'folder')}: {', '.join(empty)}."
        body += f"<p>{prose(sentence)}</p>\n"
    return section("Classes", body)


def _unread(checked: Checked) -> str:
    body = ""
    if checked.skipped:
        rows = [row(error.name, f"<td>{escaped(error.reason)}</td>") for error in checked.skipped]
        body += table("photo reason", rows[:_MAX_SHOWN]) + _more(len(rows) - _MAX_SHOWN, "cannot be read")
    if types := checked.passed_over.types:
        counts = ", ".join(f"{count:,} with {isolated(ending)}" for ending, count in types.items())
        body += f"<p>Left out: {counts}. patchvote does not read these types.</p>\n"
        body += bullets(map(prose, checked.passed_over.advice()))
    return section("Cannot be read", body) if body else ""
