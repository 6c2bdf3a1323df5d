"""What a notebook shows of scores, evidence and classifiers: short HTML, and pictures.

Everything that comes from data (names of photos and classes) is escaped.
"""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import PatchvoteError
from ..photos.decode import SHOWN, load_image
from ..utils.terminal import printable
from ..voters.votes import NONE

if TYPE_CHECKING:
    from PIL import Image

    from .evidence import Evidence
    from .model import Model
    from .scores import Scores

_MAX_ROWS = 20  # classes that a table shows


def picture_of(evidence: Evidence, labels: list[str] | None, side: int) -> Image.Image:
    """Return the picture that `explain` draws, or the maps alone where the photo is not at hand."""
    from PIL import Image

    from ..errors import PhotoError
    from .report.picture import draw

    photo = None
    if evidence.photo is not None:
        try:
            photo = load_image(evidence.photo, SHOWN)
        except PhotoError:  # it was moved or removed since
            photo = None
    return draw(evidence, photo or Image.new("RGB", (side, side), "white"), labels, side)


def evidence_html(evidence: Evidence) -> str:
    """Return the picture of a photo's evidence, with the likeliest classes below."""
    from .report.picture import encoded

    picture = base64.b64encode(encoded(picture_of(evidence, None, 280))).decode()
    rows = [(label, float(evidence.probability[evidence.number(label)])) for label in evidence.ranking[:5]]
    likely = ", ".join(f"{_text(label)} {100 * share:.0f}&nbsp;%" for label, share in rows)
    verdict = f"<b>{NONE}</b><br><small>likeliest: {likely}</small>" if evidence.rejected else likely
    return (
        f'<figure style="margin:0"><img alt="evidence of {_text(evidence.name)}" style="max-width:100%" '
        f'src="data:image/png;base64,{picture}"><figcaption>{verdict}{_pulled(evidence)}</figcaption></figure>'
    )


def _pulled(evidence: Evidence) -> str:
    """Name the training photos that pulled a photo to its class."""
    named = ", ".join(f"{_text(pull.name)} ({100 * pull.share:.0f}&nbsp;%)" for pull in evidence.pulls[:3])
    return f"<br><small>pulled most by the training photos {named}</small>" if named else ""


def scores_html(scores: Scores) -> str:
    """Return the accuracy with its interval, and the classes that are hardest to find."""
    low, high = scores.interval
    rows = sorted((one for one in scores.by_class() if one.images), key=lambda one: one.found)
    body = "".join(
        f"<tr><th>{_text(one.label)}</th><td>{one.images:,}</td><td>{100 * one.found:.0f}&nbsp;%</td></tr>"
        for one in rows[:_MAX_ROWS]
    )
    more = (
        f"<p>{len(rows) - _MAX_ROWS:,} more classes, none harder, are not shown.</p>" if len(rows) > _MAX_ROWS else ""
    )
    which = "training photos, held out while others were learned," if scores.held_out else "photos given to evaluate"
    return (
        f"<p><b>{100 * scores.accuracy:.1f}&nbsp;%</b> of {len(scores):,} {which} classified correctly "
        f"(95&nbsp;% interval {100 * low:.1f} to {100 * high:.1f})</p>"
        f"<table><thead><tr><th>class</th><th>photos</th><th>found</th></tr></thead><tbody>{body}</tbody></table>{more}"
    )


def model_html(model: Model | None, scores: Scores | None) -> str:
    """Return what a classifier has learned, in a few lines."""
    from .report.card import accuracy_of

    if model is None:
        return "<p>ImageClassifier that has learned nothing yet: call <code>fit</code>.</p>"
    shown = ", ".join(_text(label) for label in model.classes[:_MAX_ROWS])
    more = f" and {len(model.classes) - _MAX_ROWS:,} more" if len(model.classes) > _MAX_ROWS else ""
    head = f"<p>ImageClassifier ({_text(model.kind)}) of {len(model.classes):,} classes: {shown}{more}</p>"
    if scores is not None and len(scores):
        return head + scores_html(scores)
    return f"{head}<p>{_text(accuracy_of(model.about))}</p>"


def confusion_figure(scores: Scores) -> Any:
    """Return a figure of matplotlib with the confusion matrix, each row divided by its photos."""
    import numpy as np

    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PatchvoteError("plots need matplotlib: pip install 'patchvote[plots]'.") from None
    table, classes = scores.confusion, [printable(label) for label in scores.classes]
    side = min(12.0, 2.5 + 0.35 * len(classes))
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.subplots()
    axes.imshow(table / np.maximum(table.sum(axis=1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(classes)), classes, rotation=90, parse_math=False)
    axes.set_yticks(range(len(classes)), classes, parse_math=False)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    if len(classes) <= _MAX_ROWS:
        for (row, column), count in np.ndenumerate(table):
            if count:
                colour = "white" if count > table[row].sum() / 2 else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=colour)
    return figure


def _text(text: str) -> str:
    return escape(printable(text))
