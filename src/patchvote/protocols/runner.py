"""Run a protocol: plan its cells, leave out those that are finished, and compute the others one after the other."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib.metadata
import itertools
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..backbones.names import EMBEDDED, JOIN, parts_of
from ..bags.bags import Bags
from ..bags.fill import Filled
from ..bags.store import Store
from ..errors import PatchvoteError, UntypedNetworkError
from ..utils.machine import describe, forget_peak_memory, peak_memory
from .datasets import Dataset
from .protocol import Part, Protocol
from .recipes import parse_recipe
from .results import Results, Run
from .splits import Split, make_split, straddling, write_lists
from .stores import Stores, load, network_name
from .voters import VOTERS, make_voter, parse_voter

_PACKAGES = ("patchvote", "numpy", "scikit-learn", "faiss-cpu", "onnxruntime", "pillow")


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which part of a protocol to run; what is None is all of it.

    Parameters
    ----------
    settings, pairs, voters, recipes, networks : tuples of str
        By name. Voters, recipes and networks need not be among those of the protocol.
    splits : int, optional
        The first so many.
    """

    settings: tuple[str, ...] | None = None
    pairs: tuple[str, ...] | None = None
    voters: tuple[str, ...] | None = None
    recipes: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    splits: int | None = None


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that share their photos: one split, one recipe and network, several voters.

    Parameters
    ----------
    setting, recipe, networks : str
        Names.
    pair : str or None
        Source and target.
    split : int
        Its number, from 1.
    voters : tuple of str
        Those that are still to be computed.
    """

    setting: str
    recipe: str
    networks: str
    pair: str | None
    split: int
    voters: tuple[str, ...]

    @property
    def words(self) -> str:
        """Where it is, in words."""
        return " ".join(filter(None, [self.setting, self.pair, f"split {self.split}"]))

    def run(self, protocol: Protocol, voter: str) -> Run:
        """Return the run that the cell of a voter belongs to."""
        return Run(protocol.name, self.setting, voter, self.recipe, network_name(self.networks))


def plan(protocol: Protocol, selection: Selection, results: Results) -> tuple[list[Group], int]:
    """Return what is to be computed, and how many selected cells are finished already.

    Raises
    ------
    PatchvoteError
        A name of the selection is unknown, or results are kept of splits that were drawn otherwise.
    """
    parts = _parts(protocol, selection)
    for voter in {voter for part in parts for voter in part.voters}:
        make_voter(voter, protocol.voter_settings)
    settings = [protocol.setting(name) for name in selection.settings or [s.name for s in protocol.settings]]
    known = sorted({pair for setting in settings for pair in setting.pairs})
    for asked in selection.pairs or ():
        if asked not in known:
            raise PatchvoteError(f"{asked!r} is not a pair of {protocol.name}. Pairs: {', '.join(known) or 'none'}.")
    voters: dict[tuple[str, str], list[str]] = {}  # by recipe and networks; parts may overlap
    for part in parts:
        for recipe, networks in itertools.product(part.recipes, part.networks):
            parse_recipe(recipe, "")
            own = voters.setdefault((recipe, networks), [])
            own += [voter for voter in part.voters if voter not in own]
    for _, networks in voters:
        typed = networks in (selection.networks or ())
        if not typed and not set(parts_of(networks)) <= set(EMBEDDED):
            raise UntypedNetworkError(networks, f"the protocol {protocol.name}", "--networks")
    groups, finished = [], 0
    for ((recipe, networks), own), setting in itertools.product(voters.items(), settings):
        pairs: list[str | None] = [pair for pair in setting.pairs if pair in (selection.pairs or known)]
        pairs = pairs if setting.pairs else [None]
        runs = {voter: Run(protocol.name, setting.name, voter, recipe, network_name(networks)) for voter in own}
        for run in runs.values():
            results.check(run, {"drawn": setting.drawn})
        done = {voter: results.done(run) for voter, run in runs.items()}
        for split in range(1, min(selection.splits or setting.splits, setting.splits) + 1):
            for pair in sorted(pairs, key=functools.partial(_same_source, setting.fewer)):
                open_voters = tuple(voter for voter in own if (pair, split) not in done[voter])
                finished += len(own) - len(open_voters)
                if open_voters:
                    groups.append(Group(setting.name, recipe, networks, pair, split, open_voters))
    return groups, finished


def _parts(protocol: Protocol, selection: Selection) -> list[Part]:
    """Return what is selected: of the protocol's main part any names at all, of the others only their own."""
    asked = selection.voters, selection.recipes, selection.networks
    main = Part(
        *(
            names or own
            for names, own in zip(asked, (protocol.voters, protocol.recipes, protocol.networks), strict=True)
        )
    )
    others = [
        Part(
            *(
                tuple(name for name in own if names is None or name in names)
                for names, own in zip(asked, parts, strict=True)
            )
        )
        for parts in ((part.voters, part.recipes, part.networks) for part in protocol.also)
    ]
    return [main, *others]


