from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchvote.bags.boxes import Dense, Patch, cell_boxes, relative
from patchvote.errors import PatchvoteError


@st.composite
def image_sizes(draw: st.DrawFn) -> tuple[int, int]:
    """Sides of 32 to 4,000 px, aspect ratios of 1:4 to 4:1."""
    width = draw(st.integers(32, 4000))
    height = draw(st.integers(max(32, -(-width // 4)), min(4000, 4 * width)))
    return width, height


def places(patch: Patch, size: tuple[int, int]) -> int:
    """How many distinct boxes there are in an image of this size, the whole image among them."""
    sides = [patch.smallest * 2**level for level in range(patch.levels)]
    return 1 + sum((size[0] - side + 1) * (size[1] - side + 1) for side in sides)


@settings(max_examples=400, deadline=None)
@given(image_sizes(), st.sampled_from([100, 400]), st.sampled_from([16, 32, 64]), st.integers(1, 3))
def test_the_number_of_patches_is_within_a_tenth_of_what_was_asked(image, count, smallest, levels):
    patch = Patch(count=count, smallest=smallest, levels=levels)
    size = patch.working_size(*image)
    boxes, level = patch.pixel_boxes(*size)
    assert len(boxes) == len(np.unique(np.column_stack([boxes, level]), axis=0))
    if places(patch, size) >= 1.1 * count:
        assert 0.9 * count <= len(boxes) <= 1.1 * count


@settings(max_examples=400, deadline=None)
@given(image_sizes(), st.sampled_from([100, 400]), st.sampled_from([16, 32, 64]), st.integers(1, 3))
def test_every_box_is_inside_and_every_level_reaches_all_four_borders(image, count, smallest, levels):
    patch = Patch(count=count, smallest=smallest, levels=levels)
    width, height = patch.working_size(*image)
    boxes, level = patch.pixel_boxes(width, height)
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= [width, height]).all()
    for index in range(levels + 1):
        left, top, right, bottom = boxes[level == index].T
        assert (left.min(), top.min(), right.max(), bottom.max()) == (0, 0, width, height)
        if index:
            side = smallest * 2 ** (index - 1)
            assert (right - left == side).all()
            assert (bottom - top == side).all()
    inside = relative(boxes, width, height)
    assert inside.min() >= 0
    assert inside.max() <= 1


@settings(max_examples=200, deadline=None)
@given(image_sizes())
def test_the_working_image_has_a_longest_side_of_200_px_and_room_for_the_largest_patch(image):
    patch = Patch()
    width, height = patch.working_size(*image)
    assert min(width, height) >= 128
    assert max(width, height) == 200 or min(width, height) == 128
    assert width / height == pytest.approx(image[0] / image[1], rel=0.02)


@given(image_sizes())
def test_strides_are_about_even_in_both_directions(image):
    patch = Patch(count=400, levels=1)
    boxes, level = patch.pixel_boxes(*patch.working_size(*image))
    boxes = boxes[level == 1]
    across, down = (np.diff(np.unique(boxes[:, axis])).mean() for axis in (0, 1))
    assert 0.6 < across / down < 1 / 0.6


@pytest.mark.parametrize(
    ("size", "expected"), [((60_000, 1), (2048, 128)), ((1, 1), (200, 200)), ((5000, 8), (2048, 128))]
)
def test_strips_and_dots_do_not_grow_beyond_bounds(size, expected):
    assert Patch().working_size(*size) == expected


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.sampled_from([224, 448, 672]), st.sampled_from([8, 16, 32]))
def test_dense_inputs_are_multiples_of_the_stride_with_the_longest_side_asked_for(width, height, side, stride):
    fit = Dense().input_size(width, height, side, stride)
    assert fit[0] % stride == fit[1] % stride == 0
    assert min(fit) >= stride
    assert max(fit) == side
    assert (fit[0] - fit[1]) * (width - height) >= 0


def test_cells_tile_the_image():
    boxes = cell_boxes(3, 5)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    assert area.sum() == pytest.approx(1)
    assert boxes[0].tolist() == pytest.approx([0, 0, 1 / 5, 1 / 3])
    assert boxes[7].tolist() == pytest.approx([2 / 5, 1 / 3, 3 / 5, 2 / 3])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Patch(count=0), "count of Patch must be a whole number above 0, got 0"),
        (lambda: Patch(smallest=-1), "smallest of Patch"),
        (lambda: Patch(levels=1.5), "levels of Patch"),
        (lambda: Patch(count=2), "too few for 3 levels"),
        (lambda: Dense(sides=()), "at least one side"),
        (lambda: Dense(sides=(224, 0)), "sides of Dense"),
        (lambda: Dense(sides=(20_000,)), "sides of Dense must be at most 2,048, got 20000"),
        (lambda: Dense(sides=(10**30,)), "sides of Dense must be at most 2,048"),
        (lambda: Dense(sides=(64,) * 20_000), "16 sides at most, got 20,000"),
        (lambda: Dense(whole=10**30), "whole of Dense must be True or False"),
        (lambda: Patch(count=10**7), "count of Patch must be at most 10,000, got 10000000"),
        (lambda: Patch(count=10**30), "count of Patch must be at most 10,000"),
        (lambda: Patch(levels=10**30, count=10_000), "levels of Patch must be at most 8"),
        (lambda: Patch(smallest=20_000), "smallest of Patch must be at most 1,024"),
        (lambda: Patch(smallest=256, levels=4), "at most 1,024 px; 4 levels from 256 px on make 2,048"),
        (lambda: Patch(side=10**6), "side of Patch must be at most 4,096"),
        (lambda: Patch(input=10**4), "input of Patch must be at most 2,048"),
        (lambda: Patch(count=1_000, input=500), "250,000,000 pixels per photo, over 67,108,864"),
        (lambda: Patch(whole="yes"), "whole of Patch must be True or False, got 'yes'"),
    ],
)
def test_impossible_settings_are_refused_by_name(make, says):
    with pytest.raises(PatchvoteError, match=says):
        make()
