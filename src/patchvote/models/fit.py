"""From bags to a model: choose settings, train, measure."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.copies import copy_groups, describe_copies
from ..bags.extract import Extractor
from ..bags.store import Store
from ..bags.thinning import thinned
from ..errors import PatchvoteError, PhotoError
from ..utils.budget import cut_short, fit_until
from ..utils.timing import Progress, timed
from ..version import __version__
from ..voters.bag_svm import pooled
from ..voters.base import Candidate, Voter
from ..voters.registry import DEFAULT, kind_of, voter_class
from .about import About
from .choose import Choice, Tried, choose
from .evidence import Evidence
from .known import with_photos
from .model import Model
from .report.card import card
from .scores import Scores


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
        "auto", the name of a voter, or an estimator that is one.
    seed : int
        Of the training.
    """
    if isinstance(voter, Voter):
        return [Candidate(type(voter).__name__, voter.uncalibrated())]
    return voter_class(DEFAULT if voter == "auto" else kind_of(voter)).candidates(seed)


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
    means_only = all(option.voter.means_only for option in options)
    with timed(seconds, "reading"):
        bags, groups = _bags_and_copies(store, means_only, seed)

    def tell(tried: list[Tried]) -> None:
        if progress is not None:
            progress("choose", len(tried), len(options))

    def whole(images: npt.NDArray[np.int64]) -> Bags:
        return store.load(images, store.dtype)[0]

    began = time.perf_counter()
    with timed(seconds, "choosing"):
        asked, labels = None if means_only else whole, classes[numbers]
        choice = choose(options, bags, labels, groups=groups, whole=asked, budget=budget, seed=seed, tell=tell)
    with timed(seconds, "training"):
        fitted = fit_until(choice.candidate.voter, began + budget, bags, labels)
        fitted.temperature_, fitted.rejection_threshold_ = choice.temperature, choice.threshold
    fitted.remember(bags, numbers, np.random.default_rng(seed))
    held_out, mistakes = _measured(store, classes, numbers, choice, whole)
    about = _about(store, classes.tolist(), numbers, groups, choice, fitted, held_out)
    about = dataclasses.replace(about, seconds={name: round(took, 2) for name, took in seconds.items()})
    model = model_of(fitted, store, extractor, choice, about)
    return Fitted(dataclasses.replace(model, card=card(model)), fitted, held_out, mistakes)


def model_of(fitted: Voter, store: Store, extractor: Extractor, choice: Choice, about: About) -> Model:
    """Put together what was learned and what surrounds it."""
    labels, scorer = store.labels.astype(str), fitted.scorer()
    return Model(
        scorer,
        tuple(str(label) for label in fitted.classes_),
        extractor.recipe,
        extractor.backbone.spec.fingerprint,
        choice.temperature,
        choice.threshold,
        about,
        names=tuple(store.names) if "image" in scorer.arrays else (),
        descriptors={label: int(store.sizes[labels == label].sum()) for label in np.unique(labels).tolist()},
        steps=int(getattr(fitted, "steps_", 0)),
    )


def _measured(
    store: Store,
    classes: npt.NDArray[np.str_],
    numbers: npt.NDArray[np.int64],
    choice: Choice,
    whole: Callable[[npt.NDArray[np.int64]], Bags],
) -> tuple[Scores | None, tuple[Evidence, ...]]:
    """Return the answers for held-out images, where any were held out, and evidence of the worst of them."""
    if not len(choice.images):
        return None, ()
    names = tuple(store.names[i] for i in choice.images)
    held_out = Scores(tuple(classes.tolist()), names, numbers[choice.images], choice.probability, choice.threshold)
    return held_out, tuple(_evidence(held_out, choice, whole, int(index)) for index in held_out.worst())


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
    held_out: Scores | None,
) -> About:
    """Tell what people want to know of a new model."""
    labels = [classes[number] for number in numbers]
    told: Any = None
    copies: Any = describe_copies(groups, store.names, labels)
    if held_out is not None:
        told = held_out.summary() | {"left_out": _left_out(held_out, numbers, groups)}
    about = About(
        made={"patchvote": __version__, "date": datetime.date.today().isoformat()},
        images=dict(zip(classes, np.bincount(numbers).tolist(), strict=True)),
        copies=copies,
        tried=[
            {"words": one.words, "accuracy": one.accuracy, "loss": one.loss, "seconds": one.seconds}
            for one in choice.tried
        ],
        chosen={"words": choice.candidate.words, "why": choice.why},
        cut=_cut(choice, fitted),
        held_out=told,
    )
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
            few = "all its photos look alike" if alike else "none could be spared"
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
