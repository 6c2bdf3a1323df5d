"""From bags to a model: choose settings, train, measure, remember; later, add to it.

Linear votes keep the mean of every photo, and so learn new photos as if they had been there at first. A model of
prototypes keeps a memory: a few random descriptors of each class, which stand for all that were seen. New photos are
learned together with the memory, so that old classes are not forgotten though no old photo is at hand.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ..bags.bags import Bags
from ..bags.copies import copy_groups, describe_copies
from ..bags.extract import Extractor
from ..bags.store import Store
from ..bags.thinning import thinned
from ..errors import PatchvoteError, PhotoError
from ..utils.budget import cut_short, fit_until
from ..version import __version__
from ..voters.bag_svm import BagSVM, pooled
from ..voters.base import Voter
from ..voters.neighbours.local_nbnn import LocalNBNN
from ..voters.neighbours.nbnn import NBNN
from ..voters.prototypes.nbnl import NBNL
from ..voters.prototypes.snbnl import SNBNL
from ..voters.veto import carried_over
from .choose import Candidate, Choice, Tried, choose
from .evidence import Evidence
from .known import known_photos, short, with_photos
from .memory import add_prototypes, remember
from .model import KINDS, Model
from .report.card import card
from .scores import Scores

VOTERS: dict[str, type[Voter]] = {
    "BagSVM": BagSVM,
    "SNBNL": SNBNL,
    "NBNL": NBNL,
    "NBNN": NBNN,
    "LocalNBNN": LocalNBNN,
}

_CURVATURE = 0.2  # fewer descriptors make fewer steps, which have to be larger


Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A model, the estimator it holds, answers for images that were held out, and evidence of the worst of them."""

    model: Model
    voter: Voter
    held_out: Scores | None = None
    mistakes: tuple[Evidence, ...] = ()
    known: int = 0  # photos that the model knew already, and that were not learned again
    refused: tuple[PhotoError, ...] = ()  # photos that it knows under another class


def candidates_for(voter: Any, seed: int) -> list[Candidate]:
    """Return what to try, the most promising first.

    Parameters
    ----------
    voter : str or estimator
        "auto", "bagsvm", "snbnl", "nbnl", "nbnn", "localnbnn", or an estimator of this package.
    seed : int
        Of the training.
    """
    if isinstance(voter, Voter):
        plain = clone(voter).set_params(calibration=0)
        return [Candidate(type(voter).__name__, plain)]
    known: dict[str, type[Any]] = {"auto": BagSVM, **{name.lower(): kind for name, kind in VOTERS.items()}}
    if known[voter] is BagSVM:
        return [
            # Every class counts the same, however many photos it has: a new class of 20 photos beside old ones of 100
            # is recognised in a tenth more of its photos, and more photos are named rightly over all.
            Candidate(
                f"linear votes, C = {strength:g}",
                BagSVM(strength, class_weight="balanced", calibration=0, random_state=seed),
            )
            for strength in (1.0, 10.0)
        ]
    if known[voter] is SNBNL:
        return [
            Candidate(words, SNBNL(count, minibatch=700, curvature=_CURVATURE, calibration=0, random_state=seed))
            for words, count in (("4 prototypes a class", 4), ("1 prototype a class", 1))
        ]
    return [Candidate(known[voter].__name__, known[voter](calibration=0))]


def fit_model(
    store: Store,
    voter: Any,
    extractor: Extractor,
    *,
    budget: float,
    seed: int,
    progress: Progress | None,
    seconds: dict[str, float],
) -> Fitted:
    """Choose settings on held-out images, then train on all.

    Parameters
    ----------
    store : Store
        Labelled bags.
    voter : str or estimator
        As `candidates_for` takes it.
    extractor : Extractor
        What made the bags.
    budget : float
        Seconds for trying settings and for the training on all images.
    seed : int
        Fixes everything that is random.
    progress : function, optional
        Called with what is being done, how much of it is done, and of how much.
    seconds : dict
        What has taken how long so far; more is written into it.
    """
    classes, numbers = np.unique(store.labels.astype(str), return_inverse=True)
    if len(classes) < 2:
        raise PatchvoteError(f"photos of one class only can be read: {str(classes[0])!r}. There must be two at least.")
    options = candidates_for(voter, seed)
    means_only = all(isinstance(option.voter, BagSVM) for option in options)
    with timed(seconds, "reading"):
        bags, groups = _bags_and_copies(store, means_only, seed)

    def tell(tried: list[Tried]) -> None:
        if progress is not None:
            progress("choose", len(tried), len(options))

    def whole(images: npt.NDArray[np.int64]) -> Bags:
        return store.load(images, store.dtype)[0]

    began = time.perf_counter()
    with timed(seconds, "choosing"):
        asked = None if means_only else whole
        choice = choose(options, bags, numbers, groups=groups, whole=asked, budget=budget, seed=seed, tell=tell)
    with timed(seconds, "training"):
        fitted = fit_until(choice.candidate.voter, began + budget, bags, classes[numbers])
        fitted.temperature_, fitted.rejection_threshold_ = choice.temperature, choice.threshold
    about = _about(store, classes.tolist(), numbers, groups, choice, fitted)
    held_out: Scores | None = None
    mistakes: tuple[Evidence, ...] = ()
    if len(choice.images):
        names = tuple(store.names[i] for i in choice.images)
        held_out = Scores(tuple(classes.tolist()), names, numbers[choice.images], choice.probability, choice.threshold)
        about["held_out"] = held_out.summary() | {"left_out": _left_out(held_out, numbers, groups)}
        mistakes = tuple(_evidence(held_out, choice, whole, int(index)) for index in held_out.worst())
    about["seconds"] = {name: round(took, 2) for name, took in seconds.items()}
    arrays = arrays_of(fitted)
    if "weights" in arrays:
        arrays |= remember(bags, numbers, len(classes), np.random.default_rng(seed))
    elif "values" in arrays:
        about["names"] = list(store.names)
    model = Model(
        type(fitted).__name__,
        tuple(classes.tolist()),
        extractor.recipe,
        extractor.backbone.spec.fingerprint,
        plain_settings(fitted),
        bool(fitted.positions_),
        choice.temperature,
        choice.threshold,
        arrays,
        about,
    )
    return Fitted(dataclasses.replace(model, card=card(model)), fitted, held_out, mistakes)


