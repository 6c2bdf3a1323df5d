from __future__ import annotations

import subprocess
import sys


def test_the_peak_of_memory_rises_with_what_is_taken_and_can_be_forgotten():
    """In a process of its own: here, other tests may have left memory that is given back at any time."""
    code = """
import numpy as np
from patchvote.utils.machine import forget_peak_memory, peak_memory
forget_peak_memory()
before = peak_memory()
taken = np.ones(40_000_000, np.uint8)
print(peak_memory() - before)
del taken
forget_peak_memory()
print(peak_memory() - before)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    risen, forgotten = map(int, told.stdout.split())
    assert risen > 30_000_000 > forgotten
