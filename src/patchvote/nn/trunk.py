"""What the frozen part of a network says of every photo: seen once, kept on disk, asked for in every pass."""

from __future__ import annotations

from collections.abc import Callable
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


class Seen:
    """What the trunk says of every photo: of training photos several variants, on disk; of others as they are.

    Parameters
    ----------
    folder : path
        Where to keep what it says.
    photos : list of Photo
        All photos.
    keep, out : arrays of int
        Places of the photos to train on, and of those to hold out.
    trunk : OnnxBackbone
        The frozen part of the network, whose spec has the stride of the whole network.
    settings : TuningSettings
        Size of the photos, and how many variants of each.
    progress : function, optional
        Called with "look", how many photos are done, and of how many.
    """

    def __init__(
        self,
        folder: Path,
        photos: list[Photo],
        keep: npt.NDArray[np.int64],
        out: npt.NDArray[np.int64],
        trunk: OnnxBackbone,
        settings: TuningSettings,
        progress: Callable[[str, int, int], None] | None,
    ) -> None:
        side, variants, stride = settings.side, settings.variants, trunk.spec.stride or 1
        self.skipped: list[PhotoError] = []
        self.held_out: dict[int, npt.NDArray[np.float16]] = {}
        self.training: list[int] = []
        held = set(out.tolist())
        maps: npt.NDArray[np.float16] | None = None

        def look(index: int) -> list[npt.NDArray[np.float32]]:
            with opened(photos[index]) as (image, _):
                if image is None:
                    raise PhotoError(photos[index].name, "was not decoded.")  # only where its digest is known
                if index in held:
                    size = Dense((side,)).input_size(image.width, image.height, side, stride)
                    tiles = [pixels(image, size)]
                else:
                    rng = np.random.default_rng([settings.seed, index])
                    tiles = [variant(image, side, rng) for _ in range(variants)]
            return [trunk(tile[None])[0] for tile in tiles]

        order = sorted([*keep.tolist(), *held])
        with ThreadPoolExecutor(cores(), thread_name_prefix="patchvote-trunk") as pool:
            waiting = {}
            for place, index in enumerate(order):
                for ahead in order[place : place + 2 * cores()]:
                    if ahead not in waiting:
                        waiting[ahead] = pool.submit(look, ahead)
                try:
                    answers = waiting.pop(index).result()
                except PhotoError as error:
                    self.skipped.append(error.with_traceback(None))  # it would keep the pixels
                    continue
                finally:
                    if progress is not None:
                        progress("look", place + 1, len(order))
                if index in held:
                    self.held_out[index] = answers[0].astype(np.float16)
                    continue
                if maps is None:
                    shape = (len(keep), variants, *answers[0].shape)
                    maps = np.lib.format.open_memmap(folder / "maps.npy", "w+", np.float16, shape)
                maps[len(self.training)] = np.stack(answers).astype(np.float16)
                self.training.append(index)
        if maps is None:
            raise PatchvoteError(f"not one photo to learn from can be read. {self.skipped[0]}")
        self.maps = maps

    def batch(self, rows: npt.NDArray[np.int64], variants: npt.NDArray[np.int64]) -> Tensor:
        """Return the maps of some training photos, ``(n, d, rows, columns)``."""
        return torch.from_numpy(self.maps[rows, variants].astype(np.float32)).movedim(-1, 1)


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
