"""ImageClassifier: from photos to answers.

It combines the parts: a recipe turns photos into bags, which are cached so that no photo goes through the network
twice; a voter learns from the bags; a model holds what it learned. Training needs scikit-learn; prediction does not,
and therefore starts in a fraction of the time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

from .bags.bags import Bags
from .bags.extract import Described, Extractor
from .bags.recipe import Recipe
from .errors import PatchvoteError
from .models.answers import Answer
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
from .models.evidence import Evidence
from .models.known import known_photos, short
from .models.measure import measure
from .models.model import network_of
from .models.namer import Namer
from .models.saved import Saved
from .models.scores import Scores
from .networks.bases import basis_of
from .photos.find import Photo, Source, find_photos, labelled
from .utils.engine import Engine
from .utils.parameters import Parameters
from .utils.remote import place
from .utils.terminal import Progress, as_progress, none_readable
from .voters.registry import scorer_class

if TYPE_CHECKING:
    from .bags.cache import Filled, Kept
    from .models.fit import Fitted, Learned
    from .networks import Backbone
    from .networks.bases import Basis


class ImageClassifier(Parameters, Namer):
    """Learns to tell photos apart from a few examples of each class, and shows why.

    It is an estimator of scikit-learn (`clone`, `cross_val_score`, `GridSearchCV`) whose samples are photos. A pickle
    holds the model itself, and loads the network again.

    Parameters
    ----------
    recipe : Recipe or str, optional
        How a photo becomes a bag; ``Recipe("efficientnet-lite2")``, or the name alone, selects another network.
    voter : str or estimator, default "auto"
        Voter that learns from the bags. "auto" is `MomentRidge`; "moment-ridge", "snbnl", "nbnl",
        "nbnn", "local-nbnn" or the name of a voter of another package selects that voter; an estimator that is
        a `Voter` is used as it is.
    budget : float, default 60
        Seconds for training, not counting the network, where a voter learns in passes.
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
        or of those given to `evaluate`; with the default voter, `add` and `forget` measure as `fit` does. After `load`,
        `adapt`, and `add` with another voter it is None; `model.about.held_out` keeps the figures of `fit`.
    filled : Filled
        Numbers of photos that the last `fit` (of the training photos), `add` or adaptation took from the cache and from
        the network.
    refusal : str or None
        Reason why the last call did not adapt the model although it was asked to; the model is then unchanged.
    before : Scores or None
        Scores of the model before it was adapted, after `evaluate` with `adapt`.
    newly_rejected, newly_named : int
        Number of photos that the last `answers` with `adapt` rejected although the model before had named them, and
        the other way round.
    added, forgotten : dict and list
        Number of photos per class that the last `add` learned, and names of those that the last `forget` forgot.
    damaged : list of str
        Damaged files of the cache that were removed, in all calls; their photos were extracted again.
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
        self.newly_rejected = self.newly_named = 0
        self.added: dict[str, int] = {}
        self.forgotten: list[str] = []
        self.filled: Filled | None = None
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
        kept = scorer_class(self._kind).learns_from(basis_of(self._extractor.backbone.spec))
        with self._collected(found, kept, progress, seconds, engine) as learned:
            from .models.fit import fit_model, voter_for

            check_readable(learned.labels, self.skipped)
            more: dict[str, Any] = {"budget": self.budget, "seed": self.seed, "progress": progress, "seconds": seconds}
            voter = voter_for(self.voter, self.seed)
            fitted = fit_model(learned, voter, self._extractor, **more, engine=engine, held_out=held_out)
        self._take(fitted)
        if others is not None:
            scores, of_source = self.scores, (self._mistakes, self.skipped, self.passed_over, self._photos, self.filled)
            self.adapt(others, insist=insist, progress=progress, engine=engine)
            skipped = self.skipped
            self._mistakes, self.skipped, self.passed_over, self._photos, self.filled = of_source
            self.scores, self.skipped = scores, [*self.skipped, *skipped]
        return self

    def _take(self, fitted: Fitted) -> None:
        self._model, self.scores = fitted.model, fitted.left_out
        self._mistakes = lambda: iter(())
        scores, without = fitted.left_out, fitted.without
        if scores is not None and without is not None:
            self._mistakes = lambda: self._evidence_of(scores, functools.partial(_evidence_without, fitted, scores))

    def adapt(
        self,
        photos: Source,
        *,
        insist: bool = False,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Self:
        """Adapt the model to photos like these, whose classes need not be known (see `Adapted`).

        Photos that the model rejects before stay rejected. If adapting looks unsafe (most photos are rejected, or the
        answers collapse onto few classes), the model is unchanged, `refusal` says why, and an `AdaptationWarning` is
        issued. An adapted model cannot learn or forget: change the model before, and adapt it again.

        Parameters
        ----------
        photos : Source
            Photos to adapt to.
        insist : bool, default False
            Adapt even if that looks unsafe, and reject nothing: use it if you know that all photos show the model's
            classes.
        progress : function or bool, optional
            Called with the name of the stage, how much of it is done, and its total; True shows them.
        engine : Engine, optional
            Engine whose workers extract the photos; adapting runs in this process.

        Raises
        ------
        PatchvoteError
            The model does not hold what adapting needs of its training photos.
        """
        found = find_photos(photos)
        check_adapts(self.model)
        self.passed_over = found.passed_over.without_folders()
        items = list(self._described(found, self.model.scorer.needs(), progress, engine))
        self._adapt_to(items, insist, None)
        return self

    def _adapt_to(self, items: list[Described], insist: bool, threshold: float | None) -> None:
        """Adapt to photos, or set `refusal`."""
        from .bags.moments import MomentBags
        from .models.adapt import adapt_model

        read = [item for item in items if isinstance(item.bag, MomentBags)]
        if not read:
            raise PatchvoteError(f"{none_readable(len(items))} {self.skipped[0]}")
        bags = MomentBags.joined([item.bag for item in read if isinstance(item.bag, MomentBags)])
        digests = [item.digest for item in read]
        self._model, self.refusal = adapt_model(bags, digests, self.model, insist=insist, threshold=threshold)
        self.scores, self._mistakes = None, lambda: iter(())

    def add(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Self:
        """Learn more photos, of known or new classes; those learned before need not be there any more.

        With the default voter, the model is that of a fit to all photos. Photos that the model has learned before are
        not learned again (`known` counts them); those that it has learned as another class are left out and listed in
        `skipped`. With an engine, its workers extract the photos; this process learns from them.
        """
        from .models.add import add_to_model

        seconds, found = {"network": 0.0}, labelled(photos, labels, 1)
        check_classes(found)
        self.passed_over, self.refusal = found.passed_over, None
        kept = self.model.scorer.learns_from(self._basis())
        with self._collected(found, kept, progress, seconds, engine) as learned:
            fitted = add_to_model(learned, self.model, self._extractor, seed=self.seed, seconds=seconds)
        self.known, self.added = fitted.known, fitted.added
        self.skipped = [*self.skipped, *fitted.refused]
        if fitted.added:
            self._take(fitted)
        return self

    def forget(self, photos: str | Collection[str]) -> Self:
        """Forget training photos: the model is that of a fit to the others. `forgotten` has their names.

        Parameters
        ----------
        photos : str or collection of str
            Names of photos, patterns of names such as "cat/2019*", SHA-256 digests of contents, or classes followed by
            a slash ("cat/").

        Raises
        ------
        PatchvoteError
            The model cannot forget, has not learned one of these, or fewer than two classes would be left.
        """
        from .models.add import forget

        chosen = [photos] if isinstance(photos, str) else list(photos)
        fitted, self.forgotten = forget(self.model, self._extractor, chosen, seed=self.seed, seconds={})
        self._take(fitted)
        return self

    def _basis(self) -> Basis:
        """Return the basis of the model's features: its own, which may be older than that of the network."""
        basis = getattr(self.model.scorer, "basis", None)
        return basis_of(self._extractor.backbone.spec) if basis is None else basis

    @contextlib.contextmanager
    def _collected(
        self,
        photos: list[Photo],
        kept: Kept,
        progress: Progress | bool | None,
        seconds: dict[str, float],
        engine: Engine | None = None,
    ) -> Iterator[Learned]:
        """Extract photos, and yield what is learned from them: moments in memory, whole bags in a temporary store."""
        from .bags.moments import KeptMoments
        from .models.fit import Learned

        items = self._described(photos, kept, progress, engine)
        with contextlib.ExitStack() as stack:
            if isinstance(kept, KeptMoments):
                learned = Learned.of_moments(items)
            else:
                from .bags.fill import store_of
                from .utils.files import temporary_folder

                folder = stack.enter_context(temporary_folder()) / "bags"
                learned = Learned.of_store(store_of(items, self._extractor, folder))
            seconds["network"] += self.filled.seconds if self.filled else 0.0
            yield learned

    def _described(
        self,
        photos: list[Photo],
        kept: Kept,
        progress: Progress | bool | None = None,
        engine: Engine | None = None,
    ) -> Iterator[Described]:
        """Yield what is kept of the bags of photos, from the cache or the network, and record what was done."""
        from .bags.cache import Filled, described

        tell = as_progress(progress)

        def show(filled: Filled) -> None:
            if tell is not None:
                tell("extract", filled.done, filled.photos)

        self.filled, self._photos = Filled(len(photos)), {photo.name: photo for photo in photos}
        self.skipped = []
        more: dict[str, Any] = {"cache": self.cache, "engine": engine, "progress": show, "filled": self.filled}
        try:
            for item in described(photos, self._extractor, kept, **more):
                yield dataclasses.replace(item, whole=None)  # a megabyte per photo, of which only moments are kept
        finally:
            self.skipped = list(self.filled.skipped)
            self.damaged += self.filled.damaged

    # --- answering --------------------------------------------------------------------------------------------------

    def described(self, photos: list[Photo]) -> Iterator[Described]:
        """Yield what the model needs of the bags of photos, in order: from the cache, or else from the network."""
        from .bags.cache import described

        return described(photos, self._extractor, self.model.scorer.needs(), cache=self.cache)

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
        self.refusal, self.newly_rejected, self.newly_named = None, 0, 0
        if not adapt:
            yield from super().answers(photos, threshold=threshold, engine=engine)
            return
        check_adapts(self.model)
        self.model.limit(threshold)
        found, before = find_photos(photos), self.model
        items = list(self._described(found, before.scorer.needs(), progress, engine))
        self.passed_over = found.passed_over
        self._adapt_to(items, insist, threshold)
        limit = threshold if self.model.familiarity is not None else None
        for item in items:
            answer = self._answer(item.photo.name, item.bag, item.error, limit)
            if item.bag is not None and self.model is not before:
                was = before.rejects_bag(item.bag, threshold)
                self.newly_rejected += answer.rejected and not was
                self.newly_named += was and not answer.rejected
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
        known, before = known_photos(self.model.about), self.model
        items = list(self._described(found, before.scorer.needs(), progress, engine))
        self.known = sum(short(item.digest) in known for item in items if item.bag is not None)
        bags = [(item.photo.name, item.bag) for item in items if item.bag is not None]
        self._adapt_to(items, insist, threshold)
        limit = threshold if self.model.familiarity is not None else None
        self.before = measure(before, bags, expected, threshold)
        scores = self._measured(measure(self.model, bags, expected, limit), found)
        return self._with_strangers(scores, strangers, limit, as_progress(progress))

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


def _evidence_without(fitted: Fitted, scores: Scores, name: str, bag: Bags) -> Evidence:
    """Return the evidence of a training photo, from a voter that has not learned it."""
    from .models.pulling import pulls_of
    from .voters.outputs import votes_of

    without = cast(Callable[[str], Any], fitted.without)
    voter, learned = without(name)
    scorer, index = voter.scorer(), scores.names.index(name)
    votes, boxes = votes_of(scorer, bag).astype(np.float64), bag.boxes.astype(np.float64)
    rejected = bool(scores.rejected[index])
    evidence = Evidence(name, scores.classes, votes, boxes, scores.probability[index], rejected=rejected)
    return dataclasses.replace(evidence, pulls=pulls_of(scorer, learned, bag, evidence, evidence.ranking[0]))
