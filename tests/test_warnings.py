"""Warnings of libraries are for programmers: users see none, unless they ask for them."""

from __future__ import annotations

import warnings

import pytest

from patchvote.errors import CacheWarning
from patchvote.models.file import read_model


@pytest.fixture
def warning(place, monkeypatch):
    """Let reading a model warn twice: Python shows a warning twice if its filters change in between."""

    def make(text: str, category: type[Warning]) -> None:
        def warn_and_read(path):
            for _ in range(2):
                warnings.warn(text, category, stacklevel=1)
            return read_model(path)

        monkeypatch.setattr("patchvote.models.file.read_model", warn_and_read)
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield make


@pytest.mark.parametrize("category", [UserWarning, FutureWarning, RuntimeWarning, DeprecationWarning])
def test_a_warning_of_a_library_is_not_printed(category, command, warning):
    warning("numpy thinks of something else", category)
    done = command("info", "m.patchvote")
    assert (done.code, done.err) == (0, "")
    assert "numpy thinks of something else" in command("info", "m.patchvote", "--debug").err


def test_a_warning_for_users_is_printed_once_and_without_a_path(command, warning):
    warning("the cache cannot be written.", CacheWarning)
    assert command("info", "m.patchvote").err == "the cache cannot be written.\n"
