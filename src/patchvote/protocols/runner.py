"""Run a protocol: compute the planned cells one by one, and store each as soon as it is finished."""

from __future__ import annotations

import datetime
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..bags.bags import Bags
from ..bags.filled import Filled
from ..bags.store import Store
from ..models.scores import Scores
from ..utils.engine import Engine
from ..utils.machine import forget_peak_memory, peak_memory
from ..voters.outputs import blaming
from .datasets import Dataset
from .joined_store import joined
from .made_with import here, settings_and_bags
from .memory import DEFAULT_BUDGET, TestBags, test_bags, training_bags
from .plan import Group, by_bags
from .protocol import Protocol
from .results import Draw, Results
from .splits import Split, make_split, straddling
from .stores import Stores
from .voters import make_voter, voter_kind

Cell = dict[str, Any]


class Runner:
    """Computes the cells of one protocol.

    Parameters
    ----------
    protocol : Protocol
        Protocol to run.
    dataset : Dataset
        Photos of the image set.
    stores : Stores
        Bags of the photos.
    results : Results
        Results to which finished cells are added.
    memory : int
        Bytes of descriptors in memory at once; see `memory`.

    Attributes
    ----------
    labels : dict
        Class of each photo, by name.
    """

    def __init__(
        self, protocol: Protocol, dataset: Dataset, stores: Stores, results: Results, memory: int = DEFAULT_BUDGET
    ) -> None:
        self.protocol, self.dataset, self.stores, self.results = protocol, dataset, stores, results
        self.memory = memory
        self.labels = {photo.name: str(photo.label) for photo in dataset.photos}

    def split(self, group: Group) -> Split:
        """Return the training and test photos of a group."""
        return make_split(self.dataset, self.protocol.setting(group.setting), group.pair, group.split - 1)

    def names(self, groups: Sequence[Group]) -> list[str]:
        """Return the names of all photos of these groups."""
        splits = [self.split(group) for group in groups]
        return sorted({name for split in splits for name in split.train + split.test})

    def compute(
        self, groups: Sequence[Group], extracting: Callable[[str, Filled], None] | None = None
    ) -> Iterator[tuple[Group, str, Cell]]:
        """Compute cell after cell; each is stored before it is yielded.

        Parameters
        ----------
        groups : list of Group
            Groups of cells to compute.
        extracting : function, optional
            Called after each photo that has passed a network, with the recipe and what was done so far.

        Yields
        ------
        group, voter, cell
            Finished cell, with its group and voter.
        """
        self._keep_draws(groups)
        for (recipe, networks), same_bags in by_bags(groups).items():
            names = self.names(same_bags)
            left_out: set[str] = set()  # by any of the networks

            def report(done: Filled, recipe: str = recipe, left_out: set[str] = left_out) -> None:
                left_out.update(error.name for error in done.skipped)
                if extracting is not None:
                    extracting(recipe, done)

            stores = self.stores.open(recipe, networks, names, report)
            for _, same in itertools.groupby(same_bags, lambda group: (group.setting, self.split(group).train)):
                yield from _SameTraining(self, list(same), stores, left_out).compute()

    def extract(
        self, groups: Sequence[Group], extracting: Callable[[str, Filled], None], engine: Engine | None = None
    ) -> None:
        """Extract the missing bags of all groups, and store their draws, before their cells are computed elsewhere."""
        self._keep_draws(groups)
        for (recipe, networks), same_bags in by_bags(groups).items():
            report = functools.partial(extracting, recipe)
            self.stores.open(recipe, networks, self.names(same_bags), report, engine)

    def _keep_draws(self, groups: Sequence[Group]) -> None:
        draws = {}
        for group in groups:
            if (
                self.protocol.setting(group.setting).draw != "lists"
            ):  # published lists are not copied: they are not ours
                draws[Draw(group.setting, group.pair, group.split)] = self.split(group)
        self.results.keep_draws(self.protocol.name, draws)


