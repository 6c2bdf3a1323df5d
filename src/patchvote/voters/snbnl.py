"""SNBNL: scalable Naive Bayes Non-linear Learning.

Every class has a few prototypes; a descriptor votes for a class with phi(W^T x) of its products with them. Prototypes
are learned by STOML3: softmax loss on single descriptors, stochastic majorisation-minimisation. Training is a loop over
minibatches, so it can stop, continue, and learn new images and new classes at any time.

References
----------
Kuzborskij, Carlucci and Caputo, "When Naive Bayes Nearest Neighbours Meet Convolutional Neural Networks", CVPR 2016.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight

from ..bags.bags import Bags
from ..bags.copies import copy_groups
from ..bags.store import Store
from ..errors import PatchvoteError
from ..utils.engine import Engine, Team
from ..utils.remote import place
from .base import Voter
from .labels import hold_out, image_weights
from .minibatches import TrainingData, most_in_memory
from .ml3 import GradientJob, Stoml3
from .prototype_training import START_SCALE, Checkpoint, Passes, first_prototypes, training_mark
from .prototype_votes import SnbnlVotes
from .scorer import Scorer
from .votes import ROOT, best_and_strongest, fit_temperature, log_losses, softmax

STRENGTHS = (1e-4, 1.0)  # of the regularisation, of which alpha="auto" chooses
_MOST_TO_CHOOSE = 2_000  # images with which it does
_CURVATURE = 0.2  # of the default: with fewer descriptors there are fewer steps, which have to be larger
REMEMBERED = 256  # descriptors kept per class
_ADDING_STEPS = 100  # fewest steps when photos are added; 200 cost old classes half a point more

_Sample = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64]]  # descriptors, their boxes and class numbers


class PrototypeVoter(Voter):
    """Base of the voters with learned prototypes; subclasses define `_train` and their settings."""

    power: float | str
    power_: float
    weights_: npt.NDArray[Any]
    mean_: npt.NDArray[np.float64]
    scale_: npt.NDArray[np.float64]
    history_: list[dict[str, Any]]
    _team: Team | None = None  # of workers that compute gradients

    def _train(self, data: TrainingData, seed: int) -> None:
        """Train prototypes from scratch."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn prototypes from labelled images."""
        self._check_settings()
        data = self._training_data(X, y, sample_weight)
        seed = int(check_random_state(self.random_state).randint(2**31, size=2)[1])
        self._standardise(data)
        data.mean, data.scale = self.mean_, self.scale_
        self._train(data, seed)
        return self

    def _training_data(
        self, X: Any, y: Any, sample_weight: Any, learned: npt.NDArray[Any] | None = None, *, reset: bool = True
    ) -> TrainingData:
        """Check images and labels, and set `classes_` to the classes `learned` before and those of `y`."""
        source, labels = self._read_labelled(X, y, reset=reset)
        numbers = self._set_classes(labels, learned)
        weight = image_weights(self.classes_, numbers, self.class_weight, sample_weight)
        data = TrainingData(source, numbers, weight, self._most(source))
        if reset:
            roots = self.power == "auto" and not data.has_negative_features()
            self.power_ = ROOT if roots else 1.0 if self.power == "auto" else float(self.power)
            self.positions_ = data.positions and self.position_weight > 0
        data.positions, data.power = self.positions_, self.power_
        return data

    def _standardise(self, data: TrainingData) -> None:
        moments = data.moments()
        self.mean_, self.scale_ = moments.mean, 1 / moments.deviation()
        if data.positions:
            self.scale_[-2:] *= self.position_weight

    def _most(self, source: Bags | Store) -> int:
        """Return how many descriptors may be in memory; bags are there already."""
        if isinstance(source, Bags):
            return len(source.values)
        width, itemsize = self.n_prototypes * len(self.classes_), np.dtype(source.dtype).itemsize
        return most_in_memory(self.options.memory, source.dim, itemsize, width, self.batch_size)

    def _restored(self, scorer: Scorer) -> None:
        self.power_ = float(scorer.settings.get("power", 1.0))
        self.steps_, self.n_iter_, self.history_ = 0, 0, []


