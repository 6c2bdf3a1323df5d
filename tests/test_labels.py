"""Labels, weights and boxes that a voter refuses."""

from __future__ import annotations

import numpy as np
import pytest

from patchvote import Bags, MomentRidge


def test_labels_that_are_all_none_are_called_missing():
    with pytest.raises(ValueError, match="labels are None for every image"):
        MomentRidge().fit(np.ones((6, 3)), [None] * 6)


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (np.full(6, 1e-300), "must be 0 or from 1e-12 to 1e"),
        (np.array([1, 1, 1, 1, 1, 1e300]), "must be 0 or from 1e-12 to 1e"),
        (["heavy"] * 6, "sample_weight must hold one number per image"),
        ([1, 1, 1, 0, 0, 0], "at least two classes"),
    ],
)
def test_weights_that_no_solver_can_use_are_refused(weight, says):
    with pytest.raises(ValueError, match=says):
        MomentRidge().fit(np.arange(18.0).reshape(6, 3), ["a", "a", "a", "b", "b", "b"], weight)


def test_boxes_in_pixels_are_refused():
    bags = Bags(np.ones((4, 3)), np.array([0, 2, 4]), np.array([[0, 0, 70, 70]] * 4, np.float32))
    with pytest.raises(ValueError, match="Are they in pixels"):
        MomentRidge().fit(bags, ["a", "b"])
