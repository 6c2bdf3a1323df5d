"""ImageClassifier: from photos to answers.

A recipe turns photos into bags, which are cached; a voter learns from them; a model holds what it learned. Training
needs scikit-learn; prediction does not, and therefore starts in a fraction of the time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .bags.extract import Extractor
from .bags.recipe import Recipe
from .models import arguments
from .models.answering import Answering, Labels, Shown
from .models.evidence import evidence_without
from .models.file import Saved
from .models.model import check_network
from .networks.bases import basis_of
from .networks.names import beside
from .photos.find import Photo, Source, find_photos, labelled
from .utils.engine import Engine
from .utils.remote import place
from .utils.terminal import as_progress
from .voters.registry import scorer_class

if TYPE_CHECKING:
    from .models.fit import Fitted
    from .networks import Backbone


class ImageClassifier(Answering):
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
        Seconds of processor time for training, not counting the network, where a voter learns in passes.
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
        Photos that adapting in the last `answers` made "none of these", and those that it gave a class.
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
        super().__init__(Extractor(recipe, backbone=backbone, jobs=jobs, device=device), cache)
        self.voter, self.budget, self.seed, self.recipe = voter, budget, seed, self.extractor.recipe
        self.jobs, self.backbone, self.device = jobs, backbone, device
        self.added: dict[str, int] = {}
        self.forgotten: list[str] = []
        self._saved = Saved()

    def __getstate__(self) -> dict[str, Any]:
        return {"params": self.get_params(), "model": self._model, "scores": self.scores}

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, **state["params"])
        self.scores, self._model = state["scores"], state["model"]

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
            Share of the photos of every class, or names of the photos, on which settings are chosen and the accuracy
            is measured; they are learned as well in the end. By default the default voter leaves out every photo in
            turn, and others a fifth of them once. The default voter chooses its regularisation on all photos anyway.
        """
        from .models.fit import fit_model, learned_from, voter_for

        progress, found = as_progress(progress), labelled(photos, labels, 2)
        arguments.check_classes(found)
        held_out = arguments.held_out_of(held_out, found)
        others = None if target is None else find_photos(target)
        self._begin(found)
        if others is not None:  # report a wrong path or voter now, not after minutes of work
            self.passed_over += others.passed_over.without_folders()
            arguments.check_target(self._kind)
        kept = scorer_class(self._kind).learns_from(basis_of(self.extractor.backbone.spec))
        with learned_from(self._described(found, kept, progress, engine), kept, self.extractor) as learned:
            fitted = fit_model(
                learned,
                voter_for(self.voter, self.seed),
                self.extractor,
                budget=self.budget,
                seed=self.seed,
                progress=progress,
                engine=engine,
                held_out=held_out,
            )
        self._learned(fitted, found)
        if others is not None:
            scores, filled, skipped = self.scores, self.filled, self.skipped
            self._adapt_to(others, insist, progress, engine)
            self.scores, self.filled, self.skipped = scores, filled, skipped + self.skipped
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

        found = self._begin(labelled(photos, labels, 1))
        arguments.check_classes(found)
        basis = getattr(self.model.scorer, "basis", None)  # it may be older than that of the network
        kept = self.model.scorer.learns_from(basis_of(self.extractor.backbone.spec) if basis is None else basis)
        with learned_from(self._described(found, kept, progress, engine), kept, self.extractor) as learned:
            fitted = add_to_model(learned, self.model, self.extractor, seed=self.seed)
        self.known, self.added = fitted.known, fitted.added
        self.skipped = [*self.skipped, *fitted.refused]
        if fitted.added:
            self._learned(fitted, found)
        return self

    def forget(self, photos: str | Collection[str]) -> Self:
        """Forget training photos: the model is that of a fit to the others. `forgotten` has their names.

        `photos` are names, patterns of names such as "cat/2019*", SHA-256 digests of contents, or classes followed by a
        slash ("cat/").
        """
        from .models.add import forget

        chosen = [photos] if isinstance(photos, str) else list(photos)
        fitted, self.forgotten = forget(self.model, self.extractor, chosen, seed=self.seed)
        self._learned(fitted, self._photos.values())
        return self

    def _learned(self, fitted: Fitted, photos: Iterable[Photo]) -> None:
        self.model, self.scores, self._photos = fitted.model, fitted.left_out, {photo.name: photo for photo in photos}
        if fitted.left_out is not None:
            self._explain = functools.partial(evidence_without, fitted.without, fitted.left_out)

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
            recipe = dataclasses.replace(recipe, network=network or beside(recipe.network, Path(path)))
        classifier = cls(recipe, cache=cache, seed=seed, **more)  # type: ignore[arg-type]
        check_network(model, classifier.extractor.backbone.spec)
        again = functools.partial(cls.load, path, network=network, cache=False, **more)  # type: ignore[arg-type]
        classifier._model, classifier._file, classifier._saved = model, (place(path), again), saved
        return classifier
