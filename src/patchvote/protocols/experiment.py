"""Run a protocol on an image set: plan its cells, estimate the time, and compute them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..bags.filled import Filled
from ..errors import PatchvoteError, PhotoError
from ..utils.engine import Engine, Lost
from .cell_job import CellJob, works_of
from .datasets import read_dataset
from .estimate import estimate
from .memory import DEFAULT_BUDGET
from .plan import Group, Selection, plan
from .protocol import Protocol
from .results import Results
from .runner import Cell, Runner
from .stores import Stores, default_bags_folder


class Watch:
    """Callbacks that report the progress of an experiment. They do nothing here; subclasses override them."""

    def planned(self, experiment: Experiment) -> None:
        """Report, once, which cells will be computed."""

    def extracting(self, recipe: str, done: Filled) -> None:
        """Report the progress of extraction, after each photo that has passed a network."""

    def finished(self, group: Group, voter: str, cell: Cell) -> None:
        """Report a cell that is finished and stored."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a run of a protocol.

    Parameters
    ----------
    computed : int
        Cells that were computed in this run.
    finished : int
        Cells that were finished before.
    skipped : list of PhotoError
        Photos that could not be read, each once.
    """

    computed: int
    finished: int
    skipped: list[PhotoError]


class Experiment:
    """A protocol with its photos, and the folders of bags and results.

    Parameters
    ----------
    protocol : Protocol, str or Path
        Protocol to run: the protocol itself, its name, or a TOML file.
    data : Path
        Folder of the image set.
    results : Results
        Results to which finished cells are added.
    selection : Selection, optional
        Part of the protocol to run; all of it by default.
    bags : Path, optional
        Folder of the bags; in the cache of patchvote by default.
    jobs : int, optional
        Threads of extraction; one per core by default.
    memory : int, optional
        Bytes of descriptors in memory at once, 4 GB by default. The memory of the voters comes on top.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device on which the networks run.

    Attributes
    ----------
    groups : list of Group
        Cells to compute, in groups.
    finished : int
        Number of selected cells that are already finished.

    Raises
    ------
    PatchvoteError
        There is no such protocol, the folder is not its image set, a selected name is unknown, or existing results
        belong to splits that were drawn differently.
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
        device: str = "cpu",
    ) -> None:
        self.protocol = protocol if isinstance(protocol, Protocol) else Protocol.load(protocol)
        self.groups: Sequence[Group]
        self.groups, self.finished = plan(self.protocol, selection or Selection(), results)
        dataset = read_dataset(self.protocol.layout, data)
        photos = {photo.name: photo for photo in dataset.photos}
        stores = Stores(bags or default_bags_folder(self.protocol.layout), photos, jobs, device)
        self._runner = Runner(self.protocol, dataset, stores, results, memory or DEFAULT_BUDGET)
        more: dict[str, Any] = {"selection": selection, "bags": bags, "jobs": jobs, "memory": memory, "device": device}
        self._again = functools.partial(_runner_of, self.protocol, data, results, **more)

    @property
    def photos(self) -> int:
        """Number of photos of the image set."""
        return len(self._runner.dataset.photos)

    @property
    def cells(self) -> int:
        """Number of cells to compute."""
        return sum(len(group.voters) for group in self.groups)

    def estimate(self) -> tuple[float, float]:
        """Return the estimated seconds of extraction and of the voters, from stored cells or from short trials."""
        return estimate(self._runner, self.groups)

    def run(self, watch: Watch | None = None, engine: Engine | None = None) -> Outcome:
        """Compute all cells, and merge them into the results.

        Each cell is stored as soon as it is finished: after an interruption, the next run continues from there. With an
        engine, its workers extract the photos and then compute the cells.

        Raises
        ------
        PatchvoteError
            Workers ended twice while they computed a cell; the other cells are stored.
        """
        watch = watch or Watch()
        skipped: dict[str, PhotoError] = {}

        def extracting(recipe: str, done: Filled) -> None:
            watch.extracting(recipe, done)
            for error in done.skipped:
                skipped.setdefault(error.name, error)

        watch.planned(self)
        computed = 0
        cells = (
            self._runner.compute(self.groups, extracting) if engine is None else self._from_workers(engine, extracting)
        )
        for group, voter, cell in cells:
            computed += 1
            watch.finished(group, voter, cell)
        self._runner.results.fold(self.protocol.name)
        return Outcome(computed, self.finished, list(skipped.values()))

    def _from_workers(
        self, engine: Engine, extracting: Callable[[str, Filled], None]
    ) -> Iterator[tuple[Group, str, Cell]]:
        """Have the workers of an engine extract photos, then compute cells; yield each as it is finished."""
        self._runner.extract(self.groups, extracting, engine)
        works, lost = works_of(self._runner, self.groups), []
        for number, cells in engine.run(CellJob(self._again), works):
            if isinstance(cells, Lost):
                lost.append((works[number][0], cells.reason))
            else:
                yield from cells
        if lost:
            group, reason = lost[0]
            raise PatchvoteError(
                f"{group.words}, {group.recipe}, {group.voters[0]}: its process ended twice ({reason}). Is there "
                "enough memory? Finished cells are kept: run the same command again to continue."
            )


def _runner_of(*what: Any, **settings: Any) -> Runner:
    """Make the runner of an experiment, in another process."""
    return Experiment(*what, **settings)._runner


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
    engine: Engine | None = None,
) -> Outcome:
    """Run a protocol, or the selected part of it, on the image set in `data`; finished cells are not computed again.

    Parameters
    ----------
    results : path
        Folder of results.
    watch : Watch, optional
        Callbacks that report progress.
    engine : Engine, optional
        Engine whose workers extract and compute; by default this process does.
    protocol, data, selection, bags, jobs, memory
        As for `Experiment`.

    Returns
    -------
    Outcome
        Numbers of cells, and skipped photos; the accuracies are in the results.

    Raises
    ------
    PatchvoteError
        As for `Experiment`, or where existing results were made with other settings.
    """
    folder = Results(Path(results))
    experiment = Experiment(protocol, Path(data), folder, selection=selection, bags=bags, jobs=jobs, memory=memory)
    return experiment.run(watch, engine)
