"""The page of a check: one HTML file with a small picture of every photo to look at."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from PIL import Image

from ...errors import PhotoError
from ...utils.terminal import counted
from ..report.card import FEW
from ..report.html import escaped, figure, isolated, number, percent, photos, prose, section, table, write_page
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
    origin: str = "",
) -> None:
    """Write the page of a check as one self-contained HTML file, atomically.

    `load` returns the upright image of a photo, given its name, and `command` writes the list of suspects; `origin` as
    for `write_page`.
    """
    body = _headline(checked, command)
    for kind, (heading, words) in _KINDS.items():
        body += _suspects(checked.of(kind), load, heading, words)
    body += _alike(checked, load) + _classes(checked) + _gaps(checked) + _unread(checked)
    write_page(path, title, body, origin)


def _headline(checked: Checked, command: str) -> str:
    count, total = len(checked.suspects), sum(checked.classes.values())
    found = f"{percent(count / max(total, 1), 1)} of {photos(total)}" if count else f"of {photos(total)}"
    lines = [
        f"<li>{counted(len(of_kind), 'photo')}: {heading[0].lower()}{heading[1:]}</li>\n"
        for kind, (heading, _) in _KINDS.items()
        if (of_kind := checked.of(kind))
    ]
    if unreadable := checked.of(Kind.unreadable):
        lines.append(f"<li>{counted(len(unreadable), 'photo')}: cannot be read</li>\n")
    advice = (
        f"<p>Nothing was changed. <code>{escaped(command)}</code> writes a list of these photos, in which you say what "
        "is to become of each.</p>\n"
    )
    return (
        f'<p class="kind">To look at, {found} in {counted(len(checked.classes), "class", "classes")}</p>\n'
        f'<p class="big{"" if count else " none"}">{count:,}</p>\n'
        + (f"<ul>\n{''.join(lines)}</ul>\n{advice}" if count else f"<p>{_none(checked)}</p>\n")
    )


def _none(checked: Checked) -> str:
    sentence = checked.verdict() or "the photos could not be compared."
    return escaped(sentence[0].upper() + sentence[1:])


def _suspects(suspects: Sequence[Suspect], load: Callable[[str], Image.Image], heading: str, words: str) -> str:
    if not suspects:
        return ""
    cards = []
    for suspect in suspects[:_MAX_SHOWN]:
        cards.append(_card(suspect, load))
        if suspect.kind in (Kind.classes, Kind.like_class):
            other = suspect.others[0]
            cards.append(_figure(other, load, f"<b>{isolated(suspect.looks_like)}</b><br>{isolated(other)}"))
    more = _more(len(suspects) - _MAX_SHOWN, "photos are in the list")
    return section(f"{heading} ({len(suspects):,})", f"<p>{words}</p>\n{_grid(cards)}{more}")


def _card(suspect: Suspect, load: Callable[[str], Image.Image]) -> str:
    label, other = isolated(suspect.label), isolated(suspect.looks_like)
    lines = {
        Kind.label: f"<b>{label}</b>, looks like <b>{other}</b> <em>{percent(suspect.probability or 0)}</em>",
        Kind.classes: f"<b>{label}</b>, and <b>{other}</b>",
        Kind.like_class: f"<b>{label}</b>, and <b>{other}</b>",
    }
    caption = lines.get(suspect.kind, f"<b>{label}</b>")
    signs = ["=" if suspect.exact else "≈", *["≈"] * (_MAX_IN_GROUP - 1)]
    copies = "".join(f"<br>{sign} {isolated(one)}" for sign, one in zip(signs, suspect.others, strict=False))
    return _figure(suspect.name, load, f"{caption}<br>{isolated(suspect.name)}{copies}")


def _figure(photo: str, load: Callable[[str], Image.Image], caption: str) -> str:
    try:
        image = load(photo).convert("RGB")
    except PhotoError:  # it was moved meanwhile
        return f'<figure><p class="absent">not there any more</p><figcaption>{caption}</figcaption></figure>\n'
    image.thumbnail((_SIDE, _SIDE))
    return figure(image, photo, caption)


def _grid(figures: Iterable[str]) -> str:
    return f'<div class="photos">\n{"".join(figures)}</div>\n'


def _more(count: int, what: str) -> str:
    return f"<p>{count:,} more {what}.</p>\n" if count > 0 else ""


def _alike(checked: Checked, load: Callable[[str], Image.Image]) -> str:
    if not checked.alike:
        return ""
    groups = []
    for group in checked.alike[:_MAX_SHOWN]:
        figures = [_figure(one, load, isolated(one)) for one in group[:_MAX_IN_GROUP]]
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
    words = f"<p>Of classes with fewer than {FEW} different photos, a few more would help most.</p>\n"
    more = f"<p>{prose(sentence)}</p>\n" if (sentence := _empty(checked)) else ""
    counts = table("class =photos =different =suspect", rows, "sortable")
    return section("Classes", words * bool(checked.few) + counts + more)


def _gaps(checked: Checked) -> str:
    lines = "".join(f"<p>{escaped(line)}</p>\n" for line in checked.gaps())
    return section("Not checked", lines) if lines else ""


def _empty(checked: Checked) -> str:
    empty = checked.passed_over.empty
    return f"No photo was found in {counted(len(empty), 'folder')}: {', '.join(empty)}." if empty else ""


def _unread(checked: Checked) -> str:
    body = ""
    if checked.skipped:
        rows = [
            f'<tr><th scope="row">{isolated(e.name)}</th><td>{escaped(e.reason)}</td></tr>\n' for e in checked.skipped
        ]
        body += table("photo reason", rows[:_MAX_SHOWN]) + _more(len(rows) - _MAX_SHOWN, "cannot be read")
    if types := checked.passed_over.types:
        counts = ", ".join(f"{count:,} with {isolated(ending)}" for ending, count in types.items())
        advice = "".join(f"<li>{prose(sentence)}</li>\n" for sentence in checked.passed_over.advice())
        body += f"<p>Left out: {counts}. patchvote does not read these types.</p>\n<ul>\n{advice}</ul>\n"
    return section("Cannot be read", body) if body else ""
