"""Manifests and tables whose columns have other names."""

from __future__ import annotations

import csv
import io
import json

import pytest

from patchvote import ImageClassifier, PatchvoteError, PhotoError, Recipe, find_photos
from patchvote.photos.columns import Columns
from test_outputs import FIT

NAMED = "file=path,label=species"


@pytest.fixture
def listed(place):
    """Lists of the photos with other columns: two with commas or semicolons, one of JSON."""
    photos = sorted(path.relative_to(place).as_posix() for path in place.glob("photos/*/*.jpg"))
    rows = [(path, path.split("/")[1], "2024") for path in photos]
    (place / "list.csv").write_text("path,species,year\n" + "".join(",".join(row) + "\n" for row in rows))
    (place / "german.csv").write_text("year;species;path\n" + "".join(";".join(row[::-1]) + "\n" for row in rows))
    lines = [json.dumps({"path": path, "species": label}) for path, label, _ in rows]
    (place / "list.jsonl").write_text("\n".join(lines) + "\n")
    return place


@pytest.mark.parametrize("name", ["list.csv", "german.csv", "list.jsonl"])
def test_columns_are_found_by_the_names_that_were_given(name, listed):
    found = find_photos(name, {"file": "path", "label": "species"})
    assert [(photo.name, photo.label) for photo in found[5:7]] == [
        ("photos/iris/5.jpg", "iris"),
        ("photos/rose/0.jpg", "rose"),
    ]
    assert find_photos(name, Columns("path"))[0].label is None


def test_a_classifier_takes_what_was_found(listed):
    columns = {"file": "path", "label": "species"}
    classifier = ImageClassifier(Recipe("tiny.onnx"), cache=False).fit(find_photos("list.csv", columns))
    assert classifier.classes == ("iris", "rose")
    assert classifier.evaluate(find_photos("list.jsonl", columns)).accuracy == 1.0


def test_a_table_may_have_other_columns(listed):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv("list.csv")
    assert find_photos(frame, {"file": "path", "label": "species"})[7].label == "rose"
    with pytest.raises(PhotoError, match="no column kind. Its columns are: 'path', 'species', 'year'"):
        find_photos(frame, {"file": "path", "label": "kind"})


def test_every_command_that_reads_lists_takes_columns(listed, command):
    done = command("fit", "list.csv", "new.patchvote", "--columns", NAMED, *FIT)
    assert done.code == 0, done.err
    assert "iris 6, rose 6" in done.out
    done = command("evaluate", "new.patchvote", "german.csv", "--columns", NAMED, "--no-report", "--json")
    assert json.loads(done.out)["images"] == 12
    rows = list(
        csv.DictReader(io.StringIO(command("predict", "m.patchvote", "list.csv", "--columns", "file=path").out))
    )
    assert [row["file"] for row in rows][:2] == ["photos/iris/0.jpg", "photos/iris/1.jpg"]
    for words in (
        ("add", "new.patchvote", "list.jsonl", "--no-cache"),
        ("extract", "list.csv", "bags", "--network", "tiny.onnx"),
        ("check", "list.csv", "--network", "tiny.onnx", "--no-cache"),
        ("suggest", "m.patchvote", "list.csv"),
    ):
        done = command(*words, "--columns", NAMED)
        assert done.code == 0, (words, done.err)


def test_an_output_does_not_replace_a_photo_of_a_list_with_other_columns(listed, command):
    done = command("predict", "m.patchvote", "list.csv", "--columns", NAMED, "-o", "list.csv", "--force")
    assert "but this command reads it" in done.err
    (listed / "own.csv").write_text("path\nnames.csv\n")
    (listed / "names.csv").write_text("no photo")
    done = command("predict", "m.patchvote", "own.csv", "--columns", "file=path", "-o", "names.csv", "--force")
    assert "but this command reads it" in done.err


def test_a_list_with_other_columns_tells_how_to_name_them(listed, command):
    done = command("predict", "m.patchvote", "list.csv")
    assert "must name a column file_name (and may name label), got: 'path,species,year'." in done.err
    assert "--columns file=COLUMN,label=COLUMN" in done.err
    done = command("fit", "list.csv", "new.patchvote", "--columns", "file=path,label=kind", *FIT)
    assert "must name a column kind, got: 'path,species,year'." in done.err


def test_answers_of_predict_in_place_of_a_list_tell_their_column(listed, command):
    assert command("predict", "m.patchvote", "photos", "-o", "answers.csv").code == 0
    done = command("predict", "m.patchvote", "answers.csv")
    assert (done.code, "--columns file=file" in done.err) == (1, True)
    answered = command("predict", "m.patchvote", "answers.csv", "--columns", "file=file")
    assert (answered.code, "holds answers of a model" in answered.err) == (0, False)


def test_labels_that_are_answers_of_a_model_are_told_where_they_are_taken_for_the_truth(listed, command):
    assert command("predict", "m.patchvote", "photos", "-o", "answers.csv", "--threshold", "0").code == 0
    named = ("--columns", "file=file", "--no-report")
    for words in (("evaluate", "m.patchvote", "answers.csv"), ("fit", "answers.csv", "new.patchvote", *FIT[:-1])):
        done = command(*words, *named)
        assert "answers.csv holds answers of a model: its labels may be wrong" in done.err


@pytest.mark.parametrize("text", ["path", "file=", "file=a,file=b", "name=path", "file=a;label=b,", "label"])
def test_columns_of_another_form_are_refused(text, listed, command):
    done = command("predict", "m.patchvote", "list.csv", "--columns", text)
    assert done.code == 2
    assert "--columns: columns are named as in file=COLUMN,label=COLUMN, each once" in done.err


def test_columns_need_a_list(listed, command):
    done = command("fit", "photos", "new.patchvote", "--columns", NAMED, *FIT)
    assert (done.code, "--columns can be used only with a .csv or .jsonl" in done.err) == (2, True)
    with pytest.raises(PatchvoteError, match="photos has no columns: only a manifest"):
        find_photos("photos", {"file": "path"})
    with pytest.raises(PatchvoteError, match="named by file and label, got 'path'"):
        find_photos("list.csv", {"path": "file"})
