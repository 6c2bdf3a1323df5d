"""ImageClassifier: from photos to answers.

A recipe turns photos into bags, which are cached; a voter learns from them; a model holds what it learned. Training
needs scikit-learn; prediction does not, and therefore starts in a fraction of the time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from .bags.extract import Described, Extractor
from .bags.recipe import Recipe
from .errors import PatchvoteError, PhotoError, not_fitted
from .models import arguments
from .models.answers import Answer
from .models.evidence import Evidence, evidence_without
from .models.file import Saved
from .models.model import Model, network_of
from .models.predictor import Predictor, check_network
from .models.scores import Scores, scores_of, strangers_of
from .networks.bases import basis_of
from .photos.find import Found, PassedOver, Photo, Source, find_photos, labelled
from .utils.engine import Engine
from .utils.parameters import Parameters
from .utils.remote import place
from .utils.terminal import Progress, as_progress, none_readable
from .voters.registry import scorer_class
from .voters.votes import NONE

if TYPE_CHECKING:
    from .bags.cache import Kept
    from .bags.described import Filled
    from .models.fit import Fitted
    from .networks import Backbone


Labels = Sequence[str] | None  # one class per photo of a list; folders and manifests tell them
Shown = Progress | bool | None  # called with a stage, how much of it is done, and its total; True shows them


class ImageClassifier(Parameters):
    """Learns to tell photos apart from a few examples of each class, and shows why.

    It is an estimator of scikit-learn (`clone`, `cross_val_score`, `GridSearchCV`) whose samples are photos. A pickle
    holds the model itself, and loads the network again.

    Parameters
    ----------
    recipe : Recipe or str, optional
        How a photo becomes a bag; ``Recipe("efficientnet-lite2")``, or the name alone, selects another network.
    voter : str or estimator, default "auto"
        Voter that learns from the bags: an estimator, or a name. "auto" is `MomentRidge`; others are "moment-ridge",
        "snbnl", "nbnl", "nbnn", "local-nbnn", and names of voters of other packages.
    budget : float, default 60
        Seconds for training, not counting the network, where a voter learns in passes.
    cache : path, None or False
        Folder to keep what voters learn and answer from, so that a photo goes through the network once; the user's
        cache folder by default. False keeps nothing.
    jobs, seed : int
        Number of threads, by default one per core, and seed of all random choices.
    backbone : Backbone, optional
        Network that is already loaded, used instead of the one that the recipe names.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device on which the network runs; all but "cpu" need a build of ONNX Runtime that supports it.

    Attributes
    ----------
    model : Model
        Model that was learned.
    scores : Scores or None
        Scores of the photos that `fit` (with the default voter, also `add` and `forget`) held out, or of those given
        to `evaluate`, whichever was last; None after `load` and `adapt`.
    skipped, passed_over : list of PhotoError, and PassedOver
        Photos that could not be read in the last call, and files in its folder that are no photos.
    known, filled : int and Filled
        Number of photos of the last `answers`, `evaluate`, `suggest` or `add` that the model had learned from; numbers
        of those that the last learning or adapting took from the cache and from the network.
    refusal : str or None
        Reason why the last call did not adapt the model although it was asked to; the model is then unchanged.
    before : Scores or None
        Scores of the model before it was adapted, after `evaluate` with `adapt`.
    newly_rejected, newly_named : int
        Number of photos that adapting in the last `answers` made rejected, and of those that it made accepted.
    added, forgotten : dict and list
        Number of photos per class that the last `add` learned, and names of those that the last `forget` forgot.
    damaged : list of str
        A sentence for each call that found damaged files in the cache: they are removed, and made again.
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
        self._kind = arguments.kind_of_voter(voter)
        arguments.check_settings(budget, seed)
        self.voter, self.budget, self.cache, self.seed = voter, budget, cache, seed
        self.jobs, self.backbone, self.device = jobs, backbone, device
        self.extractor = Extractor(recipe, backbone=backbone, jobs=jobs, device=device)
        self.recipe = self.extractor.recipe
        self._predictor: Predictor | None = None
        self._saved = Saved()
        self._photos: dict[str, Photo] = {}
        self._mistakes: Callable[[], Iterator[Evidence]] = lambda: iter(())  # made when a report is written
        self.scores: Scores | None = None
        self.before: Scores | None = None
        self.skipped: list[PhotoError] = []
        self.passed_over = PassedOver()
        self.known = self.newly_rejected = self.newly_named = 0
        self.added: dict[str, int] = {}
        self.forgotten: list[str] = []
        self.filled: Filled | None = None
        self.refusal: str | None = None
        self.damaged: list[str] = []

    @property
    def predictor(self) -> Predictor:
        """The model with its network, which answers."""
        if self._predictor is None:
            raise not_fitted("this classifier has learned nothing yet: call fit, or load a model.")
        return self._predictor

    @property
    def model(self) -> Model:
        """Model that was learned."""
        return self.predictor.model

    @model.setter
    def model(self, model: Model) -> None:
        self._predictor = Predictor(model, self.extractor, self.cache)

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that the model distinguishes, sorted."""
        return self.model.classes

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """Classes that the model distinguishes, sorted, as scikit-learn names them."""
        if self._predictor is None:
            raise AttributeError("classes_: this classifier has learned nothing yet.")
        return np.array(self.classes)

    def __sklearn_is_fitted__(self) -> bool:
        return self._predictor is not None

    def __getstate__(self) -> dict[str, Any]:
        model = None if self._predictor is None else self.model
        return {"params": self.get_params(), "model": model, "scores": self.scores}

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, **state["params"])
        self.scores = state["scores"]
        if state["model"] is not None:
            self.model = state["model"]

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        photos: Source,
        labels: Labels = None,
        *,
        target: Source | None = None,
        insist: bool = False,
        progress: Shown = None,
        engine: Engine | None = None,
        held_out: float | Collection[str] | None = None,
    ) -> Self:
        """Learn from labelled photos.

        Parameters
        ----------
        photos, labels
            A folder with one folder per class, a manifest, or a list of photos, which needs the class of each.
        target, insist
            Photos like those to be predicted, if they differ from the labelled ones, to adapt to (see `adapt`).
        progress : function or bool, optional
            Called with the name of the stage, how much of it is done, and its total; True shows them.
        engine : Engine, optional
            Engine whose workers extract the photos, which have to be files, and make the steps of sNBNL.
        held_out : float or collection of str, optional
            Share of the photos of every class, or names of the photos, on which settings are chosen and the accuracy is
            measured; they are learned as well in the end. By default a fifth, and of few photos each fifth in turn.
        """
        from .models.fit import fit_model, learned_from, voter_for

        progress, found = as_progress(progress), labelled(photos, labels, 2)
        arguments.check_classes(found)
        held_out = arguments.held_out_of(held_out, found)
        others = None if target is None else find_photos(target)
        self.passed_over, self.refusal = found.passed_over, None
        if others is not None:  # report a wrong path or voter now, not after minutes of work
            self.passed_over += others.passed_over.without_folders()
            arguments.check_target(self._kind)
        kept = scorer_class(self._kind).learns_from(basis_of(self.extractor.backbone.spec))
        with learned_from(self._described(found, kept, progress, engine), kept, self.extractor) as learned:
            arguments.check_readable(learned.labels, self.skipped)
            fitted = fit_model(
                learned,
                voter_for(self.voter, self.seed),
                self.extractor,
                budget=self.budget,
                seed=self.seed,
                progress=progress,
                seconds={"network": self.filled.seconds if self.filled else 0.0},
                engine=engine,
                held_out=held_out,
            )
        self.model, self._photos = fitted.model, {photo.name: photo for photo in found}
        if others is not None:
            filled, skipped = self.filled, self.skipped
            self._adapt_to(others, insist, progress, engine)
            self.filled, self.skipped = filled, skipped + self.skipped
        self._measured(fitted)
        return self

    def adapt(
        self, photos: Source, *, insist: bool = False, progress: Shown = None, engine: Engine | None = None
    ) -> Self:
        """Adapt the model to photos like these, whose classes need not be known (see `Adapted`).

        Photos that the model rejects before stay rejected. If adapting looks unsafe (most photos are rejected, or the
        answers collapse onto few classes), the model is unchanged, `refusal` says why, and an `AdaptationWarning` is
        issued. An adapted model cannot learn or forget: change the model before, and adapt it again.

        With `insist`, the model is adapted even if that looks unsafe, and rejects nothing: use it if all photos show
        the model's classes. `progress` and `engine` as for `fit`; adapting itself runs in this process.
        """
        found = find_photos(photos)
        self.passed_over = found.passed_over.without_folders()
        self._adapt_to(found, insist, progress, engine)
        return self

    def add(
        self, photos: Source, labels: Labels = None, *, progress: Shown = None, engine: Engine | None = None
    ) -> Self:
        """Learn more photos, of known or new classes; those learned before need not be there any more.

        With the default voter, the model is that of a fit to all photos. Photos that the model has learned before are
        not learned again (`known` counts them); those that it has learned as another class are left out and listed in
        `skipped`. Parameters as for `fit`.
        """
        from .models.add import add_to_model
        from .models.fit import learned_from

        found = labelled(photos, labels, 1)
        arguments.check_classes(found)
        self.passed_over, self.refusal = found.passed_over, None
        basis = getattr(self.model.scorer, "basis", None)  # it may be older than that of the network
        kept = self.model.scorer.learns_from(basis_of(self.extractor.backbone.spec) if basis is None else basis)
        with learned_from(self._described(found, kept, progress, engine), kept, self.extractor) as learned:
            seconds = {"network": self.filled.seconds if self.filled else 0.0}
            fitted = add_to_model(learned, self.model, self.extractor, seed=self.seed, seconds=seconds)
        self._photos = {photo.name: photo for photo in found}
        self.known, self.added = fitted.known, fitted.added
        self.skipped = [*self.skipped, *fitted.refused]
        if fitted.added:
            self.model = fitted.model
            self._measured(fitted)
        return self

    def forget(self, photos: str | Collection[str]) -> Self:
        """Forget training photos: the model is that of a fit to the others. `forgotten` has their names.

        `photos` are names, patterns of names such as "cat/2019*", SHA-256 digests of contents, or classes followed by a
        slash ("cat/").
        """
        from .models.add import forget

        chosen = [photos] if isinstance(photos, str) else list(photos)
        fitted, self.forgotten = forget(self.model, self.extractor, chosen, seed=self.seed, seconds={})
        self.model = fitted.model
        self._measured(fitted)
        return self

    def _measured(self, fitted: Fitted) -> None:
        self.scores, self._mistakes = fitted.left_out, lambda: iter(())
        if fitted.left_out is not None and fitted.without is not None:
            explain = functools.partial(evidence_without, fitted.without, fitted.left_out)
            self._mistakes = functools.partial(self.predictor.mistakes, fitted.left_out, self._photos, explain)

    def _adapt_to(
        self, photos: Found, insist: bool, progress: Any, engine: Engine | None, threshold: float | None = None
    ) -> list[Described]:
        """Adapt to photos, or set `refusal`; return what was read of them."""
        arguments.check_adapts(self.model)
        items = list(self._described(photos, self.model.scorer.needs(), progress, engine))
        self._predictor, self.refusal = self.predictor.adapted(items, insist, threshold)
        self.scores, self._mistakes = None, lambda: iter(())
        return items

    def _described(self, photos: list[Photo], kept: Kept, progress: Any, engine: Engine | None) -> Iterator[Described]:
        """Yield what is kept of the bags of photos, from the cache or the network, and record what was done."""
        from .bags.described import Filled, damage, described

        tell, filled = as_progress(progress), Filled(len(photos))
        more: dict[str, Any] = {"cache": self.cache, "engine": engine, "filled": filled}
        if tell is not None:
            more["progress"] = lambda filled: tell("extract", filled.done, filled.photos)
        self.filled, self.skipped = filled, []
        try:
            for item in described(photos, self.extractor, kept, **more):
                yield dataclasses.replace(item, whole=None)  # a megabyte per photo, of which only moments are kept
        finally:
            self.skipped = list(filled.skipped)
            self.damaged += damage(filled.damaged)

    # --- answering --------------------------------------------------------------------------------------------------

    def answers(
        self,
        photos: Source,
        *,
        threshold: float | None = None,
        adapt: bool = False,
        insist: bool = False,
        progress: Shown = None,
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
        adapt, insist : bool, default False
            Adapt the model to all of the photos first (see `adapt`), if they are from another camera, place or style
            than those it learned from. If that looks unsafe, the unchanged model answers.
        progress, engine
            As for `fit`: progress of adapting, and an engine whose workers answer with the model from its file.
        """
        self.model.limit(threshold)  # refuse a wrong one before any work is done
        self.newly_rejected, self.newly_named = 0, 0
        found, shown = self._begin(find_photos(photos)), progress if adapt else None
        for before, answer in self._answered(found, threshold, adapt, insist, "predict", shown, engine):
            self.newly_rejected += answer.rejected and not before.rejected
            self.newly_named += before.rejected and not answer.rejected
            yield answer

    def _answered(
        self, photos: Found, threshold: float | None, adapt: bool, insist: bool, stage: str, progress: Any, engine: Any
    ) -> Iterator[tuple[Answer, Answer]]:
        """Yield two answers per photo: before the model is adapted to the photos, and after; the same if it is not."""
        if not adapt:
            for answer in self.predictor.answers(photos, threshold, engine, stage, progress):
                self._record(answer)
                yield answer, answer
            return
        before = self.predictor
        for item in self._adapt_to(photos, insist, progress, engine, threshold):
            answer = self.predictor.answer(item, threshold)
            self.known += answer.known
            yield before.answer(item, threshold) if self.refusal is None else answer, answer

    def predict(self, photos: Source) -> npt.NDArray[np.str_]:
        """Return the likeliest class of each photo, however unlikely; `predict_or_none` also rejects.

        A photo that cannot be read raises a `PhotoError`; `answers` continues after such photos.
        """
        return np.asarray(np.array(self.classes)[self.predict_proba(photos).argmax(axis=1)])

    def predict_or_none(self, photos: Source, none: Any = NONE, *, threshold: float | None = None) -> npt.NDArray[Any]:
        """Return the class of each photo, or `none` where it looks like none of them; `threshold` as for `answers`."""
        self.model.limit(threshold)
        answers = self.predictor.readable(find_photos(photos), threshold)
        return np.array([none if answer.rejected else answer.likeliest for answer in answers], object)

    def predict_proba(self, photos: Source) -> npt.NDArray[np.float64]:
        """Return the probability of each class of `classes` for each photo; raises as `predict` does."""
        answers = self.predictor.readable(find_photos(photos))
        return np.stack([np.asarray(answer.probabilities) for answer in answers])

    def suggest(self, photos: Source, count: int = 20, *, progress: Progress | None = None) -> list[Answer]:
        """Return the answers for the unlabelled photos that would teach the model most, the most uncertain first.

        They are uncertain and unlike one another. Photos that the model has learned from are left out (`known` counts
        them), as are those that cannot be read (`skipped`); of copies, one is enough.
        """
        from .models.suggest import suggested

        return suggested(self.predictor, self._begin(find_photos(photos)), count, self._record, progress)

    def explain(self, photo: Source, label: str | None = None) -> Evidence:
        """Return the evidence of one photo: where its votes come from.

        Where the voter stores training photos, matches are found for the class `label`, the likeliest by default.
        """
        found = find_photos(photo)
        if len(found) != 1:
            raise PatchvoteError(f"evidence of one photo is returned, got {len(found)}: explain_each takes many.")
        (explained,) = self.predictor.explained(found, label)
        if isinstance(explained, PhotoError):
            raise explained
        return explained

    def explain_each(self, photos: Source, label: str | None = None) -> Iterator[Evidence]:
        """Yield the evidence of photos, in order; those that cannot be read are left out, and listed in `skipped`."""
        for explained in self.predictor.explained(self._begin(find_photos(photos)), label):
            if isinstance(explained, PhotoError):
                self.skipped.append(explained)
            else:
                yield explained

    def _begin(self, found: Found) -> Found:
        self.passed_over, self.skipped, self.known, self.refusal = found.passed_over, [], 0, None
        return found

    def _record(self, answer: Answer) -> None:
        self.known += answer.known
        if answer.error is not None:
            self.skipped.append(answer.error)

    # --- measuring --------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        photos: Source,
        labels: Labels = None,
        *,
        unknown: Source | None = None,
        threshold: float | None = None,
        adapt: bool = False,
        insist: bool = False,
        progress: Shown = None,
        engine: Engine | None = None,
    ) -> Scores:
        """Compare the answers for labelled photos with their labels; unreadable photos are left out and in `skipped`.

        Of photos of classes that the model does not know (`unknown`), the `strangers` of the result say how many are
        rejected. Labels are given as for `fit`, the other arguments as for `answers`; `before` has the scores before
        adapting, which does not use the labels.
        """
        model, progress = self.model, as_progress(progress)
        model.limit(threshold)
        found, strangers = labelled(photos, labels, 1), Found() if unknown is None else find_photos(unknown)
        arguments.check_known(self.classes, found, strangers)
        self._begin(found).passed_over += strangers.passed_over.without_folders()
        labels_by_name = {photo.name: str(photo.label) for photo in found}
        answers = list(self._answered(found, threshold, adapt, insist, "evaluate", progress, engine))
        scores = scores_of(self.model, (after for _, after in answers), labels_by_name, threshold)
        if scores is None:
            raise PatchvoteError(f"{none_readable(len(found))} {self.skipped[0]}")
        before = scores_of(model, (before for before, _ in answers), labels_by_name, threshold) if adapt else None
        self._photos = {photo.name: photo for photo in found}
        self._mistakes = functools.partial(self.predictor.mistakes, scores, self._photos)
        if strangers:
            unknown_ones = list(self.predictor.answers(strangers, threshold, engine, "unknown", progress))
            self.skipped += [answer.error for answer in unknown_ones if answer.error is not None]
            rejected = strangers_of(self.model, unknown_ones, strangers, threshold)
            scores = dataclasses.replace(scores, strangers=rejected)
        self.scores, self.before = scores, before
        return scores

    def score(self, photos: Source, labels: Labels = None) -> float:
        """Return the accuracy on labelled photos, as `evaluate` measures it; `scores` stays as it is."""
        kept = self.scores, self._mistakes, self._photos, self.before
        try:
            return self.evaluate(photos, labels).accuracy
        finally:
            self.scores, self._mistakes, self._photos, self.before = kept

    def report(
        self, path: str | Path, *, title: str, measured: str, examples: Sequence[Source] = (), origin: str = ""
    ) -> None:
        """Write the results of the last `fit` or `evaluate` to one HTML file.

        It has a title, and says on which photos the answers were measured. Of `examples`, the parts that vote for their
        classes are shown. A later report of the same `origin`, a digest, may replace the file.
        """
        from .models.report.page import write_report

        shown = [self.explain(photo) for photo in examples]
        write_report(path, self.model, self.scores, self._mistakes(), shown, title=title, kind=measured, origin=origin)

    # --- storing ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write the model to one file, atomically, unless another process has changed the file since it was read.

        With `memory`, what `add`, `forget` and adapting need is written too: with the default voter, 30 kB per photo.
        """
        self._saved = self._saved.write(self.model if memory else self.model.without_memory(), path)

    def is_from(self, path: str | Path) -> bool:
        """Whether the model was read from this file, or last written to it."""
        return self._saved.is_at(path)

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

        The `network` has to be named if it is neither embedded nor an ONNX file beside the model: such a name is not
        taken from the file, because it can run code, open files or download. Other arguments are as for the class.
        """
        model, saved = Saved.read(path)
        recipe, more = model.recipe, {"jobs": jobs, "backbone": backbone, "device": device}
        if backbone is None:
            recipe = dataclasses.replace(recipe, network=network or network_of(model, path))
        classifier = cls(recipe, cache=cache, seed=seed, **more)  # type: ignore[arg-type]
        check_network(model, classifier.extractor.backbone.spec, path)
        again = functools.partial(cls.load, path, network=network, cache=False, **more)  # type: ignore[arg-type]
        classifier._predictor = Predictor(model, classifier.extractor, cache, (place(path), again))
        classifier._saved = saved
        return classifier
