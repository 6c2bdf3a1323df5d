"""The report: one HTML file with the accuracy of a model, its mistakes, what it rejects, and how it was made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import PhotoError
from ...photos.decode import SHOWN, load_image
from ...utils.terminal import some
from ..evidence import Evidence, cannot_tell
from ..learning_curve import enough_sentence
from ..model import Model
from ..scores import Floats, Scores, Strangers, interval
from .card import accuracy_of, accuracy_sentence, few_classes, limits
from .html import (
    bar,
    bullets,
    escaped,
    figure,
    folded,
    isolated,
    number,
    percent,
    photos,
    places,
    prose,
    row,
    section,
    table,
    write_page,
)
from .picture import glow

_MAX_UNFOLDED = 25  # classes up to which the confusion matrix is shown at once: a square that a screen has room for
_MAX_WITH_NUMBERS = 30  # classes up to which the cells of the confusion matrix have room for numbers
_MAX_IN_MATRIX = 150  # classes up to which the confusion matrix can be read
_MAX_LISTED = 20  # classes that are listed of photos that were added at once
_SIDE = 320  # longest side of a photo in pixels: three fit side by side


def write_report(
    path: str | Path,
    model: Model,
    scores: Scores | None,
    mistakes: Iterable[Evidence] = (),
    *,
    title: str,
    kind: str,
) -> None:
    """Write a report as one self-contained HTML file, atomically.

    `mistakes` are shown with the highest confidence first, and `kind` says on which photos the scores were measured.
    """
    if scores is None or not len(scores):
        lead = f'<p class="lead">{prose(accuracy_of(model.about))}</p>\n'
        body = f'<p class="big none">Not measured</p>\n{lead}'
    else:
        body = _headline(scores, kind) + _curve(model, scores) + _classes(scores)
        body += _confusion(scores) + _confidence(scores) + _rejection(scores)
        body += _mistakes(scores, mistakes, cannot_tell(model))
    body += _making(model) + section("Its limits", bullets(map(prose, limits(model))))
    write_page(path, title, body)


def _headline(scores: Scores, kind: str) -> str:
    low, high = scores.interval
    points, most = 50 * (high - low), np.bincount(scores.expected).max()
    return (
        f'<p class="kind">Classified correctly, {escaped(kind.rstrip("."))}</p>\n'
        f'<p class="big">{percent(scores.accuracy, 1)}</p>\n'
        f'<div class="scale" style="{places(scores.accuracy, low, high)}" aria-hidden="true"><i></i><b></b></div>\n'
        f'<p class="ends" aria-hidden="true"><span>0</span><span>95&nbsp;% interval: {100 * low:.1f} to '
        f"{percent(high, 1)}</span><span>100&nbsp;%</span></p>\n"
        f'<p class="lead">{prose(accuracy_sentence(scores.summary(), "photos", held_out=scores.held_out))}</p>\n'
        f"<p>With {photos(len(scores))}, the margin of error is about {points:.{int(points < 10)}f} points. Always "
        f"answering the most frequent of the {len(scores.classes):,} classes would be correct for "
        f"{percent(most / len(scores))}.</p>\n"
    )


# --- would more photos help -------------------------------------------------------------------------------------------


def _curve(model: Model, scores: Scores) -> str:
    """Show accuracy by photos per class, and say whether more photos would help."""
    curve, held_out = model.about.curve, model.about.held_out
    if not held_out:
        return ""
    body = f"<p>{prose(enough_sentence(curve, held_out.get('classes', {}), few=few_classes(model)))}</p>\n"
    if not scores.held_out:
        body = (
            "<p>These figures are of training photos that were held out when the model was fitted, not of the photos "
            f"that the rest of this page is about.</p>\n{body}"
        )
    if len(curve) > 1:
        rows = [f"<tr>{number(point['photos'], 'g')}{bar(point['accuracy'], digits=1)}</tr>\n" for point in curve]
        body += table("=photos&nbsp;per&nbsp;class classified&nbsp;correctly", rows)
    return section("Would more photos help?", body)


# --- classes and confusions -------------------------------------------------------------------------------------------


def _classes(scores: Scores) -> str:
    rows = []
    for one in sorted(scores.by_class(), key=lambda one: (math.isnan(one.found), one.found)):
        low, high = interval(round(one.found * one.images), one.images) if one.images else (0, 0)
        rows.append(row(one.label, number(one.images), bar(one.found, low, high), bar(one.right)))
    legend = (
        "<b>Found</b> is the share of the photos of a class that were named so (recall); the thin line is its "
        "95&nbsp;% interval. <b>Right</b> is the share of the photos named so that are of the class (precision). The "
        "hardest classes come first."
    )
    return section("Class by class", f"<p>{legend}</p>\n{folded('class =photos ^found right', rows, 'classes')}")


def _confusion(scores: Scores) -> str:
    counts, classes = scores.confusion, scores.classes
    images, wrong = counts.sum(axis=1), counts - np.diag(counts.diagonal())
    frequent = [divmod(int(cell), len(classes)) for cell in np.argsort(-wrong, axis=None, kind="stable")[:6]]
    confusions = [
        f"{isolated(classes[i])} named {isolated(classes[j])}: {wrong[i, j]:,} of {photos(images[i])}"
        for i, j in frequent
        if wrong[i, j]
    ]
    body = "<p>No photo was misclassified.</p>\n"
    if confusions:
        body = f"<p>The most frequent confusions:</p>\n{bullets(confusions)}"
    if len(classes) > _MAX_IN_MATRIX:
        return section("Confusions", f"{body}<p>There are too many classes to draw all pairs.</p>\n")
    matrix = _matrix(counts, classes)
    if len(classes) > _MAX_UNFOLDED:
        matrix = f"<details>\n<summary>All pairs of {len(classes):,} classes</summary>\n{matrix}</details>\n"
    return section("Confusions", body + matrix)


def _matrix(counts: Any, classes: Sequence[str]) -> str:
    heads = "".join(
        f'<th scope="col" title="{escaped(label)}"><span>{isolated(label)}</span></th>' for label in classes
    )
    rows = "".join(
        f'<tr><th scope="row" title="{escaped(label)}">{isolated(label)}</th>'
        f"{''.join(_cell(int(counts[i, j]), int(counts[i].sum()), classes, i, j) for j in range(len(classes)))}</tr>\n"
        for i, label in enumerate(classes)
    )
    return (
        "<p>Rows are the true classes, columns the predicted ones. Predictions are "
        '<span class="right key">right</span> or <span class="wrong key">wrong</span>; the stronger the colour, the '
        'larger their share of the row.</p>\n<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Confusion matrix">\n<table class="matrix" style="--n:{len(classes)}"><thead>\n'
        f'<tr><td class="corner">true &darr; predicted &rarr;</td>{heads}</tr>\n</thead><tbody>\n'
        f"{rows}</tbody></table>\n</div>\n"
    )


def _cell(count: int, images: int, classes: Sequence[str], true: int, predicted: int) -> str:
    if not count:
        return "<td></td>"
    share = count / images
    depth = share if true == predicted else math.sqrt(share)  # the root makes single mistakes visible
    kind = "right" if true == predicted else "wrong"
    tooltip = f"{classes[true]} named {classes[predicted]}: {count:,} of {images:,} ({100 * share:.0f} %)"
    shown = count if len(classes) <= _MAX_WITH_NUMBERS else ""
    return f'<td class="{kind}" style="--s:{depth:.2f}" title="{escaped(tooltip)}">{shown}</td>'


# --- confidence -------------------------------------------------------------------------------------------------------


def _confidence(scores: Scores) -> str:
    confidence, accuracy = float(scores.confidence.mean()), scores.accuracy
    low, high = scores.interval
    verdict = "cannot be told from chance"
    if not low <= confidence <= high:
        verdict = f"is more than chance explains: it is {'underconfident' if confidence < low else 'overconfident'}"
    rows = [
        f"<tr>{number(100 * g.confidence, '.0f', ' %')}{number(100 * g.accuracy, '.0f', ' %')}{number(g.images)}</tr>\n"
        for g in scores.reliability()
    ]
    return section(
        "Confidence and accuracy",
        "<p>Of photos with a confidence of 80&nbsp;%, 80 in 100 should be classified correctly. Here photos are "
        f"grouped by confidence. The mean difference to the accuracy is {100 * scores.calibration_error:.1f} points. "
        f"Overall, the model's mean confidence is {percent(confidence, 1)}, its accuracy {percent(accuracy, 1)}. With "
        f"{photos(len(scores))}, that difference {verdict}.</p>\n"
        f'<div class="beside">\n{_diagram(scores)}{table("=confidence =accuracy =photos", rows)}</div>\n',
    )


def _diagram(scores: Scores) -> str:
    """Draw groups of photos: accuracy over confidence, with circles whose area is the number of photos."""
    groups = sorted(scores.reliability(), key=lambda group: -group.images)  # small circles are drawn above large ones
    drawn = '<path class="diagonal" d="M0 100L100 0"/>\n'
    for group in groups:
        low, high = interval(round(group.accuracy * group.images), group.images)
        x, radius = f"{100 * group.confidence:.1f}", 5.5 * math.sqrt(group.images / groups[0].images)
        drawn += (
            f"<g><title>{photos(group.images)}: confidence {percent(group.confidence)}, accuracy "
            f"{percent(group.accuracy)}</title>"
            f'<path class="spread" d="M{x} {100 - 100 * low:.1f}V{100 - 100 * high:.1f}"/>'
            f'<circle cx="{x}" cy="{100 - 100 * group.accuracy:.1f}" r="{radius:.1f}"/></g>\n'
        )
    words = (
        "A circle is a group of photos, and its area their number. A line is the 95&nbsp;% interval. On the dashed "
        "line, accuracy equals confidence."
    )
    axes = "confidence in %", "accuracy in %"
    return _square("Accuracy by confidence. The table has the same numbers.", drawn, axes, words)


def _square(label: str, drawn: str, axes: tuple[str, str], caption: str) -> str:
    """Return a drawing of two shares in percent, in a square of 100 by 100 with its grid and axes."""
    grid = "".join(
        f'<path class="grid" d="M{tick} 0V100M0 {tick}H100"/>'
        f'<text x="{tick}" y="107" text-anchor="middle">{tick}</text>'
        f'<text x="-3" y="{101.5 - tick}" text-anchor="end">{tick}</text>\n'
        for tick in (0, 25, 50, 75, 100)
    )
    return (
        f'<figure><svg viewBox="-17 -7 124 124" role="img" aria-label="{escaped(label)}">\n{grid}{drawn}'
        f'<text x="50" y="115" text-anchor="middle">{escaped(axes[0])}</text>\n'
        f'<text transform="translate(-13 50) rotate(-90)" text-anchor="middle">{escaped(axes[1])}</text>\n</svg>\n'
        f"<figcaption>{caption}</figcaption></figure>\n"
    )


# --- photos and their evidence ----------------------------------------------------------------------------------------


def _mistakes(scores: Scores, mistakes: Iterable[Evidence], no_pulls: str | None) -> str:
    cards = [_mistake(scores, evidence) for evidence in mistakes]
    legend = "Each photo, then the photo bright where it supports the predicted class, and the true class."
    note = f"<p>{prose(no_pulls)}</p>\n" if no_pulls else ""
    listed = f'<p>{legend}</p>\n{note}<ol class="mistakes">\n{"".join(cards)}</ol>\n'
    return section("Mistakes with the highest confidence", listed) if any(cards) else ""


def _mistake(scores: Scores, evidence: Evidence) -> str:
    """Draw a photo, and beside it the photo bright where it supports two classes; nothing if it cannot be read."""
    try:
        image = None if evidence.photo is None else load_image(evidence.photo, SHOWN).convert("RGB")
    except PhotoError:
        return ""
    if image is None:
        return ""
    index = scores.names.index(evidence.name)
    expected, predicted = (scores.classes[numbers[index]] for numbers in (scores.expected, scores.predicted))
    answer, share = f"Named {isolated(predicted)}", percent(float(scores.confidence[index]))
    sure = f"confidence {share}"
    if scores.rejected[index]:
        answer, sure = "None of these", f"likeliest: {isolated(predicted)}, {share}"
    image.thumbnail((_SIDE, _SIDE))
    drawn = figure(image, f"The photo {evidence.name}", "the photo")
    for label in (predicted, expected):
        words = f"The photo, bright where it supports {label}"
        drawn += figure(glow(evidence, image, label), words, f"for {isolated(label)}")
    pulls = ", ".join(f"{isolated(pull.name)} ({percent(pull.share)})" for pull in evidence.pulls)
    pulled = f'<p class="small">Training photos that pulled it to {isolated(predicted)}: {pulls}</p>\n' if pulls else ""
    return (
        f"<li>\n<h3>{answer}, is {isolated(expected)}</h3>\n"
        f'<p class="small">{sure} &middot; {isolated(evidence.name)}</p>\n'
        f'<div class="pictures">\n{drawn}</div>\n{pulled}</li>\n'
    )


# --- none of these ----------------------------------------------------------------------------------------------------


def _rejection(scores: Scores) -> str:
    """Return the section, with the answers for photos of unknown classes if there are any."""
    drawn = _plotted(
        *scores.named_curve(),
        (float(scores.rejected.mean()), scores.accuracy_of_named),
        ("rejected photos in %", "accuracy on the others in %"),
        "Accuracy on the photos that are not rejected, by the share that is.",
    )
    words, unknown = _of_known(scores), ""
    if scores.strangers is not None:
        of_known, of_strangers = scores.strangers.curve(scores.decisive)
        at = float(scores.rejected.mean()), float(scores.strangers.rejected.mean())
        axes = "rejected photos of known classes in %", "rejected strangers in %"
        drawn += _plotted(of_known, of_strangers, at, axes, "Rejected strangers, by the price in known photos.")
        words += _of_strangers(scores, scores.strangers)
        unknown = _unknown_classes(scores.strangers)
    return section("None of these", f'{words}<div class="curves">\n{drawn}</div>\n{unknown}')


def _of_known(scores: Scores) -> str:
    count, share = int(scores.rejected.sum()), percent(scores.threshold, int(scores.threshold < 0.1))
    rule = f"fewer than {share} of the photos of its classes that were held out of the training look as strange"
    if scores.familiarity is None:
        rule = f"the likeliest class has a probability below {share}"
    others = f" Of all others, {percent(scores.accuracy_of_named, 1)} are classified correctly." if count else ""
    return (
        f"<p>The model answers &ldquo;none of these&rdquo; for a photo if {rule}. Here, these are {count:,} of "
        f"{photos(len(scores))} of its classes, and the likeliest class is right for {scores.rejected_right:,} of them."
        f"{others} Elsewhere on this page, the likeliest class is the answer.</p>\n"
    )


def _of_strangers(scores: Scores, strangers: Strangers) -> str:
    count = int(strangers.rejected.sum())
    return (
        f"<p>Of {photos(len(strangers))} of classes that it does not know, {count:,} "
        f"({percent(count / len(strangers), 1)}) are rejected. A photo of a known class is more familiar than one of "
        f"an unknown class in {percent(strangers.auroc(scores.decisive), 1)} of all pairs (AUROC).</p>\n"
    )


def _unknown_classes(strangers: Strangers) -> str:
    """Return the unknown classes, where they have names."""
    if not any(strangers.labels):
        return ""
    rows = [
        row(label or "no class", number(count), bar(rejected / count), f"<td>{isolated(most)}</td>")
        for label, count, rejected, most in strangers.by_class()
    ]
    heads = "unknown&nbsp;class =photos ^rejected others&nbsp;named&nbsp;mostly"
    return f"<h3>Unknown classes</h3>\n{folded(heads, rows, 'unknown classes')}"


def _plotted(across: Floats, up: Floats, at: tuple[float, float], axes: tuple[str, str], words: str) -> str:
    """Draw a curve of two shares, both from 0 to 1, with a dot at the present threshold."""
    # Points are rounded to what can be seen, and drawn once: a curve has at most some hundred of them.
    points = dict.fromkeys(f"{100 * x:.1f} {100 - 100 * y:.1f}" for x, y in zip(across, up, strict=True))
    dot = "" if np.isnan(at[1]) else f'<circle cx="{100 * at[0]:.1f}" cy="{100 - 100 * at[1]:.1f}" r="2.2"/>\n'
    drawn = f'<path class="curve" d="M{"L".join(points)}"/>\n{dot}'
    return _square(words, drawn, axes, f"{escaped(words)} The dot is the threshold of this page.")


# --- how it was made --------------------------------------------------------------------------------------------------


def _making(model: Model) -> str:
    about, recipe = model.about, model.recipe
    made = about.made
    counts = [about.images.get(label, 0) for label in model.classes]
    added = [
        f"{escaped(one['date'])}: "
        + some([f"{count:,} of {isolated(label)}" for label, count in one["images"].items()], _MAX_LISTED)
        for one in about.added
    ]
    each = " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
    facts = {
        "learned from": f"{photos(sum(counts))} of {len(counts):,} classes, {each} each",
        "added later": "<br>".join(added),
        "network": f"{isolated(recipe.network)}, read {escaped(recipe.activation)} its last activation; checksum of "
        f"its weights <code>{escaped(model.fingerprint)}</code>",
        "parts": f"{recipe.mode}, {_settings(dataclasses.asdict(recipe.sampling))}",
        "method": f"{model.kind}: {escaped(about.method)}",
        "settings": _settings(model.scorer.settings),
        "calibration": f"temperature {model.temperature:.3g}, &ldquo;none of these&rdquo; below a "
        f"{'probability' if model.familiarity is None else 'familiarity'} of {model.limit():.2f}",
        "made": f"by patchvote {escaped(made.get('patchvote', '?'))}, {escaped(made.get('date', '?'))}",
    }
    listed = "".join(f"<dt>{term}</dt><dd>{fact}</dd>\n" for term, fact in facts.items() if fact)
    body = (
        "<p>A network describes parts of a photo by numbers, one vector per part; each part votes for the classes, and "
        f"the mean of the votes decides.</p>\n<dl>\n{listed}</dl>\n"
    )
    return section("How it was made", body)


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"<code>{escaped(name)}={escaped(value)}</code>" for name, value in settings.items())
