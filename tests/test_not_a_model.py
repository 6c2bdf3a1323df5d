"""A file that was taken for a model is told what it is, and what to do instead."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from patchvote import ModelError
from patchvote.models.file import read_model


def _files(place):
    """Write one file of each kind; return what each is to be called."""
    Image.new("RGB", (8, 8)).save("photo.patchvote", "JPEG")
    for ending in ("png", "gif", "bmp", "tiff", "webp"):
        Image.new("RGB", (8, 8)).save(f"picture.{ending}")
    save_file({"weight": np.zeros(3, np.float32)}, "other.safetensors")
    (place / "empty").touch()
    (place / "words.txt").write_text("Straße\n" * 1000)
    (place / "table.csv").write_text("file_name,label\na.jpg,b\n")
    (place / "pickle.pkl").write_bytes(pickle.dumps([1]))
    (place / "lfs.patchvote").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    return {
        "photo.patchvote": "a JPEG photo. The model comes first, then the photos.",
        "picture.png": "a PNG picture.",
        "picture.gif": "a GIF picture.",
        "picture.bmp": "a BMP picture.",
        "picture.tiff": "a TIFF picture.",
        "picture.webp": "a WebP picture.",
        "other.safetensors": "a safetensors file of another program.",
        "empty": "an empty file. `patchvote fit PHOTOS MODEL` makes a model.",
        "words.txt": "a text file.",
        "table.csv": "a text file.",
        "pickle.pkl": "a pickle, such as a model of torch or scikit-learn.",
        "lfs.patchvote": "the placeholder of a file that git-lfs has not fetched",
        "tiny.onnx": "an ONNX file. If it is a network, `--network` takes it.",
        "photos": "a folder. `patchvote fit photos MODEL` makes a model of labelled photos in it.",
    }


def test_every_kind_of_file_is_called_what_it_is(place):
    for name, words in _files(place).items():
        with pytest.raises(ModelError) as raised:
            read_model(name)
        assert str(raised.value).startswith(f"{name} is not a model: it is {words}")


def test_the_files_of_patchvote_itself_are_recognised(place, command):
    assert command("extract", "photos", "store", "--network", "tiny.onnx").code == 0
    assert command("evaluate", "m.patchvote", "photos", "--report", "r.html").code == 0
    assert command("explain", "m.patchvote", "photos/iris/0.jpg", "-o", "e.png").code == 0
    assert command("predict", "m.patchvote", "photos", "-o", "answers.csv").code == 0
    assert command("export", "m.patchvote", "graph.onnx").code == 0
    shutil.copy(next((place / "store").glob("*.safetensors")), "shard.patchvote")
    for name, words in {
        "store": "a store of descriptors, which `patchvote extract` made.",
        "shard.patchvote": "a part of a store of descriptors",
        "r.html": "a report of patchvote.",
        "e.png": "a picture of patchvote.",
        "answers.csv": "a file of answers of patchvote.",
        "graph.onnx": "an exported graph of patchvote. A graph cannot be turned back into a model",
    }.items():
        done = command("predict", name, "photos")
        assert done.code == 1
        assert done.err.startswith(f"patchvote: {name} is not a model: it is {words}")
        assert "Traceback" not in done.err


def test_a_model_that_was_cut_off_is_called_damaged_and_nothing_else(place):
    content = (place / "m.patchvote").read_bytes()
    for length in (9, 100, len(content) // 2, len(content) - 1):
        (place / "cut.patchvote").write_bytes(content[:length])
        with pytest.raises(ModelError, match="is not a model, or is damaged"):
            read_model("cut.patchvote")


def test_info_tells_what_a_file_is_that_is_neither_model_nor_store(place, command):
    done = command("info", "photos/iris/0.jpg")
    assert (done.code, "it is a JPEG photo" in done.err) == (1, True)
    (place / "metadata.json").write_text(json.dumps({"a": 1}))
    assert "it is a text file" in command("info", "metadata.json").err


def test_a_mistyped_path_gets_the_nearest_one(place, command):
    assert "there is no such file. Did you mean m.patchvote?" in command("predict", "mm.patchvote", "photos").err
    assert "Is the path right? Did you mean photos?" in command("fit", "fotos", "new.patchvote").err
    assert "Did you mean photos?" in command("info", "photo").err
    assert "Did you mean" not in command("fit", "elsewhere", "new.patchvote").err
    shutil.copy("m.patchvote", "w_flip.patchvote")  # the ending alone does not make names similar
    assert "Did you mean" not in command("predict", "nofile.patchvote", "photos").err


def test_the_folder_of_one_class_gets_a_hint_at_the_folder_above(place, command):
    for words in (("fit", "photos/iris", "new.patchvote"), ("evaluate", "m.patchvote", "photos/iris")):
        assert "If its name is a class, pass the folder above, photos." in command(*words).err
    shutil.copytree("photos/iris", "new")
    done = command("add", "m.patchvote", "new")
    assert done.err.endswith("If its name is a class, pass the folder above, the current one (`.`).\n")


def test_info_of_a_folder_of_photos_says_what_to_do_with_photos(place, command):
    done = command("info", "photos")
    assert done.code == 1
    assert "`patchvote fit photos` learns from them" in done.err
