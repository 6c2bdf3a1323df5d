"""Pictures of the best and the worst collage by the share of the evidence that is in its own quarter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from evidence_classifiers import DEFAULT, GRAD_CAM, POOLED, Looked
from evidence_measures import Map, as_drawn, own_share
from patchvote.models.report.picture import lit

if TYPE_CHECKING:
    from evidence import Pixels, Trials
    from patchvote import Photo

_ROWS = (("moment-ridge", DEFAULT), ("snbnl", DEFAULT), ("moment-ridge", "occlusion"), (POOLED, GRAD_CAM))
_PANEL, _GAP, _CAPTION = 150, 8, 22  # pixels
_QUALITY = 85  # of the JPEG files, which stay below 150 kB


def draw_cases(trials: Trials, test: dict[str, list[Photo]], count: int, folder: Path) -> None:
    """Draw the best and the worst of so many collages, by the maps of the default voter, with the maps of its peers."""
    from evidence import collage, draw_collages

    drawn = [(labels, collage(photos)) for labels, photos in draw_collages(test, count)]
    voter = trials.classifiers[0]
    shares = []
    for labels, pixels in drawn:
        maps = trials.collage_maps(voter, Looked(pixels, trials.bags([pixels])), labels, None)
        shares.append(np.mean([own_share(one[DEFAULT], quarter) for quarter, one in enumerate(maps)]))
    folder.mkdir(parents=True, exist_ok=True)
    for name, index in (("best", int(np.argmax(shares))), ("worst", int(np.argmin(shares)))):
        labels, pixels = drawn[index]
        _sheet(trials, labels, pixels).save(folder / f"evidence-{name}.jpg", quality=_QUALITY)
        print(f"{name} of {len(drawn)} collages: {', '.join(labels)}, share {shares[index]:.2f}", flush=True)


def _sheet(trials: Trials, labels: Sequence[str], pixels: Pixels) -> Image.Image:
    """Draw a row per method: the collage, and the map of each of its classes with the share in its own quarter."""
    looked, occluded = Looked(pixels, trials.bags([pixels])), trials.occluded(pixels)
    by_name = {one.name: trials.collage_maps(one, looked, labels, occluded) for one in trials.classifiers}
    rows = [(name, kind) for name, kind in _ROWS if name in by_name]
    step, high = _PANEL + _GAP, _PANEL + _CAPTION
    sheet = Image.new("RGB", (step * (1 + len(labels)) + _GAP, high * len(rows) + _GAP), (255, 255, 255))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    photo = Image.fromarray(pixels).resize((_PANEL, _PANEL), Image.Resampling.LANCZOS)
    for row, (name, kind) in enumerate(rows):
        top = _GAP + row * high
        sheet.paste(photo, (_GAP, top))
        title = GRAD_CAM if kind == GRAD_CAM else f"{name}: {'votes' if kind == DEFAULT else kind}"
        pen.text((_GAP, top + _PANEL + 3), title, (24, 26, 32), font)
        for quarter, label in enumerate(labels):
            values: Map = by_name[name][quarter][kind]
            left = _GAP + (1 + quarter) * step
            sheet.paste(lit(photo, as_drawn(values)), (left, top))
            caption = f"{label}: {100 * own_share(values, quarter):.0f} %"
            pen.text((left, top + _PANEL + 3), caption, (24, 26, 32), font)
    return sheet
