"""The learning curve: how accurate a voter is that learns from a part of the photos, and whether more would help.

The answers of a voter that learned from a quarter or half of the photos follow from the equations of the regression,
without another training (`voters.ridge`). From half to all of the
photos the errors shrink by some factor; the same factor is expected of twice as many. That is a guess from two points,
and is worded as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.terminal import counted, some
from .about import Plain
from .report.card import FEW

_SHARES = (0.25, 0.5)  # of the photos of every class; at least one is kept
_DRAWS = 2  # of the photos that are kept
_FEWEST = 30  # left-out photos below which a curve would show chance alone
_MOST = 3_000  # photos: with more, the equations for half of them take minutes
_SMALL = 0.005  # gain of accuracy by twice as many photos below which they are not worth the work

Numbers = npt.NDArray[np.int64]


def learning_curve(voter: Any, numbers: Numbers, groups: Numbers, seed: int) -> list[Plain]:
    """Return the points of the curve, the fewest photos first; none if there are too few photos, or very many.

    The voter is a fitted `MomentRidge`; of each photo, the number of its class and its group are given, and photos of a
    group are never on both sides. A share of less than one photo per class is left out: one photo of each class is
    always kept, so such a point would be of more photos than it says.
    """
    answers = voter.left_out_
    asked = ~np.isnan(answers[:, 0])
    if asked.sum() < _FEWEST or len(numbers) > _MOST:
        return []
    per_class = len(numbers) / (int(numbers.max()) + 1)
    points = []
    for share in _SHARES:
        if share * per_class < 1:
            continue
        right = [_right_of_part(voter, numbers, groups, share, seed + draw) for draw in range(_DRAWS)]
        if sum(map(len, right)) < _FEWEST:
            return []
        points.append({"photos": round(per_class * share, 1), "accuracy": float(np.concatenate(right).mean())})
    full = float((answers[asked].argmax(axis=1) == numbers[asked]).mean())
    return [*points, {"photos": round(per_class, 1), "accuracy": full}]


def _right_of_part(voter: Any, numbers: Numbers, groups: Numbers, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which answers are right for the photos outside of a share of every class, from that share alone."""
    rng, kept = np.random.default_rng(seed), np.zeros(len(numbers), bool)
    for number in np.unique(numbers):
        rows = rng.permutation(np.flatnonzero(numbers == number))
        kept[rows[: max(1, round(share * len(rows)))]] = True
    answers = voter.solved_.ridge.learned_from(voter.alphas_, np.flatnonzero(kept))
    asked = ~kept & ~np.isin(groups, groups[kept])
    return np.asarray(answers[asked].argmax(axis=1) == numbers[asked])


def expected_gain(curve: Sequence[Plain]) -> float:
    """Return the gain of accuracy to expect of twice as many photos: errors shrink again as from half to all."""
    before, now = 1 - curve[-2]["accuracy"], 1 - curve[-1]["accuracy"]
    return max(0.0, now * (1 - now / before)) if before > 0 else 0.0


def enough_sentence(curve: Sequence[Plain], classes: Mapping[str, Any], few: Sequence[str] = ()) -> str:
    """Return whether more photos would help, and of which class; without a curve, why that is not known.

    `classes` are those of `Scores.summary`, and of the `few`, few photos were learned from.
    """
    hardest = hardest_class(classes) if len(curve) > 1 else None
    few = [label for label in few if hardest is None or label != hardest[0]]
    rare = f"{some(few)} (fewer than {FEW} photos)"
    if len(curve) < 2:
        images = sum(one["images"] for one in classes.values())
        held_out = f"{counted(images, 'photo was', 'photos were')} held out"
        why = f"cannot be told: {held_out}, and {_FEWEST} are the least"
        if curve or images >= _FEWEST:
            why = f"is known of the default voter alone, with 2 photos per class at least and {_MOST:,} in all at most"
        return f"Whether more photos would help {why}.{f' If you add some, begin with {rare}.' if few else ''}"
    half, full = (f"{100 * point['accuracy']:.1f} %" for point in curve[-2:])
    seen = f"learning from half of the photos, {half} were right, from all {full}"
    gain = expected_gain(curve)
    if gain < _SMALL:
        return (
            f"More photos of the same kind would probably help little: {seen}"
            f"{f'; of {rare}, that is less certain' if few else ''}."
        )
    helpful = [rare] if few else []
    if hardest is not None:
        label, missed, images = hardest
        helpful.insert(0, f"{label} ({missed} of {counted(images, 'photo')} missed)")
    above_all = f", above all of {' and of '.join(helpful)}" if helpful else ""
    return (
        f"More photos would probably help: {seen}; twice as many might bring about {100 * gain:.1f} points more"
        f"{above_all}."
    )


def hardest_class(classes: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """Return the class with the most missed photos, of equals the one with the smallest share found."""
    missed = [
        (round(one["images"] * (1 - one["found"])), -one["found"], label, one["images"])
        for label, one in classes.items()
        if one["images"] and one.get("found") is not None
    ]
    if not missed or max(missed)[0] == 0:
        return None
    count, _, label, images = max(missed)
    return label, count, images
