"""The section of a report on "none of these": what is rejected, at which price, and curves over all thresholds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..scores import Scores
from ..strangers import Strangers
from .elements import bar, escaped, folded, isolated, number, percent, photos, section

_TICKS = (0, 25, 50, 75, 100)
Floats = npt.NDArray[np.float64]


def rejection(scores: Scores) -> str:
    """Return the section, with the answers for photos of unknown classes if there are any."""
    known = curve(
        *scores.named_curve(),
        (float(scores.rejected.mean()), scores.accuracy_of_named),
        ("rejected photos in %", "accuracy on the others in %"),
        "Accuracy on the photos that are not rejected, by the share that is.",
    )
    figures, words = [known], _of_known(scores)
    if scores.strangers is not None:
        of_known, of_strangers = scores.strangers.curve(scores.decisive)
        at = float(scores.rejected.mean()), float(scores.strangers.rejected.mean())
        axes = "rejected photos of known classes in %", "rejected strangers in %"
        figures.append(curve(of_known, of_strangers, at, axes, "Rejected strangers, by the price in known photos."))
        words += _of_strangers(scores, scores.strangers)
    drawn = "".join(figures)
    return section("None of these", f'{words}<div class="curves">\n{drawn}</div>\n{_table(scores.strangers)}')


def _of_known(scores: Scores) -> str:
    rejected, count = scores.rejected, int(scores.rejected.sum())
    if scores.familiarity is None:
        rule = f"the likeliest class has a probability below {percent(scores.threshold)}"
    else:
        share = percent(scores.threshold, int(scores.threshold < 0.1))
        rule = f"fewer than {share} of the photos of its classes that were held out of the training look as strange"
    sentence = "No photo of its classes was rejected here."
    if count:
        right = scores.rejected_right
        sentence = (
            f"Here, these are {count:,} of {photos(len(scores))} ({percent(count / len(scores))}) of its classes. The "
            f"likeliest class is right for {right:,} of them, and wrong for {count - right:,}."
        )
        if not rejected.all():
            sentence += f" Of all others, {percent(scores.accuracy_of_named, 1)} are classified correctly."
        sentence += " Elsewhere on this page, the likeliest class is the answer."
    return f"<p>The model answers &ldquo;none of these&rdquo; for a photo if {rule}. {sentence}</p>\n"


def _of_strangers(scores: Scores, strangers: Strangers) -> str:
    count = int(strangers.rejected.sum())
    return (
        f"<p>Of {photos(len(strangers))} of classes that it does not know, {count:,} "
        f"({percent(count / len(strangers), 1)}) are rejected. A photo of a known class is more familiar than one of "
        f"an unknown class in {percent(strangers.auroc(scores.decisive), 1)} of all pairs (AUROC).</p>\n"
    )


def _table(strangers: Strangers | None) -> str:
    """Return the unknown classes, where they have names."""
    if strangers is None or not any(strangers.labels):
        return ""
    rows = [
        f'<tr><th scope="row">{isolated(label) if label else "no class"}</th>{number(count)}{bar(rejected / count)}'
        f"<td>{isolated(most)}</td></tr>\n"
        for label, count, rejected, most in strangers.by_class()
    ]
    heads = "unknown&nbsp;class =photos ^rejected others&nbsp;named&nbsp;mostly"
    return f"<h3>Unknown classes</h3>\n{folded(heads, rows, 'unknown classes')}"


def curve(across: Floats, up: Floats, at: tuple[float, float], axes: tuple[str, str], words: str) -> str:
    """Draw a curve of two shares, both from 0 to 1.

    Parameters
    ----------
    across, up : arrays of the same length
        Shares on the horizontal and the vertical axis.
    at : tuple of float
        Place of the present threshold.
    axes : tuple of str
        Names of the axes.
    words : str
        Caption.
    """
    grid = "".join(
        f'<path class="grid" d="M{tick} 0V100M0 {tick}H100"/>'
        f'<text x="{tick}" y="107" text-anchor="middle">{tick}</text>'
        f'<text x="-3" y="{101.5 - tick}" text-anchor="end">{tick}</text>\n'
        for tick in _TICKS
    )
    # Points are rounded to what can be seen, and drawn once: a curve has at most some hundred of them.
    points = dict.fromkeys(f"{100 * x:.1f} {100 - 100 * y:.1f}" for x, y in zip(across, up, strict=True))
    mark = "" if np.isnan(at[1]) else f'<circle cx="{100 * at[0]:.1f}" cy="{100 - 100 * at[1]:.1f}" r="2.2"/>\n'
    return (
        f'<figure><svg viewBox="-17 -7 124 124" role="img" aria-label="{escaped(words)}">\n{grid}'
        f'<path class="curve" d="M{"L".join(points)}"/>\n{mark}'
        f'<text x="50" y="115" text-anchor="middle">{escaped(axes[0])}</text>\n'
        f'<text transform="translate(-13 50) rotate(-90)" text-anchor="middle">{escaped(axes[1])}</text>\n</svg>\n'
        f"<figcaption>{escaped(words)} The dot is the threshold of this page.</figcaption></figure>\n"
    )
