"""Progress of a protocol: extracted photos, finished cells, and photos that cannot be read."""

from __future__ import annotations

from ..bags.filled import Filled
from ..protocols.experiment import Experiment, Watch
from ..protocols.plan import Group
from ..protocols.runner import Cell
from ..utils.terminal import say
from .progress import ProgressLine


def announce(experiment: Experiment) -> None:
    """Print what will be computed."""
    say(
        f"{experiment.protocol.title}: {experiment.photos:,} photos; {experiment.cells} cells to compute, "
        f"{experiment.finished} finished already."
    )


class Progress(Watch):
    """Shows on standard error what an experiment does.

    Parameters
    ----------
    line : ProgressLine
        Line that shows the progress.
    quiet : bool
        Whether to print only the photos that cannot be read.
    """

    def __init__(self, line: ProgressLine, quiet: bool) -> None:
        self._line, self._quiet = line, quiet
        self._skipped: set[str] = set()
        self._cells = self._done = 0

    def planned(self, experiment: Experiment) -> None:
        """Print what will be computed."""
        self._cells = experiment.cells
        if not self._quiet:
            announce(experiment)

    def extracting(self, recipe: str, done: Filled) -> None:
        """Show how much is extracted, and print each photo that cannot be read once."""
        self._line.stage(f"extract {recipe}", done.done, done.photos)
        for error in done.skipped:
            if error.name not in self._skipped:
                self._skipped.add(error.name)
                say(f"skipped {error}")

    def finished(self, group: Group, voter: str, cell: Cell) -> None:
        """Print the accuracy of a cell."""
        self._done += 1
        if not self._quiet:
            seconds = cell["train_seconds"] + cell["test_seconds"]
            say(f"{group.words}, {group.recipe}, {voter}: {cell['accuracy']:.2f} % in {seconds:.1f} s")
        self._line.stage("vote", self._done, self._cells)
