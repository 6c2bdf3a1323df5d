from __future__ import annotations

import numpy as np

from patchvote.machine import cores, describe, forget_peak_memory, peak_memory


def test_the_peak_of_memory_rises_with_what_is_taken_and_can_be_forgotten():
    forget_peak_memory()
    before = peak_memory()
    taken = np.ones(40_000_000, np.uint8)
    assert peak_memory() > before + 30_000_000
    del taken
    forget_peak_memory()
    assert peak_memory() < before + 30_000_000


def test_a_machine_is_described_without_its_name():
    assert describe().keys() == {"processor", "cores", "system"}
    assert cores() >= 1
