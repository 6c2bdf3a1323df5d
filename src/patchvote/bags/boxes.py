"""Which regions of an image to sample: pure geometry, no pixels.

`Dense` takes every cell of a network's feature map, at one or more scales. `Patch` is the sampling of the paper: square
patches of a few sizes on an even grid, about the same number from every image. Boxes are left, top, right, bottom, in
0..1 of the image.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from ..errors import PatchvoteError
from ..utils.schema import brief

Boxes = npt.NDArray[np.float32]

WHOLE: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)


# Limits of the settings of a recipe. Recipes are also read from files, so each number needs a limit.
_MAX_SIDE = 2_048  # pixels, of an input of the network; the default network needs a gigabyte of memory for this side
_MAX_SCALES = 16  # per image; the default has 2
_MAX_PATCHES = 10_000  # per photo; the paper has 400
_MAX_LEVELS = 8  # sizes of patches; the default has 3
_MAX_PATCH, _MAX_WORKING_SIDE = 1_024, 4_096  # sides in pixels of a patch, and of the image that patches are cut from
MAX_PIXELS = 1 << 26  # per photo, over all inputs of the network: a few minutes of the default network
_KEPT_GRIDS = 64  # boxes of feature maps that are kept: photos of one camera have a few shapes
MAX_DESCRIPTORS = 100_000  # per photo: half a gigabyte with the default network


def _whole(owner: object, most: int, **numbers: object) -> None:
    """Refuse values that are not whole numbers from 1 to `most`."""
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise PatchvoteError(
                f"{name} of {type(owner).__name__} must be a whole number from 1 to {most:,}, got {brief(value)}."
            )


@dataclasses.dataclass(frozen=True)
class Dense:
    """Samples every cell of the feature map of the whole image, at several scales.

    Parameters
    ----------
    sides : tuple of ints, default (224, 448)
        Lengths in pixels to which the longest side is resized, one per scale; the first scale is level 1. At most 16,
        each of at most 2,048 px.
    whole : bool, default True
        Whether to add level 0: one descriptor of the whole image, the mean over the cells of the first scale. It costs
        nothing.
    """

    sides: tuple[int, ...] = (224, 448)
    whole: bool = True

    def __post_init__(self) -> None:
        if not 1 <= len(self.sides) <= _MAX_SCALES:
            raise PatchvoteError(f"Dense takes 1 to {_MAX_SCALES} sides, got {len(self.sides):,}.")
        for side in self.sides:
            _whole(self, _MAX_SIDE, sides=side)
        if not isinstance(self.whole, bool):
            raise PatchvoteError(f"whole of Dense must be true or false, got {brief(self.whole)}.")

    def input_size(self, width: int, height: int, side: int, stride: int) -> tuple[int, int]:
        """Return width and height for the network: the longest side is about `side`, both are multiples of `stride`.

        Then the cells of the feature map tile the image exactly; its proportions change by less than half a cell.
        """
        scale = side / max(width, height)
        fit = [max(1, math.floor(length * scale / stride + 0.5)) * stride for length in (width, height)]
        return fit[0], fit[1]


@dataclasses.dataclass(frozen=True)
class Patch:
    """Sampling of the paper: square patches of doubling size, about the same number from every image.

    Parameters
    ----------
    count : int, default 100
        Patches per image over all levels, including the whole image: about 100 is the paper's "sparse", about 400 its
        "dense". At most 10,000. The number is reached within a tenth if the image has room for it; a strip one patch
        high has no more positions than pixels along it.
    smallest : int, default 32
        Side in pixels of the patches of level 1; each further level doubles it. The largest patch has at most 1,024 px.
    levels : int, default 3
        Number of patch sizes, at most 8.
    whole : bool, default True
        Whether to add level 0, the whole image.
    side : int, default 200
        Length in pixels to which the longest side is resized before patches are cut. If that would make the shortest
        side smaller than the largest patch, the image is made as large as that patch needs. At most 4,096.
    input : int or None
        Side in pixels to which a patch is resized for the network; by default the network's input size. At most 2,048,
        and at most 67,108,864 pixels over all patches.
    """

    count: int = 100
    smallest: int = 32
    levels: int = 3
    whole: bool = True
    side: int = 200
    input: int | None = None

    def __post_init__(self) -> None:
        _whole(self, _MAX_PATCHES, count=self.count)
        _whole(self, _MAX_LEVELS, levels=self.levels)
        _whole(self, _MAX_PATCH, smallest=self.smallest)
        _whole(self, _MAX_WORKING_SIDE, side=self.side)
        if self.largest > _MAX_PATCH:
            raise PatchvoteError(
                f"the largest patch of Patch must have at most {_MAX_PATCH:,} px; {self.levels} levels from "
                f"{self.smallest} px on make {self.largest:,}."
            )
        if self.input is not None:
            _whole(self, _MAX_SIDE, input=self.input)
        if self.count < self.levels + self.whole:
            raise PatchvoteError(f"a count of {self.count} is too few for {self.levels} levels: give each one patch.")

    @property
    def largest(self) -> int:
        """Side in pixels of the largest patch."""
        return int(self.smallest * 2 ** (self.levels - 1))

    def working_size(self, width: int, height: int) -> tuple[int, int]:
        """Return width and height in pixels of the image that patches are cut from."""
        scale = max(self.side / max(width, height), self.largest / min(width, height))
        # A strip thinner than any photo is compressed; otherwise a line of pixels would grow to gigabytes.
        most = max(self.side, 16 * self.largest)
        fit = [min(most, max(self.largest, round(length * scale))) for length in (width, height)]
        return fit[0], fit[1]

    def pixel_boxes(self, width: int, height: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int16]]:
        """Return the patches in a working image of this size: boxes ``(n, 4)`` in pixels, and the level of each.

        Every level gets an equal share of the count, on an even grid from border to border.
        """
        left, grids = self.count - self.whole, []
        for index in range(self.levels, 0, -1):
            # A large patch may have too few positions for its share: smaller ones, which follow, get the rest.
            side = self.smallest * 2 ** (index - 1)
            corners = _even_grid(width - side, height - side, max(1.0, left / index))
            grids.append((np.concatenate([corners, corners + side], axis=1), index))
            left -= len(corners)
        if self.whole:
            grids.append((np.array([[0, 0, width, height]]), 0))
        grids.reverse()
        level = np.concatenate([np.full(len(boxes), index) for boxes, index in grids])
        return np.concatenate([boxes for boxes, _ in grids]), level.astype(np.int16)


def input_sizes(
    sampling: Dense | Patch, stride: int, fixed_size: tuple[int, int] | None, width: int, height: int
) -> list[tuple[int, int]]:
    """Return the sizes at which an image of some width and height is looked at."""
    if isinstance(sampling, Patch):
        return [sampling.working_size(width, height)]
    if fixed_size is not None:  # whatever the proportions of the image
        return [(fixed_size[1], fixed_size[0])]
    return [sampling.input_size(width, height, side, stride) for side in sampling.sides]


def _even_grid(free_x: int, free_y: int, count: float) -> npt.NDArray[np.int64]:
    """Return about `count` corners on an even grid over ``[0, free_x] x [0, free_y]``, both ends included."""
    best, best_cost = (1, 1), math.inf
    least_x, least_y = min(free_x + 1, 2), min(free_y + 1, 2)  # two corners reach both borders
    for columns in range(least_x, min(free_x + 1, max(least_x, math.ceil(count))) + 1):
        for rows in {math.floor(count / columns), math.ceil(count / columns)}:
            rows = min(max(rows, least_y), free_y + 1)
            # A tenth too many or too few costs as much as strides in the ratio 3 : 2.
            stride_x, stride_y = free_x / max(columns - 1, 1), free_y / max(rows - 1, 1)
            uneven = abs(math.log((stride_x + 1) / (stride_y + 1)))
            cost = uneven + 4 * abs(math.log(columns * rows / count))
            if cost < best_cost:
                best, best_cost = (columns, rows), cost
    columns, rows = best
    x = np.round(np.linspace(0, free_x, columns)).astype(np.int64)
    y = np.round(np.linspace(0, free_y, rows)).astype(np.int64)
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def relative(boxes: npt.NDArray[np.int64], width: int, height: int) -> Boxes:
    """Convert boxes in pixels to boxes in 0..1 of the image."""
    return (boxes / np.array([width, height, width, height], dtype=np.float64)).astype(np.float32)


@functools.lru_cache(_KEPT_GRIDS)
def cell_boxes(rows: int, columns: int) -> Boxes:
    """Return the boxes of the cells of a feature map, row by row, in an array that cannot be changed."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    boxes = relative(np.stack([column, row, column + 1, row + 1], axis=1), columns, rows)
    boxes.flags.writeable = False
    return boxes
