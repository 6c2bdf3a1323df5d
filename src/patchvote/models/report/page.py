"""The report: one HTML file that tells how good a model is, where it errs, and how it was made.

The file stands alone: photos are inside it, and a policy in its head keeps the browser from loading anything else and
from running any script but the one below. Everything that comes from data goes through `_text` or `_name`.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...utils.files import write_file
from ...utils.marks import GENERATOR
from ..evidence import Evidence
from ..model import Model
from ..scores import Scores, interval
from .card import accuracy_of, accuracy_sentence, limits
from .picture import glow

_MOST_WITH_NUMBERS = 30  # classes up to which the cells of the confusion matrix have room for numbers
_MOST_IN_MATRIX = 150  # classes up to which anybody could read it
_SIDE = 320  # of a photo, in pixels

# Lets people sort a table by a column: upwards, and downwards when they press again.
_SCRIPT = """
for (const head of document.querySelectorAll(".sortable th[scope=col]")) {
  const button = document.createElement("button"), body = head.closest("table").tBodies[0];
  button.append(...head.childNodes);
  head.append(button);
  button.onclick = () => {
    const way = head.ariaSort === "ascending" ? -1 : 1;
    const key = row => row.cells[head.cellIndex].textContent.replaceAll(",", "");
    const compare = (a, b) => way * key(a).localeCompare(key(b), undefined, {numeric: true});
    body.append(...[...body.rows].sort(compare));
    for (const other of head.parentNode.cells) other.ariaSort = null;
    head.ariaSort = way > 0 ? "ascending" : "descending";
  };
}
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Mistake:
    """A photo that was named wrongly, and its evidence."""

    name: str
    expected: str
    predicted: str
    probability: float  # of the predicted class
    photo: Image.Image  # upright and small
    speaks_for_predicted: Image.Image  # the same photo, lit where it speaks for the predicted class
    speaks_for_expected: Image.Image


def mistakes_of(scores: Scores | None, shown: Iterable[tuple[Evidence, Image.Image]]) -> list[Mistake]:
    """Return mistakes as the report draws them, from their evidence and photos."""
    mistakes = []
    for evidence, image in shown:
        if scores is None:
            break
        index = scores.names.index(evidence.name)
        expected, predicted = (scores.classes[number[index]] for number in (scores.expected, scores.predicted))
        small = image.convert("RGB")
        small.thumbnail((_SIDE, _SIDE))
        lit = glow(evidence, small, predicted), glow(evidence, small, expected)
        mistakes.append(Mistake(evidence.name, expected, predicted, float(scores.sure[index]), small, *lit))
    return mistakes


def write_report(
    path: str | Path, model: Model, scores: Scores | None, mistakes: Sequence[Mistake] = (), *, title: str, kind: str
) -> None:
    """Write a report as one HTML file that needs nothing else, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    model : Model
        What the report is about.
    scores : Scores or None
        What was measured; None where there were too few photos.
    mistakes : sequence of Mistake
        Photos to show, the surest first.
    title : str
        Of the report.
    kind : str
        What was measured, such as "on photos held out of the training".

    Raises
    ------
    PatchvoteError
        The file cannot be written.
    """
    before, after = accuracy_of(model.about), _making(model) + _limits(model)
    if scores is None or not len(scores):
        body = f'<p class="big none">Not measured</p>\n<p class="lead">{_prose(before)}</p>\n'
    else:
        body = _headline(scores, kind) + _classes(scores) + _confusion(scores) + _certainty(scores)
    page = _page(title, body + _mistakes(mistakes) + after)
    # Names that are no proper text, as odd file systems give, lose the letters that nobody could show.
    write_file(Path(path), [page.encode("utf-8", "replace")])


