"""ImageClassifier: photos in, answers out.

It puts the parts together: a recipe turns photos into bags, kept in a store so that no photo goes through the network
twice; a voter learns from the bags; a model holds what it learned. Learning needs scikit-learn; answering does not, and
so starts in a fraction of the time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .bags.bags import Bags
from .bags.cache import cached_bags
from .bags.extract import Extractor
from .bags.fill import Filled
from .bags.recipe import Recipe, as_recipe
from .bags.store import Store
from .errors import PatchvoteError, PhotoError
from .models.answers import Answer
from .models.known import known_photos, short
from .models.measure import measure
from .models.model import network_of
from .models.namer import Namer
from .models.saved import Saved
from .models.scores import Scores
from .photos.find import Photo, Source, find_photos, labelled
from .utils.schema import brief
from .utils.timing import Progress
from .voters.registry import DEFAULT, kind_of, scorer_class
from .voters.votes import NONE

if TYPE_CHECKING:
    from .backbones import Backbone
    from .models.fit import Fitted

MAX_SEED = 2**32 - 1  # the largest that scikit-learn takes


class ImageClassifier(Namer):
    """Learns to tell photos apart from a few examples of each class, and shows why.

    Parameters
    ----------
    recipe : Recipe or str, optional
        How a photo becomes a bag; ``Recipe("efficientnet-lite2")``, or the name alone, takes another network.
    voter : str or estimator, default "auto"
        "auto" takes `BagSVM` and tries a few settings of it on held-out images; "snbnl", "nbnl", "nbnn", "local-nbnn"
        or a name that another package brings means that voter; an estimator that is a `Voter` is used as it is.
    budget : float, default 60
        Seconds that trying settings and the training may take, besides the network. At least one is always tried.
    cache : path, None or False
        Folder to keep bags in, so that a photo goes through the network once; the user's cache folder by default; False
        keeps nothing.
    jobs : int, optional
        Threads; one a core by default.
    seed : int, default 0
        Fixes everything that is random.

    Attributes
    ----------
    model, scores, skipped, passed_over, known
        See `Namer`; after `fit`, `scores` has the answers for photos that were held out.
    filled : Filled
        What the last call took from the cache and what from the network.
    refusal : str or None
        Why the last call that was to adapt the model did not, in which case the model stays as it was.
    before : Scores or None
        Answers of the model before it was adapted, after `evaluate` with `adapt`.
    damaged : list of str
        Shards of the cache that were found damaged and set aside, in all calls; their photos were extracted again.
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
        self._kind = _kind(voter)
        _check_settings(budget, seed)
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
            A folder with a folder a class, a manifest, or a list of photos.
        labels : sequence of str, optional
            Classes of the photos; needed for a list, and else taken from folders or manifest.
        target : Source, optional
            Photos like those that will be asked about, where they differ from the labelled ones (another camera, place
            or style). Their classes need not be known, and are not looked at (see `Adapted`).
        insist : bool, default False
            Adapt to the target even where that looks unsafe (see `adapt`).
        progress : function, optional
            Called with what is being done, how much of it is done, and of how much.
        """
        seconds = {"network": 0.0}
        found = labelled(photos, labels, 2)
        _check_classes(found)
        self.passed_over = found.passed_over
        target = list(target) if isinstance(target, Iterator) else target  # it is looked at twice
        if target is not None:  # a wrong path or voter is told now, not after minutes of work
            self.passed_over += find_photos(target).passed_over.without_folders()
            if not scorer_class(self._kind).adapts:
                raise PatchvoteError(f"a model of {self._kind} cannot be adapted to a target: take the default voter.")
        # Learning needs scikit-learn, whose import takes a second or two: time enough while the network works.
        threading.Thread(target=importlib.import_module, args=(f"{__package__}.models.fit",), daemon=True).start()
        with self._bags_of(found, photos, progress, seconds) as store:
            from .models.fit import fit_model

            _check_readable(store, self.skipped)
            fitted = fit_model(
                store,
                self.voter,
                self._extractor,
                budget=self.budget,
                seed=self.seed,
                progress=progress,
                seconds=seconds,
            )
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
        """Make the model fit for photos like these, whose classes need not be known (see `Adapted`).

        Photos that the model rejects now, it will reject once it is adapted, too. Where adapting looks unsafe (most
        photos are rejected, or few classes would take nearly all of them), the model stays as it is, `refusal` says
        why, and an `AdaptationWarning` is given.

        Parameters
        ----------
        photos : Source
            The photos.
        insist : bool, default False
            Adapt even so: you vouch that the photos show the model's classes.
        progress : function, optional
            Called with what is being done, how much of it is done, and of how much.

        Raises
        ------
        PatchvoteError
            The model holds no means of its training photos; those of `BagSVM` do.
        """
        with self._bags_of(find_photos(photos), photos, progress, {"network": 0.0}) as store:
            self._adapt_to(store, insist)
        return self

    def _adapt_to(self, store: Store, insist: bool) -> None:
        """Adapt to the photos of a store, or say why not."""
        from .models.adapt import adapt_model

        fitted, self.refusal = adapt_model(store, self.model, insist=insist, seconds={})
        self._take(fitted)

    def add(self, photos: Source, labels: Sequence[str] | None = None, *, progress: Progress | None = None) -> Self:
        """Learn more photos, of known classes or new ones, without the photos that were learned before.

        Photos that the model has learned from are not learned again (`known` counts them); those that it has learned
        as another class are left out, and named in `skipped`.
        """
        from .models.add import add_to_model

        seconds, found = {"network": 0.0}, labelled(photos, labels, 1)
        _check_classes(found)
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
        """Bring the cache up to date with photos, and give their bags; without a cache, in a temporary folder."""

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
        self, photos: Source, *, adapt: bool = False, insist: bool = False, progress: Progress | None = None
    ) -> Iterator[Answer]:
        """Name one photo after the other, in order; one that cannot be read gets an answer with the reason.

        Parameters
        ----------
        photos : Source
            The photos.
        adapt : bool, default False
            Look at all of them first, and adapt the model to them: for photos of another camera, place or style than
            those it learned from. Where that looks unsafe, the answers are those of the model as it is (see `adapt`).
        insist : bool, default False
            Adapt even so.
        progress : function, optional
            Called while adapting with what is being done, how much of it is done, and of how much.
        """
        if not adapt:
            yield from super().answers(photos)
            return
        found = find_photos(photos)
        self.passed_over = found.passed_over
        with self._bags_of(found, photos, progress, {"network": 0.0}) as store:
            self._adapt_to(store, insist)
            errors = {error.name: error for error in self.skipped}
            number = {name: index for index, name in enumerate(store.names)}
            for photo in found:
                bag = store.load([number[photo.name]])[0] if photo.name in number else None
                yield self._answer(photo.name, bag, errors.get(photo.name))

    def evaluate(
        self,
        photos: Source,
        labels: Sequence[str] | None = None,
        *,
        adapt: bool = False,
        insist: bool = False,
        progress: Progress | None = None,
    ) -> Scores:
        """Compare answers for labelled photos with their labels; photos that cannot be read are left out and named.

        Parameters
        ----------
        photos : Source
            The photos.
        labels : sequence of str, optional
            Their classes; needed for a list, and else taken from folders or manifest.
        adapt : bool, default False
            Adapt the model to the photos, without looking at their classes, and compare its answers then; `before` has
            those of the model as it was.
        insist : bool, default False
            Adapt even where that looks unsafe (see `adapt`).
        progress : function, optional
            Called with what is being done, how much of it is done, and of how much.

        Raises
        ------
        PatchvoteError
            A photo is of a class that the model does not know.
        """
        self.before, self.refusal = None, None
        if not adapt:
            return super().evaluate(photos, labels, progress=progress)
        found = self._labelled(photos, labels)
        expected = {photo.name: str(photo.label) for photo in found}
        known = known_photos(self.model.about)
        with self._bags_of(found, photos, progress, {"network": 0.0}) as store:
            self.known = sum(short(entry.digest) in known for entry in store.entries)
            self.before, _ = measure(self.model, _one_by_one(store), expected)
            self._adapt_to(store, insist)
            scores, mistakes = measure(self.model, _one_by_one(store), expected)
        return self._measured(scores, mistakes, found)

    # --- keeping ----------------------------------------------------------------------------------------------------

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
        """Read a model from a file. No code in the file is run, and its network must be the one it was made with.

        Parameters
        ----------
        path : path
            The file.
        network : str, optional
            Its network, where that is neither embedded nor an ONNX file beside it: such a name is not taken from a
            file, because it can run code, open files or download.
        jobs, cache, seed, backbone
            As for the class.

        Raises
        ------
        ModelError
            The file is no model, is damaged, was made by a later version or with another network.
        """
        model, saved = Saved.read(path)
        recipe = model.recipe
        if backbone is None:
            recipe = dataclasses.replace(recipe, network=network or network_of(model, path))
        classifier = cls(recipe, cache=cache, jobs=jobs, seed=seed, backbone=backbone)
        classifier._open(model, saved, path)
        classifier._kind = model.kind
        return classifier


def _one_by_one(store: Store) -> Iterator[tuple[str, Bags]]:
    for index, name in enumerate(store.names):
        yield name, store.load([index])[0]


def _check_settings(budget: Any, seed: Any) -> None:
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not budget >= 0:
        raise PatchvoteError(f"budget must be a number of seconds, at least 0, got {brief(budget)}.")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= MAX_SEED:
        raise PatchvoteError(f"seed must be a whole number from 0 to {MAX_SEED}, got {brief(seed)}.")


def _check_readable(store: Store, skipped: Sequence[PhotoError]) -> None:
    """Refuse photos of one class, and name what could not be read of the others."""
    classes = sorted({str(label) for label in store.labels})
    if len(classes) < 2 and skipped:
        raise PatchvoteError(
            f"photos of one class only can be read: {classes[0]!r}. There must be two at least, and of the others: "
            + " ".join(map(str, skipped[:3]))
        )


def _kind(voter: Any) -> str:
    """Return the kind of a voter, given by name or as an estimator; whatever is neither is refused."""
    if isinstance(voter, str):
        return DEFAULT if voter == "auto" else kind_of(voter)
    kind = getattr(voter, "kind", None)
    if not isinstance(kind, str) or not hasattr(voter, "scorer") or isinstance(voter, type):
        raise PatchvoteError(
            f"voter must be the name of a voter or an estimator that is one, such as SNBNL(), got {voter!r:.80}."
        )
    return kind


def _check_classes(photos: list[Photo]) -> None:
    """Refuse a class that could not be told from the answer for photos unlike all classes."""
    for photo in photos:
        if str(photo.label).strip().casefold() == NONE:
            raise PatchvoteError(
                f"a class may not be called {photo.label!r}: that is the answer for photos unlike all classes. Give "
                "the class of such photos another name, such as 'other'."
            )
