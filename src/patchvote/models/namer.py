"""Namer: photos in, names and reasons out. All that a model can do once it has learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..bags.extract import Extractor
from ..errors import ModelError, PatchvoteError, PhotoError
from ..photos.find import Source, find_photos
from .answers import evidence_of
from .evidence import Evidence
from .model import Model
from .saved import Saved


class Namer:
    """Names photos with a model, and shows why.

    Parameters
    ----------
    extractor : Extractor
        Turns photos into bags.
    """

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor
        self._model: Model | None = None
        self._saved = Saved()

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
            rows.append(self.model.probability(item.bag))
        return np.stack(rows)

    def explain(self, photo: Source, label: str | None = None) -> Evidence:
        """Tell where the votes of one photo come from.

        Parameters
        ----------
        photo : Source
            One photo.
        label : str, optional
            The class to find matches for, where the voter remembers training photos; the likeliest by default.
        """
        found = find_photos(photo)
        if len(found) != 1:
            raise PatchvoteError(f"evidence is drawn for one photo at a time, got {len(found)}.")
        one, (item,) = found[0], self._extractor.stream(found)
        if item.bag is None:
            raise item.error or PhotoError(one.name, "could not be read.")
        return evidence_of(self.model, one.name, item.bag, label)

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all.

        Raises
        ------
        ModelChangedError
            It is the file that the model was read from or last written to, and somebody has changed it since.
        """
        self._saved = self._saved.write(self.model, path)

    def is_from(self, path: str | Path) -> bool:
        """Whether the model was read from this file, or last written to it."""
        return self._saved.is_at(path)

    def _open(self, model: Model, saved: Saved, path: str | Path) -> None:
        """Take a model that was read from a file, if it was made with this network."""
        spec = self._extractor.backbone.spec
        if spec.fingerprint != model.fingerprint:
            raise ModelError(
                f"{path} was made with a network of fingerprint {model.fingerprint}, but {spec.name} has "
                f"{spec.fingerprint}: its votes would mean nothing. Load it with the network that it was made with."
            )
        if spec.dim != model.features:
            raise ModelError(f"{path} is damaged: it has {model.features} features, its network {spec.dim}.")
        self._model, self._saved = model, saved
