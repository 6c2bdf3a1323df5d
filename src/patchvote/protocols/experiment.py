"""A protocol on an image set: what is to be computed, how long that takes, and computing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ..bags.fill import Filled
from ..errors import PhotoError
from .datasets import read_dataset
from .estimate import estimate
from .memory import DEFAULT_BUDGET
from .plan import Group, Selection, plan
from .protocol import Protocol
from .results import Results
from .runner import Cell, Runner
from .stores import Stores, default_bags_folder


class Watch:
    """Hears of what an experiment does. This one does nothing with it; subclasses override what they need."""

    def planned(self, experiment: Experiment) -> None:
        """Take note, once, of what is to be computed."""

    def extracting(self, recipe: str, done: Filled) -> None:
        """Take note, after each photo that goes through a network, of what was done so far."""

    def finished(self, group: Group, voter: str, cell: Cell) -> None:
        """Take note of a cell that is finished, and kept."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What running a protocol did.

    Parameters
    ----------
    computed : int
        Cells that were computed now.
    finished : int
        Cells that were finished before.
    skipped : list of PhotoError
        Photos that could not be read, each once.
    """

    computed: int
    finished: int
    skipped: list[PhotoError]


class Experiment:
    """A protocol, photos, and where bags and results are kept.

    Parameters
    ----------
    protocol : Protocol, str or Path
        What to compare: a protocol, its name, or a TOML file.
    data : Path
        Folder of the image set.
    results : Results
        Where finished cells go.
    selection : Selection, optional
        Which part of the protocol to run; all of it by default.
    bags : Path, optional
        Folder to keep bags in; in the cache of patchvote by default.
    jobs : int, optional
        Threads of extraction; one per core by default.
    memory : int, optional
        Bytes of descriptors that are held at once, 4 GB by default. What a voter remembers comes on top.

    Attributes
    ----------
    groups : list of Group
        What is to be computed.
    finished : int
        Selected cells that are finished already.

    Raises
    ------
    PatchvoteError
        There is no such protocol, the folder is not its image set, a selected name is unknown, or results are kept of
        splits that were drawn otherwise.
    """

    def __init__(
        self,
        protocol: Protocol | str | Path,
        data: Path,
        results: Results,
        *,
        selection: Selection | None = None,
        bags: Path | None = None,
        jobs: int | None = None,
        memory: int | None = None,
    ) -> None:
        self.protocol = protocol if isinstance(protocol, Protocol) else Protocol.load(protocol)
        self.groups: Sequence[Group]
        self.groups, self.finished = plan(self.protocol, selection or Selection(), results)
        dataset = read_dataset(self.protocol.layout, data)
        photos = {photo.name: photo for photo in dataset.photos}
        stores = Stores(bags or default_bags_folder(self.protocol.layout), photos, jobs)
        self._runner = Runner(self.protocol, dataset, stores, results, memory or DEFAULT_BUDGET)

    @property
    def photos(self) -> int:
        """Photos of the image set."""
        return len(self._runner.dataset.photos)

    @property
    def cells(self) -> int:
        """Cells that are to be computed."""
        return sum(len(group.voters) for group in self.groups)

    def estimate(self) -> tuple[float, float]:
        """Return the seconds that extraction and the voters will take: from kept cells, or from short trials."""
        return estimate(self._runner, self.groups)

    def run(self, watch: Watch | None = None) -> Outcome:
        """Compute all cells, and fold them into the results.

        Each cell is kept when it is finished: after an interruption, running again goes on from there.
        """
        watch = watch or Watch()
        skipped: dict[str, PhotoError] = {}

        def extracting(recipe: str, done: Filled) -> None:
            watch.extracting(recipe, done)
            for error in done.skipped:
                skipped.setdefault(error.name, error)

        watch.planned(self)
        computed = 0
        for group, voter, cell in self._runner.compute(self.groups, extracting):
            computed += 1
            watch.finished(group, voter, cell)
        self._runner.results.fold(self.protocol.name)
        return Outcome(computed, self.finished, list(skipped.values()))


def run_protocol(
    protocol: Protocol | str | Path,
    data: str | Path,
    results: str | Path = "results",
    *,
    selection: Selection | None = None,
    bags: Path | None = None,
    jobs: int | None = None,
    memory: int | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Run a protocol on the image set in `data`, or the selected part of it; what is finished is not computed again.

    Parameters
    ----------
    results : path
        Folder of results.
    watch : Watch, optional
        Is told what is done.
    protocol, data, selection, bags, jobs, memory
        As for `Experiment`.

    Returns
    -------
    Outcome
        What was done; the numbers are in the results.

    Raises
    ------
    PatchvoteError
        As for `Experiment`, or where results are kept that were made with other settings.
    """
    kept = Results(Path(results))
    experiment = Experiment(protocol, Path(data), kept, selection=selection, bags=bags, jobs=jobs, memory=memory)
    return experiment.run(watch)
