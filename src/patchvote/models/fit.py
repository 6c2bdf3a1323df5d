"""Make a model from photos: train, and measure on photos that were left out.

A voter that knows its answers for left-out photos (`leaves_out`) is trained once. For any other voter, a fifth of the
photos of every class is held out, a first training shows how good it is, and a second learns all photos.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.cache import Kept
from ..bags.copies import copy_groups, describe_copies
from ..bags.extract import Described, Extractor
from ..bags.fill import store_of
from ..bags.moments import KeptMoments, MomentBags, photo_vectors
from ..bags.store import Store, thinned
from ..errors import PatchvoteError, PhotoError
from ..utils.engine import Engine
from ..utils.files import temporary_folder
from ..utils.terminal import Progress, counted, timed
from ..version import __version__
from ..voters.base import Voter
from ..voters.familiarity import REJECTION, Familiarity
from ..voters.labels import hold_out
from ..voters.registry import AUTO, DEFAULT, kind_of, voter_class
from ..voters.votes import fit_temperature, softmax, threshold_for
from .about import About, Plain, with_photos
from .learning_curve import learning_curve
from .model import Model
from .scores import Scores

_HELD_OUT = 0.2  # of the photos of every class, for voters that do not know their answers for left-out photos
_FEWEST_ASKED = 16  # held-out photos that are asked in any case; the rest while there is time
_MOST_KEPT = 1 << 27  # bytes of voters without some photos, of which several mistakes may be
_MAX_NAMED = 200_000  # training photos whose names and digests a model holds: a few megabytes

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled photos: names, classes, digests of the contents, and what a voter learns from."""

    names: list[str]
    labels: list[str]
    digests: list[str]
    bags: Any  # MomentBags, or a Store
    seconds: float = 0.0  # that it took to describe them

    def __len__(self) -> int:
        return len(self.names)

    def only(self, chosen: Numbers) -> Labelled:
        """Return some of the photos, of which moments are kept."""
        names, labels, digests = (
            [values[i] for i in chosen.tolist()] for values in (self.names, self.labels, self.digests)
        )
        return Labelled(names, labels, digests, self.bags.rows(chosen), self.seconds)

    def joined(self, other: Labelled) -> Labelled:
        """Return these photos and others, of which moments are kept, in the order of their contents."""
        bags, labels = MomentBags.joined([self.bags, other.bags]), self.labels + other.labels
        names, digests = self.names + other.names, self.digests + other.digests
        return Labelled(names, labels, digests, bags, self.seconds + other.seconds).in_order()

    def in_order(self) -> Labelled:
        """Return the photos in the order of their contents alone."""
        order = sorted(range(len(self)), key=lambda i: (self.digests[i], self.names[i]))
        return self.only(np.array(order, np.int64))

    @classmethod
    def of(cls, items: Iterable[Described]) -> Self:
        """Return the photos that could be read, of which moments are kept."""
        start = time.perf_counter()
        found = [(item, item.bag) for item in items if isinstance(item.bag, MomentBags)]
        if not found:
            raise PatchvoteError("no photo can be read.")
        names = [item.photo.name for item, _ in found]
        labels = ["" if item.photo.label is None else str(item.photo.label) for item, _ in found]
        bags = MomentBags.joined([bag for _, bag in found])
        return cls(names, labels, [item.digest for item, _ in found], bags, time.perf_counter() - start)