def _bags_and_copies(store: Store, means_only: bool, seed: int) -> tuple[Bags, npt.NDArray[np.int64]]:
    """Read what to learn from, and find which photos are copies of one another."""
    digests = [entry.digest for entry in store.entries]
    if means_only:
        bags = pooled(store)
        return bags, copy_groups(bags.values, digests)
    means = np.empty((len(store), store.dim), np.float32)
    bags = thinned(store, seed, means)
    return bags, copy_groups(means, digests)


def _about(
    store: Store,
    classes: list[str],
    numbers: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64],
    choice: Choice,
    fitted: Any,
) -> dict[str, Any]:
    """Tell what people want to know of a new model, as plain values."""
    labels = [classes[number] for number in numbers]
    descriptors = np.bincount(numbers, weights=store.sizes).astype(int).tolist()
    about = {
        "made": {"patchvote": __version__, "date": datetime.date.today().isoformat()},
        "images": dict(zip(classes, np.bincount(numbers).tolist(), strict=True)),
        "descriptors": dict(zip(classes, descriptors, strict=True)),
        "copies": describe_copies(groups, store.names, labels),
        "tried": [dataclasses.asdict(one) for one in choice.tried],
        "chosen": {"words": choice.candidate.words, "why": choice.why},
        "cut": _cut(choice, fitted),
        "held_out": None,
        "added": [],
        "steps": int(getattr(fitted, "steps_", 0)),
    }
    return with_photos(about, zip(labels, (entry.digest for entry in store.entries), strict=True))


def _cut(choice: Choice, fitted: Any) -> list[str]:
    """Say what the budget cut short."""
    said = []
    trials = sorted({ended for voter in choice.voters if (ended := cut_short(voter))})
    if trials:
        said.append(f"trainings on a part of the photos ended after {trials[0]}")
    if choice.not_asked:
        said.append(f"{choice.not_asked:,} photos that were to be held out were not asked about")
    if ended := cut_short(fitted):
        said.append(f"the training on all photos ended after {ended}")
    return said


def _left_out(held_out: Scores, numbers: npt.NDArray[np.int64], groups: npt.NDArray[np.int64]) -> dict[str, str]:
    """Say of each class without held-out photos why it has none."""
    reasons = {}
    for number, own in enumerate(held_out.by_class()):
        if not own.images:
            photos = numbers == number
            alike = len(np.unique(groups[photos])) == 1
            few = "all its photos are copies of one another" if alike else "none could be spared"
            reasons[own.label] = "it has one photo" if photos.sum() == 1 else few
    return reasons


def _evidence(held_out: Scores, choice: Choice, whole: Callable[[npt.NDArray[np.int64]], Bags], index: int) -> Evidence:
    """Return the evidence of a held-out image, by the voter that had not seen it."""
    bag = whole(choice.images[index : index + 1])
    votes = choice.voters[choice.voter_of[index]].votes(bag)
    boxes = bag.boxes.astype(np.float64)
    return Evidence(
        held_out.names[index], held_out.classes, votes.astype(np.float64), boxes, held_out.probability[index]
    )


