"""Settings of fine-tuning."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TuningSettings:
    """How to fine-tune.

    Parameters
    ----------
    start : str
        The tensor of the graph that the tail begins behind; for the embedded networks, the last stage by default.
    side : int, default 224
        Longest side of a photo in pixels.
    variants : int, default 4
        How often the trunk sees every training photo, each time changed.
    passes : int, default 20
        Most passes over the photos.
    batch : int, default 32
        Photos a step.
    rate, head_rate : float
        Learning rates of tail and head (AdamW, falling to 0 along a cosine).
    decay : float
        Weight decay of both.
    prototypes, q : int, float
        Of the votes.
    held_out : float, default 0.15
        Share of the photos that tell when to stop.
    patience : int, default 10
        Stop after so many passes that were not as good as the best.
    seed : int, default 0
        Fixes everything that is random.
    """

    start: str = ""
    side: int = 224
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
