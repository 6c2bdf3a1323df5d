from __future__ import annotations

import numpy as np
import pytest

from patchvote.utils.float16 import _GRAPH, all_finite, to_float16, to_float32


def test_every_float16_there_is_becomes_the_same_number():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for values in (every, every.reshape(256, 256), every.reshape(256, 256)[:, 3:200:2], every[np.isfinite(every)]):
        np.testing.assert_array_equal(to_float32(values), values.astype(np.float32))


def test_the_sign_of_zero_stays():
    assert np.signbit(to_float32(np.array([-0.0, 0.0], np.float16))).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_])
def test_other_types_are_cast_as_numpy_does(dtype):
    values = np.array([[0, 1], [1, 0]], dtype)
    np.testing.assert_array_equal(to_float32(values), values.astype(np.float32))
    if dtype == np.float32:
        assert to_float32(values) is values


def test_it_writes_into_memory_that_is_given():
    memory = np.zeros((3, 5), np.float32)
    values = np.arange(6, dtype=np.float16).reshape(3, 2)
    to_float32(values, memory[:, :2])
    np.testing.assert_array_equal(memory, [[0, 1, 0, 0, 0], [2, 3, 0, 0, 0], [4, 5, 0, 0, 0]])
    to_float32(values.astype(np.float64), memory[:, 3:])
    np.testing.assert_array_equal(memory[:, 3:], values)
    np.testing.assert_array_equal(to_float32(values, np.zeros((3, 2))), values)


def test_large_arrays_go_in_chunks_and_empty_ones_give_nothing():
    values = np.random.default_rng(0).normal(size=(700, 1000)).astype(np.float16)
    values[650, 3] = np.inf
    np.testing.assert_array_equal(to_float32(values), values.astype(np.float32))
    assert to_float32(np.zeros((0, 4), np.float16)).shape == (0, 4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_number_that_is_not_finite_is_found(dtype):
    values = np.full((30, 7), np.finfo(np.float16).max, dtype)
    assert all_finite(values)
    assert all_finite(-values)
    assert all_finite(values[:0])
    for bad in (np.inf, -np.inf, np.nan):
        values[13, 5] = bad
        assert not all_finite(values)


def cast_by_numpy(values):
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def same_bits(one, other):
    return one.dtype == other.dtype == np.float16 and np.array_equal(one.view(np.uint16), other.view(np.uint16))


def test_numbers_at_and_beside_every_boundary_of_float16_are_rounded_as_numpy_does():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = np.sort(every[np.isfinite(every)].astype(np.float32))
    middles = (halves[1:] + halves[:-1]) / 2  # exact in float32: ties, which go to the even neighbour
    boundaries = np.concatenate([halves, middles, np.array([65519.996, 65520, 1e30, np.inf], np.float32)])
    for values in (boundaries, np.nextafter(boundaries, np.float32(np.inf)), np.nextafter(boundaries, np.float32(0))):
        assert same_bits(to_float16(values), cast_by_numpy(values))


def test_random_bits_become_the_float16_that_numpy_makes_of_them():
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    assert same_bits(to_float16(values), cast_by_numpy(values))
    in_range = values[np.abs(values) < 65520]
    assert same_bits(to_float16(in_range), cast_by_numpy(in_range))
    assert np.isnan(to_float16(np.array([np.nan, 1], np.float32))).tolist() == [True, False]


def test_the_cast_to_float16_keeps_the_shape_and_leaves_its_input_alone():
    values = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    before = values.copy()
    for view in (values, values[:, 3:20:2], values.T, values[:0]):
        assert to_float16(view).shape == view.shape
        assert same_bits(to_float16(view), cast_by_numpy(view))
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize(("source", "target"), [(np.float16, np.float32), (np.float32, np.float16)])
def test_the_graph_in_bytes_is_one_node_that_casts(source, target):
    from onnx import helper

    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (source, target)]
    x, y = (helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in zip("xy", kinds, strict=True))
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=kinds[1])], "c", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert bytes.fromhex(_GRAPH.format(source=kinds[0], target=kinds[1])) == model.SerializeToString()
