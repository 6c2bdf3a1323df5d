"""The report: one HTML file with the accuracy of a model, its mistakes, and how it was made.

The file is self-contained: photos are embedded, and a content security policy forbids the browser to load anything else
or to run any script but the one below. Everything that comes from data is escaped by `_text` or `_name`.
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

_MAX_WITH_NUMBERS = 30  # classes up to which the cells of the confusion matrix have room for numbers
_MAX_IN_MATRIX = 150  # classes up to which the confusion matrix can be read
_SIDE = 320  # longest side of a photo in pixels: three fit side by side

# Sorts a table by a column when its header is pressed: ascending, then descending.
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
    """A misclassified photo, and its evidence."""

    name: str
    expected: str
    predicted: str
    probability: float  # of the predicted class
    photo: Image.Image  # upright and small
    speaks_for_predicted: Image.Image  # the same photo, bright where it supports the predicted class
    speaks_for_expected: Image.Image


def mistakes_of(scores: Scores | None, shown: Iterable[tuple[Evidence, Image.Image]]) -> list[Mistake]:
    """Return the mistakes of a report, made from their evidence and photos."""
    mistakes = []
    for evidence, image in shown:
        if scores is None:
            break
        index = scores.names.index(evidence.name)
        expected, predicted = (scores.classes[number[index]] for number in (scores.expected, scores.predicted))
        small = image.convert("RGB")
        small.thumbnail((_SIDE, _SIDE))
        pictures = glow(evidence, small, predicted), glow(evidence, small, expected)
        mistakes.append(Mistake(evidence.name, expected, predicted, float(scores.sure[index]), small, *pictures))
    return mistakes


def write_report(
    path: str | Path, model: Model, scores: Scores | None, mistakes: Sequence[Mistake] = (), *, title: str, kind: str
) -> None:
    """Write a report as one self-contained HTML file, atomically.

    Parameters
    ----------
    path : path
        File to write.
    model : Model
        Model that the report describes.
    scores : Scores or None
        Measured scores; None where there were too few photos.
    mistakes : sequence of Mistake
        Mistakes to show, those with the highest confidence first.
    title : str
        Title of the report.
    kind : str
        Photos on which the scores were measured, such as "on photos held out of the training".

    Raises
    ------
    PatchvoteError
        The file cannot be written.
    """
    accuracy, after = accuracy_of(model.about), _making(model) + _limits(model)
    if scores is None or not len(scores):
        body = f'<p class="big none">Not measured</p>\n<p class="lead">{_prose(accuracy)}</p>\n'
    else:
        body = _headline(scores, kind) + _classes(scores) + _confusion(scores) + _confidence(scores)
    page = _page(title, body + _mistakes(mistakes) + after)
    # File names that are not valid Unicode lose the characters that cannot be displayed.
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
    summary: Any = scores.summary()
    low, high = scores.interval
    points, most = 50 * (high - low), np.bincount(scores.expected).max()
    return (
        f'<p class="kind">Classified correctly, {_text(kind.rstrip("."))}</p>\n'
        f'<p class="big">{_share(scores.accuracy, 1)}</p>\n'
        f'<div class="scale" style="{_places(scores.accuracy, low, high)}" aria-hidden="true"><i></i><b></b></div>\n'
        f'<p class="ends" aria-hidden="true"><span>0</span><span>95&nbsp;% interval: {100 * low:.1f} to '
        f"{_share(high, 1)}</span><span>100&nbsp;%</span></p>\n"
        f'<p class="lead">{_prose(accuracy_sentence(summary, "photos"))}</p>\n'
        f"<p>With {_photos(len(scores))}, the margin of error is about {points:.{int(points < 10)}f} points; four "
        f"times as many would halve it. Always answering the most frequent of the {len(scores.classes):,} classes "
        f"would be correct for {_share(most / len(scores))}.</p>\n"
    )


def _classes(scores: Scores) -> str:
    rows = []
    for one in sorted(scores.by_class(), key=lambda one: (math.isnan(one.found), one.found)):
        low, high = interval(round(one.found * one.images), one.images) if one.images else (0, 0)
        shares = _bar(one.found, low, high) + _bar(one.right)
        rows.append(f'<tr><th scope="row">{_name(one.label)}</th>{_number(one.images)}{shares}</tr>\n')
    legend = (
        "<b>Found</b> is the share of the photos of a class that were named so (recall); the thin line is its "
        "95&nbsp;% interval. <b>Right</b> is the share of the photos named so that are of the class (precision). The "
        "hardest classes come first."
    )
    return _section("Class by class", f"<p>{legend}</p>\n{_table('class =photos ^found right', rows, 'sortable')}")


def _confusion(scores: Scores) -> str:
    table, classes = scores.confusion, scores.classes
    images, wrong = table.sum(axis=1), table - np.diag(table.diagonal())
    frequent = [divmod(int(cell), len(classes)) for cell in np.argsort(-wrong, axis=None, kind="stable")[:6]]
    confusions = "".join(
        f"<li>{_name(classes[i])} named {_name(classes[j])}: {wrong[i, j]:,} of {_photos(images[i])}</li>\n"
        for i, j in frequent
        if wrong[i, j]
    )
    body = "<p>No photo was misclassified.</p>\n"
    if confusions:
        body = f"<p>The most frequent confusions:</p>\n<ul>\n{confusions}</ul>\n"
    if len(classes) > _MAX_IN_MATRIX:
        return _section("Confusions", f"{body}<p>There are too many classes to draw all pairs.</p>\n")
    heads = "".join(f'<th scope="col" title="{_text(label)}"><span>{_name(label)}</span></th>' for label in classes)
    rows = "".join(
        f'<tr><th scope="row" title="{_text(label)}">{_name(label)}</th>'
        f"{''.join(_cell(int(table[i, j]), int(images[i]), classes, i, j) for j in range(len(classes)))}</tr>\n"
        for i, label in enumerate(classes)
    )
    return _section(
        "Confusions",
        f"{body}<p>Rows are the true classes, columns the predicted ones. Predictions are "
        '<span class="right key">right</span> or <span class="wrong key">wrong</span>; the stronger the colour, the '
        'larger their share of the row.</p>\n<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Confusion matrix">\n<table class="matrix" style="--n:{len(classes)}"><thead>\n'
        f'<tr><td class="corner">true &darr; predicted &rarr;</td>{heads}</tr>\n</thead><tbody>\n'
        f"{rows}</tbody></table>\n</div>\n",
    )


def _cell(count: int, images: int, classes: Sequence[str], row: int, column: int) -> str:
    if not count:
        return "<td></td>"
    share = count / images
    depth = share if row == column else math.sqrt(share)  # the root makes single mistakes visible
    kind = "right" if row == column else "wrong"
    tooltip = f"{classes[row]} named {classes[column]}: {count:,} of {images:,} ({100 * share:.0f} %)"
    number = count if len(classes) <= _MAX_WITH_NUMBERS else ""
    return f'<td class="{kind}" style="--s:{depth:.2f}" title="{_text(tooltip)}">{number}</td>'


def _confidence(scores: Scores) -> str:
    confidence = float(scores.sure.mean())
    low, high = scores.interval
    verdict = "neither overconfident nor underconfident"
    if not low <= confidence <= high:
        verdict = "underconfident" if confidence < low else "overconfident"
    rows = [
        f"<tr>{_number(100 * g.sure, '.0f', ' %')}{_number(100 * g.right, '.0f', ' %')}{_number(g.images)}</tr>\n"
        for g in scores.reliability()
    ]
    out, wrong = scores.rejected, scores.predicted != scores.expected
    rejection = f"No photo was rejected: the confidence of every answer is at least {_share(scores.threshold)}."
    if out.any():
        kept = ""
        if not out.all():
            kept = f" Of all others, {_share(1 - float(wrong[~out].mean()), 1)} are classified correctly."
        rejection = (
            f"{out.sum():,} of {_photos(len(scores))} ({_share(float(out.mean()))}) are better answered with "
            f"&ldquo;none of these&rdquo;: no class is {_share(scores.threshold)} likely. The likeliest is wrong for "
            f"{(out & wrong).sum():,} of them.{kept} Elsewhere on this page, the likeliest class is the answer."
        )
    return _section(
        "Confidence and accuracy",
        "<p>Of photos with a confidence of 80&nbsp;%, 80 in 100 should be classified correctly. Here photos are "
        f"grouped by confidence. The mean difference to the accuracy is {100 * scores.calibration_error:.1f} points. "
        f"Overall, the model is {verdict}: its mean confidence is {_share(confidence, 1)}, its accuracy "
        f"{_share(scores.accuracy, 1)}.</p>\n"
        f'<div class="beside">\n{_diagram(scores)}{_table("=confidence =accuracy =photos", rows)}</div>\n'
        f"<h3>None of these</h3>\n<p>{rejection}</p>\n",
    )


def _diagram(scores: Scores) -> str:
    """Draw groups of photos: accuracy over confidence, with circles whose area is the number of photos."""
    groups = sorted(scores.reliability(), key=lambda group: -group.images)  # small circles are drawn above large ones
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
            f"<g><title>{_photos(group.images)}: confidence {_share(group.sure)}, accuracy "
            f"{_share(group.right)}</title>"
            f'<path class="spread" d="M{x} {100 - 100 * low:.1f}V{100 - 100 * high:.1f}"/>'
            f'<circle cx="{x}" cy="{100 - 100 * group.right:.1f}" r="{radius:.1f}"/></g>\n'
        )
    return (
        '<figure><svg viewBox="-17 -7 124 124" role="img" aria-label="Accuracy by confidence. The table '
        f'has the same numbers.">\n<path class="diagonal" d="M0 100L100 0"/>\n{"".join(drawn)}'
        '<text x="50" y="115" text-anchor="middle">confidence in %</text>\n'
        '<text transform="translate(-13 50) rotate(-90)" text-anchor="middle">accuracy in %</text>\n</svg>\n'
        "<figcaption>A circle is a group of photos, and its area their number. A line is the 95&nbsp;% interval. On "
        "the dashed line, accuracy equals confidence.</figcaption></figure>\n"
    )


def _mistakes(mistakes: Iterable[Mistake]) -> str:
    cards = []
    for mistake in mistakes:
        predicted, true = _name(mistake.predicted), _name(mistake.expected)
        pictures = (
            (mistake.photo, f"The photo {mistake.name}", "the photo"),
            (
                mistake.speaks_for_predicted,
                f"The photo, bright where it supports {mistake.predicted}",
                f"for {predicted}",
            ),
            (mistake.speaks_for_expected, f"The photo, bright where it supports {mistake.expected}", f"for {true}"),
        )
        drawn = "".join(
            f'<figure><img src="{_data(image)}" width="{image.width}" height="{image.height}" alt="{_text(alt)}">'
            f"<figcaption>{caption}</figcaption></figure>\n"
            for image, alt, caption in pictures
        )
        cards.append(
            f'<li>\n<h3>Named {predicted}, is {true}</h3>\n<p class="small">confidence {_share(mistake.probability)} '
            f'&middot; {_name(mistake.name)}</p>\n<div class="pictures">\n{drawn}</div>\n</li>\n'
        )
    legend = "Each photo, then the photo bright where it supports the predicted class, and the true class."
    body = f'<p>{legend}</p>\n<ol class="mistakes">\n{"".join(cards)}</ol>\n'
    return _section("Mistakes with the highest confidence", body) if cards else ""


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
        "voter": f"{model.kind}, {_text(chosen.get('words', 'as requested'))} ({_text(chosen.get('why', '?'))})",
        "settings": _settings(model.scorer.settings),
        "calibration": f"temperature {model.temperature:.3g}, &ldquo;none of these&rdquo; below {model.threshold:.2f}",
        "made": f"by patchvote {_text(made.get('patchvote', '?'))}, {_text(made.get('date', '?'))}",
    }
    body = "".join(f"<dt>{term}</dt><dd>{fact}</dd>\n" for term, fact in facts.items() if fact)
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
        + (f"<h3>What was tried</h3>\n{_table('settings accuracy =log&nbsp;loss =time', tried)}" if tried else "")
        + (f"<h3>Where the time went</h3>\n{_table('part =time share', times)}" if times else ""),
    )


def _limits(model: Model) -> str:
    items = "".join(f"<li>{_prose(limit)}</li>\n" for limit in limits(model))
    return _section("Its limits", f"<ul>\n{items}</ul>\n")


def _section(heading: str, body: str) -> str:
    return f"<section>\n<h2>{heading}</h2>\n{body}</section>\n"


def _table(header: str, rows: Iterable[str], kind: str = "plain") -> str:
    """Return a table. The header is words, with "=" before columns of numbers and "^" before the sorted column."""
    marks = {"=": ' class="number"', "^": ' aria-sort="ascending"'}
    cells = "".join(f'<th scope="col"{marks.get(head[0], "")}>{head.lstrip("=^")}</th>' for head in header.split())
    return f'<table class="{kind}">\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{"".join(rows)}</tbody>\n</table>\n'


def _number(value: float, form: str = ",", unit: str = "") -> str:
    return f'<td class="number">{value:{form}}{unit}</td>'


def _seconds(took: float) -> str:
    return _number(took, ",.1f", " s")


def _bar(share: float, low: float = 0, high: float = 0, digits: int = 0) -> str:
    """Return a cell with a share as a number and a bar, with a thin line from `low` to `high`."""
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
    """Return a name from the data, isolated so that right-to-left text does not reorder the words around it."""
    return f"<bdi>{_text(value)}</bdi>"


def _prose(words: str) -> str:
    """Return text as HTML, with commands in backquotes as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", _text(words)).replace(" %", "&nbsp;%")


def _data(image: Image.Image) -> str:
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=82, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
