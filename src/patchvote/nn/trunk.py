"""A network in two parts: the trunk is frozen and runs once per photo, the tail is trained on its outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from ..bags.boxes import Dense
from ..errors import NetworkError, PatchvoteError, PhotoError
from ..networks import EMBEDDED, NetworkSpec, graph_of
from ..networks.graph import cut, tail
from ..networks.session import OnnxBackbone, Session
from ..photos.decode import load_image, resized
from ..photos.find import Photo
from ..utils.machine import cores
from ..utils.terminal import Progress
from .onnx_module import OnnxModule

if TYPE_CHECKING:
    import onnx

    from .fine_tune import TuningSettings

_AT_ONCE = 8  # photos per core that are looked at before the next ones are begun; their maps wait in memory
Maps = list[npt.NDArray[np.float16]]  # of one photo, each of shape (rows, columns, features)


def tunable_graph(network: str) -> tuple[onnx.ModelProto, NetworkSpec]:
    """Return the graph of a network that can be fine-tuned, and its specification."""
    graph, spec = graph_of(network)
    if spec.stride is None or spec.preprocessing.layout != "NCHW":
        raise NetworkError(f"{network} does not return a feature map in the layout NCHW, so it cannot be fine-tuned.")
    return graph, spec


def default_start(network: str, graph: onnx.ModelProto) -> str:
    """Return the tensor after which the tail of an embedded network begins: the end of its last but one stage."""
    if network not in EMBEDDED:
        raise PatchvoteError(f"the tensor of {network} after which training begins is required: set start.")
    return str([node for node in graph.graph.node if node.op_type == "Add"][-1].output[0])


def trunk_of(graph: onnx.ModelProto, start: str, spec: NetworkSpec, device: str = "cpu") -> OnnxBackbone:
    """Return the frozen part, from pixels to the tensor `start`; a trial run shows how many features it has."""
    part = cut(graph, start)
    trunk = OnnxBackbone(spec, Session(part.SerializeToString(), spec.name, device=device), lambda: part)
    output = trunk.session.run(np.zeros((1, 3, spec.size, spec.size), np.float32))
    trunk.spec = dataclasses.replace(spec, dim=output.shape[1])
    return trunk


def tail_of(graph: onnx.ModelProto, start: str, width: int) -> OnnxModule:
    """Return the trained part, from the tensor `start` on, and verify that it computes the same as in ONNX Runtime."""
    part = tail(graph, start)
    module = OnnxModule(part)
    x = np.random.default_rng(0).normal(size=(1, width, 4, 6)).astype(np.float32)
    expected = Session(part.SerializeToString(), "tail").run(x)
    with torch.no_grad():
        output = module(torch.from_numpy(x)).numpy()
    if output.shape != expected.shape or np.abs(output - expected).max() > 1e-3 * max(1.0, np.abs(expected).max()):
        raise NetworkError(
            f"the part after {start!r} returns other numbers in torch than in ONNX Runtime: begin at a later tensor."
        )
    return module


class Seen:
    """The trunk's feature maps: several variants per training photo, on disk, and one per scale of held-out photos.

    `training` has the indices of the training photos that could be read, in the order of the rows of `batch`;
    `held_out` the maps of held-out photos by index; `skipped` the errors of all others.
    """

    def __init__(
        self,
        folder: Path,
        photos: Sequence[Photo],
        held: set[int],
        trunk: OnnxBackbone,
        settings: TuningSettings,
        progress: Progress | None = None,
    ) -> None:
        self._photos, self._held, self._trunk, self._settings = photos, held, trunk, settings
        self.skipped: list[PhotoError] = []
        self.held_out: dict[int, Maps] = {}
        self.training: list[int] = []
        shape: tuple[int, ...] = ()
        with (folder / "maps").open("wb") as file:
            for index, maps in self._readable(progress):
                if index in held:
                    self.held_out[index] = maps
                else:
                    self.training.append(index)
                    shape = (len(maps), *maps[0].shape)
                    file.write(np.stack(maps).tobytes())
        if not self.training:
            raise PatchvoteError(f"no training photo can be read. {self.skipped[0]}")
        self.maps = np.memmap(folder / "maps", np.float16, "r", shape=(len(self.training), *shape))

    def batch(self, rows: npt.NDArray[np.int64], variants: npt.NDArray[np.int64]) -> Tensor:
        """Return the maps of some training photos, ``(n, d, rows, columns)``."""
        return torch.from_numpy(self.maps[rows, variants].astype(np.float32)).movedim(-1, 1)

    def _readable(self, progress: Progress | None) -> Iterator[tuple[int, Maps]]:
        """Yield the index and the maps of each photo that can be read, in order."""
        count, block = len(self._photos), _AT_ONCE * cores()
        pool = ThreadPoolExecutor(cores(), thread_name_prefix="patchvote-trunk")
        try:
            for start in range(0, count, block):
                indices = range(start, min(start + block, count))
                for index, maps in zip(indices, pool.map(self._maps, indices), strict=True):
                    if isinstance(maps, PhotoError):
                        self.skipped.append(maps)
                    else:
                        yield index, maps
                    if progress is not None:
                        progress("look", index + 1, count)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C, no further photo is begun

    def _maps(self, index: int) -> Maps | PhotoError:
        """Return the maps of a photo: one per variant; of a held-out photo, one per scale."""
        settings, stride = self._settings, self._trunk.spec.stride or 1
        try:
            image = load_image(self._photos[index])
        except PhotoError as error:
            return error.with_traceback(None)  # the traceback would keep the pixels in memory
        if index in self._held:
            sizes = [Dense().input_size(*image.size, side, stride) for side in settings.sides]
            images = [np.asarray(resized(image, size)) for size in sizes]
        else:
            rng = np.random.default_rng([settings.seed, index])
            shares = [settings.side / side for side in settings.sides]
            turns = [shares[number % len(shares)] for number in range(settings.variants)]
            images = [variant(image, settings.side, rng, share) for share in turns]
        return [self._trunk(one[None])[0].astype(np.float16) for one in images]


def variant(image: Image.Image, side: int, rng: np.random.Generator, share: float = 1.0) -> npt.NDArray[np.uint8]:
    """Augment a photo: random square crop of a share of its side, mirroring, brightness and contrast."""
    edge = max(1, int(min(image.size) * min(share, 1.0) * rng.uniform(0.75, 1)))
    left, top = (int(rng.integers(length - edge + 1)) for length in image.size)
    part = resized(image.crop((left, top, left + edge, top + edge)), (side, side))
    if rng.random() < 0.5:
        part = ImageOps.mirror(part)
    part = ImageEnhance.Brightness(part).enhance(rng.uniform(0.8, 1.2))
    return np.asarray(ImageEnhance.Contrast(part).enhance(rng.uniform(0.8, 1.2)))
