"""No file is lost: an output never replaces an input, another output, or what patchvote did not write."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from patchvote import PatchvoteError
from patchvote.photos.outputs import Kind, check_outputs


def digests(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


FIT = ("--network", "tiny.onnx", "--no-cache")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fit", "photos", "photos/iris/1.jpg", *FIT), "but this command reads it"),
        (("fit", "photos", "link.jpg", *FIT), "but this command reads it"),
        (("fit", "photos", "my", "--report", "My", *FIT), "would be a model and a report at once"),
        (("explain", "m.patchvote", "photos/iris/1.jpg", "-o", "a", "--arrays", "a"), "at once"),
        (("predict", "m.patchvote", "list.csv", "-o", "list.csv"), "but this command reads it"),
        (("evaluate", "m.patchvote", "photos", "--report", "tiny.toml"), "but this command reads it"),
        (("fit", "photos", "photos", *FIT), "it is a folder"),
        (("fit", "photos", "pipe", *FIT), "it is not an ordinary file"),
    ],
)
def test_what_a_command_reads_or_also_writes_is_never_replaced_even_by_force(words, says, place, command):
    (place / "link.jpg").symlink_to("photos/iris/2.jpg")
    os.mkfifo(place / "pipe")
    (place / "list.csv").write_text("file_name,label\nphotos/iris/1.jpg,iris\n")
    before = digests(place)
    for force in ((), ("--force",)):
        done = command(*words, *force)
        assert done.code == 1
        assert says in done.err
        assert done.err.count("\n") == 1
    assert digests(place) == before
    assert (place / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("words", "file", "says"),
    [
        (("fit", "photos", "index", *FIT), "index.html", "a report, but it exists"),
        (("explain", "m.patchvote", "photos/iris/1.jpg"), "1-evidence.png", "it exists"),
        (("evaluate", "m.patchvote", "photos"), "m-photos.html", "it exists"),
        (("evaluate", "m.patchvote", "photos", "--report", "mine.html"), "mine.html", "a report, but it exists"),
        (("predict", "m.patchvote", "photos", "-o", "a.csv"), "a.csv", "it exists"),
    ],
)
def test_a_file_that_patchvote_did_not_write_is_replaced_by_force_alone(words, file, says, place, command):
    (place / file).write_text("file,label\nmine,mine\n")
    before = digests(place)
    done = command(*words)
    assert done.code == 1
    assert says in done.err
    assert "add --force to replace it" in done.err
    assert digests(place) == before
    assert command(*words, "--force").code == 0
    assert (place / file).read_bytes() != b"file,label\nmine,mine\n"
    # What it wrote itself, it may replace, except for models and reports under a name that the user gave.
    assert command(*words).code == (words[0] == "fit" or "--report" in words)


def test_add_renews_the_model_that_it_read_and_evaluate_its_own_report(place, command):
    assert command("add", "m.patchvote", "photos", "--output", "./m.patchvote").code == 0
    assert command("evaluate", "m.patchvote", "photos").code == 0
    assert command("evaluate", "m.patchvote", "photos").code == 0


def test_an_empty_file_is_somebodys_and_a_link_to_nowhere_may_become_an_output(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(PatchvoteError, match="empty would be replaced by a model, but it exists"):
        check_outputs([(tmp_path / "empty", Kind.model)], [])
    (tmp_path / "link").symlink_to(tmp_path / "new")
    check_outputs([(tmp_path / "link", Kind.report)], [])
    (tmp_path / "nowhere").symlink_to(tmp_path / "no" / "folder")
    with pytest.raises(PatchvoteError, match="there is no folder"):
        check_outputs([(tmp_path / "nowhere", Kind.model)], [])


@pytest.mark.parametrize(
    "content", ["file,label\n/home/patchvote/1.jpg,iris\n", '{"file": "1.jpg", "label": "iris"}\n']
)
def test_a_list_of_somebody_is_no_file_of_answers_whatever_it_mentions(content, tmp_path):
    (tmp_path / "list.csv").write_text(content)
    with pytest.raises(PatchvoteError, match="it exists"):
        check_outputs([(tmp_path / "list.csv", Kind.answers)], [])
