"""Settings of fine-tuning."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TuningSettings:
    """Settings of fine-tuning.

    Parameters
    ----------
    start : str
        Tensor of the graph after which the tail begins; by default, the tail of an embedded network is its last stage.
    side : int, default 224
        Longest side of a photo in pixels; variants are squares of this side.
    sides : tuple of int
        Longest sides of a photo at the scales at which the network will be used, as `Dense` has them; by default `side`
        alone. Variants take turns at these scales: at twice the side, they show half as much of a photo.
    variants : int, default 4
        Number of augmented variants of every training photo.
    passes : int, default 20
        Maximum number of passes over the photos.
    batch : int, default 32
        Number of photos per step.
    rate : float, default 0.0003
        Learning rate of the tail (AdamW, with a cosine schedule that ends at 0).
    head_rate : float, default 0.003
        Learning rate of the head, with the same schedule.
    decay : float
        Weight decay of tail and head.
    prototypes : int, default 4
        Number of prototypes per class.
    q : float, default 2
        Order of the norm that turns the products with the prototypes into a vote.
    held_out : float, default 0.15
        Share of the photos that are held out, for early stopping and calibration.
    patience : int, default 10
        Number of passes without an accuracy as good as the best after which training stops.
    seed : int, default 0
        Seed of all random numbers.
    """

    start: str = ""
    side: int = 224
    sides: tuple[int, ...] = ()
    variants: int = 4
    passes: int = 20
    batch: int = 32
    rate: float = 3e-4
    head_rate: float = 3e-3
    decay: float = 1e-2
    prototypes: int = 4
    q: float = 2.0
    held_out: float = 0.15
    patience: int = 10
    seed: int = 0

    @property
    def all_sides(self) -> tuple[int, ...]:
        """Longest sides of a photo at all scales."""
        return self.sides or (self.side,)
