"""Make a model from bags: choose settings, train, measure."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.copies import copy_groups, describe_copies
from ..bags.extract import Extractor
from ..bags.store import Store
from ..bags.thinning import Thinning, thinned
from ..errors import ModelError, PatchvoteError, PhotoError
from ..utils.budget import cut_short
from ..utils.counting import counted
from ..utils.engine import Engine
from ..utils.schema import brief
from ..utils.timing import Progress, timed
from ..version import __version__
from ..voters.bag_svm import pooled
from ..voters.base import Candidate, Voter
from ..voters.familiarity import REJECTION, Familiarity
from ..voters.labels import hold_out
from ..voters.outputs import named
from ..voters.registry import AUTO, DEFAULT, kind_of, voter_class
from .about import About, CurvePoint
from .choose import Choice, Tried, choose, fitted_on, leaves_out_by_weight, some
from .evidence import Evidence
from .known import with_photos
from .learning_curve import Split, learning_curve
from .model import Model
from .pulling import MAX_NAMED, pulls_of
from .report.card import card
from .scores import Scores
from .train import check_means_only, train

# No training of the learning curve begins later than this share of the time that the choice of settings took, or these
# seconds: on a slow or busy machine, a small collection still gets its curve.
_CURVE_SHARE, _CURVE_SECONDS = 0.3, 10.0


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A model, its estimator, the answers for held-out images, and evidence of the worst mistakes among them."""

    model: Model
    voter: Voter
    held_out: Scores | None = None
    mistakes: tuple[Evidence, ...] = ()
    known: int = 0  # photos that the model had learned before, and that were not learned again
    refused: tuple[PhotoError, ...] = ()  # photos that it had learned as another class


def candidates_for(voter: Any, seed: int) -> list[Candidate]:
    """Return the candidates to try, the most promising first.

    Parameters
    ----------
    voter : str or estimator
        "auto", the name of a voter, or a voter.
    seed : int
        Seed of the training.

    Raises
    ------
    PatchvoteError
        There is no such voter, it has no candidates, or no model can be made of them.
    """
    if isinstance(voter, Voter):
        candidates = [Candidate(type(voter).__name__, voter.uncalibrated())]
    else:
        kind = DEFAULT if voter == AUTO else kind_of(voter)
        candidates = voter_class(kind).candidates(seed)
        if not candidates:
            raise PatchvoteError(f"the voter {kind!r} has no candidates to try.")
    for candidate in candidates:
        candidate.voter.check_for_model()
    return candidates


def _alone(voter: Any) -> str:
    """Return why the settings of a voter are used where no others were tried."""
    if isinstance(voter, Voter):
        return "as it was given"
    return "the default" if voter in (AUTO, DEFAULT) else "its default settings"


def fit_model(
    store: Store,
    voter: Any,
    extractor: Extractor,
    *,
    budget: float,
    seed: int,
    progress: Progress | None,
    seconds: dict[str, float],
    engine: Engine | None = None,
    held_out: float | Collection[str] | None = None,
) -> Fitted:
    """Choose settings on held-out images, then train on all images.

    Parameters
    ----------
    store : Store
        Store of labelled bags.
    voter : str or estimator
        Voter, as for `candidates_for`.
    extractor : Extractor
        Extractor of the bags.
    budget : float
        Seconds for the choice of settings and for the training on all images.
    seed : int
        Seed of everything that is random.
    progress : function, optional
        Called with the name of the current part, the number of finished steps, and their total.
    seconds : dict
        Duration of each part so far; further parts are added.
    engine : Engine, optional
        Engine whose workers train on all images, if the voter can divide its training; the rest is done here.
    held_out : float or collection of str, optional
        Share of the images of every class, or names of the images, that are held out once; by default, few images are
        held out in turns.
    """
    classes, numbers = np.unique(store.labels.astype(str), return_inverse=True)
    if len(classes) < 2:
        raise PatchvoteError(f"photos of one class only can be read: {str(classes[0])!r}. There must be two at least.")
    options = candidates_for(voter, seed)
    means_only = all(option.voter.means_only for option in options)
    reads_store = all(option.voter.reads_store for option in options)
    with timed(seconds, "reading"):
        bags, means, groups = _bags_and_copies(store, means_only, reads_store, seed)

    def tell(tried: list[Tried]) -> None:
        if progress is not None:
            progress("choose", len(tried), len(options))

    def whole(images: npt.NDArray[np.int64]) -> Bags:
        return store.whole(images)

    start = time.perf_counter()
    with timed(seconds, "choosing"):
        whole_bags, labels = None if means_only or reads_store else whole, classes[numbers]
        more: dict[str, Any] = {"groups": groups, "split": _split(held_out, store.names, numbers, groups, seed)}
        more |= {"budget": budget, "seed": seed, "tell": tell, "alone": _alone(voter)}
        choice = choose(options, bags, labels, **more, whole=whole_bags)
    with timed(seconds, "training"):
        more = {}
        if engine is not None:
            thinning = Thinning.of(len(store), seed) if whole_bags is not None else None
            more = {"method": "fit_on_workers", "engine": engine, "store": store, "thinning": thinning}
        fitted = train(choice.candidate.voter, start + budget, bags, labels, **more)
        fitted.temperature_, fitted.rejection_threshold_ = choice.temperature, choice.threshold
    with timed(seconds, "curve"):
        until = min(start + budget, time.perf_counter() + max(_CURVE_SECONDS, _CURVE_SHARE * seconds["choosing"]))
        curve = _curve(choice, bags, labels, numbers, whole_bags, until, seed)
    rejection = getattr(choice.candidate.voter, "rejection", REJECTION)
    familiarity, shares = Familiarity.learned(means, numbers, choice.folds(), rejection)
    if means_only:
        check_means_only(fitted, whole, len(store))
    fitted.remember(bags, numbers, np.random.default_rng(seed))
    with timed(seconds, "evidence"):  # if the store does not keep whole bags, a few photos are extracted again
        measured, mistakes = _measured(store, classes, numbers, choice, shares, familiarity, whole)
    about = _about(store, classes.tolist(), numbers, groups, choice, fitted, measured)
    about = dataclasses.replace(about, curve=curve, seconds={name: round(took, 2) for name, took in seconds.items()})
    model = model_of(fitted, store, extractor, choice, about, familiarity)
    return Fitted(dataclasses.replace(model, card=card(model)), fitted, measured, mistakes)