@contextlib.contextmanager
def learned_from(items: Iterator[Described], kept: Kept, extractor: Extractor) -> Iterator[Labelled]:
    """Yield what is learned from photos that are described: moments in memory, whole bags in a temporary store."""
    if isinstance(kept, KeptMoments):
        yield Labelled.of(items).in_order()
        return
    start = time.perf_counter()
    with temporary_folder() as folder:
        store = store_of(items, extractor, folder / "bags")
        labels, digests = store.labels.astype(str).tolist(), [entry.digest for entry in store.entries]
        yield Labelled(list(store.names), labels, digests, store, time.perf_counter() - start)


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A model, and the answers for photos that were left out."""

    model: Model
    left_out: Scores | None = None
    # Returns a voter that has not learned a photo, given its name, and the names of those that it was given.
    without: Callable[[str], tuple[Any, list[str]]] = lambda name: (None, [])
    known: int = 0  # photos that the model had learned before, and that were not learned again
    added: dict[str, int] = dataclasses.field(default_factory=dict)  # photos per class
    refused: tuple[PhotoError, ...] = ()  # photos that it had learned as another class


@dataclasses.dataclass(frozen=True, eq=False)
class LeftOut:
    """Answers for photos that a training had not seen."""

    images: Numbers
    scores: npt.NDArray[Any]  # (photos, classes)
    # Returns a voter that has not learned a photo, given its index, and the indices of those that it was given.
    without: Callable[[int], tuple[Any, Numbers]]
    curve: list[Plain] = dataclasses.field(default_factory=list)
    not_asked: int = 0  # photos that were held out, but for which there was no time


def voter_for(voter: Any, seed: int) -> Voter:
    """Return the unfitted voter for a name, "auto", or an estimator."""
    if isinstance(voter, Voter):
        chosen = voter.__sklearn_clone__()
    else:
        chosen = voter_class(DEFAULT if voter == AUTO else kind_of(voter)).default(seed)
    chosen.check_for_model()
    return chosen


def fit_model(
    photos: Labelled,
    voter: Voter,
    extractor: Extractor,
    *,
    budget: float,
    seed: int,
    progress: Progress | None,
    engine: Engine | None = None,
    held_out: float | Collection[str] | None = None,
) -> Fitted:
    """Train a voter, as `voter_for` returns it, on labelled photos, and measure it on photos that were left out.

    `budget` is the processor time of a voter that learns in passes, whatever else runs; of workers, time by the clock.
    `held_out` is a share of the photos of every class, or the names of photos, that are left out together.
    """
    classes, numbers = np.unique(np.array(photos.labels, str), return_inverse=True)
    if len(classes) < 2:
        those = ", ".join(classes.tolist()) or "none"
        raise PatchvoteError(f"a model needs readable photos of two classes at least, and would have those of {those}.")
    clock, seconds = time.process_time if engine is None else time.perf_counter, {"network": photos.seconds}
    start = clock()
    with timed(seconds, "training"):
        bags, vectors = _bags_and_vectors(photos, seed)
        keys = photos.bags.keys() if isinstance(photos.bags, MomentBags) else photos.digests
        groups = copy_groups(photos.bags, keys)
        split = None if held_out is None else _split(held_out, photos.names, numbers, groups, seed)
        if progress is not None:
            progress("learn", 0, 1)
        if voter.leaves_out:
            fitted: Any = voter.fit(bags, classes[numbers], groups=groups)
            left_out = _from_equations(fitted, numbers, groups, split, seed)
        else:
            split = hold_out(np.arange(len(numbers)), numbers, _HELD_OUT, seed, groups) if split is None else split
            left_out = _from_split(voter, photos, bags, classes[numbers], split, lambda: clock() > start + budget / 2)
            more: dict[str, Any] = {} if engine is None else {"method": "fit_on_workers", "engine": engine}
            fitted = fit_until(voter, lambda: clock() > start + budget, bags, classes[numbers], **more)
        if progress is not None:
            progress("learn", 1, 1)
    rejection = float(getattr(voter, "rejection", REJECTION))
    probability = _calibrated(fitted, left_out, numbers, rejection)
    familiarity, shares = Familiarity.learned(vectors, numbers, groups, left_out.images, probability, rejection)
    if not fitted.leaves_out:
        fitted.remember(bags, numbers, np.random.default_rng(seed))
    scores = None
    if names := tuple(photos.names[i] for i in left_out.images):
        limit = fitted.rejection_threshold_ if familiarity is None else familiarity.rejection
        expected = numbers[left_out.images]
        scores = Scores(tuple(classes.tolist()), names, expected, probability, limit, shares, held_out=True)
    about = dataclasses.replace(
        _about(photos, groups, fitted, scores, left_out),
        seconds={name: round(took, 2) for name, took in seconds.items()},
    )
    index = {name: number for number, name in enumerate(photos.names)}

    def without(name: str) -> tuple[Any, list[str]]:
        other, learned = left_out.without(index[name])
        return other, [photos.names[image] for image in learned.tolist()]

    return Fitted(_model(fitted, photos, extractor, about, familiarity), scores, without)


def _bags_and_vectors(photos: Labelled, seed: int) -> tuple[Bags, npt.NDArray[np.float32]]:
    """Return what the voter learns from, and the vector of every photo, by which copies and strangers are found."""
    if isinstance(photos.bags, MomentBags):
        return photos.bags, photo_vectors(photos.bags)
    vectors = np.empty((len(photos), photos.bags.dim), np.float32)
    return thinned(photos.bags, seed, vectors), vectors


def _split(
    held_out: float | Collection[str], names: Sequence[str], numbers: Numbers, groups: Numbers, seed: int
) -> tuple[Numbers, Numbers]:
    """Return the photos to train on and to hold out, as the caller has said."""
    images = np.arange(len(names))
    if isinstance(held_out, (int, float)):
        return hold_out(images, numbers, held_out, seed, groups)
    out = np.array([name in held_out for name in names], bool)
    if len(missing := np.setdiff1d(numbers, numbers[~out])):
        first = names[int(np.flatnonzero(numbers == missing[0])[0])]
        raise PatchvoteError(f"held_out leaves no photo of the class of {first} to learn from: hold out fewer.")
    return images[~out], images[out]


# --- answers for photos that were left out ----------------------------------------------------------------------------


def _from_equations(
    voter: Any, numbers: Numbers, groups: Numbers, split: tuple[Numbers, Numbers] | None, seed: int
) -> LeftOut:
    """Return the answers of a voter that knows them without another training."""
    scores, together = voter.left_out_, voter.folds_
    if split is not None:
        together = np.where(np.isin(np.arange(len(groups)), split[1]), -1, groups)
        scores = voter.solved_.ridge.left_out(voter.alphas_, together)
    images = np.flatnonzero(~np.isnan(scores[:, 0]))
    images = images if split is None else np.intersect1d(images, split[1])
    curve = learning_curve(voter, numbers, groups, seed) if split is None else []
    every = np.arange(len(numbers))

    without = functools.lru_cache(1 + _MOST_KEPT // voter.linear_.nbytes)(
        lambda fold: voter.without(np.flatnonzero(together == fold))
    )
    return LeftOut(images, scores[images], lambda image: (without(together[image]), every), curve)


def _from_split(
    voter: Voter,
    photos: Labelled,
    bags: Bags,
    labels: npt.NDArray[Any],
    split: tuple[Numbers, Numbers],
    is_late: Callable[[], bool],
) -> LeftOut:
    """Train on some photos, and ask about the others in random order while there is time."""
    keep, out = split
    if not len(out):
        return LeftOut(out, np.zeros((0, len(np.unique(labels)))), lambda image: (voter, keep))
    trained = fit_until(voter, is_late, bags[keep], labels[keep])
    order, scores, scorer = np.random.default_rng(0).permutation(out), [], trained.scorer()
    for start in range(0, len(order), _FEWEST_ASKED):
        if start and is_late():
            break
        chosen = order[start : start + _FEWEST_ASKED]
        whole = photos.bags.only([photos.names[image] for image in chosen])
        scores.append(scorer.scores(whole.load(dtype=np.float32)[0]))
    asked = order[: sum(map(len, scores))]
    ascending = np.argsort(asked)
    answers = np.concatenate(scores)[ascending]
    return LeftOut(asked[ascending], answers, lambda image: (trained, keep), not_asked=len(out) - len(asked))


def _calibrated(fitted: Any, left_out: LeftOut, numbers: Numbers, rejection: float) -> npt.NDArray[np.float64]:
    """Set temperature and threshold of a voter by left-out photos; return the probabilities for these."""
    expected = numbers[left_out.images]
    if not fitted.leaves_out:
        fitted.temperature_, fitted.rejection_threshold_ = 1.0, 0.0
        if len(expected):
            fitted.temperature_ = fit_temperature(left_out.scores, expected)
    if not len(expected):
        return np.zeros((0, left_out.scores.shape[1]))
    probability = softmax(left_out.scores / fitted.temperature_)
    fitted.rejection_threshold_ = threshold_for(probability, expected, rejection)
    return np.asarray(probability, np.float64)


# --- training within a budget of time ---------------------------------------------------------------------------------


def fit_until(voter: Any, is_late: Callable[[], bool], *data: Any, method: str = "fit", **more: Any) -> Any:
    """Train a copy of a voter, whose callback ends it after the first pass at whose end it `is_late`.

    Voters that do not learn in passes or rounds are always trained completely, which takes seconds.
    """
    copy = voter.__sklearn_clone__()
    options = copy.options

    def is_over(state: dict[str, Any]) -> bool:
        late = is_late()
        return (options.callback is not None and options.callback(state) is True) or late

    fitted = getattr(copy.set_options(callback=is_over), method)(*data, **more)
    fitted.options = options
    return fitted


def cut_short(voter: Any) -> str | None:
    """Return after how many of its rounds or passes a training stopped early; None where it was completed."""
    last = (getattr(voter, "history_", None) or [{}])[-1]
    for done, planned in (("round", "rounds"), ("pass", "passes")):
        if last.get(done, 0) < last.get(planned, 0):
            return f"{last[done]} of {last[planned]} {planned}"
    return None


# --- the model --------------------------------------------------------------------------------------------------------


def _model(fitted: Any, photos: Labelled, extractor: Extractor, about: About, familiarity: Familiarity | None) -> Model:
    """Combine what was learned with its metadata."""
    scorer = fitted.scorer()
    has_digests = scorer.adapts and len(photos) <= _MAX_NAMED
    has_names = scorer.remembers or ((scorer.adapts or scorer.traces) and len(photos) <= _MAX_NAMED)
    return Model(
        scorer,
        tuple(str(label) for label in fitted.classes_),
        extractor.recipe,
        extractor.backbone.spec.fingerprint,
        fitted.temperature_,
        fitted.rejection_threshold_,
        about,
        names=tuple(photos.names) if has_names else (),
        digests=tuple(photos.digests) if has_digests else (),
        descriptors={} if isinstance(photos.bags, MomentBags) else descriptors_of(photos.bags, photos.labels),
        steps=int(getattr(fitted, "steps_", 0)),
        familiarity=familiarity,
    )


def descriptors_of(store: Store, labels: Sequence[str]) -> dict[str, int]:
    """Return the number of descriptors of each class."""
    array = np.array(labels, str)
    return {label: int(store.sizes[array == label].sum()) for label in np.unique(array).tolist()}


def _about(photos: Labelled, groups: Numbers, fitted: Any, scores: Scores | None, left_out: LeftOut) -> About:
    """Return the metadata of a new model."""
    cut = []
    if left_out.not_asked:
        cut.append(f"{counted(left_out.not_asked, 'held-out photo was', 'held-out photos were')} not tested")
    if ended := cut_short(fitted):
        cut.append(f"the training on all photos ended after {ended}")
    images = dict(sorted(collections.Counter(photos.labels).items()))
    about = About(
        made={"patchvote": __version__, "date": datetime.date.today().isoformat()},
        images=images,
        copies=describe_copies(groups, photos.names, photos.labels),
        method=type(fitted).description or fitted.kind,
        cut=cut,
        held_out=None if scores is None else scores.summary() | {"left_out": _reasons(scores, images)},
        curve=left_out.curve,
    )
    return with_photos(about, zip(photos.labels, photos.digests, strict=True))


def _reasons(scores: Scores, images: Mapping[str, int]) -> dict[str, str]:
    """Return for each class without left-out photos the reason why it has none."""
    missing = [one.label for one in scores.by_class() if not one.images]
    return {label: "it has one photo" if images[label] == 1 else "its photos look alike" for label in missing}
