"""ImageClassifier: photos in, answers out.

It puts the parts together: a recipe turns photos into bags, kept in a store so that no photo goes through the network
twice; a voter learns from the bags; a model holds what it learned. Learning needs scikit-learn; answering does not, and
so starts in a fraction of the time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from .bags.bags import Bags
from .bags.cache import cached_bags
from .bags.extract import Extractor
from .bags.fill import Filled
from .bags.recipe import Recipe
from .bags.store import Store
from .errors import ModelChangedError, ModelError, PatchvoteError, PhotoError
from .models.evidence import Evidence, Match
from .models.known import known_photos, short
from .models.model import Model, network_of, read_model, write_model
from .models.scores import Scores
from .photos.decode import SHOWN, load_image
from .photos.find import Photo, Source, find_photos, labelled
from .photos.passed_over import PassedOver
from .utils.locking import locked, stamp
from .utils.suggest import nearest
from .voters.pooling import shared_votes
from .voters.veto import with_veto
from .voters.votes import prototype_votes, softmax, votes_in_chunks

if TYPE_CHECKING:
    from .backbones import Backbone

VOTERS = ("auto", "bagsvm", "snbnl", "nbnl", "nbnn", "localnbnn")

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a photo is called.

    Parameters
    ----------
    name : str
        The photo.
    label : str or None
        Its likeliest class; None where it could not be read.
    probability : float
        Of that class.
    runner_up : str or None
        The second likeliest class.
    runner_up_probability : float
        Of that one.
    rejected : bool
        Whether "none of these" is the better answer.
    error : PhotoError or None
        Why it could not be read.
    """

    name: str
    label: str | None
    probability: float = 0.0
    runner_up: str | None = None
    runner_up_probability: float = 0.0
    rejected: bool = False
    error: PhotoError | None = None


