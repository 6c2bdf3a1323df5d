"""Stores whose bags are the same, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from patchvote import Store


def assert_same_bags(path: Path, expected: Path) -> None:
    store, reference = Store.open(path), Store.open(expected)
    assert store.names == reference.names
    assert [entry.digest for entry in store.entries] == [entry.digest for entry in reference.entries]
    np.testing.assert_array_equal(store.labels, reference.labels)
    (bags, _), (expected_bags, _) = store.load(dtype=np.float16), reference.load(dtype=np.float16)
    for name in ("values", "offsets", "boxes", "level"):
        np.testing.assert_array_equal(getattr(bags, name), getattr(expected_bags, name))