def add_to_model(store: Store, model: Model, *, seed: int, seconds: dict[str, float]) -> Fitted:
    """Learn more bags, of classes that the model knows or of new ones.

    Prototypes learn the new bags together with the memory of the old ones. Banks and linear votes take them in as they
    are, which gives what learning everything at once would have given. Photos that the model has learned from are not
    learned again; where it has learned them as another class, they are refused.
    """
    voter = voter_of(model)
    if not hasattr(voter, "partial_fit") or getattr(voter, "condense", None) is not None:
        raise PatchvoteError(
            f"a model of {model.kind} with these settings cannot learn more: fit it again with all photos."
        )
    fresh, known, refused = _sorted_out(store, model)
    if not fresh:
        return Fitted(model, voter, known=known, refused=refused)
    store = store.only(fresh)
    labels = store.labels.astype(str)
    with timed(seconds, "training"):
        bags = pooled(store) if isinstance(voter, BagSVM) else store.load(dtype=store.dtype)[0]
        if "weights" in model.arrays:
            memory = add_prototypes(voter, model, bags, labels, np.random.default_rng(seed))
        else:
            voter.partial_fit(bags.astype(np.float32), labels)
            memory = {}
    classes = tuple(str(label) for label in voter.classes_)
    arrays = arrays_of(voter) | memory | carried_over(model.arrays, model.classes, classes)
    new = dataclasses.replace(model, classes=classes, arrays=arrays, about=_about_added(store, model, classes))
    return Fitted(dataclasses.replace(new, card=card(new)), voter, known=known, refused=refused)


def _sorted_out(store: Store, model: Model) -> tuple[list[str], int, tuple[PhotoError, ...]]:
    """Return the names of photos that a model does not know, how many it knows, and those with another class."""
    known = known_photos(model.about)
    fresh, again, refused = [], 0, []
    for entry in store.entries:
        label, digest = str(entry.label), short(entry.digest)
        before = known.setdefault(digest, set())
        if not before:
            before.add(label)
            fresh.append(entry.name)
        elif label in before:
            again += 1
        else:
            said = f"it was learned as {', '.join(sorted(before))}, and is not learned as {label}, too."
            refused.append(PhotoError(entry.name, f"{said} To change its class, fit again with all photos."))
    return fresh, again, tuple(refused)


def _about_added(store: Store, model: Model, classes: tuple[str, ...]) -> dict[str, Any]:
    """Tell what people want to know of a model that has learned more photos."""
    about, labels = model.about, store.labels.astype(str)
    images, sizes = dict(about.get("images", {})), dict(about.get("descriptors", {}))
    counts = {label: int(np.sum(labels == label)) for label in np.unique(labels).tolist()}
    for label, count in counts.items():
        images[label] = images.get(label, 0) + count
        sizes[label] = sizes.get(label, 0) + int(store.sizes[labels == label].sum())
    added = {
        "date": datetime.date.today().isoformat(),
        "images": counts,
        "new_classes": sorted(set(classes) - set(model.classes)),
    }
    about = {**about, "images": images, "descriptors": sizes, "added": [*about.get("added", []), added]}
    if "names" in about:
        about["names"] = [*about["names"], *store.names]
    return with_photos(about, zip(labels.tolist(), (entry.digest for entry in store.entries), strict=True))


def voter_of(model: Model) -> Any:
    """Make the estimator that a model holds."""
    settings = {name: _from_plain(value) for name, value in model.settings.items()}
    kind = VOTERS[model.kind]
    try:
        voter: Any = kind(**settings)
        voter._check_settings()
    except (TypeError, ValueError) as error:
        raise PatchvoteError(f"the model has settings that {model.kind} does not take: {error}") from error
    voter.classes_ = np.array(model.classes)
    voter.n_features_in_ = model.features
    voter.positions_, voter.temperature_ = model.positions, model.temperature
    voter.rejection_threshold_ = model.threshold
    for name in KINDS[model.kind]:
        if not name.startswith("memory"):
            setattr(voter, f"{name}_", model.arrays[name])
    if isinstance(voter, BagSVM):
        voter.power_ = float(settings["power"])
    elif "weights" in model.arrays:
        voter.steps_, voter.history_ = int(model.about.get("steps", 0)), []
    else:
        voter._make_searchable()
    return voter


def arrays_of(voter: Any) -> dict[str, npt.NDArray[Any]]:
    """Return what a voter learned, by the names in a model."""
    known = KINDS[type(voter).__name__]
    return {name: np.asarray(getattr(voter, f"{name}_")) for name in known if not name.startswith("memory")}


_NOT_KEPT = ("callback", "device")  # of the machine and the moment, not of the model


def plain_settings(voter: Any) -> dict[str, Any]:
    """Return a voter's settings as plain values, those that it set itself included."""
    settings = {name: _plain(value) for name, value in voter.get_params().items() if name not in _NOT_KEPT}
    return settings | ({"power": voter.power_} if isinstance(voter, BagSVM) else {})


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf"  # JSON knows no infinity
    return value.item() if isinstance(value, np.generic) else value


def _from_plain(value: Any) -> Any:
    return math.inf if value == "inf" else value


@contextlib.contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Add the seconds that the body takes to those of `what`."""
    began = time.perf_counter()
    yield
    seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - began