def _same_source(fewer: dict[str, int], pair: str | None) -> tuple[str, bool]:
    """Order pairs so that those with the same training photos follow one another."""
    source, _, target = (pair or "").partition("-")
    return source, target in fewer


class Runner:
    """Computes the cells of one protocol.

    Parameters
    ----------
    protocol : Protocol
        What to compare.
    dataset : Dataset
        On which photos.
    stores : Stores
        Their bags.
    results : Results
        Where finished cells go.
    """

    def __init__(self, protocol: Protocol, dataset: Dataset, stores: Stores, results: Results) -> None:
        self.protocol, self.dataset, self.stores, self.results = protocol, dataset, stores, results
        self._labels = {photo.name: str(photo.label) for photo in dataset.photos}

    def split(self, group: Group) -> Split:
        """Return the photos of a group."""
        return make_split(self.dataset, self.protocol.setting(group.setting), group.pair, group.split - 1)

    def _names(self, groups: Sequence[Group]) -> list[str]:
        """Return the photos that any of these groups needs."""
        splits = [self.split(group) for group in groups]
        return sorted({name for split in splits for name in split.train + split.test})

    def compute(
        self, groups: Sequence[Group], extracting: Callable[[str, Filled], None] | None = None
    ) -> Iterator[tuple[Group, str, dict[str, Any]]]:
        """Compute cell after cell; each is kept before it is given.

        Parameters
        ----------
        groups : list of Group
            What to compute.
        extracting : function, optional
            Called after each photo that goes through a network, with the recipe and what was done so far.

        Yields
        ------
        group, voter, cell
            What was finished.
        """
        self._write_lists(groups)
        for (recipe, networks), own in _by_bags(groups).items():
            names = self._names(own)
            left_out: set[str] = set()  # by any of the networks

            def told(done: Filled, recipe: str = recipe, left_out: set[str] = left_out) -> None:
                left_out.update(error.name for error in done.skipped)
                if extracting is not None:
                    extracting(recipe, done)

            stores = self.stores.open(recipe, networks, names, told)
            for _, same in itertools.groupby(own, lambda group: (group.setting, self.split(group).train)):
                yield from self._compute_same_training(list(same), stores, left_out)

    def _compute_same_training(
        self, groups: Sequence[Group], stores: Sequence[Store], left_out: set[str]
    ) -> Iterator[tuple[Group, str, dict[str, Any]]]:
        """Compute groups with the same training photos: every voter is trained once, and gone after its cells."""
        voters = list(dict.fromkeys(voter for group in groups for voter in group.voters))
        drawn = self.protocol.setting(groups[0].setting).drawn
        made_with = {voter: {"drawn": drawn, **self._made_with(voter, stores)} for voter in voters}
        for group in groups:
            for voter in group.voters:
                self.results.check(group.run(self.protocol, voter), made_with[voter])
        splits = [self.split(group) for group in groups]
        read = [Split(*([n for n in part if n not in left_out] for part in (s.train, s.test))) for s in splits]
        train, tests = load(stores, read[0].train), [load(stores, split.test) for split in read]
        digests = dict(zip(stores[0].names, (entry.digest for entry in stores[0].entries), strict=True))
        for voter in voters:
            forget_peak_memory()
            adapts = VOTERS[parse_voter(voter)[0]].adapts
            if not adapts:
                estimator, trained = self._train(voter, read[0].train, train)
            for group, whole, split, test in zip(groups, splits, read, tests, strict=True):
                if voter in group.voters:
                    if adapts:
                        estimator, trained = self._adapt(voter, group, split, train, test)
                    cell = {
                        "pair": group.pair,
                        "split": group.split,
                        "train_photos": len(train),
                        "test_photos": len(test),
                        "train_descriptors": len(train.values),
                        "test_descriptors": len(test.values),
                        "skipped": sorted(left_out & {*whole.train, *whole.test}),
                        "duplicates": len(straddling(split, digests)),
                        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                        "versions": _versions(),
                        "machine": describe(),
                        **trained,
                        **self._test(estimator, split.test, test),
                    }
                    self.results.add(group.run(self.protocol, voter), made_with[voter], cell)
                    yield group, voter, cell
            del estimator

    def _train(self, voter: str, names: Sequence[str], bags: Bags) -> tuple[Any, dict[str, Any]]:
        labels = np.array([self._labels[name] for name in names])
        began = time.perf_counter()
        estimator = make_voter(voter, self.protocol.voter_settings).fit(bags, labels)
        told: dict[str, Any] = {"train_seconds": round(time.perf_counter() - began, 3)}
        if hasattr(estimator, "recall_"):
            told["recall"] = round(estimator.recall_, 4)
        return estimator, told

    def _adapt(self, voter: str, group: Group, split: Split, bags: Bags, test: Bags) -> tuple[Any, dict[str, Any]]:
        """Train on the source, the labelled images of the target, and its test images without their labels."""
        labels = np.array([self._labels[name] for name in split.train])
        source, _, target = (group.pair or "").partition("-")
        own = np.array([name.startswith(f"{target}/") for name in split.train]) & (source != target)
        known = [*labels[own].tolist(), *[None] * len(test)]
        parts = [bags[own], test] if own.any() else [test]
        began = time.perf_counter()
        estimator = make_voter(voter, self.protocol.voter_settings).fit(bags[~own], labels[~own], parts, known)
        return estimator, {"train_seconds": round(time.perf_counter() - began, 3)}

    def _test(self, estimator: Any, names: Sequence[str], bags: Bags) -> dict[str, Any]:
        began = time.perf_counter()
        right = estimator.predict(bags) == np.array([self._labels[name] for name in names])
        return {
            "test_seconds": round(time.perf_counter() - began, 3),
            "accuracy": round(100 * float(right.mean()), 4),
            "peak_memory": peak_memory(),
            "hits": "".join("1" if hit else "0" for hit in right),  # in the order of the list of test photos
        }

    def _made_with(self, voter: str, stores: Sequence[Store]) -> dict[str, Any]:
        estimator = make_voter(voter, self.protocol.voter_settings)
        settings = {key: _plain(value) for key, value in sorted(estimator.get_params().items())}
        recipe = stores[0].recipe
        return {
            "estimator": type(estimator).__name__,
            "settings": settings,
            "sampling": {"mode": recipe.mode, "activation": recipe.activation, **dataclasses.asdict(recipe.sampling)},
            "fingerprints": [store.fingerprint for store in stores],
        }

    def _write_lists(self, groups: Sequence[Group]) -> None:
        for group in groups:
            if self.protocol.setting(group.setting).draw != "lists":  # published lists are not ours to copy
                stem = "-".join(filter(None, [group.setting, group.pair, f"{group.split:02d}"]))
                write_lists(self.results.folder / self.protocol.name / "splits", stem, self.split(group))

    # --- how long it will take ----------------------------------------------------------------------------------

    def estimate(self, groups: Sequence[Group]) -> tuple[float, float]:
        """Return the seconds that extraction and the voters will take: from kept cells, or from short trials."""
        extraction = voting = 0.0
        trained: set[tuple[str, ...]] = set()  # pairs with the same training photos share a training
        speed = _products_a_second()
        for (recipe, networks), own in _by_bags(groups).items():
            names = self._names(own)
            for network, missing in self.stores.missing(recipe, networks, names):
                extraction += self._trial(recipe, network, missing) * len(missing)
            sampling = self.stores.extractor(recipe, networks.split(JOIN)[0]).recipe.sampling
            a_photo = getattr(sampling, "count", 0) or sum((side / 32) ** 2 for side in getattr(sampling, "sides", ()))
            for group in own:
                split = self.split(group)
                for voter in group.voters:
                    kept = self.results.read(group.run(self.protocol, voter))
                    training = (voter, recipe, networks, *split.train)
                    if kept and kept["cells"]:
                        voting += float(np.mean([cell["test_seconds"] for cell in kept["cells"]]))
                        if training not in trained or VOTERS[parse_voter(voter)[0]].adapts:
                            voting += float(np.mean([cell["train_seconds"] for cell in kept["cells"]]))
                        trained.add(training)
                    else:
                        kind = VOTERS[parse_voter(voter)[0]]
                        classes = len({self._labels[name] for name in split.train})
                        work = kind.work(len(split.train) * a_photo, len(split.test) * a_photo, 1280, classes)
                        voting += work / speed
        return extraction, voting

    def _trial(self, recipe: str, network: str, names: Sequence[str]) -> float:
        """Return the seconds that a photo takes, tried on two."""
        if not names:
            return 0.0
        extractor = self.stores.extractor(recipe, network)
        photos = [self.stores.photos[name] for name in names[:: max(1, len(names) // 2)][:2]]
        began = time.perf_counter()
        for _ in extractor.stream(photos):
            pass
        return (time.perf_counter() - began) / len(photos)


def _by_bags(groups: Sequence[Group]) -> dict[tuple[str, str], list[Group]]:
    result: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        result.setdefault((group.recipe, group.networks), []).append(group)
    return result


def _products_a_second() -> float:
    """Return the multiply-adds a second of a matrix product here."""
    x = np.ones((512, 1280), np.float32)
    best = min(_seconds(lambda: x @ x.T) for _ in range(5))
    return float(512 * 512 * 1280 / best)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _plain(value: Any) -> Any:
    if isinstance(value, float) and np.isinf(value):
        return "inf"  # JSON has no infinity
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}


def default_bags_folder(layout: str) -> Path:
    """Return where bags of an image set are kept unless the user says otherwise."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("patchvote")) / "protocols" / layout
