"""Run a protocol: plan its cells, compute them one by one, and store each as soon as it is finished.

A cell is one voter on one split. Its bags are loaded where they fit into half of the memory that is granted; otherwise
the voter gets the store of its training photos, and test photos are read in blocks. The memory of the voter comes on
top: NBNN copies bags that it is handed over, DA-NBNN holds all photos.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from patchvote.bags.bags import Bags
from patchvote.bags.described import Filled
from patchvote.bags.store import Store
from patchvote.errors import PatchvoteError, UntypedNetworkError
from patchvote.networks.names import EMBEDDED, parts_of
from patchvote.utils.machine import forget_peak_memory, peak_memory

from .baselines.pooled import chosen
from .datasets import Dataset, read_dataset
from .made_with import here, settings_and_bags
from .protocol import Part, Protocol, Setting
from .recipes import parse_recipe
from .results import Draw, Results, Run
from .splits import Split, make_split, straddling
from .stores import Stores, network_name
from .voters import make_voter, voter_kind

MEMORY = 4 << 30  # bytes: enough for Scene-15, whose `dense` bags take 1.6 GB to train and as much to test
Cell = dict[str, Any]
Names = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Selection:
    """Part of a protocol to run; None selects everything. Voters, recipes, networks need not be in the protocol."""

    settings: Names | None = None
    pairs: Names | None = None
    voters: Names | None = None
    recipes: Names | None = None
    networks: Names | None = None
    splits: int | None = None  # number of splits, counted from the first


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells with the same bags: one split, recipe and network, and the voters whose cells are not finished."""

    setting: str
    recipe: str
    network: str
    pair: str | None
    split: int
    voters: Names

    @property
    def words(self) -> str:
        """Setting, pair and split, for messages."""
        return " ".join(filter(None, [self.setting, self.pair, f"split {self.split}"]))

    def run(self, protocol: Protocol, voter: str) -> Run:
        """Return the run that the cell of a voter belongs to."""
        return Run(protocol.name, self.setting, voter, self.recipe, network_name(self.network))


# --- plan -------------------------------------------------------------------------------------------------------------


def plan(protocol: Protocol, selection: Selection, results: Results) -> tuple[list[Group], int]:
    """Return the groups to compute, and how many selected cells are already finished.

    Unknown names, and stored results of splits that were drawn otherwise, are refused.
    """
    settings = [protocol.setting(name) for name in selection.settings or [s.name for s in protocol.settings]]
    known = sorted({pair for setting in settings for pair in setting.pairs})
    for pair in selection.pairs or ():
        if pair not in known:
            raise PatchvoteError(f"{pair!r} is not a pair of {protocol.name}. Pairs: {', '.join(known) or 'none'}.")
    groups, finished = [], 0
    for ((recipe, network), voters), setting in itertools.product(_voters(protocol, selection).items(), settings):
        runs = {v: Run(protocol.name, setting.name, v, recipe, network_name(network)) for v in voters}
        for run in runs.values():
            results.check(run, {"drawn": setting.drawn})
        done = {voter: results.done(run) for voter, run in runs.items()}
        for place in _places(setting, selection):
            unfinished = tuple(voter for voter in voters if place not in done[voter])
            finished += len(voters) - len(unfinished)
            if unfinished:
                groups.append(Group(setting.name, recipe, network, *place, unfinished))
    return groups, finished


def _voters(protocol: Protocol, selection: Selection) -> dict[tuple[str, str], list[str]]:
    """Return the selected voters by recipe and network.

    A selection replaces the names of the main part, and filters those of the others.
    """
    selected = selection.voters, selection.recipes, selection.networks
    defaults = protocol.voters, protocol.recipes, protocol.networks
    parts = [Part(*(names or default for names, default in zip(selected, defaults, strict=True)))]
    for part in protocol.also:
        names = zip(selected, (part.voters, part.recipes, part.networks), strict=True)
        parts.append(Part(*(tuple(n for n in defined if chosen is None or n in chosen) for chosen, defined in names)))
    voters: dict[tuple[str, str], list[str]] = {}
    for part in parts:  # which may overlap
        for voter in part.voters:
            make_voter(voter, protocol.voter_settings)
        for recipe, network in itertools.product(part.recipes, part.networks):
            parse_recipe(recipe, "")
            if network not in (selection.networks or ()) and not set(parts_of(network)) <= set(EMBEDDED):
                raise UntypedNetworkError(network, f"the protocol {protocol.name}", "--networks")
            same = voters.setdefault((recipe, network), [])
            same += [voter for voter in part.voters if voter not in same]
    return voters


