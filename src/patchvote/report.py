"""The report: one HTML file that tells how good a model is, where it errs, and how it was made.

The file stands alone: photos are inside it, and it says so to the browser, which then refuses to load anything else or
to run any script but the one below. Everything that comes from data goes through `_text` or `_name`.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .card import accuracy_sentence, limits
from .errors import PatchvoteError
from .files import write_atomically
from .model import Model
from .scores import Scores, interval

_MOST_WITH_NUMBERS = 30  # classes up to which the cells of the confusion matrix have room for numbers
_MOST_IN_MATRIX = 150  # classes from which on nobody could read it
_DASH = "&ndash;"

# Sorts a table by the column whose head is pressed, and the other way round when pressed again.
_SCRIPT = """
for (const head of document.querySelectorAll(".sortable th[scope=col]")) {
  const button = document.createElement("button"), body = head.closest("table").tBodies[0];
  button.append(...head.childNodes);
  head.append(button);
  button.onclick = () => {
    const way = head.ariaSort === "ascending" ? -1 : 1, key = row => row.cells[head.cellIndex].textContent;
    const compare = (a, b) => key(a).localeCompare(key(b), undefined, {numeric: true});
    body.append(...[...body.rows].sort((a, b) => way * compare(a, b)));
    for (const other of head.parentNode.cells) other.ariaSort = null;
    head.ariaSort = way > 0 ? "ascending" : "descending";
  };
}
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Mistake:
    """A photo that was named wrongly, and its evidence.

    Parameters
    ----------
    name : str
        The photo.
    expected, predicted : str
        What it is, and what it was named.
    probability : float
        Of the predicted class.
    photo : Pillow image
        The photo, upright and small.
    speaks_for_predicted, speaks_for_expected : Pillow image
        The same photo, lit where it speaks for the one class and for the other.
    """

    name: str
    expected: str
    predicted: str
    probability: float
    photo: Image.Image
    speaks_for_predicted: Image.Image
    speaks_for_expected: Image.Image


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
        The file cannot be written, or the model tells nonsense about itself.
    """
    path = Path(path)
    page = _page(model, scores if scores is not None and len(scores) else None, mistakes, title, kind)
    try:
        # A name that is no proper text, as odd file systems give, loses the letters that nobody could show.
        write_atomically(path, [page.encode("utf-8", "replace")])
    except OSError as error:
        raise PatchvoteError(f"the report {path} cannot be written: {error.strerror or error}.") from error


def _page(model: Model, scores: Scores | None, mistakes: Sequence[Mistake], title: str, kind: str) -> str:
    parts = [_headline(model, scores, title, kind)]
    if scores is not None:
        parts += [_classes(scores), _confusion(scores), _certainty(scores)]
    if mistakes:
        parts.append(_mistakes(mistakes))
    try:
        parts += [_making(model), _limits(model)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # `about` of a model file may hold anything
        raise PatchvoteError(f"the model tells about itself what makes no sense ({error!r}).") from error
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    style = resources.files(__package__).joinpath("report.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{''.join(parts)}</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _headline(model: Model, scores: Scores | None, title: str, kind: str) -> str:
    head = f"<header>\n<h1>{_text(title)}</h1>\n"
    if scores is None:
        said = _text(accuracy_sentence(model.about.get("held_out")))
        return f'{head}<p class="big none">Not measured</p>\n<p class="lead">{said}</p>\n</header>\n'
    low, high = scores.interval
    often = np.bincount(scores.expected).max() / len(scores)
    points = 50 * (high - low)
    return (
        f'{head}<p class="kind">Named rightly, {_text(kind.rstrip("."))}</p>\n'
        f'<p class="big">{_share(scores.accuracy, 1)}</p>\n'
        f'<div class="scale" style="--v:{scores.accuracy:.4f};--low:{low:.4f};--high:{high:.4f}" aria-hidden="true">'
        "<i></i><b></b></div>\n"
        f'<p class="ends" aria-hidden="true"><span>0</span><span>95&nbsp;% interval: {100 * low:.1f} to '
        f"{_share(high, 1)}</span><span>100&nbsp;%</span></p>\n"
        f'<p class="lead">{_text(accuracy_sentence(scores.summary()))}</p>\n'
        f"<p>{_photos(len(scores))} tell the accuracy to about {points:.{int(points < 10)}f} points either way; four "
        f"times as many would halve that. Always naming the most frequent of the {len(scores.classes)} classes "
        f"would be right for {_share(often)}.</p>\n</header>\n"
    )


def _classes(scores: Scores) -> str:
    rows = []
    for own in sorted(scores.by_class(), key=lambda own: (math.isnan(own.found), own.found)):
        low, high = interval(round(own.found * own.images), own.images) if own.images else (0, 0)
        shares = _bar(own.found, low, high) + _bar(own.right)
        rows.append(f'<tr><th scope="row">{_name(own.label)}</th>{_number(own.images)}{shares}</tr>\n')
    return _section(
        "Class by class",
        "<p><b>Found</b> is the share of the photos of a class that got its name; the thin line is its 95&nbsp;% "
        "interval. <b>Right</b> is the share of the photos with its name that are of the class. The hardest classes "
        f"come first; press a heading to sort.</p>\n{_table('class =photos found right', rows, 'sortable')}",
    )


def _confusion(scores: Scores) -> str:
    table, classes = scores.confusion, scores.classes
    asked = table.sum(axis=1)
    wrong = table - np.diag(table.diagonal())
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
        + "".join(_cell(int(table[i, j]), int(asked[i]), classes, i, j) for j in range(len(classes)))
        + "</tr>\n"
        for i, label in enumerate(classes)
    )
    return _section(
        "What is taken for what",
        f"{body}<p>A row is what photos are, a column is what they were named. "
        '<span class="key right"></span>&nbsp;right and <span class="key wrong"></span>&nbsp;wrong names, the stronger '
        "the larger their share of the row.</p>\n"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Confusion matrix">\n'
        f'<table class="matrix{" fine" if len(classes) > _MOST_WITH_NUMBERS else ""}" style="--n:{len(classes)}">\n'
        f'<thead><tr><td class="corner">is &darr; named &rarr;</td>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n'
        "</table>\n</div>\n",
    )


def _cell(count: int, asked: int, classes: Sequence[str], row: int, column: int) -> str:
    if not count:
        return "<td></td>"
    depth = 0.15 + 0.85 * count / asked  # so that a single photo of many is seen
    kind = ("right" if row == column else "wrong") + (" deep" if depth > 0.62 else "")
    said = f"{classes[row]} named {classes[column]}: {count:,} of {asked:,} photos ({100 * count / asked:.0f} %)"
    number = f"{count}" if len(classes) <= _MOST_WITH_NUMBERS else ""
    return f'<td class="{kind}" style="--s:{depth:.2f}" title="{_text(said)}">{number}</td>'


def _certainty(scores: Scores) -> str:
    gap = float(scores.sure.mean()) - scores.accuracy
    whole = "about as sure as it is right" if abs(gap) < 0.02 else "too sure of itself" if gap > 0 else "too modest"
    rows = [
        f"<tr>{_number(100 * group.sure, '.0f', ' %')}{_number(100 * group.right, '.0f', ' %')}"
        f"{_number(group.images)}</tr>\n"
        for group in scores.reliability()
    ]
    return _section(
        "How sure it is, and how right",
        "<p>Of photos with an answer that is 80&nbsp;% sure, 80 in 100 should be right. Photos are grouped by how sure "
        f"their answers are. On average a group is {100 * scores.calibration_error:.1f} points off. All in all, the "
        f"model is {whole}: {_share(float(scores.sure.mean()), 1)} sure and {_share(scores.accuracy, 1)} right.</p>\n"
        f'<div class="beside">\n{_diagram(scores)}{_table("=sure =right =photos", rows)}</div>\n'
        f"<h3>None of these</h3>\n<p>{_rejection(scores)}</p>\n",
    )


def _diagram(scores: Scores) -> str:
    """Draw the groups of photos: how sure to the right, how right upwards, the area of a circle for their number."""
    groups = scores.reliability()
    most = max(group.images for group in groups)

    def x(share: float) -> float:
        return round(46 + 264 * share, 1)

    def y(share: float) -> float:
        return round(278 - 264 * share, 1)

    lines = "".join(
        f'<path class="grid" d="M{x(tick)} {y(0)}V{y(1)}M{x(0)} {y(tick)}H{x(1)}"/>'
        f'<text x="{x(tick)}" y="{y(0) + 18}" text-anchor="middle">{100 * tick:.0f}</text>'
        f'<text x="{x(0) - 8}" y="{y(tick) + 4}" text-anchor="end">{100 * tick:.0f}</text>\n'
        for tick in (0, 0.25, 0.5, 0.75, 1)
    )
    marks = []
    for group in sorted(groups, key=lambda group: -group.images):  # small circles above large ones
        low, high = interval(round(group.right * group.images), group.images)
        said = f"{_share(group.sure)} sure, {_share(group.right)} right: {_photos(group.images)}"
        marks.append(
            f'<g><title>{said}</title><path class="spread" d="M{x(group.sure)} {y(low)}V{y(high)}"/>'
            f'<circle cx="{x(group.sure)}" cy="{y(group.right)}" r="{14 * math.sqrt(group.images / most):.1f}"/></g>\n'
        )
    return (
        '<figure><svg viewBox="0 0 330 320" role="img" aria-label="Reliability diagram: how right the answers are '
        'against how sure; the table beside it has the numbers">\n'
        f'{lines}<path class="diagonal" d="M{x(0)} {y(0)}L{x(1)} {y(1)}"/>\n{"".join(marks)}'
        f'<text x="{x(0.5)}" y="316" text-anchor="middle">how sure, in %</text>\n'
        f'<text transform="translate(12 {y(0.5)}) rotate(-90)" text-anchor="middle">how right, in %</text>\n</svg>\n'
        "<figcaption>A circle is a group; its area stands for the number of photos, its line for the 95&nbsp;% "
        "interval. On the dashes, sure is as good as right.</figcaption></figure>\n"
    )


def _rejection(scores: Scores) -> str:
    out, wrong = scores.rejected, scores.predicted != scores.expected
    count, rest = int(out.sum()), int((~out).sum())
    if not count:
        return f"No photo is answered so: every answer is at least {_share(scores.threshold)} sure."
    kept = (
        f" Of the other {_photos(rest)}, {_share(1 - float(wrong[~out].mean()), 1)} are named rightly." if rest else ""
    )
    return (
        f"{count:,} of {_photos(len(scores))} ({_share(count / len(scores))}) are answered with "
        f"&ldquo;none of these&rdquo;, as no class is {_share(scores.threshold)} likely. The likeliest class would have "
        f"been wrong for {int((out & wrong).sum()):,} of them.{kept} All other numbers here go by the likeliest class."
    )


def _mistakes(mistakes: Sequence[Mistake]) -> str:
    cards = []
    for one in mistakes:
        pictures = (
            (one.photo, f"The photo {one.name}", "the photo"),
            (one.speaks_for_predicted, f"Lit where it speaks for {one.predicted}", f"for {_name(one.predicted)}"),
            (one.speaks_for_expected, f"Lit where it speaks for {one.expected}", f"for {_name(one.expected)}"),
        )
        drawn = "".join(
            f'<figure><img src="{_data(image)}" width="{image.width}" height="{image.height}" alt="{_text(alt)}">'
            f"<figcaption>{caption}</figcaption></figure>\n"
            for image, alt, caption in pictures
        )
        cards.append(
            f"<li>\n<h3>Named {_name(one.predicted)}, is {_name(one.expected)}</h3>\n"
            f'<p class="small">{_share(one.probability)} sure &middot; {_name(one.name)}</p>\n'
            f'<div class="pictures">\n{drawn}</div>\n</li>\n'
        )
    return _section(
        "The most certain mistakes",
        "<p>Each photo is shown plain, then lit where it speaks for the name that it got, then where it speaks for "
        f'the right one.</p>\n<ol class="mistakes">\n{"".join(cards)}</ol>\n',
    )


def _making(model: Model) -> str:
    about, recipe = model.about, model.recipe
    chosen, made = about.get("chosen", {}), about.get("made", {})
    counts = [about.get("images", {}).get(label, 0) for label in model.classes]
    facts = {
        "network": f"{_name(recipe.network)}, read {_text(recipe.activation)} its last activation; fingerprint "
        f"<code>{_text(model.fingerprint)}</code>",
        "recipe": f"{_text(recipe.mode)}: {_settings(dataclasses.asdict(recipe.sampling))}",
        "voter": f"{_text(model.kind)}, {_text(chosen.get('words', 'as asked for'))} "
        f"({_text(chosen.get('why', 'not known'))})",
        "settings": _settings(model.settings),
        "probabilities": f"temperature {model.temperature:.4g}; &ldquo;none of these&rdquo; below "
        f"{_share(model.threshold)}",
        "learned from": f"{_photos(sum(counts))} of {len(counts)} classes, {min(counts):,} to {max(counts):,} each",
        "added later": "<br>".join(
            f"{_text(one.get('date', ''))}: {_photos(sum(one.get('images', {}).values()))} of "
            + ", ".join(_name(label) for label in one.get("images", {}))
            for one in about.get("added", [])
        ),
        "made": f"by patchvote {_text(made.get('patchvote', '?'))} on {_text(made.get('date', '?'))}",
    }
    listed = "".join(f"<dt>{term}</dt><dd>{said}</dd>\n" for term, said in facts.items() if said)
    return _section(
        "How it was made",
        f"<dl>\n{listed}</dl>\n{_tried(about.get('tried', []), chosen.get('words'))}{_times(about.get('seconds', {}))}",
    )


def _tried(tried: Sequence[dict[str, Any]], chosen: str | None) -> str:
    rows = [
        f'<tr><th scope="row">{_name(one["words"])}{" <em>chosen</em>" if one["words"] == chosen else ""}</th>'
        f"{_bar(one['accuracy'], digits=1)}{_number(one['loss'], '.3f')}{_number(one['seconds'], ',.1f', ' s')}</tr>\n"
        for one in tried
    ]
    said = "On photos held out of the training. The smallest loss wins: it counts, too, how sure the answers were."
    return f"<h3>What was tried</h3>\n<p>{said}</p>\n{_table('settings right =loss =time', rows)}" if rows else ""


def _times(seconds: dict[str, float]) -> str:
    total = sum(seconds.values())
    rows = [
        f'<tr><th scope="row">{_name(part)}</th>{_number(took, ",.1f", " s")}{_bar(took / max(total, 1e-9))}</tr>\n'
        for part, took in seconds.items()
    ]
    said = f"{total:,.1f} seconds in all."
    return f"<h3>Where the time went</h3>\n<p>{said}</p>\n{_table('part =time share', rows)}" if rows else ""


def _limits(model: Model) -> str:
    said = "".join(f"<li>{_text(limit)}</li>\n" for limit in limits(model))
    return _section("Its limits", f"<ul>\n{said}</ul>\n")


def _section(heading: str, body: str) -> str:
    return f"<section>\n<h2>{heading}</h2>\n{body}</section>\n"


def _table(heads: str, rows: Iterable[str], kind: str = "") -> str:
    """Set a table; heads are words, with "=" before those of numbers."""
    cells = "".join(
        f'<th scope="col" class="number">{head[1:]}</th>' if head[0] == "=" else f'<th scope="col">{head}</th>'
        for head in heads.split()
    )
    return f'<table class="{kind}">\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{"".join(rows)}</tbody>\n</table>\n'


def _number(value: float, form: str = ",", unit: str = "") -> str:
    return f'<td class="number">{value:{form}}{unit}</td>'


def _bar(share: float, low: float = 0, high: float = 0, digits: int = 0) -> str:
    """Set a share as a number and a bar, with a thin line from `low` to `high`."""
    bar = f'<span class="bar" style="--v:{share:.3f};--low:{low:.3f};--high:{high:.3f}"><i></i><b></b></span>'
    return f'<td class="share"><div><span>{_share(share, digits)}</span>{"" if math.isnan(share) else bar}</div></td>'


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"<code>{_text(name)}={_text(value)}</code>" for name, value in settings.items())


def _photos(count: int) -> str:
    return f"{count:,} photo{'' if count == 1 else 's'}"


def _share(share: float, digits: int = 0) -> str:
    return _DASH if math.isnan(share) else f"{100 * share:.{digits}f}&nbsp;%"


def _text(value: object) -> str:
    return escape(str(value))


def _name(value: object) -> str:
    """Return a name from the data, kept from turning the words around it if it is written from right to left."""
    return f"<bdi>{_text(value)}</bdi>"


def _data(image: Image.Image) -> str:
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=82, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
