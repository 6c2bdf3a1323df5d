from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from patchvote import Bags


def three_bags() -> Bags:
    """Bags of two, no and three descriptors, all different in values, boxes and levels."""
    boxes = np.arange(20, dtype=np.float32).reshape(5, 4) / 20
    return Bags(np.arange(10.0).reshape(5, 2), [0, 2, 2, 5], boxes, [0, 1, 0, 1, 2])


def told(bags: Bags) -> list[list[list[list[float]]]]:
    """Everything that bags hold, bag by bag, as plain numbers; read by the definition of the offsets."""
    limits = list(zip(bags.offsets[:-1], bags.offsets[1:], strict=True))
    arrays = (bags.values, bags.boxes, bags.level[:, None])
    return [[array[start:stop].tolist() for array in arrays] for start, stop in limits]


def test_without_boxes_and_levels_every_descriptor_is_of_the_whole_image():
    bags = Bags(np.zeros((2, 3)), [0, 2])
    assert bags.boxes.tolist() == [[0, 0, 1, 1]] * 2
    assert bags.level.tolist() == [0, 0]
    assert (bags.offsets.dtype, bags.boxes.dtype, bags.level.dtype) == (np.int64, np.float32, np.int16)
    given = Bags([[0, 0, 0]], np.array([0, 1], np.uint8), [[0, 0, 0.5, 0.5]], [7])  # lists and other types will do
    assert (given.offsets.dtype, given.boxes.dtype, given.level.dtype) == (np.int64, np.float32, np.int16)
    assert given.values.shape == (1, 3)
    assert told(given) == [[[[0, 0, 0]], [[0, 0, 0.5, 0.5]], [[7]]]]


def test_boxes_and_levels_go_where_their_descriptors_go():
    bags, plain = three_bags(), told(three_bags())
    assert plain[1] == [[], [], []]
    for key in (0, 2, -1, -3, np.int64(1)):
        assert told(bags[key]) == [plain[key]]
    for cut in (slice(1, None), slice(2), slice(None, None, -1), slice(0, 3, 2), slice(2, 1), slice(5, 9)):
        assert told(bags[cut]) == plain[cut]
    assert told(bags[[2, 0, 2, -2]]) == [plain[2], plain[0], plain[2], plain[1]]
    assert told(bags[np.array([2, 1], np.uint8)]) == [plain[2], plain[1]]
    assert told(bags[[True, False, True]]) == [plain[0], plain[2]]
    assert told(bags[[]]) == []
    assert [told(bag) for bag in bags] == [[bag] for bag in plain]
    assert told(Bags.join([bags[2], bags, bags[:0]])) == [plain[2], *plain]
    assert told(Bags.join(bag for bag in bags)) == plain  # parts may come one by one


def test_bags_can_be_made_of_bags_arrays_and_tensors_in_one_list():
    bags = three_bags()
    assert Bags.of(bags) is bags
    assert told(Bags.of([bags[0], bags[1:]])) == told(bags)
    assert Bags.of([[[1, 2]], [[3, 4], [5, 6]]]).sizes.tolist() == [1, 2]
    assert Bags.of(np.zeros((2, 3, 4))).sizes.tolist() == [3, 3]
    assert Bags.of(np.eye(3)).owner.tolist() == [0, 1, 2]
    tensor = Mock(detach=lambda: Mock(cpu=lambda: np.ones((2, 3))))  # as of torch, on any device
    assert Bags.of([tensor]).values.tolist() == [[1, 1, 1]] * 2


def test_means_have_a_type_that_holds_them():
    for dtype, expected in ((np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64)):
        bags = Bags(np.array([[1, 2], [2, 4]], dtype), [0, 2])
        assert bags.means().dtype == expected
        assert bags.means().tolist() == [[1.5, 3]]
    assert Bags(np.array([[1], [2]]), [0, 2]).means().tolist() == [[1.5]]
    bags = Bags(np.zeros((3, 1)), [0, 1, 3])
    assert bags.means([[[1, 2]], [[3, 4]], [[4, 6]]]).tolist() == [[[1, 2]], [[3.5, 5]]]
    half = Bags(np.full((3, 1), 60_000, np.float16), [0, 3])
    assert half.means().tolist() == [[np.float32(np.float16(60_000))]]  # the sum is more than float16 holds
    other = three_bags().astype(np.float16)
    assert other.values.dtype == np.float16
    assert told(other) == told(three_bags())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bags(np.zeros((3, 2)), [0, 2]), "offsets must rise from 0 to .* 3, got"),
        (lambda: Bags(np.zeros((3, 2)), [0, 2, 1, 3]), "offsets must rise"),
        (lambda: Bags(np.zeros((3, 2)), []), "offsets must rise"),
        (lambda: Bags(np.zeros((3, 2)), [0, 3], level=[1]), r"3 descriptors need .* got \(3, 4\) and \(1,\)"),
        (lambda: Bags(np.zeros((2, 3, 4)), [0, 2]), "values must have the shape"),
        (lambda: Bags.of([np.zeros((1, 2)), [["a", None]]]), "bag 1 must have the shape"),
        (lambda: Bags.of(b"photos"), "list of 2-D arrays, got bytes"),
        (lambda: Bags.of([]), "no bags"),
        (lambda: Bags.of([np.zeros((1, 2))] * 2 + [np.zeros((1, 5))]), "bag 2 has 5 .* bag 0 has 2"),
        (lambda: Bags(np.zeros((2, 2)), [0, 1, 1, 2]).means(), "bag 1 is empty"),
        (lambda: three_bags().means(np.zeros(2)), "5 descriptors but 2 rows"),
    ],
)
def test_what_is_wrong_with_bags_is_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("key", [3, [-4, 1], [True, False], [[True] * 3], [0.0, 1.0], "ab"])
def test_bags_that_do_not_exist_cannot_be_chosen(key):
    with pytest.raises(IndexError):
        three_bags()[key]


def test_means_are_summed_in_float64_and_a_type_changes_values_alone():
    bags = Bags.of([np.array([[1e8], [1.0], [-1e8]], np.float32)])
    np.testing.assert_allclose(bags.means(), [[1 / 3]], rtol=1e-6)
    half = bags.astype(np.float16)
    assert (half.values.dtype, half.astype(np.float32).values.dtype) == (np.float16, np.float32)
    np.testing.assert_array_equal(half.boxes, bags.boxes)
