"""A path that is not a model's: the error says what to do instead."""

from __future__ import annotations

import shutil

import pytest

from patchvote import ModelError
from patchvote.models.file import read_model


@pytest.mark.parametrize("name", ["photos/iris/0.jpg", "tiny.onnx", "empty", "words.txt"])
def test_a_file_of_another_kind_is_refused_and_the_order_of_arguments_told(name, place):
    (place / "empty").touch()
    (place / "words.txt").write_text("Straße\n" * 1000)
    with pytest.raises(ModelError, match="is not a model.*The model comes first, then the photos"):
        read_model(name)


def test_a_model_that_was_cut_off_is_called_damaged(place):
    content = (place / "m.patchvote").read_bytes()
    for length in (9, 100, len(content) // 2, len(content) - 1):
        (place / "cut.patchvote").write_bytes(content[:length])
        with pytest.raises(ModelError, match="damaged"):
            read_model("cut.patchvote")


def test_a_mistyped_path_gets_the_nearest_one(place, command):
    assert "there is no such file. Did you mean m.patchvote?" in command("predict", "mm.patchvote", "photos").err
    assert "Is the path right? Did you mean photos?" in command("fit", "fotos", "new.patchvote").err
    assert "Did you mean photos?" in command("info", "photo").err
    assert "Did you mean" not in command("fit", "elsewhere", "new.patchvote").err


def test_the_folder_of_one_class_gets_a_hint_at_the_folder_above(place, command):
    for words in (("fit", "photos/iris", "new.patchvote"), ("evaluate", "m.patchvote", "photos/iris")):
        assert "If its name is a class, pass the folder above, photos." in command(*words).err
    shutil.copytree("photos/iris", "new")
    assert "pass the folder above, the current one" in command("add", "m.patchvote", "new").err


def test_info_of_a_folder_of_photos_says_what_to_do_with_photos(place, command):
    done = command("info", "photos")
    assert done.code == 1
    assert "`patchvote fit photos` learns from them" in done.err