def _places(setting: Setting, selection: Selection) -> Iterator[tuple[str | None, int]]:
    """Yield the selected pairs and splits of a setting; pairs with the same training photos follow one another."""
    pairs = [pair for pair in setting.pairs if pair in (selection.pairs or setting.pairs)]

    def same_source(pair: str | None) -> tuple[str, bool]:
        source, _, target = (pair or "").partition("-")
        return source, target in setting.fewer

    for split in range(1, min(selection.splits or setting.splits, setting.splits) + 1):
        for pair in sorted(pairs, key=same_source) if setting.pairs else [None]:
            yield pair, split


# --- run --------------------------------------------------------------------------------------------------------------


class Runner:
    """Computes the cells of one protocol."""

    def __init__(
        self, protocol: Protocol, dataset: Dataset, stores: Stores, results: Results, memory: int = MEMORY
    ) -> None:
        self.protocol, self.dataset, self.stores, self.results = protocol, dataset, stores, results
        self.memory = memory
        self.labels = {photo.name: str(photo.label) for photo in dataset.photos}

    @classmethod
    def open(
        cls,
        protocol: Protocol,
        data: Path,
        results: Results,
        *,
        bags: Path | None = None,
        jobs: int | None = None,
        memory: int = MEMORY,
        device: str = "cpu",
    ) -> Runner:
        """Read the image set at `data`; bags are in the cache of patchvote unless another folder is named."""
        dataset = read_dataset(protocol.layout, data)
        photos = {photo.name: photo for photo in dataset.photos}
        stores = Stores(bags or Stores.default_folder(protocol.layout), photos, jobs, device)
        return cls(protocol, dataset, stores, results, memory)

    def split(self, group: Group) -> Split:
        """Return the training and test photos of a group."""
        return make_split(self.dataset, self.protocol.setting(group.setting), group.pair, group.split - 1)

    def compute(
        self, groups: Sequence[Group], extracting: Callable[[str, Filled], None] | None = None
    ) -> Iterator[tuple[Group, str, Cell]]:
        """Compute cell after cell, and yield each with its group and voter after it has been stored.

        `extracting` is called after each photo that has passed a network, with the recipe and what was done so far.
        """
        self._keep_draws(groups)
        by_bags: dict[tuple[str, str], list[Group]] = {}
        for group in groups:
            by_bags.setdefault((group.recipe, group.network), []).append(group)
        for (recipe, network), same_bags in by_bags.items():
            left_out: set[str] = set()

            def report(done: Filled, recipe: str = recipe, left_out: set[str] = left_out) -> None:
                left_out.update(error.name for error in done.skipped)
                if extracting is not None:
                    extracting(recipe, done)

            splits = [self.split(group) for group in same_bags]
            names = sorted({name for split in splits for name in split.train + split.test})
            store = self.stores.open(recipe, network, names, report)
            for _, same in itertools.groupby(same_bags, lambda group: (group.setting, self.split(group).train)):
                yield from _SameTraining(self, list(same), store, left_out).compute()

    def _keep_draws(self, groups: Sequence[Group]) -> None:
        draws = {
            Draw(group.setting, group.pair, group.split): self.split(group)
            for group in groups
            if self.protocol.setting(group.setting).draw != "lists"  # published lists are not copied: they are not ours
        }
        if draws:
            self.results.keep_draws(self.protocol.name, draws)


