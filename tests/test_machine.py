"""How a process shares the machine: the threads of BLAS, and what is known of its memory."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from patchvote.utils.machine import one_blas_thread


def blas_threads():
    """Return how many threads the BLAS library of numpy uses."""
    return max((one["num_threads"] for one in threadpool_info() if "numpy" in one["filepath"]), default=1)


@pytest.fixture(autouse=True)
def _two_threads():
    """Several threads to begin with, also on a machine with one core; they are back at the end."""
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() < 2:
            pytest.skip("the BLAS library here has one thread only")
        yield
        assert blas_threads() == 2


def test_the_number_of_threads_comes_back_after_the_outermost_block_also_after_an_error():
    with one_blas_thread():
        with one_blas_thread():
            assert blas_threads() == 1
        assert blas_threads() == 1
    assert blas_threads() == 2
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        1 / 0  # noqa: B018


def test_blocks_of_two_threads_may_end_in_any_order():
    first_is_in, second_is_in, first_is_out = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def first():
        with one_blas_thread():
            first_is_in.set()
            second_is_in.wait(30)
        first_is_out.set()

    def second():
        first_is_in.wait(30)
        with one_blas_thread():
            second_is_in.set()
            first_is_out.wait(30)
            seen.append(blas_threads())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda work: work(), (first, second)))
    assert seen == [1]