class _SameTraining:
    """Groups with the same training photos: every voter is trained once, and freed after its cells.

    Parameters
    ----------
    runner : Runner
        Runner of the protocol.
    groups : list of Group
        Groups that differ only in their test photos.
    stores : list of Store
        Bags of the photos, one store per network.
    left_out : set of str
        Photos that could not be read.
    """

    def __init__(self, runner: Runner, groups: Sequence[Group], stores: Sequence[Store], left_out: set[str]) -> None:
        self.runner, self.groups, self.left_out = runner, groups, left_out
        self.splits = [runner.split(group) for group in groups]
        self.read = [
            Split(*([n for n in part if n not in left_out] for part in (s.train, s.test))) for s in self.splits
        ]
        self.voters = list(dict.fromkeys(voter for group in groups for voter in group.voters))
        self.made_with = self._made_with(stores)
        store = joined(stores)
        self.digests = dict(zip(store.names, (entry.digest for entry in store.entries), strict=True))
        self.training = store.only(self.read[0].train)
        self.train = training_bags(self.training, runner.memory)
        self.tests = test_bags([store.only(split.test) for split in self.read], runner.memory)

    def _made_with(self, stores: Sequence[Store]) -> dict[str, dict[str, Any]]:
        """Return the records of each voter's cells; refuse to mix them with cells of other settings."""
        runner, made_with = self.runner, {}
        drawn = runner.protocol.setting(self.groups[0].setting).drawn
        for voter in self.voters:
            made_with[voter] = {"drawn": drawn, **settings_and_bags(self._make(voter), stores)}
            if runner.protocol.calibrated:
                made_with[voter]["calibrated"] = True  # its seconds of training include those of the calibration
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
            if not adapts:
                estimator, trained = self._train(voter)
            for number, group in enumerate(self.groups):
                if voter in group.voters:
                    if adapts:
                        estimator, trained = self._adapt(voter, number)
                    cell = self._about(number) | trained | self._test(estimator, number)
                    runner.results.add(group.run(runner.protocol, voter), self.made_with[voter], cell)
                    yield group, voter, cell
            del estimator

    def _about(self, number: int) -> Cell:
        """Return the part of a cell that is known before it is computed."""
        group, whole, test = self.groups[number], self.splits[number], self.tests[number]
        return {
            "pair": group.pair,
            "split": group.split,
            "train_photos": len(self.training),
            "test_photos": len(test),
            "train_descriptors": int(self.training.sizes.sum()),
            "test_descriptors": test.descriptors,
            "skipped": sorted(self.left_out & {*whole.train, *whole.test}),
            "duplicates": len(straddling(self.read[number], self.digests)),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            **here(),
        }

    def _labels(self, names: Sequence[str]) -> Any:
        return np.array([self.runner.labels[name] for name in names])

    def _make(self, voter: str) -> Any:
        protocol = self.runner.protocol
        return make_voter(voter, protocol.voter_settings, calibrated=protocol.calibrated)

    def _train(self, voter: str) -> tuple[Any, Cell]:
        labels = self._labels(self.read[0].train)
        start = time.perf_counter()
        estimator = self._make(voter)
        with blaming(estimator):
            estimator = estimator.fit(self.train, labels)
        trained: Cell = {"train_seconds": round(time.perf_counter() - start, 3)}
        if hasattr(estimator, "recall_"):
            trained["recall"] = round(estimator.recall_, 4)
        return estimator, trained

    def _adapt(self, voter: str, number: int) -> tuple[Any, Cell]:
        """Train on the source, on the labelled images of the target, and on its test images without labels."""
        names, test = self.read[number].train, self.tests[number]
        labels = self._labels(names)
        source, _, target = (self.groups[number].pair or "").partition("-")
        in_target = np.array([name.startswith(f"{target}/") for name in names]) & (source != target)
        target_labels = [*labels[in_target].tolist(), *[None] * len(test)]
        parts = [_chosen(self.train, in_target), test.all()] if in_target.any() else [test.all()]
        start = time.perf_counter()
        estimator = self._make(voter)
        estimator.fit(_chosen(self.train, ~in_target), labels[~in_target], parts, target_labels)
        trained: Cell = {"train_seconds": round(time.perf_counter() - start, 3)}
        if getattr(estimator, "refusal_", None) is not None:  # DA-NBNN never refuses
            trained["refused"] = True
        return estimator, trained

    def _test(self, estimator: Any, number: int) -> Cell:
        predicted, seconds = _predict(estimator, self.tests[number])
        expected = self._labels(self.read[number].test)
        correct = predicted == expected
        return {
            "test_seconds": round(seconds, 3),
            "accuracy": round(100 * float(correct.mean()), 4),
            "peak_memory": peak_memory(),
            "hits": "".join("1" if hit else "0" for hit in correct),  # in the order of the test photos of the split
            **_reliability(estimator, self.tests[number], expected),
        }


def _predict(estimator: Any, test: TestBags) -> tuple[Any, float]:
    """Predict the labels of all test photos; also return the seconds of prediction, without those of reading."""
    predicted, seconds = [], 0.0
    for bags in test.blocks():
        start = time.perf_counter()
        predicted.append(estimator.predict(bags))
        seconds += time.perf_counter() - start
    return np.concatenate(predicted), seconds


def _reliability(estimator: Any, test: TestBags, labels: Any) -> Cell:
    """Return the calibration error, the share that is rejected and the accuracy on the rest, in per cent.

    Nothing where the voter was not calibrated: its probabilities would say nothing.
    """
    threshold = float(getattr(estimator, "rejection_threshold_", 0.0))
    if threshold <= 0:
        return {}
    probability = np.concatenate([estimator.predict_proba(bags) for bags in test.blocks()])
    classes = tuple(str(label) for label in estimator.classes_)
    number = {label: index for index, label in enumerate(classes)}
    expected = np.array([number.get(str(label), -1) for label in labels])
    scores = Scores(classes, tuple(test.store.names), expected, probability, threshold)
    accepted = scores.accuracy_of_named
    return {
        "calibration_error": round(100 * scores.calibration_error, 4),
        "rejected": round(100 * float(scores.rejected.mean()), 4),
        "accepted_accuracy": None if math.isnan(accepted) else round(100 * accepted, 4),
    }


def _chosen(bags: Bags | Store, mask: Any) -> Bags | Store:
    if isinstance(bags, Bags):
        return bags[mask]
    return bags.only([name for name, chosen in zip(bags.names, mask, strict=True) if chosen])