def _split(
    held_out: float | Collection[str] | None,
    names: Sequence[str],
    numbers: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64],
    seed: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return the images to train on and to hold out, if the caller has said which."""
    if held_out is None:
        return None
    images = np.arange(len(names))
    if isinstance(held_out, (int, float)):
        return hold_out(images, numbers, held_out, seed, groups)
    wanted = set(held_out)
    out = np.array([name in wanted for name in names], bool)
    if len(missing := np.setdiff1d(numbers, numbers[~out])):
        first = names[int(np.flatnonzero(numbers == missing[0])[0])]
        raise PatchvoteError(f"held_out leaves no photo of the class of {first} to learn from: hold out fewer.")
    return images[~out], images[out]


def _curve(
    choice: Choice,
    bags: Bags | Store,
    labels: npt.NDArray[Any],
    numbers: npt.NDArray[np.int64],
    whole: Callable[[npt.NDArray[np.int64]], Bags] | None,
    until: float,
    seed: int,
) -> list[CurvePoint]:
    """Return the learning curve of the chosen settings."""

    def train_on(images: npt.NDArray[np.int64], until: float) -> Any:
        return fitted_on(choice.candidate.voter, bags, labels, images, until)

    def held_out(images: npt.NDArray[np.int64]) -> Bags | Store:
        return whole(images) if whole is not None else some(bags, images)

    splits = [
        Split(fold.kept, fold.images, fold.probability.argmax(axis=1) == numbers[fold.images])
        for fold in choice.folds()
    ]
    return learning_curve(splits, numbers, train_on, held_out, until, seed)


def model_of(
    fitted: Voter,
    store: Store,
    extractor: Extractor,
    choice: Choice,
    about: About,
    familiarity: Familiarity | None,
) -> Model:
    """Combine what was learned with its metadata."""
    labels, scorer = store.labels.astype(str), fitted.scorer()
    if scorer.features != store.dim:
        raise ModelError(
            f"{named(scorer)} says that its descriptors have {brief(scorer.features)} features, but "
            f"they have {store.dim}."
        )
    return Model(
        scorer,
        tuple(str(label) for label in fitted.classes_),
        extractor.recipe,
        extractor.backbone.spec.fingerprint,
        choice.temperature,
        choice.threshold,
        about,
        names=tuple(store.names) if scorer.remembers or (scorer.traces and len(store) <= MAX_NAMED) else (),
        descriptors={label: int(store.extracted[labels == label].sum()) for label in np.unique(labels).tolist()},
        steps=int(getattr(fitted, "steps_", 0)),
        familiarity=familiarity,
    )


def _measured(
    store: Store,
    classes: npt.NDArray[np.str_],
    numbers: npt.NDArray[np.int64],
    choice: Choice,
    shares: npt.NDArray[np.float64] | None,
    familiarity: Familiarity | None,
    whole: Callable[[npt.NDArray[np.int64]], Bags],
) -> tuple[Scores | None, tuple[Evidence, ...]]:
    """Return the answers for held-out images, if any, and evidence of the worst mistakes among them."""
    if not len(choice.images):
        return None, ()
    names = tuple(store.names[i] for i in choice.images)
    limit = choice.threshold if familiarity is None else familiarity.rejection
    expected = numbers[choice.images]
    answers = expected, choice.probability, limit, shares
    held_out = Scores(tuple(classes.tolist()), names, *answers, held_out=True)
    return held_out, tuple(_evidence(held_out, choice, whole, held_out.worst(), store.names))


def _bags_and_copies(
    store: Store, means_only: bool, reads_store: bool, seed: int
) -> tuple[Bags | Store, npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return what the voter learns from, the mean descriptor of every photo, and groups of photos that look alike."""
    digests = [entry.digest for entry in store.entries]
    if means_only or reads_store:
        bags = pooled(store)
        means = np.asarray(bags.values, np.float32)
        return (bags if means_only else store), means, copy_groups(means, digests)
    means = np.empty((len(store), store.dim), np.float32)
    thin = thinned(store, seed, means)
    return thin, means, copy_groups(means, digests)