class ImageClassifier:
    """Learns to tell photos apart from a few examples of each class, and shows why.

    Parameters
    ----------
    recipe : Recipe, optional
        How a photo becomes a bag.
    voter : str or estimator, default "auto"
        "auto" takes `BagSVM` and tries a few settings of it on held-out images; "snbnl", "nbnl", "nbnn" or
        "localnbnn" name another voter; an estimator of this package is used as it is.
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
    model : Model
        What was learned.
    scores : Scores or None
        Answers beside what they should have been: for images that were held out, after `fit`, or after `evaluate`.
    skipped : list of PhotoError
        Photos that could not be read, in the last call.
    passed_over : PassedOver
        What the folder of the last call holds besides photos that can be read.
    known : int
        Photos of the last `add` or `evaluate` that the model had learned from before.
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
        recipe: Recipe | None = None,
        *,
        voter: Any = "auto",
        budget: float = 60.0,
        cache: str | Path | bool | None = None,
        jobs: int | None = None,
        seed: int = 0,
        backbone: Backbone | None = None,
    ) -> None:
        if isinstance(voter, str) and voter not in VOTERS:
            raise PatchvoteError(f"there is no voter {voter!r}.{nearest(voter, VOTERS)}")
        self.recipe, self.voter, self.budget, self.cache, self.seed = recipe or Recipe(), voter, budget, cache, seed
        self._extractor = Extractor(self.recipe, backbone=backbone, jobs=jobs)
        self._model: Model | None = None
        self._voter: Any = None  # the estimator, where it is at hand
        self.scores: Scores | None = None
        self._mistakes: tuple[Evidence, ...] = ()
        self._photos: dict[str, Photo] = {}
        self.skipped: list[PhotoError] = []
        self.passed_over = PassedOver()
        self.known = 0
        self._place: Path | None = None  # of the model's file, and what it was like when it was read or written
        self._stamp: tuple[int, ...] | None = None
        self.filled = Filled(0)
        self.refusal: str | None = None
        self.before: Scores | None = None
        self.damaged: list[str] = []

    @property
    def model(self) -> Model:
        """What was learned."""
        if self._model is None:
            raise PatchvoteError("this classifier has learned nothing yet: call fit, or load a model.")
        return self._model

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that it tells apart, sorted."""
        return self.model.classes

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
        self.passed_over = found.passed_over
        if target is not None:  # a wrong path or voter is told now, not after minutes of work
            self.passed_over += find_photos(target).passed_over.without_folders()
            name = self.voter if isinstance(self.voter, str) else type(self.voter).__name__
            if name.lower() not in ("auto", "bagsvm"):
                raise PatchvoteError(f"a model of {name} cannot be adapted to a target: take the default voter.")
        # Learning needs scikit-learn, whose import takes a second or two: time enough while the network works.
        threading.Thread(target=importlib.import_module, args=(f"{__package__}.models.fit",), daemon=True).start()
        with self._bags_of(found, photos, progress, seconds) as store:
            from .models.fit import fit_model

            fitted = fit_model(
                store,
                self.voter,
                self._extractor,
                budget=self.budget,
                seed=self.seed,
                progress=progress,
                seconds=seconds,
            )
        self._model, self._voter, self.scores, self._mistakes = (
            fitted.model,
            fitted.voter,
            fitted.held_out,
            fitted.mistakes,
        )
        if target is not None:
            skipped, photos_of_source = self.skipped, self._photos
            self.adapt(target, insist=insist, progress=progress)
            self.skipped, self._photos = skipped + self.skipped, photos_of_source
            self.scores, self._mistakes = fitted.held_out, fitted.mistakes
        return self

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
        self._model, self._voter, self.scores, self._mistakes = fitted.model, fitted.voter, None, ()

    def add(self, photos: Source, labels: Sequence[str] | None = None, *, progress: Progress | None = None) -> Self:
        """Learn more photos, of known classes or new ones, without the photos that were learned before.

        Photos that the model has learned from are not learned again (`known` counts them); those that it has learned
        as another class are left out, and named in `skipped`.
        """
        from .models.fit import add_to_model

        seconds, found = {"network": 0.0}, labelled(photos, labels, 1)
        self.passed_over = found.passed_over
        with self._bags_of(found, photos, progress, seconds) as store:
            fitted = add_to_model(store, self.model, seed=self.seed, seconds=seconds)
        self.known = fitted.known
        self.skipped = [*self.skipped, *fitted.refused]
        self._model, self._voter, self.scores, self._mistakes = fitted.model, fitted.voter, None, ()
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
        found = find_photos(photos)
        self.passed_over = found.passed_over
        if not adapt:
            for item in self._extractor.stream(found):
                yield self._answer(item.photo.name, item.bag, item.error)
            return
        with self._bags_of(found, photos, progress, {"network": 0.0}) as store:
            self._adapt_to(store, insist)
            errors = {error.name: error for error in self.skipped}
            number = {name: index for index, name in enumerate(store.names)}
            for photo in found:
                bag = store.load([number[photo.name]])[0] if photo.name in number else None
                yield self._answer(photo.name, bag, errors.get(photo.name))

    def _answer(self, name: str, bag: Bags | None, error: PhotoError | None) -> Answer:
        if bag is None:
            return Answer(name, None, error=error)
        (probability,) = self._probability(bag)
        first, second = np.argsort(-probability, kind="stable")[:2]
        return Answer(
            name,
            self.classes[first],
            float(probability[first]),
            self.classes[second],
            float(probability[second]),
            bool(probability[first] < self.model.threshold),
        )

    def predict(self, photos: Source) -> npt.NDArray[np.str_]:
        """Name photos.

        Raises
        ------
        PhotoError
            For the first photo that cannot be read; `answers` goes on past such photos.
        """
        return np.asarray(np.array(self.classes)[self.predict_proba(photos).argmax(axis=1)])

    def predict_proba(self, photos: Source) -> npt.NDArray[np.float64]:
        """Return the probability of each class of `classes` for each photo; raises as `predict` does."""
        rows = []
        for item in self._extractor.stream(find_photos(photos)):
            if item.bag is None:
                raise item.error or PhotoError(item.photo.name, "could not be read.")
            rows.append(self._probability(item.bag))
        return np.concatenate(rows)

    def explain(self, photo: Source, label: str | None = None) -> Evidence:
        """Tell where the votes of one photo come from.

        Parameters
        ----------
        photo : Source
            One photo.
        label : str, optional
            The class to find matches for, where the voter remembers training photos; the likeliest by default.
        """
        (one,) = _exactly_one(find_photos(photo))
        (item,) = self._extractor.stream([one])
        if item.bag is None:
            raise item.error or PhotoError(one.name, "could not be read.")
        votes = self._votes(item.bag)
        evidence = Evidence(
            one.name,
            self.classes,
            votes.astype(np.float64),
            item.bag.boxes.astype(np.float64),
            self._probability(item.bag, votes)[0],
        )
        wanted = label or evidence.ranking[0]
        evidence.number(wanted)
        return dataclasses.replace(evidence, matches=self._matches(item.bag, evidence, wanted))

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
        found = labelled(photos, labels, 1)
        self.passed_over = found.passed_over
        strange = sorted({str(photo.label) for photo in found} - set(self.classes))
        if strange:
            raise PatchvoteError(
                f"the model does not know the class {strange[0]!r}.{nearest(strange[0], self.classes)} "
                "`patchvote add` teaches it a new class."
            )
        self.before, self.refusal, self.skipped, self.known = None, None, [], 0
        known = known_photos(self.model.about)
        if adapt:
            with self._bags_of(found, photos, progress, {"network": 0.0}) as store:
                self.known = sum(short(entry.digest) in known for entry in store.entries)
                self.before = self._scored(found, _one_by_one(store))
                self._adapt_to(store, insist)
                scores = self._scored(found, _one_by_one(store))
        else:
            scores = self._scored(found, self._readable(found, known, progress))
        self._photos = {photo.name: photo for photo in found}
        worst = [self._photos[scores.names[i]] for i in scores.worst()]
        self.scores, self._mistakes = scores, tuple(self.explain([photo]) for photo in worst)
        return scores

    def _readable(
        self, photos: list[Photo], known: Container[str], progress: Progress | None
    ) -> Iterator[tuple[str, Bags]]:
        """Yield names and bags of photos; those that cannot be read are noted, and known ones counted."""
        for done, item in enumerate(self._extractor.stream(photos)):
            if progress is not None:
                progress("evaluate", done + 1, len(photos))
            if item.bag is None:
                self.skipped.append(item.error or PhotoError(item.photo.name, "could not be read."))
            else:
                self.known += short(item.digest) in known
                yield item.photo.name, item.bag

    def _scored(self, photos: list[Photo], bags: Iterable[tuple[str, Bags]]) -> Scores:
        """Compare answers for bags, given with the names of their photos, with the labels of these."""
        number = {photo.name: self.classes.index(str(photo.label)) for photo in photos}
        answered = [(name, self._probability(bag)) for name, bag in bags]
        if not answered:
            raise PatchvoteError(f"not one of the {len(photos)} photos can be read. {self.skipped[0]}")
        names = tuple(name for name, _ in answered)
        probability = np.concatenate([row for _, row in answered])
        return Scores(
            self.classes, names, np.array([number[name] for name in names]), probability, self.model.threshold
        )

    def report(self, path: str | Path, *, title: str, measured: str) -> None:
        """Write what the last `fit` or `evaluate` found to one HTML file.

        Parameters
        ----------
        path : path
            The file.
        title : str
            What to call it.
        measured : str
            On which photos the answers were measured, in words.
        """
        from .models.report.page import mistakes_of, write_report

        shown = []
        for evidence in self._mistakes:
            with contextlib.suppress(PhotoError):  # it may be gone by now
                shown.append((evidence, load_image(self._photos[evidence.name], SHOWN)))
        write_report(path, self.model, self.scores, mistakes_of(self.scores, shown), title=title, kind=measured)

    def _probability(self, bag: Bags, votes: npt.NDArray[Any] | None = None) -> npt.NDArray[np.float64]:
        """Return the probability of each class, ``(1, classes)``, for a bag; its votes may be given."""
        model, votes = self.model, self._votes(bag) if votes is None else votes
        probability = softmax(votes.mean(axis=0, dtype=np.float64, keepdims=True) / model.temperature)
        if "unadapted_linear" not in model.arrays:
            return probability
        return with_veto(probability, bag.means(), model.arrays, float(model.settings["power"]), model.threshold)

    def _votes(self, bag: Bags) -> npt.NDArray[Any]:
        """Return the vote of every descriptor of one photo."""
        model = self.model
        if "linear" in model.arrays:
            return shared_votes(bag, model.arrays["linear"], model.arrays["bias"], float(model.settings["power"]))
        return np.concatenate([votes for _, votes in votes_in_chunks(bag, model.positions, self._vote)])

    def _vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        model = self.model
        if "weights" in model.arrays:
            arrays, q = model.arrays, float(model.settings["q"])
            return prototype_votes(values, arrays["weights"], arrays["mean"], arrays["scale"], q)
        return np.asarray(self._estimator()._vote(values))

    def _estimator(self) -> Any:
        """Return the voter as an estimator, made from the model where need be."""
        if self._voter is None:
            from .models.fit import voter_of

            self._voter = voter_of(self.model)
        return self._voter

    def _matches(self, bag: Bags, evidence: Evidence, label: str) -> tuple[Match, ...]:
        names = self.model.about.get("names")
        if not names or not hasattr(self._estimator(), "matches") or self._estimator().condense is not None:
            return ()  # the centres of a condensed bank come from no single photo
        images, boxes, distances = self._estimator().matches(bag, label)
        order = np.argsort(-evidence.advantage(label), kind="stable")
        return tuple(
            Match(_box(bag.boxes[i]), str(names[images[i]]), _box(boxes[i]), float(distances[i])) for i in order
        )

    # --- keeping ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all.

        Raises
        ------
        ModelChangedError
            It is the file that the model was read from or last written to, and somebody has changed it since.
        """
        place = Path(os.path.realpath(path))
        with locked(place):
            if self.is_from(place) and stamp(place) != self._stamp:
                raise ModelChangedError(
                    f"{path} was changed by another process since it was read: it was not written. Load it again and "
                    "repeat."
                )
            write_model(self.model, path)
            self._place, self._stamp = place, stamp(place)

    def is_from(self, path: str | Path) -> bool:
        """Whether the model was read from this file, or last written to it."""
        return self._place is not None and self._place == Path(os.path.realpath(path))

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
        place = Path(os.path.realpath(path))
        seen = stamp(place)  # before it is read: a change in between is noticed later
        model = read_model(path)
        if backbone is None:
            recipe = dataclasses.replace(model.recipe, network=network or network_of(model, path))
        else:
            recipe = model.recipe
        classifier = cls(recipe, cache=cache, jobs=jobs, seed=seed, backbone=backbone)
        spec = classifier._extractor.backbone.spec
        if spec.fingerprint != model.fingerprint:
            raise ModelError(
                f"{path} was made with a network of fingerprint {model.fingerprint}, but {spec.name} has "
                f"{spec.fingerprint}: its votes would mean nothing. Load it with the network that it was made with."
            )
        if spec.dim != model.features:
            raise ModelError(f"{path} is damaged: it has {model.features} features, its network {spec.dim}.")
        classifier._model, classifier._place, classifier._stamp = model, place, seen
        return classifier


def _one_by_one(store: Store) -> Iterator[tuple[str, Bags]]:
    for index, name in enumerate(store.names):
        yield name, store.load([index])[0]


def _exactly_one(photos: list[Photo]) -> list[Photo]:
    if len(photos) != 1:
        raise PatchvoteError(f"evidence is drawn for one photo at a time, got {len(photos)}.")
    return photos


def _box(edges: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    left, top, right, bottom = (float(edge) for edge in edges)
    return left, top, right, bottom
