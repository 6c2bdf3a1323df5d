"""ImageClassifier: from photos to answers.

It combines the parts: a recipe turns photos into bags, which are cached so that no photo goes through the network
twice; a voter learns from the bags; a model holds what it learned. Training needs scikit-learn; prediction does not,
and therefore starts in a fraction of the time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .bags.bags import Bags
from .bags.extract import Extractor
from .bags.filled import Filled
from .bags.recipe import Recipe, as_recipe
from .models.answers import Answer
from .models.arguments import (
    check_adapts,
    check_classes,
    check_readable,
    check_settings,
    check_target,
    kind_of_voter,
)
from .models.known import known_photos, short
from .models.measure import measure
from .models.model import network_of
from .models.namer import Namer
from .models.saved import Saved
from .models.scores import Scores
from .photos.find import Photo, Source, find_photos, labelled
from .utils.engine import Engine
from .utils.remote import place
from .utils.timing import Progress

if TYPE_CHECKING:
    from .backbones import Backbone
    from .bags.store import Store
    from .models.fit import Fitted


class ImageClassifier(Namer):
    """Learns to tell photos apart from a few examples of each class, and shows why.

    Parameters
    ----------
    recipe : Recipe or str, optional
        How a photo becomes a bag; ``Recipe("efficientnet-lite2")``, or the name alone, selects another network.
    voter : str or estimator, default "auto"
        Voter that learns from the bags. "auto" is `MomentSVM`, measured on held-out images; "bag-svm", "snbnl", "nbnl",
        "nbnn", "local-nbnn", "jury" or the name of a voter of another package selects that voter; an estimator that is
        a `Voter` is used as it is.
    budget : float, default 60
        Seconds for trying settings and training, not counting the network. At least one setting is always tried.
    cache : path, None or False
        Folder to keep bags in, so that a photo goes through the network once; the user's cache folder by default. False
        keeps nothing.
    jobs : int, optional
        Number of threads; one per core by default.
    seed : int, default 0
        Seed of all random choices.
    backbone : Backbone, optional
        Network that is already loaded, used instead of the one that the recipe names.

    Attributes
    ----------
    model, scores, skipped, passed_over, known
        See `Namer`; after `fit`, `scores` has the answers for held-out photos.
    filled : Filled
        Numbers of photos that the last call took from the cache and from the network.
    refusal : str or None
        Reason why the last call did not adapt the model although it was asked to; the model is then unchanged.
    before : Scores or None
        Scores of the model before it was adapted, after `evaluate` with `adapt`.
    damaged : list of str
        Damaged shards of the cache that were set aside, in all calls; their photos were extracted again.
    """

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
    ) -> None:
        self._kind = kind_of_voter(voter)
        check_settings(budget, seed)
        self.recipe, self.voter, self.budget, self.cache, self.seed = as_recipe(recipe), voter, budget, cache, seed
        super().__init__(Extractor(self.recipe, backbone=backbone, jobs=jobs))
        self.before: Scores | None = None
        self.filled = Filled(0)
        self.refusal: str | None = None
        self.damaged: list[str] = []

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        target: Source | None = None,
        insist: bool = False,
        progress: Progress | None = None,
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
        progress : function, optional
            Called with the name of the stage, how much of it is done, and its total.
        """
        seconds = {"network": 0.0}
        found = labelled(photos, labels, 2)
        check_classes(found)
        self.passed_over = found.passed_over
        target = list(target) if isinstance(target, Iterator) else target  # it is iterated twice
        if target is not None:  # report a wrong path or voter now, not after minutes of work
            self.passed_over += find_photos(target).passed_over.without_folders()
            check_target(self._kind)
        # Training needs scikit-learn, whose import takes a second or two: do it while the network works.
        threading.Thread(target=importlib.import_module, args=(f"{__package__}.models.fit",), daemon=True).start()
        with self._bags_of(found, photos, progress, seconds) as store:
            from .models.fit import fit_model

            check_readable(store, self.skipped)
            more: dict[str, Any] = {"budget": self.budget, "seed": self.seed, "progress": progress, "seconds": seconds}
            fitted = fit_model(store, self.voter, self._extractor, **more)
        self._take(fitted)
        if target is not None:
            skipped, photos_of_source = self.skipped, self._photos
            self.adapt(target, insist=insist, progress=progress)
            self.skipped, self._photos = skipped + self.skipped, photos_of_source
            self.scores, self._mistakes = fitted.held_out, fitted.mistakes
        return self

    def _take(self, fitted: Fitted) -> None:
        self._model, self.scores, self._mistakes = fitted.model, fitted.held_out, fitted.mistakes

    def adapt(self, photos: Source, *, insist: bool = False, progress: Progress | None = None) -> Self:
        """Adapt the model to photos like these, whose classes need not be known (see `Adapted`).

        Photos that the model rejects before, it also rejects after it is adapted. If adapting looks unsafe (most photos
        are rejected, or few classes would take nearly all of them), the model is unchanged, `refusal` says why, and an
        `AdaptationWarning` is issued.

        Parameters
        ----------
        photos : Source
            Photos to adapt to.
        insist : bool, default False
            Adapt even if that looks unsafe; use it if you know that the photos show the model's classes.
        progress : function, optional
            Called with the name of the stage, how much of it is done, and its total.

        Raises
        ------
        PatchvoteError
            The model does not hold what adapting needs of its training photos; those of `MomentSVM` and `BagSVM` do.
        """
        found = find_photos(photos)
        check_adapts(self.model)
        with self._bags_of(found, photos, progress, {"network": 0.0}) as store:
            self._adapt_to(store, insist)
        return self

    def _adapt_to(self, store: Store, insist: bool) -> None:
        """Adapt to the photos of a store, or set `refusal`."""
        from .models.adapt import adapt_model

        fitted, self.refusal = adapt_model(store, self.model, insist=insist, seconds={})
        self._take(fitted)

    def add(self, photos: Source, labels: Sequence[str] | None = None, *, progress: Progress | None = None) -> Self:
        """Learn from more photos, of known or new classes, without the photos that were learned before.

        Photos that the model has learned before are not learned again (`known` counts them); those that it has learned
        as another class are left out and listed in `skipped`.
        """
        from .models.add import add_to_model

        seconds, found = {"network": 0.0}, labelled(photos, labels, 1)
        check_classes(found)
        self.passed_over = found.passed_over
        with self._bags_of(found, photos, progress, seconds) as store:
            fitted = add_to_model(store, self.model, seed=self.seed, seconds=seconds)
        self.known = fitted.known
        self.skipped = [*self.skipped, *fitted.refused]
        self._take(fitted)
        return self

    @contextlib.contextmanager
    def _bags_of(
        self, photos: list[Photo], source: Source, progress: Progress | None, seconds: dict[str, float]
    ) -> Iterator[Store]:
        """Update the cache with photos, and yield the store of their bags; without a cache, a temporary one."""
        from .bags.cache import cached_bags  # predict without adapting does not need it

        def show(filled: Filled) -> None:
            if progress is not None:
                progress("extract", filled.done, filled.photos)

        with cached_bags(photos, source, self._extractor, cache=self.cache, progress=show) as (filled, store):
            self.filled, self.skipped = filled, filled.skipped
            self._photos = {photo.name: photo for photo in photos}
            seconds["network"] += filled.seconds
            try:
                yield store
            finally:
                self.damaged += filled.damaged

    # --- answering --------------------------------------------------------------------------------------------------

    def answers(
        self,
        photos: Source,
        *,
        adapt: bool = False,
        insist: bool = False,
        progress: Progress | None = None,
        engine: Engine | None = None,
    ) -> Iterator[Answer]:
        """Yield one answer per photo, in order; a photo that cannot be read gets an answer with the reason.

        Parameters
        ----------
        photos : Source
            Photos to predict.
        adapt : bool, default False
            Adapt the model to all of the photos first, if they are from another camera, place or style than those it
            learned from. If that looks unsafe, the unchanged model answers (see `adapt`).
        insist : bool, default False
            Adapt even if that looks unsafe (see `adapt`).
        progress : function, optional
            Called while adapting with the name of the stage, how much of it is done, and its total.
        engine : Engine, optional
            Engine whose workers answer, with the model from its file; by default, and to adapt, this process does.
        """
        if not adapt:
            yield from super().answers(photos, engine=engine)
            return
        check_adapts(self.model)
        found = find_photos(photos)
        self.passed_over = found.passed_over
        with self._bags_of(found, photos, progress, {"network": 0.0}) as store:
            self._adapt_to(store, insist)
            errors = {error.name: error for error in self.skipped}
            indices = {name: index for index, name in enumerate(store.names)}
            for photo in found:
                bag = store.load([indices[photo.name]])[0] if photo.name in indices else None
                yield self._answer(photo.name, bag, errors.get(photo.name))

    def evaluate(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        adapt: bool = False,
        insist: bool = False,
        progress: Progress | None = None,
        engine: Engine | None = None,
    ) -> Scores:
        """Compare the answers for labelled photos with their labels; unreadable photos are left out and in `skipped`.

        Parameters
        ----------
        photos : Source
            Labelled photos.
        labels : sequence of str, optional
            Classes of the photos; needed for a list, otherwise taken from folders or manifest.
        adapt : bool, default False
            Adapt the model to the photos first, without using their labels; `before` has the scores before adapting.
        insist : bool, default False
            Adapt even if that looks unsafe (see `adapt`).
        progress : function, optional
            Called with the name of the stage, how much of it is done, and its total.
        engine : Engine, optional
            As for `answers`.

        Raises
        ------
        PatchvoteError
            A photo has a class that the model does not know.
        """
        self.before, self.refusal = None, None
        if not adapt:
            return super().evaluate(photos, labels, progress=progress, engine=engine)
        check_adapts(self.model)
        found = self._labelled(photos, labels)
        expected = {photo.name: str(photo.label) for photo in found}
        known = known_photos(self.model.about)
        with self._bags_of(found, photos, progress, {"network": 0.0}) as store:
            self.known = sum(short(entry.digest) in known for entry in store.entries)
            self.before, _ = measure(self.model, _one_by_one(store), expected)
            self._adapt_to(store, insist)
            scores, mistakes = measure(self.model, _one_by_one(store), expected)
        return self._measured(scores, mistakes, found)

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
    ) -> Self:
        """Read a model from a file. No code in the file is run, and the network must be the one it was trained with.

        Parameters
        ----------
        path : path
            File of the model.
        network : str, optional
            Network of the model, needed if it is neither embedded nor an ONNX file beside the model: such a name is not
            taken from the file, because it can run code, open files or download.
        jobs, cache, seed, backbone
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
        classifier = cls(recipe, cache=cache, jobs=jobs, seed=seed, backbone=backbone)
        classifier._open(model, saved, path)
        classifier._kind = model.kind
        again = functools.partial(cls.load, path, network=network, jobs=jobs, cache=False, backbone=backbone)
        classifier._again = model, place(path), again
        return classifier


def _one_by_one(store: Store) -> Iterator[tuple[str, Bags]]:
    for index, name in enumerate(store.names):
        yield name, store.load([index])[0]
