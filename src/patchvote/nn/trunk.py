"""What the frozen part of a network says of every photo: seen once, kept on disk, asked for in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from ..backbones.onnx_backbone import OnnxBackbone
from ..bags.boxes import Dense
from ..errors import PatchvoteError, PhotoError
from ..photos.decode import opened, resized
from ..photos.find import Photo
from ..utils.machine import cores
from .settings import TuningSettings

Progress = Callable[[str, int, int], None]


class Seen:
    """What the trunk says of every photo: of training photos several variants, on disk; of others as they are.

    Parameters
    ----------
    folder : path
        Where to keep what it says.
    photos : list of Photo
        All photos.
    held : set of int
        Places of the photos that are held out; the others are trained on.
    trunk : OnnxBackbone
        The frozen part of the network, whose spec has the stride of the whole network.
    settings : TuningSettings
        Size of the photos, and how many variants of each.
    progress : function, optional
        Called with "look", how many photos are done, and of how many.

    Attributes
    ----------
    training : list of int
        Places of the training photos that could be read, in the order of the rows of `batch`.
    held_out : dict of arrays
        Maps ``(rows, columns, d)`` of the photos that are held out, by their places.
    skipped : list of PhotoError
        Photos that could not be read.
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
        self.held_out: dict[int, npt.NDArray[np.float16]] = {}
        self.training: list[int] = []
        maps: npt.NDArray[np.float16] | None = None
        for index, answers in self._answers(progress):
            if index in held:
                self.held_out[index] = answers[0]
                continue
            if maps is None:
                shape = (len(photos) - len(held), *answers.shape)
                maps = np.lib.format.open_memmap(folder / "maps.npy", "w+", np.float16, shape)
            maps[len(self.training)] = answers
            self.training.append(index)
        if maps is None:
            raise PatchvoteError(f"not one photo to learn from can be read. {self.skipped[0]}")
        self.maps = maps

    def batch(self, rows: npt.NDArray[np.int64], variants: npt.NDArray[np.int64]) -> Tensor:
        """Return the maps of some training photos, ``(n, d, rows, columns)``."""
        return torch.from_numpy(self.maps[rows, variants].astype(np.float32)).movedim(-1, 1)

    def _answers(self, progress: Progress | None) -> Iterator[tuple[int, npt.NDArray[np.float16]]]:
        """Yield each photo's place and what the trunk says of it, in order, some photos being looked at ahead."""
        count, ahead = len(self._photos), 2 * cores()
        with ThreadPoolExecutor(cores(), thread_name_prefix="patchvote-trunk") as pool:
            waiting = {index: pool.submit(self._look, index) for index in range(min(ahead, count))}
            for index in range(count):
                try:
                    yield index, waiting.pop(index).result()
                except PhotoError as error:
                    self.skipped.append(error.with_traceback(None))  # it would keep the pixels
                if index + ahead < count:
                    waiting[index + ahead] = pool.submit(self._look, index + ahead)
                if progress is not None:
                    progress("look", index + 1, count)

    def _look(self, index: int) -> npt.NDArray[np.float16]:
        """Return what the trunk says of a photo: ``(1, rows, columns, d)``, or as many as there are variants."""
        photo, settings, stride = self._photos[index], self._settings, self._trunk.spec.stride or 1
        with opened(photo) as (image, _):
            if image is None:
                raise PhotoError(photo.name, "was not decoded.")  # only where its digest is known
            if index in self._held:
                size = Dense((settings.side,)).input_size(image.width, image.height, settings.side, stride)
                tiles = [pixels(image, size)]
            else:
                rng = np.random.default_rng([settings.seed, index])
                tiles = [variant(image, settings.side, rng) for _ in range(settings.variants)]
        return np.stack([self._trunk(tile[None])[0] for tile in tiles]).astype(np.float16)


def pixels(image: Image.Image, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Return a photo at a size, as the network takes it."""
    return np.asarray(resized(image, size).convert("RGB"))


def variant(image: Image.Image, side: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Change a photo a little: a square part of it, perhaps mirrored, lighter or darker, of more or less contrast."""
    edge = int(min(image.size) * rng.uniform(0.75, 1))
    left, top = (int(rng.integers(length - edge + 1)) for length in image.size)
    part = resized(image.crop((left, top, left + edge, top + edge)), (side, side))
    part = part.convert("RGB")
    if rng.random() < 0.5:
        part = ImageOps.mirror(part)
    part = ImageEnhance.Brightness(part).enhance(rng.uniform(0.8, 1.2))
    return np.asarray(ImageEnhance.Contrast(part).enhance(rng.uniform(0.8, 1.2)))
