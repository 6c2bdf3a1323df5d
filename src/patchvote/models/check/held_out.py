"""What the other photos of a collection say of each photo: the answers of the default voter had it been left out.

They follow from the equations of its regression (`voters.ridge`), copies being left out together. So does how unlike
the others a photo is: with h its leverage, the weight of its own label in its own answer,

    unlike = h / (1 - h) ,

which is large where the photo points into a direction in which the others do not vary.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.moments import MomentBags
from ...voters.moment_ridge import MomentRidge
from ...voters.votes import softmax

# Regularisation of the leverage. Chosen on Amazon with planted strangers (docs/check.md); from a third to three times
# of it, precision changes by a point at most.
_ALPHA = 0.003

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """What the others say of each photo.

    Parameters
    ----------
    probability : array of shape (photos, classes)
        Probability of each class; NaN where a photo cannot be left out, since its class has no other.
    unlike : array of shape (photos,)
        How unlike the others each photo is; NaN where it cannot be left out.
    """

    probability: Floats
    unlike: Floats

    @property
    def asked(self) -> npt.NDArray[np.bool_]:
        """Which photos could be left out."""
        return ~np.isnan(self.unlike)


def hold_out_each(bags: MomentBags, labels: npt.NDArray[Any], groups: Numbers) -> HeldOut:
    """Ask all others about every photo.

    Parameters
    ----------
    bags : MomentBags
        Moments of the photos.
    labels : array of shape (photos,)
        Class of each photo; there are two at least, or nothing can be asked.
    groups : array of int
        Groups of copies (`copy_groups`), which are left out together.
    """
    classes = np.unique(labels)
    if len(classes) < 2:
        return HeldOut(np.full((len(labels), 1), np.nan), np.full(len(labels), np.nan))
    voter = MomentRidge(class_weight="balanced").fit(bags, labels, groups=groups)
    unlike = voter.solved_.ridge.unlike(_ALPHA, groups)
    unlike[np.isnan(voter.left_out_[:, 0])] = np.nan
    return HeldOut(softmax(voter.left_out_ / voter.temperature_), unlike)
