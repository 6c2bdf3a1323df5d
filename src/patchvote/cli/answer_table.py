"""Answers as a table for people: a header, and one line per photo, in columns that are aligned from the first line on.

Lines are printed as answers come, so the widths of the columns are computed before, from what is known then: the names
of all photos and classes, and the width of the terminal. The name of a photo is never cut, since people copy it: one
that is too long for its column stands on a line of its own, above its answer.
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

_LEAST_NAME, _LEAST_LABEL, _MOST_LABEL = 16, 22, 40  # columns
_GAP = "  "
_HEADS = ("photo", "class", "probability", "next likeliest")
_UNREADABLE = "cannot be read"


@dataclasses.dataclass(frozen=True)
class Table:
    """The widths of the columns.

    Parameters
    ----------
    name, label, second : int
        Columns of the terminal for the photo, its class, and the runner-up.
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
        name = max([len(_HEADS[0]), *(width(printable(name)) for name in names)])
        if columns is not None:
            left = columns - len(_HEADS[2]) - 3 * len(_GAP)
            least = min(second, len(_HEADS[3]))
            label = min(label, max(_LEAST_LABEL, left - _LEAST_NAME - least))
            second = min(second, max(least, left - _LEAST_NAME - label))
            name = min(name, max(_LEAST_NAME, left - label - second))
        return cls(name, label, second, wanted)

    def lines(self, answers: Iterable[Answer]) -> Iterator[str]:
        """Yield the header, then the answers, each on one line, and one line per further class that is wanted."""
        below = self.wanted.every or self.wanted.top > 1
        yield self._row(_HEADS[0], _HEADS[1], _HEADS[2], "" if below else _HEADS[3])
        for answer in answers:
            name = printable(answer.name)
            if width(name) > self.name:
                yield name
                name = ""
            if answer.error is not None:
                yield self._row(name, _UNREADABLE, "", "")
                continue
            label = f"{NONE} ({answer.label}?)" if answer.rejected else answer.label or ""
            second = "" if below else f"{answer.runner_up} {100 * answer.runner_up_probability:.0f} %"
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
