from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchvote import Bags


@st.composite
def some_bags(draw: st.DrawFn) -> list[np.ndarray]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return [rng.normal(size=(size, 3)).astype(np.float32) for size in sizes]


@given(some_bags(), st.data())
def test_choosing_bags_is_choosing_from_the_list(arrays, data):
    bags = Bags.of(arrays)
    assert len(bags) == len(arrays)
    chosen = data.draw(st.lists(st.integers(-len(arrays), len(arrays) - 1), max_size=8))
    for bag, index in zip(bags[np.array(chosen, dtype=int)], chosen, strict=True):
        np.testing.assert_array_equal(bag.values, arrays[index])
    cut = data.draw(st.slices(len(arrays)))
    assert [bag.values.tolist() for bag in bags[cut]] == [array.tolist() for array in arrays[cut]]
    mask = np.array([index % 2 == 0 for index in range(len(arrays))])
    assert [bag.values.tolist() for bag in bags[mask]] == [array.tolist() for array in arrays[::2]]


@given(some_bags())
def test_joining_the_bags_one_by_one_gives_the_bags(arrays):
    bags = Bags.of(arrays)
    again = Bags.join(list(bags))
    np.testing.assert_array_equal(again.values, bags.values)
    np.testing.assert_array_equal(again.offsets, bags.offsets)


@given(some_bags())
def test_means_are_the_means_of_each_bag(arrays):
    bags = Bags.of(arrays)
    np.testing.assert_allclose(bags.means(), [array.mean(axis=0) for array in arrays], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bags.means(bags.values[:, 0]), [array[:, 0].mean() for array in arrays], atol=1e-6)


def test_means_of_long_bags_lose_nothing():
    values = np.full((2_000_000, 1), 0.1, dtype=np.float32)
    assert Bags(values, np.array([0, len(values)])).means()[0, 0] == pytest.approx(np.float32(0.1), rel=1e-7)


def test_a_two_dimensional_array_is_a_bag_a_row():
    bags = Bags.of(np.eye(3))
    assert len(bags) == 3
    assert bags.owner.tolist() == [0, 1, 2]


def test_positions_are_the_centres_of_the_boxes_times_the_weight():
    bags = Bags(np.zeros((2, 1)), np.array([0, 2]), boxes=[[0, 0, 1, 1], [0, 0.5, 0.5, 1]])
    assert bags.with_positions(2.0).values.tolist() == [[0, 1, 1], [0, 0.5, 1.5]]
    assert bags.with_positions(0) is bags
    whole_numbers = Bags(np.zeros((2, 1), int), bags.offsets, bags.boxes)
    assert whole_numbers.with_positions(2.0).values.tolist() == [[0, 1, 1], [0, 0.5, 1.5]]


def test_slices_are_views():
    bags = Bags.of([np.zeros((2, 3)), np.zeros((4, 3))])
    assert np.shares_memory(bags[1].values, bags.values)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bags.of([np.zeros((2, 3)), np.zeros((2, 4))]), "bag 1 has 4 features per descriptor, bag 0 has 3"),
        (lambda: Bags.of([np.zeros(3)]), "bag 0 must have the shape"),
        (lambda: Bags.of([]), "the list is empty"),
        (lambda: Bags.of("photos"), "list of 2-D arrays, got str"),
        (lambda: Bags(np.zeros((3, 2)), [0, 2]), "offsets must rise from 0 to the number of descriptors, 3"),
        (lambda: Bags(np.zeros((3, 2)), [0, 2, 1, 3]), "offsets must rise"),
        (lambda: Bags(np.zeros(3), [0, 3]), "values must have the shape"),
        (lambda: Bags(np.zeros((3, 2)), [0, 3], boxes=np.zeros((2, 4))), "boxes of shape"),
        (lambda: Bags(np.zeros((1, 2)), [0, 1, 1]).means(), "bag 1 is empty"),
        (lambda: Bags(np.zeros((1, 2)), [0, 1]).means(np.zeros(4)), "1 descriptors but 4 rows"),
    ],
)
def test_what_does_not_fit_is_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("key", [2, -3, [0, 2], [True], 0.5, [[0]]])
def test_bags_that_do_not_exist_cannot_be_chosen(key):
    with pytest.raises(IndexError):
        Bags.of([np.zeros((1, 1))] * 2)[key]


def test_bags_are_no_array_and_say_what_learns_from_them():
    with pytest.raises(TypeError, match=r"no array.*MomentSVM.*Bags\.means\(\)"):
        np.asarray(Bags.of([np.zeros((3, 2)), np.ones((1, 2))]))
