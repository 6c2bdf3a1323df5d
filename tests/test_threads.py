from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from patchvote import Extractor, Photo
from patchvote.utils import machine
from patchvote.utils.machine import blas_threads_for, one_blas_thread


def blas_threads():
    """Return how many threads the BLAS library of numpy uses."""
    return max((one["num_threads"] for one in threadpool_info() if "numpy" in one["filepath"]), default=1)


@pytest.fixture(autouse=True)
def two_threads():
    """Several threads to begin with, also on a machine with one core."""
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() < 2:
            pytest.skip("the BLAS library here has one thread only")
        yield


def test_the_number_of_threads_comes_back_after_the_block():
    with one_blas_thread():
        assert blas_threads() == 1
        with one_blas_thread():
            assert blas_threads() == 1
        assert blas_threads() == 1
    assert blas_threads() == 2


def test_it_comes_back_after_an_error():
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        1 / 0  # noqa: B018
    assert blas_threads() == 2


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

    both = [threading.Thread(target=work) for work in (first, second)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(60)
    assert seen == [1]
    assert blas_threads() == 2


def test_it_comes_back_also_after_an_interrupt_while_threads_were_being_limited(monkeypatch):
    library = machine._blas_libraries()[0]
    set_num_threads = library.set_num_threads

    def interrupted(number):
        set_num_threads(number)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(library, "set_num_threads", interrupted)
        with pytest.raises(KeyboardInterrupt), one_blas_thread():
            pass
    with one_blas_thread():
        assert blas_threads() == 1
    assert blas_threads() == 2


def test_small_products_run_on_one_thread_and_large_ones_on_all():
    with blas_threads_for(1e6):
        assert blas_threads() == 1
    with blas_threads_for(1e12):
        assert blas_threads() == 2
    assert blas_threads() == 2


def test_an_extraction_leaves_the_cores_to_the_network_until_its_end():
    photos = [Photo(str(shade), np.full((40, 60, 3), shade, np.uint8)) for shade in (10, 200)]
    stream = Extractor().stream(photos)
    next(stream)
    assert blas_threads() == 1
    stream.close()
    assert blas_threads() == 2
