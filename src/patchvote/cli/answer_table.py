"""Answers as a table for people: a header, and one line per photo, in columns that are aligned from the first line on.

Lines are printed as answers come, so the widths of the columns are computed before, from what is known then: the names
of all photos and classes, and the width of the terminal. The name of a photo is never cut, since people copy it: one
that is too long for its column stands on a line of its own, above its answer. In a narrow terminal, the runner-up is
left out where that lets the names stand beside their answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from ..models.answers import Answer
from ..utils.columns import padded, shortened, width
from ..utils.counting import counted
from ..utils.terminal import printable
from ..voters.votes import NONE
from .answers import LIKELIEST, SHOWN, Wanted

_LEAST_LABEL, _MOST_LABEL = 22, 40  # columns
_MOST_NAMES = 0.9  # share of the photos whose names are to fit beside their answers; a few long ones do not decide
_GAP = "  "
_HEADS = ("photo", "class", "probability", "next likeliest")
_UNREADABLE = "cannot be read"


@dataclasses.dataclass(frozen=True)
class Table:
    """The widths of the columns.

    Parameters
    ----------
    name, label, second : int
        Columns of the terminal for the photo, its class, and the runner-up; none for the runner-up if it is not shown.
    wanted : Wanted
        Further classes, which are listed below the likeliest, on a line each.
    """

    name: int
    label: int
    second: int
    wanted: Wanted = LIKELIEST

    @classmethod
    def of(
        cls, names: Iterable[str], classes: Sequence[str], columns: int | None = None, wanted: Wanted = LIKELIEST
    ) -> Table:
        """Return the table of some photos and classes, as wide as they need and no wider than the terminal."""
        below = wanted.every or wanted.top > 1  # the others are listed there, and have no column
        longest = max(width(printable(label)) for label in classes)
        label = min(max(longest + len(f"{NONE} (?)"), len(_UNREADABLE)), _MOST_LABEL)
        second = 0 if below else max(min(longest, _MOST_LABEL) + len(" 100 %"), len(_HEADS[3]))
        widths = sorted(width(printable(name)) for name in names)
        name = max([len(_HEADS[0]), *widths])
        if columns is None:
            return cls(name, label, second, wanted)
        label = min(label, max(_LEAST_LABEL, columns - len(_HEADS[2]) - 2 * len(_GAP) - len(_HEADS[0])))
        most = max(len(_HEADS[0]), widths[int(_MOST_NAMES * (len(widths) - 1))] if widths else 0)
        seconds = sorted({second, min(second, len(_HEADS[3])), 0}, reverse=True)
        # Rather one line per photo without the runner-up than two with it; if names do not fit anyway, with it.
        for least in (most, len(_HEADS[0])):
            for runner_up in seconds:
                room = columns - len(_HEADS[2]) - label - runner_up - (3 if runner_up else 2) * len(_GAP)
                if room >= least:
                    return cls(min(name, room), label, runner_up, wanted)
        return cls(len(_HEADS[0]), label, 0, wanted)

    def lines(self, answers: Iterable[Answer]) -> Iterator[str]:
        """Yield the header, then the answers, each on one line, and one line per further class that is wanted."""
        yield self._row(_HEADS[0], _HEADS[1], _HEADS[2], _HEADS[3] if self.second else "")
        for answer in answers:
            name = printable(answer.name)
            if width(name) > self.name:
                yield name
                name = ""
            if answer.error is not None:
                yield self._row(name, _UNREADABLE, "", "")
                continue
            label = f"{NONE} ({answer.label}?)" if answer.rejected else answer.label or ""
            second = "" if not self.second else f"{answer.runner_up} {100 * answer.runner_up_probability:.0f} %"
            yield self._row(name, label, f"{100 * answer.probability:.0f} %", second)
            for other, probability in self.wanted.shown(answer):
                yield self._row("", other, f"{100 * probability:.0f} %", "")
            if left_out := self.wanted.left_out(answer):
                yield self._row("", counted(left_out, "more class", "more classes"), f"< {100 * SHOWN:g} %", "")

    def _row(self, name: str, label: str, probability: str, second: str) -> str:
        cells = (
            padded(name, self.name),
            padded(shortened(printable(label), self.label, keep_start=True), self.label),
            probability.rjust(len(_HEADS[2])),
            shortened(printable(second), self.second),
        )
        return _GAP.join(cells).rstrip()
