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
    from .bags.bags import Bags as Bags
    from .bags.boxes import Dense as Dense
    from .bags.boxes import Patch as Patch
    from .bags.described import Filled as Filled
    from .bags.extract import Extractor as Extractor
    from .bags.fill import fill as fill
    from .bags.recipe import Recipe as Recipe
    from .bags.store import Store as Store
    from .classifier import ImageClassifier as ImageClassifier
    from .errors import ModelError as ModelError
    from .errors import NetworkError as NetworkError
    from .errors import PatchvoteError as PatchvoteError
    from .errors import PhotoError as PhotoError
    from .errors import StoreError as StoreError
    from .models.answers import Answer as Answer
    from .models.evidence import Evidence as Evidence
    from .models.evidence import Match as Match
    from .models.export import export_model as export_model
    from .models.model import Model as Model
    from .models.scores import Scores as Scores
    from .photos.find import Photo as Photo
    from .photos.find import find_photos as find_photos
    from .voters.adapted import Adapted as Adapted
    from .voters.base import Voter as Voter
    from .voters.moment_ridge import MomentRidge as MomentRidge
    from .voters.nbnl import NBNL as NBNL
    from .voters.nbnn import NBNN as NBNN
    from .voters.nbnn import LocalNBNN as LocalNBNN
    from .voters.snbnl import SNBNL as SNBNL

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

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    modules = (name for name, value in globals().items() if getattr(value, "__name__", "") == f"{__name__}.{name}")
    return sorted({*__all__, *modules, *(name for name in globals() if name.startswith("__"))})
