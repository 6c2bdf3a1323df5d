"""Quantize a network for photos, and tell what that brings on this machine.

The result is an ONNX file with its settings beside it: a network of its own, with a fingerprint of its own, since a
model that learned from the descriptors of one network must not be asked with those of the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backbones import Backbone, NetworkSpec
from ..backbones.base import HasGraph
from ..backbones.quantize import quantized
from ..backbones.write_network import write_network
from ..bags.extract import Extractor
from ..errors import NetworkError, PatchvoteError
from ..photos.find import Photo, Source, labelled
from ..utils.timing import Progress
from .arguments import check_classes
from .choose_network import NetworkTrial, choose_network

_CALIBRATION_PHOTOS = 32  # photos whose views give the ranges; 24 of them had the same error with Lite0


@dataclasses.dataclass(frozen=True)
class Quantized:
    """A network in 8-bit integers, and what it costs and brings beside the one in floating point.

    Parameters
    ----------
    path : Path
        ONNX file of the quantized network.
    calibrated : int
        Number of photos on which the ranges were measured.
    before, after : NetworkTrial
        Trials of the network and of the quantized one, on the same photos.
    """

    path: Path
    calibrated: int
    before: NetworkTrial
    after: NetworkTrial

    @property
    def time_ratio(self) -> float:
        """Seconds per photo of the quantized network over those of the other, on this machine."""
        return (self.after.seconds or math.nan) / (self.before.seconds or math.nan)

    def sentences(self) -> list[str]:
        """Return the comparison in words."""
        lines = [self.before.sentence(), self.after.sentence()]
        ratio = f"in 8-bit integers a photo takes {self.time_ratio:.2f} of the time on this machine"
        if self.before.accuracy is None or self.after.accuracy is None:
            return [*lines, f"{ratio}."]
        change = round((self.after.accuracy - self.before.accuracy) * self.after.images)
        words = "as many" if change == 0 else f"{abs(change)} {'more' if change > 0 else 'fewer'}"
        return [*lines, f"{ratio}, and {words} of {self.after.images} held-out photos are classified correctly."]


def quantize_network(
    photos: Source,
    path: str | Path,
    network: str = "efficientnet-lite0",
    *,
    voter: Any = "auto",
    budget: float = 60.0,
    cache: str | Path | bool | None = None,
    jobs: int | None = None,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> Quantized:
    """Write a network in 8-bit integers, calibrated on photos, and compare it with the network itself.

    Parameters
    ----------
    photos : Source
        Labelled photos: a folder with one folder per class, or a manifest.
    path : path
        ONNX file to write; its settings are written to a TOML file beside it.
    network : str, default "efficientnet-lite0"
        Network to quantize.
    voter, budget, cache, jobs, device, seed, progress
        Same as for `choose_network`, which compares the two.

    Raises
    ------
    NetworkError
        The network cannot be quantized.
    """
    found = labelled(photos, None, 2)
    check_classes(found)
    extractor = Extractor(network, jobs=jobs, device=device)
    backbone = extractor.backbone
    if not isinstance(backbone, HasGraph) or backbone.spec.whole != "mean":
        raise NetworkError(f"{network} cannot be quantized: it is not one graph from pixels to a map of descriptors.")
    chosen = np.random.default_rng(seed).permutation(len(found))[:_CALIBRATION_PHOTOS]
    views = _views(extractor, [found[index] for index in sorted(chosen)], progress)
    inputs: Iterator[npt.NDArray[np.float32]] = (backbone.spec.preprocessing(view) for view in views.images)
    written = write_network(path, quantized(backbone.graph(), inputs, network), backbone.spec)
    names = [extractor.recipe.network, str(written)]
    more: dict[str, Any] = {
        "voter": voter,
        "budget": budget,
        "cache": cache,
        "jobs": jobs,
        "device": device,
        "seed": seed,
    }
    tried = choose_network(found, limit=math.inf, networks=names, progress=progress, **more).trials
    trials = {trial.network: trial for trial in tried}
    return Quantized(written, views.photos, trials[names[0]], trials[names[1]])


class _Recorder:
    """A backbone that keeps the images that it is shown."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone, self.photos = backbone, 0
        self.images: list[npt.NDArray[np.uint8]] = []

    @property
    def spec(self) -> NetworkSpec:
        return self._backbone.spec

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        self.images += [image[None] for image in images]
        return self._backbone(images)


def _views(extractor: Extractor, photos: list[Photo], progress: Progress | None) -> _Recorder:
    """Return the images that the network is shown of photos; photos that cannot be read are passed over."""
    recorder = _Recorder(extractor.backbone)
    for number, item in enumerate(Extractor(extractor.recipe, backbone=recorder, jobs=1).stream(photos), 1):
        recorder.photos += item.error is None
        if progress is not None:
            progress("calibrate", number, len(photos))
    if not recorder.photos:
        raise PatchvoteError("none of the photos for the calibration can be read.")
    return recorder
