from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchvote.utils.moments import Moments


@given(st.integers(0, 99), st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_blocks_give_the_moments_of_the_whole(seed, sizes):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(loc=rng.normal() * 100, size=(size, 3)) for size in sizes]
    moments = Moments()
    for block in blocks:
        moments.update(block)
    whole = np.concatenate(blocks)
    np.testing.assert_allclose(moments.mean, whole.mean(axis=0))
    if len(whole) > 1:
        np.testing.assert_allclose(moments.deviation(), whole.std(axis=0), rtol=1e-6)


@given(st.integers(0, 99))
def test_a_weight_is_a_count(seed):
    rng = np.random.default_rng(seed)
    values, counts = rng.normal(size=(20, 3)), rng.integers(0, 4, 20)
    counts[0] = 3
    weighted, repeated = Moments(), Moments()
    weighted.update(values, counts)
    repeated.update(values.repeat(counts, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(weighted.deviation(), repeated.deviation())


def test_a_million_numbers_far_from_zero_lose_nothing():
    values = (np.random.default_rng(0).normal(size=(1_000_000, 1)) + 1000).astype(np.float32)
    moments = Moments()
    moments.update(values)
    assert moments.mean[0] == pytest.approx(values.mean(dtype=np.float64), rel=1e-9)
    assert moments.deviation()[0] == pytest.approx(values.std(dtype=np.float64), rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_feature_that_never_changes_has_the_scale_one(dtype):
    moments = Moments()
    for _ in range(5):
        moments.update(np.full((37, 2), 0.2, dtype=dtype))
    assert moments.deviation().tolist() == [1.0, 1.0]


@given(st.integers(0, 99), st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_merged_moments_are_those_of_the_stream(seed, sizes):
    rng = np.random.default_rng(seed)
    blocks = [(rng.normal(size=(size, 3)) * 3 + 10).astype(np.float32) for size in [7, *sizes]]
    merged, stream = Moments(), Moments()
    for block in blocks:
        part = Moments()
        part.update(block)
        if len(block):
            merged.merge(len(block), part.as_array())
        stream.update(block)
    np.testing.assert_allclose(merged.mean, stream.mean, rtol=1e-9)
    np.testing.assert_allclose(merged.deviation(), stream.deviation(), rtol=1e-9)


def test_a_feature_that_never_changes_has_the_scale_one_also_over_thousands_of_descriptors():
    constants = np.random.default_rng(0).uniform(0.1, 10, 64).astype(np.float32)
    moments = Moments()
    moments.update(np.tile(constants, (4096, 1)))
    assert moments.deviation().tolist() == [1.0] * 64


def test_a_feature_that_varies_little_around_a_large_mean_keeps_its_deviation():
    values = (50 + 0.01 * np.random.default_rng(0).normal(size=(4096, 64))).astype(np.float32)
    moments = Moments()
    moments.update(values)
    np.testing.assert_allclose(moments.deviation(), values.std(axis=0, dtype=np.float64), rtol=1e-5)
