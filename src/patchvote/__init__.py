"""Classify images by letting their local patches vote.

An image becomes a bag of local descriptors; every descriptor votes for a class; the votes name the image and show where
the evidence is. Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

# ONNX Runtime looks this up when it is first imported, and otherwise reports to a collector of its maker a few seconds
# later. No module of this package can import it before this line has run. A value that the user set stays.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from .adapted import Adapted
    from .bag_svm import BagSVM
    from .bags import Bags
    from .classifier import ImageClassifier
    from .errors import ModelError, NetworkError, PatchvoteError, PhotoError, StoreError
    from .evidence import Evidence
    from .extract import Extractor
    from .filling import fill
    from .grid import Dense, Patch
    from .local_nbnn import LocalNBNN
    from .nbnl import NBNL
    from .nbnn import NBNN
    from .photos import Photo, find_photos
    from .recipe import Recipe
    from .scores import Scores
    from .snbnl import SNBNL
    from .store import Store

_HOME = {
    "Adapted": "adapted",
    "BagSVM": "bag_svm",
    "Bags": "bags",
    "Dense": "grid",
    "Evidence": "evidence",
    "Extractor": "extract",
    "ImageClassifier": "classifier",
    "LocalNBNN": "local_nbnn",
    "ModelError": "errors",
    "NBNL": "nbnl",
    "NBNN": "nbnn",
    "NetworkError": "errors",
    "Patch": "grid",
    "PatchvoteError": "errors",
    "Photo": "photos",
    "PhotoError": "errors",
    "Recipe": "recipe",
    "SNBNL": "snbnl",
    "Scores": "scores",
    "Store": "store",
    "StoreError": "errors",
    "fill": "filling",
    "find_photos": "photos",
}

__all__ = [
    "NBNL",
    "NBNN",
    "SNBNL",
    "Adapted",
    "BagSVM",
    "Bags",
    "Dense",
    "Evidence",
    "Extractor",
    "ImageClassifier",
    "LocalNBNN",
    "ModelError",
    "NetworkError",
    "Patch",
    "PatchvoteError",
    "Photo",
    "PhotoError",
    "Recipe",
    "Scores",
    "Store",
    "StoreError",
    "fill",
    "find_photos",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