def _page(title: str, body: str) -> str:
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{GENERATOR}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{_text(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{_text(title)}</h1>\n{body}</main>\n"
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _headline(scores: Scores, kind: str) -> str:
    told: Any = scores.summary()
    low, high = scores.interval
    points, most = 50 * (high - low), np.bincount(scores.expected).max()
    return (
        f'<p class="kind">Named rightly, {_text(kind.rstrip("."))}</p>\n'
        f'<p class="big">{_share(scores.accuracy, 1)}</p>\n'
        f'<div class="scale" style="{_places(scores.accuracy, low, high)}" aria-hidden="true"><i></i><b></b></div>\n'
        f'<p class="ends" aria-hidden="true"><span>0</span><span>95&nbsp;% interval: {100 * low:.1f} to '
        f"{_share(high, 1)}</span><span>100&nbsp;%</span></p>\n"
        f'<p class="lead">{_prose(accuracy_sentence(told, "photos"))}</p>\n'
        f"<p>From {_photos(len(scores))}, it is known to about {points:.{int(points < 10)}f} points either way; four "
        f"times as many would halve that. Always giving the most frequent of the {len(scores.classes):,} names would "
        f"be right for {_share(most / len(scores))}.</p>\n"
    )


def _classes(scores: Scores) -> str:
    rows = []
    for own in sorted(scores.by_class(), key=lambda own: (math.isnan(own.found), own.found)):
        low, high = interval(round(own.found * own.images), own.images) if own.images else (0, 0)
        shares = _bar(own.found, low, high) + _bar(own.right)
        rows.append(f'<tr><th scope="row">{_name(own.label)}</th>{_number(own.images)}{shares}</tr>\n')
    said = (
        "<b>Found</b> is the share of the photos of a class that got its name; the thin line is its 95&nbsp;% interval."
        " <b>Right</b> is the share of the photos with that name that are of the class. The hardest classes come first."
    )
    return _section("Class by class", f"<p>{said}</p>\n{_table('class =photos ^found right', rows, 'sortable')}")


def _confusion(scores: Scores) -> str:
    table, classes = scores.confusion, scores.classes
    asked, wrong = table.sum(axis=1), table - np.diag(table.diagonal())
    often = [divmod(int(cell), len(classes)) for cell in np.argsort(-wrong, axis=None, kind="stable")[:6]]
    said = "".join(
        f"<li>{_name(classes[i])} named {_name(classes[j])}: {wrong[i, j]:,} of {_photos(asked[i])}</li>\n"
        for i, j in often
        if wrong[i, j]
    )
    body = f"<p>What happens most often:</p>\n<ul>\n{said}</ul>\n" if said else "<p>No photo was named wrongly.</p>\n"
    if len(classes) > _MOST_IN_MATRIX:
        return _section("What is taken for what", f"{body}<p>There are too many classes to draw all pairs.</p>\n")
    heads = "".join(f'<th scope="col" title="{_text(label)}"><span>{_name(label)}</span></th>' for label in classes)
    rows = "".join(
        f'<tr><th scope="row" title="{_text(label)}">{_name(label)}</th>'
        f"{''.join(_cell(int(table[i, j]), int(asked[i]), classes, i, j) for j in range(len(classes)))}</tr>\n"
        for i, label in enumerate(classes)
    )
    return _section(
        "What is taken for what",
        f"{body}<p>A row is what photos are, a column is what they were named. Names are "
        '<span class="right key">right</span> or <span class="wrong key">wrong</span>; the stronger the colour, the '
        'larger their share of the row.</p>\n<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Confusion matrix">\n<table class="matrix" style="--n:{len(classes)}"><thead>\n'
        f'<tr><td class="corner">is &darr; named &rarr;</td>{heads}</tr>\n</thead><tbody>\n{rows}</tbody></table>\n'
        "</div>\n",
    )


def _cell(count: int, asked: int, classes: Sequence[str], row: int, column: int) -> str:
    if not count:
        return "<td></td>"
    share = count / asked
    depth = share if row == column else math.sqrt(share)  # the root, so that a single mistake is seen
    kind = "right" if row == column else "wrong"
    said = f"{classes[row]} named {classes[column]}: {count:,} of {asked:,} ({100 * share:.0f} %)"
    number = count if len(classes) <= _MOST_WITH_NUMBERS else ""
    return f'<td class="{kind}" style="--s:{depth:.2f}" title="{_text(said)}">{number}</td>'


def _certainty(scores: Scores) -> str:
    sure = float(scores.sure.mean())
    low, high = scores.interval
    whole = "too modest" if sure < low else "too sure of itself" if sure > high else "about as sure as it is right"
    rows = [
        f"<tr>{_number(100 * g.sure, '.0f', ' %')}{_number(100 * g.right, '.0f', ' %')}{_number(g.images)}</tr>\n"
        for g in scores.reliability()
    ]
    out, wrong = scores.rejected, scores.predicted != scores.expected
    rejection = f"No photo was answered so: every answer is at least {_share(scores.threshold)} sure."
    if out.any():
        kept = f" Of all others, {_share(1 - float(wrong[~out].mean()), 1)} are named rightly." if not out.all() else ""
        rejection = (
            f"{out.sum():,} of {_photos(len(scores))} ({_share(float(out.mean()))}) are better answered with "
            f"&ldquo;none of these&rdquo;: no class is {_share(scores.threshold)} likely. The likeliest is wrong for "
            f"{(out & wrong).sum():,} of them.{kept} Elsewhere on this page, the likeliest class is the answer."
        )
    return _section(
        "How sure it is, and how right",
        "<p>Of photos with an answer that is 80&nbsp;% sure, 80 in 100 should be right. Here photos are grouped by how "
        f"sure their answers are. On average these are {100 * scores.calibration_error:.1f} points off. As a whole, "
        f"the model is {whole}: {_share(sure, 1)} sure and {_share(scores.accuracy, 1)} right.</p>\n"
        f'<div class="beside">\n{_diagram(scores)}{_table("=sure =right =photos", rows)}</div>\n'
        f"<h3>None of these</h3>\n<p>{rejection}</p>\n",
    )


def _diagram(scores: Scores) -> str:
    """Draw groups of photos: how sure to the right, how right upwards, the area of a circle for their number."""
    groups = sorted(scores.reliability(), key=lambda group: -group.images)  # small circles lie above large ones
    drawn = [
        f'<path class="grid" d="M{tick} 0V100M0 {tick}H100"/>'
        f'<text x="{tick}" y="107" text-anchor="middle">{tick}</text>'
        f'<text x="-3" y="{101.5 - tick}" text-anchor="end">{tick}</text>\n'
        for tick in (0, 25, 50, 75, 100)
    ]
    for group in groups:
        low, high = interval(round(group.right * group.images), group.images)
        x, radius = f"{100 * group.sure:.1f}", 5.5 * math.sqrt(group.images / groups[0].images)
        drawn.append(
            f"<g><title>{_share(group.sure)} sure, {_share(group.right)} right: {_photos(group.images)}</title>"
            f'<path class="spread" d="M{x} {100 - 100 * low:.1f}V{100 - 100 * high:.1f}"/>'
            f'<circle cx="{x}" cy="{100 - 100 * group.right:.1f}" r="{radius:.1f}"/></g>\n'
        )
    return (
        '<figure><svg viewBox="-17 -7 124 124" role="img" aria-label="How right answers are, by how sure they are. The '
        f'table has the same numbers.">\n<path class="diagonal" d="M0 100L100 0"/>\n{"".join(drawn)}'
        '<text x="50" y="115" text-anchor="middle">how sure, in %</text>\n'
        '<text transform="translate(-13 50) rotate(-90)" text-anchor="middle">how right, in %</text>\n</svg>\n'
        "<figcaption>A circle is a group of photos, and its area their number. A line is the 95&nbsp;% interval. On "
        "the dashed line, answers are as right as they are sure.</figcaption></figure>\n"
    )


def _mistakes(mistakes: Iterable[Mistake]) -> str:
    cards = []
    for one in mistakes:
        named, true = _name(one.predicted), _name(one.expected)
        pictures = (
            (one.photo, f"The photo {one.name}", "the photo"),
            (one.speaks_for_predicted, f"The photo, lit where it speaks for {one.predicted}", f"for {named}"),
            (one.speaks_for_expected, f"The photo, lit where it speaks for {one.expected}", f"for {true}"),
        )
        drawn = "".join(
            f'<figure><img src="{_data(image)}" width="{image.width}" height="{image.height}" alt="{_text(alt)}">'
            f"<figcaption>{caption}</figcaption></figure>\n"
            for image, alt, caption in pictures
        )
        cards.append(
            f'<li>\n<h3>Named {named}, is {true}</h3>\n<p class="small">{_share(one.probability)} sure &middot; '
            f'{_name(one.name)}</p>\n<div class="pictures">\n{drawn}</div>\n</li>\n'
        )
    said = (
        "Each photo plain, then lit where it speaks for the name that it got, then where it speaks for the right one."
    )
    body = f'<p>{said}</p>\n<ol class="mistakes">\n{"".join(cards)}</ol>\n'
    return _section("The most certain mistakes", body) if cards else ""


def _making(model: Model) -> str:
    about, recipe = model.about, model.recipe
    chosen, made, seconds = about.chosen, about.made, about.seconds
    counts = [about.images.get(label, 0) for label in model.classes]
    added = [
        f"{_text(one['date'])}: {', '.join(f'{count:,} of {_name(label)}' for label, count in one['images'].items())}"
        for one in about.added
    ]
    each = " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
    facts = {
        "learned from": f"{_photos(sum(counts))} of {len(counts):,} classes, {each} each",
        "added later": "<br>".join(added),
        "network": f"{_name(recipe.network)}, {_text(recipe.activation)} its last activation, "
        f"<code>{_text(model.fingerprint)}</code>",
        "recipe": f"{recipe.mode}, {_settings(dataclasses.asdict(recipe.sampling))}",
        "voter": f"{model.kind}, {_text(chosen.get('words', 'as asked for'))} ({_text(chosen.get('why', '?'))})",
        "settings": _settings(model.scorer.settings),
        "certainty": f"temperature {model.temperature:.3g}, &ldquo;none of these&rdquo; below {model.threshold:.2f}",
        "made": f"by patchvote {_text(made.get('patchvote', '?'))}, {_text(made.get('date', '?'))}",
    }
    body = "".join(f"<dt>{term}</dt><dd>{said}</dd>\n" for term, said in facts.items() if said)
    tried = [
        f'<tr><th scope="row">{_name(one["words"])}{" <em>chosen</em>" * (one["words"] == chosen.get("words"))}</th>'
        f"{_bar(one['accuracy'], digits=1)}{_number(one['loss'], '.3f')}{_seconds(one['seconds'])}</tr>\n"
        for one in about.tried
    ]
    times = [
        f'<tr><th scope="row">{_name(part)}</th>{_seconds(took)}{_bar(took / sum(seconds.values()))}</tr>\n'
        for part, took in seconds.items()
        if took > 0
    ]
    return _section(
        "How it was made",
        f"<dl>\n{body}</dl>\n"
        + (f"<h3>What was tried</h3>\n{_table('settings right =log&nbsp;loss =time', tried)}" if tried else "")
        + (f"<h3>Where the time went</h3>\n{_table('part =time share', times)}" if times else ""),
    )


def _limits(model: Model) -> str:
    said = "".join(f"<li>{_prose(limit)}</li>\n" for limit in limits(model))
    return _section("Its limits", f"<ul>\n{said}</ul>\n")


def _section(heading: str, body: str) -> str:
    return f"<section>\n<h2>{heading}</h2>\n{body}</section>\n"


def _table(heads: str, rows: Iterable[str], kind: str = "plain") -> str:
    """Set a table. Heads are words, with "=" before those of numbers and "^" before what the rows are sorted by."""
    marks = {"=": ' class="number"', "^": ' aria-sort="ascending"'}
    cells = "".join(f'<th scope="col"{marks.get(head[0], "")}>{head.lstrip("=^")}</th>' for head in heads.split())
    return f'<table class="{kind}">\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{"".join(rows)}</tbody>\n</table>\n'


def _number(value: float, form: str = ",", unit: str = "") -> str:
    return f'<td class="number">{value:{form}}{unit}</td>'


def _seconds(took: float) -> str:
    return _number(took, ",.1f", " s")


def _bar(share: float, low: float = 0, high: float = 0, digits: int = 0) -> str:
    """Set a share as a number and a bar, with a thin line from `low` to `high`."""
    bar = "" if math.isnan(share) else f'<i class="bar" style="{_places(share, low, high)}"><i></i><b></b></i>'
    return f'<td class="share"><div><span>{_share(share, digits)}</span>{bar}</div></td>'


def _places(share: float, low: float, high: float) -> str:
    return f"--v:{share:.3f};--low:{low:.3f};--high:{high:.3f}"


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"<code>{_text(name)}={_text(value)}</code>" for name, value in settings.items())


def _photos(count: int) -> str:
    return f"{count:,} photo{'' if count == 1 else 's'}"


def _share(share: float, digits: int = 0) -> str:
    return "&ndash;" if math.isnan(share) else f"{100 * share:.{digits}f}&nbsp;%"


def _text(value: object) -> str:
    return escape(str(value))


def _name(value: object) -> str:
    """Set a name from the data; one that is written from right to left does not turn the words around it."""
    return f"<bdi>{_text(value)}</bdi>"


def _prose(words: str) -> str:
    """Set words that have commands in backquotes."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", _text(words)).replace(" %", "&nbsp;%")


def _data(image: Image.Image) -> str:
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=82, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