class _SameTraining:
    """Groups that differ only in their test photos: every voter is trained once, and freed after its cells."""

    def __init__(self, runner: Runner, groups: Sequence[Group], store: Store, left_out: set[str]) -> None:
        self.runner, self.groups, self.left_out = runner, groups, left_out
        self.splits = [runner.split(group) for group in groups]
        self.read = [
            Split(*([n for n in part if n not in left_out] for part in (s.train, s.test))) for s in self.splits
        ]
        self.voters = list(dict.fromkeys(voter for group in groups for voter in group.voters))
        self.made_with = self._made_with(store)
        self.digests = dict(zip(store.names, (entry.digest for entry in store.entries), strict=True))
        self.training = store.only(self.read[0].train)
        half = runner.memory // 2
        self.train = self.training.load()[0] if _size(self.training) <= half else self.training
        self.test_stores = [store.only(split.test) for split in self.read]
        fits = sum(map(_size, self.test_stores)) <= half
        self.tests = [test.load()[0] if fits else test for test in self.test_stores]

    def _made_with(self, store: Store) -> dict[str, dict[str, Any]]:
        """Return the records of each voter's cells; refuse to mix them with cells of other settings."""
        runner, made_with = self.runner, {}
        drawn = runner.protocol.setting(self.groups[0].setting).drawn
        for voter in self.voters:
            made_with[voter] = {"drawn": drawn, **settings_and_bags(self._make(voter), store)}
        for group in self.groups:
            for voter in group.voters:
                runner.results.check(group.run(runner.protocol, voter), made_with[voter])
        return made_with

    def compute(self) -> Iterator[tuple[Group, str, Cell]]:
        """Compute cell after cell; each is stored before it is yielded."""
        runner = self.runner
        for voter in self.voters:
            forget_peak_memory()
            adapts = voter_kind(voter).adapts
            fitted = None if adapts else self._train(voter)
            for number, group in enumerate(self.groups):
                if voter in group.voters:
                    estimator, trained = fitted or self._adapt(voter, number)
                    cell = self._about(number) | trained | self._test(estimator, number)
                    runner.results.add(group.run(runner.protocol, voter), self.made_with[voter], cell)
                    yield group, voter, cell

    def _about(self, number: int) -> Cell:
        """Return the part of a cell that is known before it is computed."""
        group, whole, test = self.groups[number], self.splits[number], self.test_stores[number]
        return {
            "pair": group.pair,
            "split": group.split,
            "train_photos": len(self.training),
            "test_photos": len(test),
            "train_descriptors": int(self.training.sizes.sum()),
            "test_descriptors": int(test.sizes.sum()),
            "skipped": sorted(self.left_out & {*whole.train, *whole.test}),
            "duplicates": len(straddling(self.read[number], self.digests)),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            **here(),
        }

    def _labels(self, names: Sequence[str]) -> Any:
        return np.array([self.runner.labels[name] for name in names])

    def _make(self, voter: str) -> Any:
        protocol = self.runner.protocol
        return make_voter(voter, protocol.voter_settings)

    def _train(self, voter: str) -> tuple[Any, Cell]:
        labels = self._labels(self.read[0].train)
        start = time.perf_counter()
        source = self.training if voter_kind(voter).stores else self.train
        estimator = self._make(voter).fit(source, labels)
        trained: Cell = {"train_seconds": round(time.perf_counter() - start, 3)}
        if hasattr(estimator, "recall_"):
            trained["recall"] = round(estimator.recall_, 4)
        return estimator, trained

    def _adapt(self, voter: str, number: int) -> tuple[Any, Cell]:
        """Train on the source, on the labelled images of the target, and on its test images without labels."""
        names, stores = self.read[number].train, voter_kind(voter).stores
        train, test = (self.training, self.test_stores[number]) if stores else (self.train, self.tests[number])
        labels = self._labels(names)
        source, _, target = (self.groups[number].pair or "").partition("-")
        in_target = np.array([name.startswith(f"{target}/") for name in names]) & (source != target)
        target_labels = [*labels[in_target].tolist(), *[None] * len(test)]
        parts = [chosen(train, in_target), test] if in_target.any() else [test]
        start = time.perf_counter()
        estimator = self._make(voter)
        estimator.fit(chosen(train, ~in_target), labels[~in_target], parts, target_labels)
        trained: Cell = {"train_seconds": round(time.perf_counter() - start, 3)}
        if getattr(estimator, "refusal_", None) is not None:
            trained["refused"] = True
        return estimator, trained

    def _test(self, estimator: Any, number: int) -> Cell:
        predicted, seconds = [], 0.0
        for bags in self._test_blocks(number):
            start = time.perf_counter()
            predicted.append(estimator.predict(bags))
            seconds += time.perf_counter() - start
        expected = self._labels(self.read[number].test)
        correct = np.concatenate(predicted) == expected
        return {
            "test_seconds": round(seconds, 3),  # without those of reading
            "accuracy": round(100 * float(correct.mean()), 4),
            "peak_memory": peak_memory(),
            "hits": "".join("1" if hit else "0" for hit in correct),  # in the order of the test photos of the split
        }

    def _test_blocks(self, number: int) -> Iterator[Bags]:
        test = self.tests[number]
        if isinstance(test, Bags):
            yield test
        else:  # a quarter at a time, since the next block is read while the last is still in use
            most = max(1, self.runner.memory // 4 // _bytes_per_descriptor(test))
            yield from (bags for bags, _ in test.blocks(most))


def _size(store: Store) -> int:
    return int(store.sizes.sum()) * _bytes_per_descriptor(store)


def _bytes_per_descriptor(store: Store) -> int:
    return 4 * store.dim + 18  # its features as float32, its box and its level
