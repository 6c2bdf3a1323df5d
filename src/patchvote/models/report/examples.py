"""The section of a report that shows photos beside the parts that vote for their classes."""

from __future__ import annotations

from collections.abc import Iterable

from PIL import Image

from ...voters.votes import NONE
from ..evidence import Evidence
from .elements import data, escaped, isolated, percent, section
from .picture import glow

_MAX_CLASSES = 4  # pictures beside a photo
_LEAST = 0.1  # probability of a class that is drawn, besides the likeliest
_SIDE = 320  # longest side of a picture in pixels


def examples(shown: Iterable[tuple[Evidence, Image.Image]]) -> str:
    """Return the section; nothing where there are no examples.

    Parameters
    ----------
    shown : iterable of (Evidence, Pillow image)
        Evidence of each example, and the photo, upright.
    """
    cards = [_card(evidence, image) for evidence, image in shown]
    if not cards:
        return ""
    legend = (
        "Each photo, then the photo bright where its parts vote for a class: the likeliest, and others of 10&nbsp;% or "
        "more. The model was never told where in a photo its class is."
    )
    return section("Where the evidence is", f'<p>{legend}</p>\n<ol class="mistakes">\n{"".join(cards)}</ol>\n')


def _card(evidence: Evidence, image: Image.Image) -> str:
    small = image.convert("RGB")
    small.thumbnail((_SIDE, _SIDE))
    likely = [label for label in evidence.ranking if evidence.probability[evidence.number(label)] >= _LEAST]
    pictures = [(small, f"The photo {evidence.name}", f"the photo: {NONE}" if evidence.rejected else "the photo")]
    for label in (likely or evidence.ranking[:1])[:_MAX_CLASSES]:
        share = "" if evidence.rejected else f", {percent(evidence.probability[evidence.number(label)])}"
        caption = f"{isolated(label)}{share}"
        pictures.append((glow(evidence, small, label), f"The photo, bright where it supports {label}", caption))
    drawn = "".join(
        f'<figure><img src="{data(picture)}" width="{picture.width}" height="{picture.height}" alt="{escaped(alt)}">'
        f"<figcaption>{caption}</figcaption></figure>\n"
        for picture, alt, caption in pictures
    )
    wide = ' class="wide"' if len(pictures) > 3 else ""
    return f'<li{wide}>\n<h3>{isolated(evidence.name)}</h3>\n<div class="pictures">\n{drawn}</div>\n</li>\n'
