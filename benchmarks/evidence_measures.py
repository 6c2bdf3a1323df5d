"""Measures of evidence maps, and the maps that are compared; nothing here knows photos or voters.

A map is an array ``(GRID, GRID)`` over the whole photo: each cell says how much it supports a class. All methods are
measured on the same grid, which is that of the network's cells in a square photo of 448 px.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter
from scipy.special import softmax

from patchvote import Evidence

GRID = 14
CHANCE = 0.25  # share of a collage that one quarter has
_SMOOTHING = 1.0  # standard deviation in cells, for the pointing game with smoothed maps

Map = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


# --- collages ---------------------------------------------------------------------------------------------------------


def quarter_mask(quarter: int) -> Mask:
    """Return the cells of a quarter of a collage; quarters are numbered from left to right, then down."""
    mask, half = np.zeros((GRID, GRID), bool), GRID // 2
    row, column = divmod(quarter, 2)
    mask[half * row : half * (row + 1), half * column : half * (column + 1)] = True
    return mask


def own_share(values: Map, quarter: int) -> float:
    """Return the share of the positive evidence that is in a quarter; that of chance if there is no such evidence."""
    positive = np.maximum(values, 0)
    total = positive.sum()
    return float(positive[quarter_mask(quarter)].sum() / total) if total > 0 else CHANCE


def points_at(values: Map, quarter: int) -> float:
    """Return whether the maximum of a map is in a quarter; of several maxima, the share that is."""
    largest = values == values.max()
    return float(largest[quarter_mask(quarter)].sum() / largest.sum())


def smoothed(values: Map) -> Map:
    """Smooth a map a little; beyond its edges it is continued by its mirror image, so that edges count as the rest."""
    return np.asarray(gaussian_filter(values.astype(np.float64), _SMOOTHING, mode="reflect"))


# --- deletion and insertion -------------------------------------------------------------------------------------------


def cell_order(values: Map, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the cells of a map from the most to the least important; the order of equal ones is random."""
    flat = values.ravel()
    return np.lexsort((rng.random(flat.size), -flat))


def first_cells(order: npt.NDArray[np.int64], share: float) -> Mask:
    """Return the mask of the first cells of an order, a share of all."""
    mask = np.zeros(GRID * GRID, bool)
    mask[order[: round(share * order.size)]] = True
    return mask.reshape(GRID, GRID)


