"""The learning curve: how accurate a voter is that learns from a part of the photos, and whether more would help.

The answers of a voter that learned from a quarter or half of the photos are those for the other photos, all left out
together: the equations of the regression give them without another training (`voters.ridge`). From half to all of the
photos the errors shrink by some factor; the same factor is expected of twice as many. That is a guess from two points,
and is worded as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.terminal import counted
from .about import CurvePoint
from .report.card import FEW, some

_SHARES = (0.5, 0.25)  # of the photos of every class; at least one is kept
_DRAWS = 2  # of the photos that are kept
_FEWEST = 30  # left-out photos below which a curve would show chance alone
_MOST = 3_000  # photos: with more, the equations for half of them take minutes
_SMALL = 0.005  # gain of accuracy by twice as many photos below which they are not worth the work

Numbers = npt.NDArray[np.int64]


def learning_curve(voter: Any, numbers: Numbers, groups: Numbers, seed: int) -> list[CurvePoint]:
    """Return the points of the curve, the fewest photos first; none if there are too few photos, or very many.

    A share of less than one photo per class is left out: one photo of each class is always kept, so such a point would
    be of more photos than it says. If half of the photos is that little, only the point of all is left.

    Parameters
    ----------
    voter : MomentRidge
        Fitted voter.
    numbers, groups : arrays of int
        Class number and group of each photo; photos of a group are never on both sides.
    seed : int
        Seed of the choice of photos.
    """
    answers = voter.left_out_
    asked = ~np.isnan(answers[:, 0])
    if not asked.sum() >= _FEWEST or len(numbers) > _MOST:
        return []
    per_class = len(numbers) / (int(numbers.max()) + 1)
    points = []
    for share in sorted(_SHARES):
        if share * per_class < 1:
            continue
        right = [_right_of_part(voter, numbers, groups, share, seed + draw) for draw in range(_DRAWS)]
        if sum(map(len, right)) < _FEWEST:
            return []
        points.append(CurvePoint(photos=round(per_class * share, 1), accuracy=float(np.concatenate(right).mean())))
    full = float((answers[asked].argmax(axis=1) == numbers[asked]).mean())
    return [*points, CurvePoint(photos=round(per_class, 1), accuracy=full)]


def _right_of_part(voter: Any, numbers: Numbers, groups: Numbers, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which answers are right for the photos outside of a share of every class, from that share alone."""
    rng, kept = np.random.default_rng(seed), np.zeros(len(numbers), bool)
    for number in np.unique(numbers):
        rows = rng.permutation(np.flatnonzero(numbers == number))
        kept[rows[: max(1, round(share * len(rows)))]] = True
    together = np.where(kept, np.arange(len(numbers)), -1)
    answers = voter.solved_.ridge.left_out(voter.alphas_, together)
    asked = ~kept & ~np.isin(groups, groups[kept])
    return np.asarray(answers[asked].argmax(axis=1) == numbers[asked])


def expected_gain(curve: Sequence[CurvePoint]) -> float:
    """Return the gain of accuracy to expect of twice as many photos: errors shrink again as from half to all.

    Examples
    --------
    >>> curve = [{"photos": 10, "accuracy": 0.8}, {"photos": 20, "accuracy": 0.9}]
    >>> round(expected_gain(curve), 3)
    0.05
    """
    before, now = 1 - curve[-2]["accuracy"], 1 - curve[-1]["accuracy"]
    return max(0.0, now * (1 - now / before)) if before > 0 else 0.0


def enough_sentence(
    curve: Sequence[CurvePoint],
    classes: dict[str, Any],
    text: Callable[[str], str] = str,
    few: Sequence[str] = (),
) -> str:
    """Return whether more photos would help, and of which class; without a curve, why that is not known.

    Parameters
    ----------
    curve : sequence of CurvePoint
        The learning curve.
    classes : dict
        Photos that were held out of each class (`images`), and the share of them that was found.
    text : function
        Escapes a name for the format of the output.
    few : sequence of str
        Classes of which few photos were learned from; what is said of these agrees with all else.

    Examples
    --------
    >>> enough_sentence([], {"cat": {"images": 4, "found": 1.0}})
    'Whether more photos would help cannot be told: 4 photos were held out, and 30 are the least.'
    """
    if len(curve) < 2:
        images = sum(one["images"] for one in classes.values())
        if len(curve) == 1:  # see `learning_curve`
            photos = f"{curve[0]['photos']:g} {'photo' if curve[0]['photos'] == 1 else 'photos'}"
            return (
                f"Whether more photos would help cannot be told: while others were held out, it learned from {photos} "
                "per class, and half of that is less than one photo." + _begin_with(few, text)
            )
        if images >= _FEWEST:
            return (
                "Whether more photos would help was not measured: `fit` with a larger --budget of time does it."
                + _begin_with(few, text)
            )
        held_out = counted(images, "photo was", "photos were")
        return (
            f"Whether more photos would help cannot be told: {held_out} held out, and {_FEWEST} are the least."
            + _begin_with(few, text)
        )
    half, full = curve[-2], curve[-1]
    gain = expected_gain(curve)
    seen = (
        f"learning from half of the photos, {100 * half['accuracy']:.1f} % were right, from all "
        f"{100 * full['accuracy']:.1f} %"
    )
    if gain < _SMALL:
        rare = f"; of {_rare(few, text)}, that is less certain" if few else ""
        return f"More photos of the same kind would probably help little: {seen}{rare}."
    hardest = hardest_class(classes)
    of_class = ""
    if hardest is not None:
        label, missed, images = hardest
        of_class = f", above all of {text(label)} ({missed} of {counted(images, 'photo')} missed)"
    others = [label for label in few if hardest is None or label != hardest[0]]
    if others:
        of_class += f"{' and' if of_class else ', above all'} of {_rare(others, text)}"
    return (
        f"More photos would probably help: {seen}; twice as many might bring about {100 * gain:.1f} points more"
        f"{of_class}."
    )


def _begin_with(few: Sequence[str], text: Callable[[str], str]) -> str:
    """Return where to add photos if one does, where it is not known whether they help."""
    return f" If you add some, begin with {_rare(few, text)}." if few else ""


def _rare(few: Sequence[str], text: Callable[[str], str]) -> str:
    return f"{some([text(label) for label in few])} (fewer than {FEW} photos)"


def hardest_class(classes: dict[str, Any]) -> tuple[str, int, int] | None:
    """Return the class with the most missed photos, of equals the one with the smallest share found."""
    missed = [
        (round(one["images"] * (1 - one["found"])), -one["found"], label, one["images"])
        for label, one in classes.items()
        if one["images"] and one.get("found") is not None and not math.isnan(one["found"])
    ]
    if not missed or max(missed)[0] == 0:
        return None
    count, _, label, images = max(missed)
    return label, count, images
