"""Classify images by letting their local patches vote.

An image becomes a bag of local descriptors; every descriptor votes for a class; the votes classify the image and show
where the evidence is. Modules are loaded when a name is first used, so that importing the package takes almost no time.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

# ONNX Runtime reads this variable when it is first imported; without it, telemetry is sent a few seconds later. This
# line runs before any module of this package can import it. A value that the user has set is kept.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from .bags.bags import Bags
    from .bags.boxes import Dense, Patch
    from .bags.described import Filled
    from .bags.extract import Extractor
    from .bags.fill import fill
    from .bags.recipe import Recipe
    from .bags.store import Store
    from .classifier import ImageClassifier
    from .errors import ModelError, NetworkError, PatchvoteError, PhotoError, StoreError
    from .models.answers import Answer
    from .models.evidence import Evidence, Match
    from .models.export import export_model
    from .models.model import Model
    from .models.scores import Scores
    from .photos.find import Photo, find_photos
    from .voters.adapted import Adapted
    from .voters.base import Voter
    from .voters.moment_ridge import MomentRidge
    from .voters.nbnl import NBNL
    from .voters.nbnn import NBNN, LocalNBNN
    from .voters.snbnl import SNBNL

_MODULES = {
    "Adapted": "voters.adapted",
    "Answer": "models.answers",
    "Bags": "bags.bags",
    "Dense": "bags.boxes",
    "Evidence": "models.evidence",
    "Extractor": "bags.extract",
    "Filled": "bags.described",
    "ImageClassifier": "classifier",
    "LocalNBNN": "voters.nbnn",
    "Match": "models.evidence",
    "Model": "models.model",
    "ModelError": "errors",
    "MomentRidge": "voters.moment_ridge",
    "NBNL": "voters.nbnl",
    "NBNN": "voters.nbnn",
    "NetworkError": "errors",
    "Patch": "bags.boxes",
    "PatchvoteError": "errors",
    "Photo": "photos.find",
    "PhotoError": "errors",
    "Recipe": "bags.recipe",
    "SNBNL": "voters.snbnl",
    "Scores": "models.scores",
    "Store": "bags.store",
    "StoreError": "errors",
    "Voter": "voters.base",
    "export_model": "models.export",
    "fill": "bags.fill",
    "find_photos": "photos.find",
}

__all__ = [
    "NBNL",
    "NBNN",
    "SNBNL",
    "Adapted",
    "Answer",
    "Bags",
    "Dense",
    "Evidence",
    "Extractor",
    "Filled",
    "ImageClassifier",
    "LocalNBNN",
    "Match",
    "Model",
    "ModelError",
    "MomentRidge",
    "NetworkError",
    "Patch",
    "PatchvoteError",
    "Photo",
    "PhotoError",
    "Recipe",
    "Scores",
    "Store",
    "StoreError",
    "Voter",
    "export_model",
    "fill",
    "find_photos",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    modules = (name for name, value in globals().items() if getattr(value, "__name__", "") == f"{__name__}.{name}")
    return sorted({*__all__, *modules, *(name for name in globals() if name.startswith("__"))})