@dataclasses.dataclass(eq=False, repr=False)
class SNBNL(PrototypeVoter):
    """Votes with a few learned prototypes per class, trained by STOML3.

    Parameters
    ----------
    n_prototypes : int, default 10
        Prototypes per class. With 1, a vote is a rectified linear function.
    q : float, default 2
        Exponent of the norm that turns the products with a class's prototypes into one vote, ``||[z]_+||_q``: from 1
        (the sum of the positive ones) to ``numpy.inf`` (the largest one).
    alpha : float or "auto", default 1e-4
        Strength of the regulariser. The value of the paper, 1, underfits the standardised descriptors of many photos,
        and is better with few and for photos of another camera. "auto" takes it unless photos that are held out speak
        against it.
    curvature : float, default 0.3
        Curvature L of the surrogate: a larger one makes smaller steps. The value of the paper, 1, underfits.
    batch_size : int, default 1000
        Descriptors per step.
    max_iter : int, default 3
        Passes over the data; a small training set gets more, so that there are 100 steps at least.
    start : {"random", "data", "kmeans"}, default "random"
        Initial prototypes: small random numbers, random descriptors of the class, or its k-means centres.
    power : float or "auto", default 1
        Exponent of the power normalisation of features: 1 changes nothing, as in the paper; 0.5 takes square roots.
        "auto" is 0.5, or 1 if features are negative.
    position_weight : float, default 1
        Weight of the two position features that are added to the standardised descriptor; 0 leaves them out.
    confidence : float, default 0
        Exponent of the weight of a descriptor's vote, its lead (see `confidence`); 0 gives all the same weight, as in
        the paper.
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    random_state : int or None, default 0
        Seed of everything random.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    weights_ : array of shape (prototypes, classes, features)
        The prototypes, in the space of standardised features.
    mean_, scale_ : arrays
        Mean and factor of each feature: x is standardised to ``(x - mean_) * scale_``.
    alpha_ : float
        Strength of the regulariser that was used.
    steps_ : int
        Number of steps.
    n_iter_ : int
        Number of passes.
    history_ : list of dict
        Record of each pass: loss and dead prototypes.
    dead_prototypes_ : int
        Prototypes that no descriptor of the very last minibatch activated. (Those that are dead at the end of an
        earlier pass are initialised again.)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 1) for _ in range(10)]
    >>> labels = ["sea"] * 10 + ["land"] * 10
    >>> voter = SNBNL(n_prototypes=2).fit(bags, labels)
    >>> voter.predict([np.ones((5, 4))])
    array(['land'], dtype='<U4')
    """

    scorer_class = SnbnlVotes
    description = "each part of a photo votes by its likeness to learned parts (prototypes) of each class"
    min_steps = 100  # fewest steps of a training; a small training set gets more passes

    n_prototypes: int = 10
    _: dataclasses.KW_ONLY
    q: float = 2.0
    alpha: float | str = 1e-4
    curvature: float = 0.3
    batch_size: int = 1000
    max_iter: int = 3
    start: str = "random"
    power: float | str = 1.0
    position_weight: float = 1.0
    confidence: float = 0.0
    class_weight: Any = None
    random_state: Any = 0

    @classmethod
    def default(cls, seed: int) -> Self:
        """Return the voter for photos: 4 prototypes per class, with roots and weights of parts."""
        return cls(
            4, alpha="auto", power="auto", confidence=0.5, batch_size=700, curvature=_CURVATURE, random_state=seed
        )

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit_on_workers(self, X: Any, y: Any = None, *, engine: Engine) -> Self:
        """Learn as `fit` does, up to rounding; each worker of the engine computes a part of every gradient.

        This process reads the images and writes the checkpoint.
        """
        if self.options.device is not None:
            return self.fit(X, y)
        with contextlib.closing(engine.team(GradientJob())) as team:
            self._team = team
            try:
                return self.fit(X, y)
            finally:
                del self._team

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more images, in one pass over them; they may be of classes never seen before.

        Statistics for standardisation come from the first call (or from `fit`) and stay: the first call needs a
        representative sample.
        """
        self._check_settings()
        first = not hasattr(self, "weights_")
        learned = self.classes_ if not first else np.unique(classes) if classes is not None else None
        data = self._training_data(X, y, sample_weight, learned, reset=first)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        if first:
            self._standardise(data)
            self.history_, self.steps_, self.n_iter_ = [], 0, 0
            self.weights_ = self._first_prototypes(data, rng)
            self.alpha_ = STRENGTHS[-1] if self.alpha == "auto" else self.alpha
        elif learned is not None and len(self.classes_) > len(learned):
            grown = rng.standard_normal((self.n_prototypes, len(self.classes_), data.dim)) * START_SCALE
            grown[:, np.isin(self.classes_, learned)] = self.weights_
            self.weights_ = grown.astype(self.weights_.dtype)
        learner = self._learner(self.weights_.copy(), self.steps_)  # a model may hold the array as well
        data.dtype = self.weights_.dtype.type
        data.mean, data.scale = self.mean_, self.scale_
        passes = Passes(data, rng, learner, self.batch_size)
        passes.one_pass()
        self.weights_, self.steps_, self.dead_prototypes_ = learner.weights, learner.t, passes.dead
        self.n_iter_ += 1
        return self

    def remember(self, bags: Bags, numbers: npt.NDArray[np.int64], rng: np.random.Generator) -> None:
        """Keep some random descriptors of each class, with which `learn_more` learns."""
        none = bags.values[:0], bags.boxes[:0], numbers[:0]
        self._remember(none, (bags.values, bags.boxes, numbers[bags.owner]), {}, rng)

    def learn_more(
        self, bags: Bags, labels: npt.NDArray[Any], seen: Mapping[str, int], rng: np.random.Generator
    ) -> None:
        """Learn new images together with the memory of the old ones, so that old classes are not forgotten."""
        if not hasattr(self, "memory_values_"):
            raise PatchvoteError("the model keeps no descriptors of its photos, so it cannot learn more: fit it again.")
        known, numbers = self.classes_, self.memory_class_
        order = np.argsort(numbers, kind="stable")
        present, sizes = np.unique(numbers, return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        old = Bags(self.memory_values_[order].astype(np.float32), offsets, self.memory_boxes_[order])
        new = bags.astype(np.float32)
        both, y = Bags.join([old, new]), np.concatenate([known[present], labels])
        weight = np.ones(len(both))
        # An old class has the same weight as a new one. With weights by number of photos, only half of the photos of a
        # new class of 20 beside old ones of 100 would be recognised.
        weight[: len(old)] = len(new.values) / len(np.unique(labels)) / old.sizes
        steps = max(1, round(len(both.values) / self.batch_size))
        curvature, class_weight = self.curvature, self.class_weight
        if class_weight == "balanced":  # the memory is one image per old class, and has its weight already
            weight[len(old) :] = compute_sample_weight("balanced", labels)
            self.class_weight = None
        self.curvature = max(curvature, 1.0)  # smaller steps than in `fit`, so that old classes are not forgotten
        for _ in range(-(-_ADDING_STEPS // steps)):
            self.partial_fit(both, y, sample_weight=weight)
        self.curvature, self.class_weight = curvature, class_weight
        memory = self.memory_values_, self.memory_boxes_, np.searchsorted(self.classes_, known)[numbers]
        added = new.values, new.boxes, np.searchsorted(self.classes_, labels)[new.owner]
        self._remember(memory, added, seen, rng)

    def _remember(self, old: _Sample, new: _Sample, seen: Mapping[str, int], rng: np.random.Generator) -> None:
        """Keep random descriptors of each class, old and new ones in proportion to how many were seen of each."""
        chosen = []
        for number, label in enumerate(self.classes_.tolist()):
            old_rows, new_rows = np.flatnonzero(old[2] == number), np.flatnonzero(new[2] == number)
            before = seen.get(label, len(old_rows)) if len(old_rows) else 0
            share = before / max(1, before + len(new_rows))
            for sample, rows, part in ((old, old_rows, share), (new, new_rows, 1 - share)):
                some = rng.permutation(rows)[: round(REMEMBERED * part)]
                chosen.append([array[some] for array in sample])
        values, boxes, numbers = (np.concatenate(arrays) for arrays in zip(*chosen, strict=True))
        self.memory_values_, self.memory_boxes_, self.memory_class_ = compact(values), boxes.astype(np.float32), numbers

    def _strength(self, data: TrainingData) -> float:
        """Return the strongest regularisation that images do not speak against, one half asked about the other."""
        source, numbers = data.source, data.labels
        images = np.sort(np.random.default_rng(0).permutation(data.images)[:_MOST_TO_CHOOSE])
        groups = copy_groups(source)
        halves = hold_out(images, numbers, 0.5, 0, groups)
        if len(np.unique(numbers[halves[1]])) < 2:
            return STRENGTHS[-1]
        losses = np.stack([np.concatenate(list(self._losses(data, halves, strength))) for strength in STRENGTHS])
        return STRENGTHS[best_and_strongest(losses, len(np.unique(groups[images])))[1]]

    def _losses(self, data: TrainingData, halves: tuple[Any, Any], strength: float) -> Iterator[npt.NDArray[Any]]:
        """Yield the log losses of the images of each half, learned from the other."""
        source, numbers = data.source, data.labels
        for learned, asked in (halves, halves[::-1]):
            asked = asked[np.isin(numbers[asked], numbers[learned])]
            held_out = source[asked] if isinstance(source, Bags) else source.only([source.names[i] for i in asked])
            weight = np.where(np.isin(np.arange(len(numbers)), learned), data.weight, 0)
            voter = self.__sklearn_clone__().set_params(alpha=strength, class_weight=None)
            voter.set_options(checkpoint=None, callback=None)._team = self._team
            answers = voter.fit(source, numbers, weight)._mean_votes(held_out)
            expected = np.searchsorted(voter.classes_, numbers[asked])
            yield log_losses(softmax(answers / fit_temperature(answers, expected)), expected)

    def _plain_settings(self) -> dict[str, Any]:
        return super()._plain_settings() | ({"alpha": self.alpha_} if hasattr(self, "alpha_") else {})

    def _restored(self, scorer: Scorer) -> None:
        super()._restored(scorer)
        self.alpha_ = self.alpha

    def _train(self, data: TrainingData, seed: int) -> None:
        self.alpha_ = self._strength(data) if self.alpha == "auto" else self.alpha
        checkpoint, rng = self._checkpoint(data, seed), np.random.default_rng(seed)
        learner = self._learner(self._first_prototypes(data, rng))
        passes = Passes(data, rng, learner, self.batch_size, self.options.callback, checkpoint)
        passes.run(self.max_iter, self.min_steps)
        self.weights_, self.history_, self.n_iter_ = passes.weights, passes.history, passes.index
        self.steps_, self.dead_prototypes_ = learner.t, passes.dead

    def _checkpoint(self, data: TrainingData, seed: int) -> Checkpoint | None:
        if self.options.checkpoint is None:
            return None
        if not isinstance(self.random_state, (int, np.integer)):
            raise ValueError(f"a checkpoint needs a random_state that is a whole number, got {self.random_state!r}.")
        arrays = self.mean_, self.scale_, np.array([seed])
        return Checkpoint(
            place(self.options.checkpoint), training_mark(data, self._plain_settings(), self.classes_, arrays)
        )

    def _learner(self, weights: npt.NDArray[Any], step: int = 0) -> Stoml3:
        """Return the object that makes the steps, with numpy, on the requested device or with a team of workers."""
        learner = Stoml3(weights, self.q, float(self.alpha_), self.curvature, step, self.options.device)
        learner.team = self._team
        return learner

    def _first_prototypes(self, data: TrainingData, rng: np.random.Generator) -> npt.NDArray[Any]:
        classes = len(self.classes_)
        if self.start == "random":
            return (rng.standard_normal((self.n_prototypes, classes, data.dim)) * START_SCALE).astype(data.dtype)
        values, labels = data.sample(rng, min(data.most // 2, 100_000))
        values = (values - self.mean_) * (self.scale_ * START_SCALE)
        seed = int(rng.integers(2**31))
        return first_prototypes(values, labels, self.n_prototypes, classes, self.start, seed).astype(data.dtype)


def compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return descriptors as float16, or as float32 if one of them is too large for that."""
    fits = float(np.abs(values).max(initial=0)) <= float(np.finfo(np.float16).max)
    return values.astype(np.float16 if fits else np.float32)
