"""Answers as a table for people: a header, and one line per photo, in columns that are aligned from the first line on.

Lines are printed as answers come, so the widths of the columns are computed before, from what is known then: the names
of all photos and classes, and the width of the terminal. The name of a photo is never cut, since people copy it: one
that is too long for its column stands on a line of its own, above its answer. In a narrow terminal, the runner-up is
left out where that lets the names stand beside their answers.

A photo that is "none of these" has no probability; its likeliest class stands apart, muted, in a column of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from ..models.answers import Answer
from ..utils.terminal import counted, muted, padded, printable, shortened, width
from .answers import LIKELIEST, SHOWN, Wanted

_LEAST_LIKELIEST, _MOST_LABEL = 22, 40  # columns
_MOST_NAMES = 0.9  # share of the photos whose names are to fit beside their answers; a few long ones do not decide
_GAP = "  "
_HEADS = ("photo", "class", "probability", "likeliest", "next likeliest")
_UNREADABLE = "cannot be read"  # longer than "none of these"


@dataclasses.dataclass(frozen=True)
class Table:
    """The widths of the columns.

    Parameters
    ----------
    name, label, likeliest, second : int
        Columns of the terminal for the photo, its class, the likeliest class of a photo that is none of them, and the
        runner-up; none for one that is not shown.
    wanted : Wanted
        Further classes, which are listed below the likeliest, on a line each.
    """

    name: int
    label: int
    likeliest: int
    second: int
    wanted: Wanted = LIKELIEST

    @classmethod
    def of(
        cls, names: Iterable[str], classes: Sequence[str], columns: int | None = None, wanted: Wanted = LIKELIEST
    ) -> Table:
        """Return the table of some photos and classes, as wide as they need and no wider than the terminal."""
        longest = max(width(printable(label)) for label in classes)
        label = min(max(longest, len(_UNREADABLE)), _MOST_LABEL)
        likeliest, second = (max(min(longest, _MOST_LABEL) + len(" 100 %"), len(head)) for head in _HEADS[3:])
        if wanted.below:  # the others are listed there, and have no column
            likeliest = second = 0
        widths = sorted(width(printable(name)) for name in names)
        name = max([len(_HEADS[0]), *widths])
        if columns is None:
            return cls(name, label, likeliest, second, wanted)
        narrow = min(likeliest, _LEAST_LIKELIEST)
        fixed = len(_HEADS[0]) + len(_HEADS[2]) + narrow + (3 if narrow else 2) * len(_GAP)
        label = min(label, max(len(_UNREADABLE), columns - fixed))
        most = max(len(_HEADS[0]), widths[int(_MOST_NAMES * (len(widths) - 1))] if widths else 0)
        least_likeliest = min(likeliest, len(_HEADS[3]))
        choices = [(likeliest, second), (likeliest, min(second, len(_HEADS[4]))), (likeliest, 0)]
        choices += [(narrow, 0), (least_likeliest, 0)]
        # Rather one line per photo without the runner-up than two with it; if names do not fit anyway, with it.
        for least in (most, len(_HEADS[0])):
            for first, runner_up in choices:
                taken = sum(len(_GAP) + cells for cells in (len(_HEADS[2]), label, first, runner_up) if cells)
                if columns - taken >= least:
                    return cls(min(name, columns - taken), label, first, runner_up, wanted)
        return cls(len(_HEADS[0]), label, least_likeliest, 0, wanted)

    def lines(self, answers: Iterable[Answer]) -> Iterator[str]:
        """Yield the header, then the answers, each on one line, and one line per further class that is wanted."""
        yield self._row(*_HEADS, faint=False)
        for answer in answers:
            name = printable(answer.name)
            if width(name) > self.name:
                yield name
                name = ""
            if answer.error is not None:
                yield self._row(name, _UNREADABLE)
                continue
            first = f"{answer.likeliest} {_percent(answer.likeliest_probability)}" if answer.rejected else ""
            second = f"{answer.runner_up} {_percent(answer.runner_up_probability)}"
            yield self._row(name, answer.label or "", _percent(answer.probability), first, second)
            for other, probability in self.wanted.shown(answer):
                yield self._row("", other, _percent(probability))
            if left_out := self.wanted.left_out(answer):
                yield self._row("", counted(left_out, "more class", "more classes"), f"< {100 * SHOWN:g} %")

    def _row(
        self, name: str, label: str, probability: str = "", likeliest: str = "", second: str = "", *, faint: bool = True
    ) -> str:
        cells = [
            padded(name, self.name),
            padded(shortened(printable(label), self.label, keep_start=True), self.label),
            probability.rjust(len(_HEADS[2])),
        ]
        if self.likeliest:
            likeliest = shortened(printable(likeliest), self.likeliest)
            cells.append((muted(likeliest) if faint else likeliest) + padded("", self.likeliest - width(likeliest)))
        if self.second:
            cells.append(shortened(printable(second), self.second))
        return _GAP.join(cells).rstrip()


def _percent(probability: float | None) -> str:
    return "" if probability is None else f"{100 * probability:.0f} %"
