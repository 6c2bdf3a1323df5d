"""ImageClassifier: from photos to answers.

It combines the parts: a recipe turns photos into bags, which are cached so that no photo goes through the network
twice; a voter learns from the bags; a model holds what it learned. Training needs scikit-learn; prediction does not,
and therefore starts in a fraction of the time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from .bags.bags import Bags
from .bags.cache_stream import kept_stream
from .bags.extract import Described, Extractor
from .bags.filled import Filled
from .bags.recipe import Recipe
from .errors import PatchvoteError
from .models.answers import Answer, answer_of
from .models.arguments import (
    check_adapts,
    check_classes,
    check_held_out,
    check_readable,
    check_settings,
    check_target,
    kind_of_voter,
    names_to_hold_out,
)
from .models.known import known_photos, short
from .models.measure import measure
from .models.model import network_of
from .models.namer import Namer
from .models.saved import Saved
from .models.scores import Scores
from .photos.find import Photo, Source, find_photos, labelled
from .utils.engine import Engine
from .utils.pace import as_progress
from .utils.parameters import Parameters
from .utils.remote import place
from .utils.timing import Progress

if TYPE_CHECKING:
    from .backbones import Backbone
    from .bags.keep import Condenser, Keep
    from .bags.store import Store
    from .models.fit import Fitted


class ImageClassifier(Parameters, Namer):
    """Learns to tell photos apart from a few examples of each class, and shows why.

    It is an estimator of scikit-learn (`clone`, `cross_val_score`, `GridSearchCV`) whose samples are photos. A pickle
    holds the model itself, and loads the network again.

    Parameters
    ----------
    recipe : Recipe or str, optional
        How a photo becomes a bag; ``Recipe("efficientnet-lite2")``, or the name alone, selects another network.
    voter : str or estimator, default "auto"
        Voter that learns from the bags. "auto" is `MomentSVM`, measured on held-out images; "bag-svm", "snbnl", "nbnl",
        "nbnn", "local-nbnn" or the name of a voter of another package selects that voter; an estimator that is
        a `Voter` is used as it is.
    budget : float, default 60
        Seconds for trying settings and training, not counting the network. At least one setting is always tried.
    cache : path, None or False
        Folder to keep what voters learn and answer from, so that a photo goes through the network once; the user's
        cache folder by default. False keeps nothing.
    jobs : int, optional
        Number of threads; one per core by default.
    seed : int, default 0
        Seed of all random choices.
    backbone : Backbone, optional
        Network that is already loaded, used instead of the one that the recipe names.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device on which the network runs; all but "cpu" need a build of ONNX Runtime that supports it.

    Attributes
    ----------
    model, scores, skipped, passed_over, known
        See `Namer`. `scores` is of the last measurement: of the photos that `fit` held out (`scores.held_out` is True),
        or of those given to `evaluate`. After `load`, `add` and `adapt` it is None, since the current model was not
        measured; `model.about.held_out` keeps the figures of `fit`.
    filled : Filled
        Numbers of photos that the last `fit` (of the training photos), `add` or adaptation took from the cache and from
        the network.
    refusal : str or None
        Reason why the last call did not adapt the model although it was asked to; the model is then unchanged.
    before : Scores or None
        Scores of the model before it was adapted, after `evaluate` with `adapt`.
    newly_rejected : int
        Number of photos that the last `answers` with `adapt` rejected, and that the model before had named.
    damaged : list of str
        Damaged shards of the cache that were set aside, in all calls; their photos were extracted again.
    """

    estimator_type = "classifier"

    def __init__(
        self,
        recipe: Recipe | str | None = None,
        *,
        voter: Any = "auto",
        budget: float = 60.0,
        cache: str | Path | bool | None = None,
        jobs: int | None = None,
        seed: int = 0,
        backbone: Backbone | None = None,
        device: str = "cpu",
    ) -> None:
        self._kind = kind_of_voter(voter)
        check_settings(budget, seed)
        self.voter, self.budget, self.cache, self.seed = voter, budget, cache, seed
        self.jobs, self.backbone, self.device = jobs, backbone, device
        super().__init__(Extractor(recipe, backbone=backbone, jobs=jobs, device=device))
        self.recipe = self._extractor.recipe
        self.before: Scores | None = None
        self.newly_rejected = 0
        self.filled = Filled(0)
        self.refusal: str | None = None
        self.damaged: list[str] = []

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """Classes that the model distinguishes, sorted, as scikit-learn names them."""
        if self._model is None:
            raise AttributeError("classes_: this classifier has learned nothing yet.")
        return np.array(self.classes)

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    def __getstate__(self) -> dict[str, Any]:
        return {"params": self.get_params(), "model": self._model, "scores": self.scores}

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, **state["params"])
        self._model, self.scores = state["model"], state["scores"]

    def score(self, photos: Source, labels: Sequence[str] | None = None) -> float:
        """Return the accuracy on labelled photos, as `evaluate` measures it; `scores` stays as it is."""
        kept = self.scores, self._mistakes, self._photos, self.before
        try:
            return self.evaluate(photos, labels).accuracy
        finally:
            self.scores, self._mistakes, self._photos, self.before = kept

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        target: Source | None = None,
        insist: bool = False,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
        held_out: float | Collection[str] | None = None,
    ) -> Self:
        """Learn from labelled photos.

        Parameters
        ----------
        photos : Source
            A folder with one folder per class, a manifest, or a list of photos.
        labels : sequence of str, optional
            Classes of the photos; needed for a list, otherwise taken from folders or manifest.
        target : Source, optional
            Photos like those to be predicted, if they differ from the labelled ones (another camera, place or style).
            Their classes need not be known and are not used (see `Adapted`).
        insist : bool, default False
            Adapt to the target even if that looks unsafe (see `adapt`).
        progress : function or bool, optional
            Called with the name of the stage, how much of it is done, and its total; True shows them.
        engine : Engine, optional
            Engine whose workers extract the photos, which have to be files, and make the steps of sNBNL. Settings are
            chosen, and all other voters trained, in this process. The model is the same up to rounding.
        held_out : float or collection of str, optional
            Share of the photos of every class, or names of the photos, on which settings are chosen and the accuracy is
            measured; they are learned as well in the end. By default a fifth, and of few photos each fifth in turn.
        """
        seconds, progress = {"network": 0.0}, as_progress(progress)
        check_held_out(held_out)
        found = labelled(photos, labels, 2)
        check_classes(found)
        held_out = names_to_hold_out(held_out, found)
        self.passed_over, self.refusal = found.passed_over, None
        others = None if target is None else find_photos(target)
        if others is not None:  # report a wrong path or voter now, not after minutes of work
            self.passed_over += others.passed_over.without_folders()
            check_target(self._kind)
        from .models.needs import learned_from

        need = learned_from(self.voter, self._kind, self.seed)
        with self._bags_of(found, progress, seconds, engine, need) as store:
            from .models.fit import fit_model

            check_readable(store, self.skipped)
            more: dict[str, Any] = {"budget": self.budget, "seed": self.seed, "progress": progress, "seconds": seconds}
            fitted = fit_model(store, self.voter, self._extractor, **more, engine=engine, held_out=held_out)
        self._take(fitted)
        if others is not None:
            skipped, of_source = self.skipped, (self.passed_over, self._photos, self.filled)
            self.adapt(others, insist=insist, progress=progress, engine=engine)
            self.skipped, (self.passed_over, self._photos, self.filled) = skipped + self.skipped, of_source
            self.scores, self._mistakes = fitted.held_out, fitted.mistakes
        return self

    def _take(self, fitted: Fitted) -> None:
        self._model, self.scores, self._mistakes = fitted.model, fitted.held_out, fitted.mistakes

    def adapt(
        self,
        photos: Source,
        *,
        insist: bool = False,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Self:
        """Adapt the model to photos like these, whose classes need not be known (see `Adapted`).

        Photos that the model rejects by their probability before, it also rejects after it is adapted. If adapting
        looks unsafe (most photos are rejected, or few classes would take nearly all of them), the model is unchanged,
        `refusal` says why, and an `AdaptationWarning` is issued.

        Parameters
        ----------
        photos : Source
            Photos to adapt to.
        insist : bool, default False
            Adapt even if that looks unsafe; use it if you know that the photos show the model's classes.
        progress : function or bool, optional
            Called with the name of the stage, how much of it is done, and its total; True shows them.
        engine : Engine, optional
            Engine whose workers extract the photos; adapting runs in this process.

        Raises
        ------
        PatchvoteError
            The model does not hold what adapting needs of its training photos; those of `MomentSVM` and `BagSVM` do.
        """
        from .models.needs import adapted_from

        found = find_photos(photos)
        check_adapts(self.model)
        self.passed_over = found.passed_over.without_folders()
        need = adapted_from(self.model.kind)
        with self._bags_of(found, progress, {"network": 0.0}, engine, need) as store:
            self._adapt_to(store, insist)
        return self

    def _adapt_to(self, store: Store, insist: bool) -> None:
        """Adapt to the photos of a store, or set `refusal`."""
        from .models.adapt import adapt_model

        fitted, self.refusal = adapt_model(store, self.model, insist=insist, seconds={})
        self._take(fitted)

    def add(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Self:
        """Learn from more photos, of known or new classes, without the photos that were learned before.

        Photos that the model has learned before are not learned again (`known` counts them); those that it has learned
        as another class are left out and listed in `skipped`. With an engine, its workers extract the photos; this
        process learns from them.
        """
        from .models.add import add_to_model
        from .models.needs import added_from

        seconds, found = {"network": 0.0}, labelled(photos, labels, 1)
        check_classes(found)
        self.passed_over, self.refusal = found.passed_over, None
        with self._bags_of(found, progress, seconds, engine, added_from(self.model)) as store:
            fitted = add_to_model(store, self.model, seed=self.seed, seconds=seconds)
        self.known = fitted.known
        self.skipped = [*self.skipped, *fitted.refused]
        self._take(fitted)
        return self

    @contextlib.contextmanager
    def _bags_of(
        self,
        photos: list[Photo],
        progress: Progress | bool | None,
        seconds: dict[str, float],
        engine: Engine | None = None,
        need: Keep | Condenser | None = None,
    ) -> Iterator[Store]:
        """Update the cache with what is needed of photos, by default all, and yield its store; or a temporary one."""
        from .bags.cache import cached_bags  # predict without adapting does not need it

        tell = as_progress(progress)

        def show(filled: Filled) -> None:
            if tell is not None:
                stage = f"extract ({filled.why})" if filled.why and filled.extracted else "extract"
                tell(stage, filled.done, filled.photos)

        more: dict[str, Any] = {"cache": self.cache, "engine": engine, "progress": show} | (
            {} if need is None else {"need": need}
        )
        with cached_bags(photos, self._extractor, **more) as (filled, store):
            self.filled, self.skipped = filled, list(filled.skipped)
            self._photos = {photo.name: photo for photo in photos}
            seconds["network"] += filled.seconds
            try:
                yield store
            finally:
                self.damaged += filled.damaged

    # --- answering --------------------------------------------------------------------------------------------------

    def described(self, photos: list[Photo]) -> Iterator[Described]:
        """Yield what the model needs of the bags of photos, in order: from the cache, or else from the network."""
        return kept_stream(photos, self._extractor, self.model.scorer.needs, cache=self.cache, damaged=self.damaged)

    def answers(
        self,
        photos: Source,
        *,
        threshold: float | None = None,
        adapt: bool = False,
        insist: bool = False,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Iterator[Answer]:
        """Yield one answer per photo, in order; a photo that cannot be read gets an answer with the reason.

        Parameters
        ----------
        photos : Source
            Photos to predict.
        threshold : float, optional
            Share of the photos of known classes that may be rejected as "none of these"; by default that of the model,
            0.05. A photo is rejected if its familiarity is below.
        adapt : bool, default False
            Adapt the model to all of the photos first, if they are from another camera, place or style than those it
            learned from. If that looks unsafe, the unchanged model answers (see `adapt`).
        insist : bool, default False
            Adapt even if that looks unsafe (see `adapt`).
        progress : function or bool, optional
            Called while adapting with the name of the stage, how much of it is done, and its total; True shows them.
        engine : Engine, optional
            Engine whose workers answer, with the model from its file; by default this process does. To adapt, workers
            only extract the photos.
        """
        self.refusal, self.newly_rejected = None, 0
        if not adapt:
            yield from super().answers(photos, threshold=threshold, engine=engine)
            return
        check_adapts(self.model)
        self.model.limit(threshold)
        found = find_photos(photos)
        self.passed_over = found.passed_over
        with self._bags_of(found, progress, {"network": 0.0}, engine) as store:
            unadapted = self.model
            self._adapt_to(store, insist)
            errors = {error.name: error for error in self.skipped}
            indices = {name: index for index, name in enumerate(store.names)}
            for photo in found:
                bag = store.load([indices[photo.name]])[0] if photo.name in indices else None
                answer = self._answer(photo.name, bag, errors.get(photo.name), threshold)
                if bag is not None and answer.rejected and self.model is not unadapted:
                    self.newly_rejected += not answer_of(unadapted, photo.name, bag, threshold).rejected
                yield answer

    def evaluate(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        unknown: Source | None = None,
        threshold: float | None = None,
        adapt: bool = False,
        insist: bool = False,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Scores:
        """Compare the answers for labelled photos with their labels; unreadable photos are left out and in `skipped`.

        Parameters
        ----------
        photos : Source
            Labelled photos.
        labels : sequence of str, optional
            Classes of the photos; needed for a list, otherwise taken from folders or manifest.
        unknown : Source, optional
            Photos of classes that the model does not know, to measure how many are rejected: `strangers` of the result.
        threshold : float, optional
            As for `answers`.
        adapt : bool, default False
            Adapt the model to the photos first, without using their labels; `before` has the scores before adapting.
        insist : bool, default False
            Adapt even if that looks unsafe (see `adapt`).
        progress : function or bool, optional
            Called with the name of the stage, how much of it is done, and its total; True shows them.
        engine : Engine, optional
            As for `answers`.

        Raises
        ------
        PatchvoteError
            A photo has a class that the model does not know, or one of `unknown` a class that it knows.
        """
        self.before, self.refusal = None, None
        if not adapt:
            more: dict[str, Any] = {"unknown": unknown, "threshold": threshold, "progress": progress, "engine": engine}
            return super().evaluate(photos, labels, **more)
        check_adapts(self.model)
        found, strangers = self._labelled(photos, labels), self._unknown(unknown, threshold)
        expected = {photo.name: str(photo.label) for photo in found}
        known = known_photos(self.model.about)
        with self._bags_of(found, progress, {"network": 0.0}, engine) as store:
            self.known = sum(short(entry.digest) in known for entry in store.entries)
            self.before, _ = measure(self.model, _one_by_one(store), expected, threshold)
            self._adapt_to(store, insist)
            scores, mistakes = measure(self.model, _one_by_one(store), expected, threshold)
        scores = self._measured(scores, mistakes, found)
        return self._with_strangers(scores, strangers, threshold, as_progress(progress))

    def plot(self) -> Any:
        """Return a figure of matplotlib (the extra `plots`) with the confusion matrix of the last measurement."""
        if self.scores is None:
            raise PatchvoteError("there is nothing to plot yet: call fit with enough photos, or evaluate.")
        return self.scores.plot()

    # --- loading ----------------------------------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        network: str | None = None,
        jobs: int | None = None,
        cache: str | Path | bool | None = None,
        seed: int = 0,
        backbone: Backbone | None = None,
        device: str = "cpu",
    ) -> Self:
        """Read a model from a file. No code in the file is run, and the network must be the one it was trained with.

        Parameters
        ----------
        path : path
            File of the model.
        network : str, optional
            Network of the model, needed if it is neither embedded nor an ONNX file beside the model: such a name is not
            taken from the file, because it can run code, open files or download.
        jobs, cache, seed, backbone, device
            Same as for the class.

        Raises
        ------
        ModelError
            The file is not a model, is damaged, or was made by a later version or with another network.
        """
        model, saved = Saved.read(path)
        recipe = model.recipe
        if backbone is None:
            recipe = dataclasses.replace(recipe, network=network or network_of(model, path))
        classifier = cls(recipe, cache=cache, jobs=jobs, seed=seed, backbone=backbone, device=device)
        classifier._open(model, saved, path)
        again = functools.partial(
            cls.load, path, network=network, jobs=jobs, cache=False, backbone=backbone, device=device
        )
        classifier._again = model, place(path), again
        return classifier


def _one_by_one(store: Store) -> Iterator[tuple[str, Bags, Bags]]:
    for index, name in enumerate(store.names):
        bag = store.load([index])[0]
        yield name, bag, bag
