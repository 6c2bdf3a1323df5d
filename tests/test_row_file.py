from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from patchvote import PatchvoteError
from patchvote.utils.row_file import RowFile, blocks_of, opened_again, temporary_rows


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The system's temporary folder, for this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def matrix():
    return np.random.default_rng(0).normal(size=(50, 7)).astype(np.float16)


def test_rows_are_read_as_those_of_an_array(matrix):
    rows = temporary_rows([matrix[:20], matrix[20:]], np.float16, matrix.shape)
    assert (len(rows), rows.shape, rows.dtype, rows.nbytes) == (50, (50, 7), np.float16, 700)
    mask = np.random.default_rng(1).random(50) < 0.3
    for key in (
        slice(None),
        slice(3, 11),
        slice(40, 99),
        slice(5, 5),
        slice(0, 50, 3),
        np.array([7, 8, 9, 3, 3]),
        mask,
    ):
        np.testing.assert_array_equal(rows[key], matrix[key])
    np.testing.assert_array_equal(np.asarray(rows), matrix)
    chosen = np.flatnonzero(mask)
    view = rows.take(chosen)
    np.testing.assert_array_equal(view[1:4], matrix[chosen][1:4])
    np.testing.assert_array_equal(view.take(np.array([2, 0]))[:], matrix[chosen[[2, 0]]])


def test_blocks_are_all_rows_in_order_and_small(matrix, monkeypatch):
    monkeypatch.setattr("patchvote.utils.row_file._BLOCK", 100)
    blocks = list(blocks_of(temporary_rows([matrix], np.float16, matrix.shape)))
    assert max(block.nbytes for block in blocks) <= 100
    np.testing.assert_array_equal(np.concatenate(blocks), matrix)
    assert blocks_of(matrix) == [matrix]


def test_the_file_has_no_name_and_its_rows_can_still_be_read(folder, matrix):
    rows = temporary_rows([matrix], np.float32, matrix.shape)
    assert list(folder.iterdir()) == []
    np.testing.assert_array_equal(rows[:], matrix.astype(np.float32))


def test_in_another_process_it_is_an_array_and_a_copy_is_itself(matrix):
    rows = temporary_rows([matrix], np.float16, matrix.shape)
    again = pickle.loads(pickle.dumps(rows))
    assert isinstance(again, np.ndarray)
    np.testing.assert_array_equal(again, matrix)
    assert copy.deepcopy(rows) is rows


def test_a_file_that_becomes_shorter_is_an_error_not_a_crash(folder, matrix):
    path = folder / "rows"
    path.write_bytes(b"head" + matrix.tobytes())
    rows = RowFile(path.open("rb"), "float16", matrix.shape, start=4)
    np.testing.assert_array_equal(rows[10:20], matrix[10:20])
    os.truncate(path, 200)
    with pytest.raises(PatchvoteError, match="rows can no longer be read: the file has become shorter"):
        rows[10:20]


def test_a_file_that_is_opened_again_keeps_its_name_in_messages(folder, matrix):
    (folder / "rows").write_bytes(matrix.tobytes())
    with (folder / "rows").open("rb") as file:
        rows = RowFile(opened_again(file), "float16", matrix.shape)
    (folder / "rows").rename(folder / "renamed")
    np.testing.assert_array_equal(rows[10:20], matrix[10:20])
    os.truncate(folder / "renamed", 200)
    with pytest.raises(PatchvoteError, match="rows can no longer be read"):
        rows[10:20]


def test_two_matrices_in_one_file_are_read_by_two_threads_at_once(folder, matrix):
    (folder / "rows").write_bytes(matrix.tobytes() + (-matrix).tobytes())
    with (folder / "rows").open("rb") as file:
        shared, lock = opened_again(file), threading.Lock()
    first, second = (RowFile(shared, "float16", matrix.shape, start, lock) for start in (0, matrix.nbytes))

    def wrong(rows: RowFile, expected: np.ndarray) -> int:
        return sum(not np.array_equal(rows[start : start + 9], expected[start : start + 9]) for start in 500 * [0, 40])

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(wrong, (first, second), (matrix, -matrix))) == [0, 0]


def test_a_full_disk_is_told_before_anything_is_written(folder, matrix):
    with pytest.raises(PatchvoteError, match=r"a temporary file of [\d,]+\.\d GB cannot be written .* TMPDIR"):
        temporary_rows([matrix], np.float32, (1 << 50, 7))
    assert list(folder.iterdir()) == []


KILLED = """
import os, signal, numpy as np
from patchvote.utils.row_file import temporary_rows
def parts():
    yield np.ones((1000, 100))
    os.kill(os.getpid(), signal.SIGKILL)
temporary_rows(parts(), np.float32, (2000, 100))
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL on Windows")
def test_what_a_killed_process_was_writing_is_removed_by_the_next(folder, matrix):
    done = subprocess.run([sys.executable, "-c", KILLED], env=os.environ | {"TMPDIR": str(folder)}, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(list(folder.iterdir())) == 1
    temporary_rows([matrix], np.float16, matrix.shape)
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full_at_the_very_end_or_a_folder_that_is_gone_is_told_in_a_sentence(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:  # so few bytes that they are written when the file is closed
        with pytest.raises(PatchvoteError, match="cannot be written to .*: File too large. The .* TMPDIR"):
            temporary_rows([np.zeros((100, 8))], np.float64, (100, 8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(PatchvoteError, match="cannot be written to .*gone: No such file or directory. The .* TMPDIR"):
        temporary_rows([np.zeros((1, 1))], np.float64, (1, 1))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    with pytest.raises(PatchvoteError, match="cannot be written to the system's temporary folder: No usable"):
        temporary_rows([np.zeros((1, 1))], np.float64, (1, 1))
