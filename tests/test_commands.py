"""What the commands print and write, with photos and models that take no time."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from helpers.bad_files import DAMAGED, ODD, write_bad_files
from helpers.command import in_terminal, words
from patchvote import PatchvoteError, Store
from patchvote.cli import COMMANDS
from patchvote.errors import CacheWarning
from patchvote.models.file import read_model, write_model

NETWORK = ("--network", "tiny.onnx")
FIT = (*NETWORK, "--no-cache", "--no-report")


def rows(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


def files(out: str) -> list[str]:
    return [row["file"] for row in rows(out)]


def objects(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def strict(place):
    """A model that rejects every photo."""
    write_model(dataclasses.replace(read_model("m.patchvote"), threshold=1.0, familiarity=None), "strict.patchvote")
    return "strict.patchvote"


# --- the command line -------------------------------------------------------------------------------------------------


def test_every_command_has_help(command):
    assert command("--version").out.startswith("patchvote ")
    shown = command("-h").out
    for name in COMMANDS:
        assert f"  {name} " in shown
        done = command(name, "--help")
        assert (done.code, done.out.count("Usage: ")) == (0, 1)


def test_debug_shows_the_traceback(place, command):
    with pytest.raises(PatchvoteError):
        command("info", "nowhere", "--debug")


@pytest.mark.parametrize("category", [UserWarning, FutureWarning, RuntimeWarning, DeprecationWarning, CacheWarning])
def test_warnings_of_libraries_are_for_debugging_and_those_for_users_are_printed_once(
    category, place, command, monkeypatch
):
    def warn_and_read(path):
        for _ in range(2):  # Python shows a warning twice if its filters change in between
            warnings.warn("the cache cannot be written.", category, stacklevel=1)
        return read_model(path)

    monkeypatch.setattr("patchvote.models.file.read_model", warn_and_read)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        expected = "the cache cannot be written.\n" if category is CacheWarning else ""
        assert command("info", "m.patchvote").err == expected
        assert "the cache cannot be written." in command("info", "m.patchvote", "--debug").err


# --- extract and info -------------------------------------------------------------------------------------------------


def test_a_store_is_filled_once_and_described(place, command):
    assert "12 photos extracted" in command("extract", "photos", "store", *NETWORK).out
    done = command("extract", "photos", "store", *NETWORK, "--json")
    told = json.loads(done.out)
    assert (told["photos"], told["extracted"], told["kept"], told["skipped"], done.err) == (12, 0, 12, [], "")
    assert command("extract", "photos", "store", *NETWORK, "--quiet").out == ""
    shown = command("info", "store").out
    assert all(part in shown for part in ("6 per descriptor", "tiny.onnx", "sides 224, 448", "iris (6), rose (6)"))
    assert json.loads(command("info", "store", "--json").out) == Store.open("store").summary()


def test_every_bad_file_is_decoded_or_named_and_the_rest_is_extracted(place, command):
    (place / "bad").mkdir()
    write_bad_files(place / "bad")
    done = command("extract", "bad", "store", "--json", *NETWORK)
    assert done.code == 3
    skipped = {bad["name"]: bad["reason"] for bad in json.loads(done.out)["skipped"]}
    assert set(skipped) == set(DAMAGED)
    assert all(DAMAGED[name] in reason and f"skipped {name}: " in done.err for name, reason in skipped.items())
    assert set(Store.open("store").names) == {*ODD, "good.jpg"}
    assert "Warning" not in done.err
    assert command("extract", "bad", "other", "--strict", *NETWORK).code == 1


def test_info_of_a_damaged_store_says_so_and_ends_with_3(place, command):
    for photos in ("photos/iris", "photos/rose"):
        assert command("extract", photos, "bags", *NETWORK).code == 0
    shard = min((place / "bags").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:100])
    done = command("info", "bags")
    assert (done.code, "\ndamaged " in done.out) == (3, True)
    assert command("info", "bags", "--json").code == 3


# --- fit --------------------------------------------------------------------------------------------------------------


def test_fit_tells_what_it_learned_and_a_second_fit_takes_photos_from_the_cache(place, command):
    done = command("fit", "photos", "new.patchvote", *NETWORK, "--cache", "kept")
    assert (done.code, done.err) == (0, "")
    assert "12 photos of 2 classes: iris 6, rose 6\n" in done.out
    assert (place / "new.html").read_text().startswith("<!doctype html>")
    done = command("fit", "photos", "again.patchvote", *NETWORK, "--cache", "kept", "--json", "--no-report")
    told = json.loads(done.out)
    assert (told["photos"], told["held_out"]["images"]) == ({"extracted": 0, "kept": 12}, 12)
    assert not (place / "again.html").exists()


def test_fit_hints_at_the_folder_that_was_meant(place, command):
    shutil.copytree("photos", "all/train")
    shutil.copytree("photos", "all/test")
    for typed in (("fit", "all", "new.patchvote", *FIT), ("add", "m.patchvote", "all", "--no-cache")):
        assert "did you mean all/train" in command(*typed).err


# --- predict ----------------------------------------------------------------------------------------------------------


def test_predict_prints_csv_in_a_pipe_a_table_on_a_terminal_and_writes_lists(place, command, monkeypatch):
    answers = rows(command("predict", "m.patchvote", "photos/iris").out)
    assert [row["file"] for row in answers] == [f"photos/iris/{index}.jpg" for index in range(6)]
    assert {row["likeliest"] for row in answers} == {"iris"}
    shown = in_terminal(words("predict", "m.patchvote", "photos/iris/1.jpg"), 100, place).splitlines()
    assert shown[0].split() == ["photo", "class", "probability", "next", "likeliest"]
    assert shown[1].startswith("photos/iris/1.jpg ")
    for name in ("answers.csv", "answers.jsonl"):
        monkeypatch.setattr(sys, "stdin", io.StringIO("photos/rose/1.jpg\n\nphotos/rose/2.jpg\n"))
        done = command("predict", "m.patchvote", "-", "--output", name)
        assert (done.code, done.out, done.err) == (0, "", f"wrote {name}\n")
    assert files((place / "answers.csv").read_text()) == ["photos/rose/1.jpg", "photos/rose/2.jpg"]
    assert {row["likeliest"] for row in objects((place / "answers.jsonl").read_text())} == {"rose"}


def test_photos_that_cannot_be_read_cost_no_other_photo_its_answer(place, command):
    done = command("predict", "m.patchvote", "nope.jpg", "photos/iris/1.jpg", "a" * 300 + ".jpg", "--json")
    assert done.code == 3
    assert [row["error"] == "" for row in objects(done.out)] == [False, True, False]
    assert "skipped nope.jpg: " in done.err
    done = command("predict", "m.patchvote", "nope.jpg", "neither.jpg")
    assert (done.code, [row["probability"] for row in rows(done.out)]) == (1, ["", ""])


@pytest.mark.parametrize("adapt", [(), ("--adapt",)])
def test_photos_of_one_name_in_two_lists_are_called_by_their_paths(adapt, place, command):
    for folder in ("iris", "rose"):
        (place / "photos" / folder / "list.csv").write_text("file_name\n1.jpg\n2.jpg\n")
    done = command("predict", "m.patchvote", "photos/iris/list.csv", "photos/rose/list.csv", *adapt)
    assert files(done.out) == [f"photos/{label}/{index}.jpg" for label in ("iris", "rose") for index in (1, 2)]


def test_photos_are_called_as_they_were_typed_or_listed(place, command, monkeypatch):
    (place / "list.csv").write_text("file_name\n./photos/iris/1.jpg\nphotos\\rose\\2.jpg\n")
    assert files(command("predict", "m.patchvote", "list.csv").out) == ["./photos/iris/1.jpg", "photos\\rose\\2.jpg"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("./photos/iris/1.jpg\n./photos/rose\n"))
    names = files(command("predict", "m.patchvote", "-").out)
    assert names == ["./photos/iris/1.jpg", *(f"./photos/rose/{index}.jpg" for index in range(6))]
    shutil.copy("photos/iris/1.jpg", "-x.jpg")
    assert files(command("predict", "m.patchvote", "./-x.jpg").out) == ["./-x.jpg"]


def test_a_pattern_in_quotes_is_expanded_unless_a_file_has_that_name(place, command):
    done = command("predict", "m.patchvote", "photos/*/1.jpg", "photos/rose/[23].jpg")
    assert files(done.out) == ["photos/iris/1.jpg", "photos/rose/1.jpg", "photos/rose/2.jpg", "photos/rose/3.jpg"]
    for name in ("new[1].jpg", "new1.jpg"):
        shutil.copy("photos/iris/1.jpg", name)
    assert files(command("predict", "m.patchvote", "new[1].jpg").out) == ["new[1].jpg"]


def test_standard_input_that_names_nothing_is_refused(place, command, monkeypatch):
    for given in (io.StringIO("\n"), io.StringIO("photos/iris/1.jpg\0photos/iris/2.jpg\0")):
        monkeypatch.setattr(sys, "stdin", given)
        done = command("predict", "m.patchvote", "-")
        assert (done.code, done.err.count("\n"), "names no photo" in done.err) == (1, 1, True)


# --- explain and evaluate ---------------------------------------------------------------------------------------------


def test_explain_draws_and_writes_arrays(place, command):
    options = ("-o", "e.png", "--arrays", "e.npz", "--class", "rose", "--class", "iris")
    done = command("explain", "m.patchvote", "photos/iris/1.jpg", *options)
    assert (done.code, "wrote e.png and e.npz" in done.out) == (0, True), done.err
    assert Path("e.png").read_bytes()[:4] == b"\x89PNG"
    with np.load("e.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(arrays["maps"].sum(axis=(1, 2)), arrays["votes"].mean(axis=0), rtol=1e-6)
        assert arrays["classes"].tolist() == ["iris", "rose"]


def test_evaluate_tells_the_accuracy_and_what_it_rejects_and_writes_a_report(strict, place, command):
    shutil.copytree("photos", "v.1")
    done = command("evaluate", "n.patchvote", "v.1", "--unknown", "photos/iris", "--unknown", "photos/rose")
    assert "% of 12 photos were classified correctly" in done.out
    assert "% of 12 photos of unknown classes are rejected" in done.out
    assert (place / "n-v.1.html").exists()
    done = command("evaluate", strict, "photos", "--no-report")
    assert '12 would be rejected as "none of these"' in done.out
    assert json.loads(command("evaluate", strict, "photos", "--no-report", "--json").out)["accuracy_of_named"] is None


# --- add, forget and info ---------------------------------------------------------------------------------------------


def test_add_teaches_a_new_class_in_place_and_forget_takes_it_back(place, command):
    shutil.copytree("photos/iris", "more/lily")
    for path in (place / "more/lily").iterdir():
        path.write_bytes(path.read_bytes() + b"\0")  # a photo that was not learned
    done = command("add", "m.patchvote", "more", "--no-cache")
    assert (done.code, "New: lily. It now knows 3 classes." in done.out) == (0, True), done.err
    assert json.loads(command("info", "m.patchvote", "--json").out)["classes"] == ["iris", "lily", "rose"]
    assert "| lily | 6 |" in command("info", "m.patchvote", "--card").out
    done = command("forget", "m.patchvote", "iris/0.jpg", "lily/")
    assert "forgot 7 photos; 11 photos of 2 classes are left." in done.out, done.err
    assert len(command("info", "m.patchvote", "--photos").out.splitlines()) == 11
    assert command("forget", "m.patchvote", "iris/0.jpg").code == 1


def test_forgetting_a_photo_names_those_of_the_same_content_that_stay(place, command):
    shutil.copy("photos/iris/0.jpg", "photos/iris/twin.jpg")
    assert command("fit", "photos", "twice.patchvote", *FIT).code == 0
    done = command("forget", "twice.patchvote", "iris/0.jpg")
    assert (done.code, "with the same content: iris/twin.jpg." in done.err) == (0, True)
    assert "same content" not in command("forget", "twice.patchvote", "iris/1.jpg").err


def test_a_model_without_memory_is_small_and_answers_alike(place, command):
    assert command("fit", "photos", "small.patchvote", *FIT, "--no-memory").code == 0
    assert Path("small.patchvote").stat().st_size < Path("m.patchvote").stat().st_size
    ask = ("photos/rose/1.jpg", "--json")
    assert command("predict", "small.patchvote", *ask).out == command("predict", "m.patchvote", *ask).out
    assert command("info", "small.patchvote", "--photos").out == ""


def test_a_model_that_held_no_photo_out_rejects_none(place, command):
    for label in ("iris", "rose"):
        (place / "two" / label).mkdir(parents=True)
        shutil.copy(f"photos/{label}/0.jpg", f"two/{label}")
    assert command("fit", "two", "two.patchvote", *FIT).code == 0
    assert "no photo: none was held out" in command("info", "two.patchvote").out
    assert "none of these" not in command("predict", "two.patchvote", "photos").out
    assert command("predict", "two.patchvote", "photos", "--threshold", 0.1).code == 1
