from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchvote.utils.arrays import Moments, all_finite, to_float16, to_float32


def test_every_float16_there_is_becomes_the_same_number():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    large = np.random.default_rng(0).normal(size=(700, 1000)).astype(np.float16)  # goes in chunks
    for values in (every, every.reshape(256, 256)[:, 3:200:2], every[np.isfinite(every)], large, large[:0]):
        np.testing.assert_array_equal(to_float32(values), values.astype(np.float32))
    assert np.signbit(to_float32(np.array([-0.0, 0.0], np.float16))).tolist() == [True, False]


def test_it_writes_into_memory_that_is_given():
    memory = np.zeros((3, 5), np.float32)
    values = np.arange(6, dtype=np.float16).reshape(3, 2)
    to_float32(values, memory[:, :2])
    to_float32(values.astype(np.float64), memory[:, 3:])
    np.testing.assert_array_equal(memory, [[0, 1, 0, 0, 1], [2, 3, 0, 2, 3], [4, 5, 0, 4, 5]])
    np.testing.assert_array_equal(to_float32(values, np.zeros((3, 2))), values)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_number_that_is_not_finite_is_found(dtype):
    values = np.full((30, 7), np.finfo(np.float16).max, dtype)
    assert all(map(all_finite, (values, -values, values[:0])))
    for bad in (np.inf, -np.inf, np.nan):
        values[13, 5] = bad
        assert not all_finite(values)


def test_numbers_at_and_beside_every_boundary_of_float16_are_rounded_as_numpy_does():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = np.sort(every[np.isfinite(every)].astype(np.float32))
    middles = (halves[1:] + halves[:-1]) / 2  # exact in float32: ties, which go to the even neighbour
    boundaries = np.concatenate([halves, middles, np.array([65519.996, 65520, 1e30, np.inf], np.float32)])
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32)
    matrix = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    beside = [np.nextafter(boundaries, np.float32(way)) for way in (np.inf, 0)]
    for values in (boundaries, *beside, bits[np.isfinite(bits)], matrix, matrix[:, 3:20:2], matrix.T, matrix[:0]):
        with np.errstate(over="ignore"):
            expected = values.astype(np.float16)
        np.testing.assert_array_equal(to_float16(values).view(np.uint16), expected.view(np.uint16))
    assert np.isnan(to_float16(np.array([np.nan, 1], np.float32))).tolist() == [True, False]


# --- mean and variance ------------------------------------------------------------------------------------------------


def moments_of(*blocks, weights=None):
    moments = Moments()
    for block in blocks:
        moments.update(block, weights)
    return moments


@given(st.integers(0, 99), st.lists(st.integers(1, 50), min_size=1, max_size=5), st.sampled_from("fd"))
def test_blocks_and_merged_parts_give_the_moments_of_the_whole(seed, sizes, dtype):
    rng = np.random.default_rng(seed)
    blocks = [(rng.normal(size=(size, 3)) * 3 + rng.normal() * 100).astype(dtype) for size in [7, *sizes]]
    whole, stream, merged = np.concatenate(blocks).astype(np.float64), moments_of(*blocks), Moments()
    for block in blocks:
        merged.merge(len(block), moments_of(block).as_array())
    for moments in (stream, merged):
        np.testing.assert_allclose(moments.mean, whole.mean(axis=0), rtol=1e-7)
        np.testing.assert_allclose(moments.deviation(), whole.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(merged.deviation(), stream.deviation(), rtol=1e-9)


@given(st.integers(0, 99))
def test_a_weight_is_a_count(seed):
    rng = np.random.default_rng(seed)
    values, counts = rng.normal(size=(20, 3)), rng.integers(0, 4, 20)
    counts[0] = 3
    weighted, repeated = moments_of(values, weights=counts), moments_of(values.repeat(counts, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(weighted.deviation(), repeated.deviation())


@pytest.mark.parametrize(("count", "centre", "spread"), [(1_000_000, 1000, 1.0), (4096, 50, 0.01)])
def test_numbers_far_from_zero_lose_nothing(count, centre, spread):
    values = (centre + spread * np.random.default_rng(0).normal(size=(count, 3))).astype(np.float32)
    moments = moments_of(values)
    np.testing.assert_allclose(moments.mean, values.mean(axis=0, dtype=np.float64), rtol=1e-9)
    np.testing.assert_allclose(moments.deviation(), values.std(axis=0, dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_feature_that_never_changes_has_the_scale_one(dtype):
    assert moments_of(*[np.full((37, 2), 0.2, dtype=dtype)] * 5).deviation().tolist() == [1.0, 1.0]
    constants = np.random.default_rng(0).uniform(0.1, 10, 64).astype(dtype)
    assert moments_of(np.tile(constants, (4096, 1))).deviation().tolist() == [1.0] * 64
