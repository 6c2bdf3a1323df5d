from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchvote import Dense, Patch, PatchvoteError, Recipe
from patchvote.bags.boxes import cell_boxes, relative


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


@settings(max_examples=100, deadline=None)
@given(image_sizes(), st.sampled_from([100, 400]), st.sampled_from([16, 32, 64]), st.integers(1, 3))
def test_patches_are_about_as_many_as_asked_and_every_level_reaches_all_borders(image, count, smallest, levels):
    patch = Patch(count=count, smallest=smallest, levels=levels)
    size = patch.working_size(*image)
    boxes, level = patch.pixel_boxes(*size)
    assert len(boxes) == len(np.unique(np.column_stack([boxes, level]), axis=0))
    if places(patch, size) >= 1.1 * count:
        assert 0.9 * count <= len(boxes) <= 1.1 * count
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= size).all()
    inside = relative(boxes, *size)
    assert inside.min() >= 0
    assert inside.max() <= 1
    for index in range(levels + 1):
        left, top, right, bottom = boxes[level == index].T
        assert (left.min(), top.min(), right.max(), bottom.max()) == (0, 0, *size)
        if index:
            side = smallest * 2 ** (index - 1)
            assert (right - left == side).all()
            assert (bottom - top == side).all()


@settings(max_examples=60, deadline=None)
@given(image_sizes())
def test_the_working_image_has_a_longest_side_of_200_px_and_room_for_the_largest_patch(image):
    patch = Patch()
    width, height = patch.working_size(*image)
    assert min(width, height) >= 128
    assert max(width, height) == 200 or min(width, height) == 128
    assert width / height == pytest.approx(image[0] / image[1], rel=0.02)


def costs(free: tuple[int, int], count: float) -> dict[tuple[int, int], float]:
    """What each number of columns and rows that reaches both borders costs: uneven strides, and a wrong number."""
    found = {}
    for columns, rows in product(*(range(min(room, 1) + 1, min(room, 60) + 2) for room in free)):
        across, down = free[0] / max(columns - 1, 1), free[1] / max(rows - 1, 1)
        wrong = abs(math.log(columns * rows / count))
        found[columns, rows] = abs(math.log((across + 1) / (down + 1))) + 4 * wrong
    return found


@settings(max_examples=60)
@given(st.integers(0, 50), st.integers(0, 50), st.integers(4, 60))
def test_of_all_grids_the_one_with_the_least_cost_is_taken(across, down, count):
    patch = Patch(count=count, smallest=16, levels=1, whole=False)
    boxes, level = patch.pixel_boxes(16 + across, 16 + down)
    x, y = np.unique(boxes[:, 0]), np.unique(boxes[:, 1])
    assert boxes[:, :2].tolist() == [[left, top] for top in y for left in x]
    assert boxes.dtype == np.int64
    assert level.tolist() == [1] * len(boxes)
    assert np.diff(x, n=2).tolist() == pytest.approx([0] * max(len(x) - 2, 0), abs=1)
    known = costs((across, down), count)
    assert known[len(x), len(y)] == pytest.approx(min(known.values()))


def test_levels_share_the_count_from_the_whole_image_to_the_largest_patch():
    boxes, level = Patch(count=100).pixel_boxes(200, 150)
    assert level.tolist() == sorted(level)
    assert level.dtype == np.int16
    assert boxes[0].tolist() == [0, 0, 200, 150]
    whole, *parts = np.bincount(level).tolist()
    assert whole == 1
    assert parts == pytest.approx([33, 33, 33], abs=3)
    whole, *parts = np.bincount(Patch(count=100, whole=False).pixel_boxes(200, 150)[1]).tolist()
    assert whole == 0
    assert parts == pytest.approx([33, 33, 33], abs=3)


def test_smaller_patches_take_over_what_larger_ones_have_no_room_for():
    _, level = Patch(count=100, smallest=16, levels=2, whole=False).pixel_boxes(32, 40)
    assert np.bincount(level)[2] == 9  # one column, nine rows
    assert 82 <= np.bincount(level)[1] <= 100


@pytest.mark.parametrize(
    ("size", "side", "stride", "expected"),
    [
        ((100, 50), 64, 16, (64, 32)),
        ((50, 100), 64, 16, (32, 64)),
        ((100, 40), 64, 16, (64, 32)),  # 25.6 px are 1.6 cells
        ((100, 37), 64, 16, (64, 16)),  # 23.7 px are 1.48 cells
    ],
)
def test_dense_inputs_have_the_nearest_number_of_cells(size, side, stride, expected):
    assert Dense().input_size(*size, side, stride) == expected


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