def blended(image: npt.NDArray[np.uint8], blurred: npt.NDArray[np.uint8], removed: Mask) -> npt.NDArray[np.uint8]:
    """Return the image with the removed cells of the grid taken from its blurred copy."""
    height, width = image.shape[:2]
    rows, columns = (np.arange(side) * GRID // side for side in (height, width))
    return np.where(removed[rows[:, None], columns][:, :, None], blurred, image)


def area(shares: Sequence[float], values: Sequence[float]) -> float:
    """Return the area under a curve from 0 to 1, by the trapezoidal rule.

    Examples
    --------
    >>> area([0, 0.5, 1], [1, 0, 0])
    0.25
    """
    return float(np.trapezoid(values, shares))


def steps(
    image: npt.NDArray[np.uint8],
    blurred: npt.NDArray[np.uint8],
    values: Map,
    shares: Sequence[float],
    rng: np.random.Generator,
) -> list[npt.NDArray[np.uint8]]:
    """Return an image without the most important cells of a map, for each share, and then with these cells alone."""
    order = cell_order(values, rng)
    masks = [first_cells(order, share) for share in shares]
    return [blended(image, blurred, mask) for mask in [*masks, *(~mask for mask in masks)]]


def areas(shares: Sequence[float], first: float, last: float, values: Sequence[float]) -> tuple[float, float]:
    """Return the areas under the curves of deletion and insertion.

    Parameters
    ----------
    shares : sequence of float
        Shares of the cells at which the curves are known, besides 0 and 1.
    first, last : float
        Probability of the class for the image and for its blurred copy.
    values : sequence of float
        Its probability for the images of `steps`.
    """
    deletion, insertion = values[: len(shares)], values[len(shares) :]
    every = [0, *shares, 1]
    return area(every, [first, *deletion, last]), area(every, [last, *insertion, first])


# --- occlusion --------------------------------------------------------------------------------------------------------


def windows(side: int, stride: int) -> list[Mask]:
    """Return the squares of `side` cells that are occluded one by one, every `stride` cells."""
    starts = [*range(0, GRID - side, stride), GRID - side]
    masks = []
    for top in starts:
        for left in starts:
            mask = np.zeros((GRID, GRID), bool)
            mask[top : top + side, left : left + side] = True
            masks.append(mask)
    return masks


def occlusion_map(drops: npt.NDArray[Any], masks: Sequence[Mask]) -> Map:
    """Return the mean drop of the score over the squares that cover each cell."""
    cover = np.asarray(masks, np.float64)
    return np.asarray(np.tensordot(np.asarray(drops, np.float64), cover, 1) / cover.sum(axis=0))


# --- maps of votes ----------------------------------------------------------------------------------------------------


def spread(values: npt.NDArray[Any], boxes: npt.NDArray[Any]) -> Map:
    """Spread a value per part evenly over its box, as `Evidence.map` does with votes."""
    evidence = Evidence("", ("class",), np.asarray(values, np.float64)[:, None], boxes.astype(np.float64), np.ones(1))
    return evidence.map("class", GRID, GRID)


def vote_maps(evidence: Evidence, level: npt.NDArray[Any], number: int, temperature: float) -> dict[str, Map]:
    """Return the maps of a class that can be made of the votes, by name.

    Parameters
    ----------
    evidence : Evidence
        Votes of the photo.
    level : array
        Level of each part; the largest is the finest scale.
    number : int
        Number of the class.
    temperature : float
        Temperature of the voter's softmax.
    """
    votes, boxes = evidence.votes, evidence.boxes
    others = np.delete(votes, number, axis=1)
    contrast = votes[:, number] - others.max(axis=1)
    chosen = softmax(votes / temperature, axis=1)[:, number]
    finest = level == level.max()
    return {
        "less the strongest other": spread(contrast, boxes),
        "votes": spread(votes[:, number], boxes),
        "less the mean of the others": spread(votes[:, number] - others.mean(axis=1), boxes),
        "softmax": spread(chosen, boxes),
        "finest scale": spread(contrast[finest], boxes[finest]),
        "softmax, finest scale": spread(chosen[finest], boxes[finest]),
        "less the mean, finest scale": spread((votes[:, number] - others.mean(axis=1))[finest], boxes[finest]),
    }


def as_drawn(values: Map) -> Map:
    """Return the brightness of the picture of a map: the root of its positive values, relative to the largest."""
    return np.asarray(np.sqrt(np.clip(values / max(float(values.max()), 1e-12), 0, 1)))


# --- Grad-CAM ---------------------------------------------------------------------------------------------------------


def grad_cam(features: Any, head: Any, number: int) -> npt.NDArray[np.float64]:
    """Return the map of Grad-CAM (Selvaraju et al., ICCV 2017) by autograd, ``(rows, columns)``.

    The features are weighted by the means of their gradients over all cells, added up, and rectified.

    Parameters
    ----------
    features : tensor of shape (features, rows, columns)
        Feature map of a photo.
    head : function
        Returns the scores of the classes, given a feature map.
    number : int
        Number of the class.
    """
    import torch

    leaf = features.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(head(leaf)[number], leaf)
    weights = gradient.mean(dim=(1, 2))
    return np.asarray(torch.relu((weights[:, None, None] * features).sum(dim=0)).double().numpy())


def grad_cam_of_linear_head(features: npt.NDArray[Any], weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return what Grad-CAM is for a linear head on the mean of the cells: the positive part of their linear scores.

    The gradient at each of the n cells is ``weights / n``, and so is its mean.
    """
    cells = features.shape[1] * features.shape[2]
    return np.asarray(np.maximum(np.tensordot(weights / cells, features, 1), 0), np.float64)