def _about(
    store: Store,
    classes: list[str],
    numbers: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64],
    choice: Choice,
    fitted: Any,
    held_out: Scores | None,
) -> About:
    """Return the metadata of a new model."""
    labels = [classes[number] for number in numbers]
    summary: Any = None
    copies: Any = describe_copies(groups, store.names, labels)
    if held_out is not None:
        summary = held_out.summary() | {"left_out": _left_out(held_out, numbers, groups)}
    about = About(
        made={"patchvote": __version__, "date": datetime.date.today().isoformat()},
        images=dict(zip(classes, np.bincount(numbers).tolist(), strict=True)),
        copies=copies,
        tried=[
            {"words": trial.words, "accuracy": trial.accuracy, "loss": trial.loss, "seconds": trial.seconds}
            for trial in choice.tried
        ],
        chosen={"words": choice.candidate.words, "why": choice.why},
        cut=_cut(choice, fitted),
        held_out=summary,
    )
    return with_photos(about, zip(labels, (entry.digest for entry in store.entries), strict=True))


def _cut(choice: Choice, fitted: Any) -> list[str]:
    """Return what the time budget cut short, in words."""
    parts = []
    trials = [ended for voter in choice.voters if (ended := cut_short(voter))]
    if trials:
        first = min(trials, key=lambda words: float(words.split()[0]))
        parts.append(f"trainings on a part of the photos ended after {first}")
    if choice.not_asked:
        parts.append(f"{counted(choice.not_asked, 'held-out photo was', 'held-out photos were')} not tested")
    if ended := cut_short(fitted):
        parts.append(f"the training on all photos ended after {ended}")
    return parts


def _left_out(held_out: Scores, numbers: npt.NDArray[np.int64], groups: npt.NDArray[np.int64]) -> dict[str, str]:
    """Return for each class without held-out photos the reason why it has none."""
    reasons = {}
    for number, class_scores in enumerate(held_out.by_class()):
        if not class_scores.images:
            photos = numbers == number
            alike = len(np.unique(groups[photos])) == 1
            several = "all its photos look alike" if alike else "none could be spared"
            reasons[class_scores.label] = "it has one photo" if photos.sum() == 1 else several
    return reasons


def _evidence(
    held_out: Scores,
    choice: Choice,
    whole: Callable[[npt.NDArray[np.int64]], Bags],
    indices: npt.NDArray[np.int64],
    names: Sequence[str],
) -> Iterator[Evidence]:
    """Yield the evidence of held-out images, each from the voter that was trained without it.

    Images whose photos have changed or vanished since, and of which the store keeps no whole bags, are left out.
    """
    if not len(indices):
        return
    try:
        bags = list(whole(choice.images[indices]))
    except PatchvoteError:
        if len(indices) > 1:
            for index in indices:
                yield from _evidence(held_out, choice, whole, np.array([index]), names)
        return
    for index, bag in zip(indices.tolist(), bags, strict=True):
        number = choice.voter_of[index]
        voter, kept = choice.voters[number], choice.kept[number].tolist()
        votes, boxes = voter.votes(bag).astype(np.float64), bag.boxes.astype(np.float64)
        name, probability, rejected = held_out.names[index], held_out.probability[index], bool(held_out.rejected[index])
        evidence = Evidence(name, held_out.classes, votes, boxes, probability, rejected=rejected)
        weighted = leaves_out_by_weight(voter)
        given, learned = (names, kept) if weighted else ([names[image] for image in kept], None)
        pulls = pulls_of(voter.scorer(), given, bag, evidence, evidence.ranking[0], learned)
        yield dataclasses.replace(evidence, pulls=pulls)