def test_cells_tile_the_image_in_parts_of_its_sides():
    boxes = relative(np.array([[10, 10, 20, 40]]), 40, 80)
    assert boxes.tolist() == [[0.25, 0.125, 0.5, 0.5]]
    assert boxes.dtype == cell_boxes(2, 2).dtype == np.float32
    boxes = cell_boxes(3, 5)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    assert area.sum() == pytest.approx(1)
    assert boxes[0].tolist() == pytest.approx([0, 0, 1 / 5, 1 / 3])
    assert boxes[7].tolist() == pytest.approx([2 / 5, 1 / 3, 3 / 5, 2 / 3])


def test_the_limits_themselves_are_allowed():
    Dense(sides=(1,)), Dense(sides=(2_048,) * 16, whole=False)
    Patch(count=10_000), Patch(count=1, levels=1, whole=False), Patch(count=4, side=4_096), Patch(input=1)
    Patch(smallest=8, levels=8), Patch(smallest=1_024, levels=1), Patch(count=16, input=2_048)
    Patch(smallest=1, levels=1, side=1, count=2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Dense(sides=(2_049,)), "sides of Dense must be .* from 1 to 2,048, got 2049"),
        (lambda: Dense(sides=(224, 0)), "sides of Dense"),
        (lambda: Dense(sides=(True,)), "sides of Dense"),
        (lambda: Dense(sides=(64,) * 17), "1 to 16 sides, got 17"),
        (lambda: Dense(sides=()), "1 to 16 sides, got 0"),
        (lambda: Patch(count=0), "count of Patch"),
        (lambda: Patch(count=10_001), "count of Patch"),
        (lambda: Patch(count=3), "a count of 3 is too few for 3 levels"),
        (lambda: Patch(count=2, whole=False), "a count of 2 is too few for 3 levels"),
        (lambda: Patch(levels=9, smallest=1), "levels of Patch"),
        (lambda: Patch(levels=10**30, count=10_000), "levels of Patch"),
        (lambda: Patch(levels=1.5), "levels of Patch"),
        (lambda: Patch(smallest=-1), "smallest of Patch"),
        (lambda: Patch(smallest=1_025, levels=1), "smallest of Patch"),
        (lambda: Patch(smallest=513, levels=2), "at most 1,024 px; 2 levels from 513 px on make 1,026"),
        (lambda: Patch(side=0), "side of Patch"),
        (lambda: Patch(side=4_097), "side of Patch"),
        (lambda: Patch(input=0), "input of Patch"),
        (lambda: Patch(input=2_049), "input of Patch"),
    ],
)
def test_what_is_just_beyond_a_limit_is_refused_by_name(make, says):
    with pytest.raises(PatchvoteError, match=says):
        make()


recipes = st.builds(
    Recipe,
    network=st.text(),
    sampling=st.one_of(
        st.builds(Dense, sides=st.lists(st.integers(1, 999), min_size=1, max_size=16).map(tuple), whole=st.booleans()),
        st.builds(Patch, count=st.integers(4, 999), input=st.none() | st.integers(1, 250), whole=st.booleans()),
    ),
    activation=st.sampled_from(["after", "before"]),
)


@settings(max_examples=30)
@given(recipes)
def test_a_recipe_survives_json_and_equal_recipes_are_one_key(recipe):
    again = Recipe.from_json(recipe.to_json())
    assert again == recipe
    assert len({again, recipe}) == 1


def dense(**sampling) -> str:
    return json.dumps({"mode": "dense", "sampling": sampling, "network": "x"})


def patches(**sampling) -> str:
    return json.dumps({"mode": "patch", "sampling": sampling, "network": "x"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "not a recipe") for text in ("", "[]", "{}", '{"mode": "sparse", "sampling": {}}', "null")),
        (dense(wholes=True), "wholes"),  # a setting from the future
        *(
            (dense(sides=sides), "sides|not a recipe")
            for sides in ([20_000], [224] * 20_000, [1e30], 224, {"224": 1}, None)
        ),
        *((patches(**{name: 10**30}), name) for name in ("count", "levels", "side")),
        (patches(smallest="32"), "smallest"),
        *((dense().replace('"x"', json.dumps(name)), "network of a recipe") for name in (7, None, "x" * 100_000)),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_recipe_or_asks_for_too_much_is_refused_at_once(text, says):
    with pytest.raises(PatchvoteError, match=says) as caught:
        Recipe.from_json(text)
    assert len(str(caught.value)) < 400
