"""Moves that are planned, recorded, made and undone: nothing is lost, and nothing outside is touched."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from patchvote import PatchvoteError
from patchvote.photos.moves import Move, Spot, make, plan, read_record, reduce_record, write_record


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    for name in ("cat/1.jpg", "cat/young/2.jpg", "dog/1.jpg", "cat/notes.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def content(root):
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_what_was_moved_is_back_in_place_once_it_is_undone(photos, tmp_path):
    before, away = content(tmp_path), tmp_path / "away"
    wanted = [
        Move(Spot(photos, "cat/1.jpg"), Spot(photos, "dog/1.jpg")),
        Move(Spot(photos, "cat/young/2.jpg"), Spot(away, "cat/young/2.jpg")),
    ]
    moves = plan(wanted)
    record = write_record(tmp_path / "record.jsonl", moves)
    made, failed = make(moves)
    assert (made, failed) == (moves, [])
    assert content(photos) == {"dog/1.jpg": "dog/1.jpg", "dog/1 (2).jpg": "cat/1.jpg", "cat/notes.txt": "cat/notes.txt"}
    assert content(away) == {"cat/young/2.jpg": "cat/young/2.jpg"}
    made, failed = make(read_record(record, photos, away))
    assert (len(made), failed) == (2, [])
    record.unlink()
    assert content(tmp_path) == before


@pytest.mark.parametrize("again", [os.link, shutil.copy])
def test_a_move_that_was_ended_between_its_two_names_is_finished_without_a_double(photos, tmp_path, again):
    wanted = [Move(Spot(photos, "cat/1.jpg"), Spot(tmp_path / "away", "cat/1.jpg"))]
    (tmp_path / "away" / "cat").mkdir(parents=True)
    again(photos / "cat" / "1.jpg", tmp_path / "away" / "cat" / "1.jpg")
    made, failed = make(plan(wanted))
    assert (made, failed) == (wanted, [])
    assert content(tmp_path / "away") == {"cat/1.jpg": "cat/1.jpg"}
    assert not (photos / "cat" / "1.jpg").exists()


def test_a_record_is_undone_only_with_its_own_folders(photos, tmp_path):
    away, other = tmp_path / "away", tmp_path / "other"
    moves = [Move(Spot(photos, "cat/1.jpg"), Spot(away, "cat/1.jpg"))]
    record = write_record(tmp_path / "record.jsonl", moves)
    make(moves)
    other.mkdir()
    for folders in ((photos, other), (photos, None), (other, away)):
        with pytest.raises(PatchvoteError, match="folder"):
            read_record(record, *folders)
    other.rmdir()
    moved = away.rename(tmp_path / "renamed")  # folders that were renamed are taken
    assert len(make(read_record(record, photos.rename(other), moved))[0]) == 1


def test_undoing_overwrites_nothing(photos, tmp_path):
    moves = [Move(Spot(photos, "cat/1.jpg"), Spot(photos, "dog/3.jpg"))]
    names = [write_record(tmp_path / "record.jsonl", moves).name for _ in range(2)]
    assert names == ["record.jsonl", "record (2).jsonl"]
    make(moves)
    record = tmp_path / "record.jsonl"
    (photos / "cat" / "1.jpg").write_text("another")
    made, failed = make(read_record(record, photos, None))
    assert not made
    assert "it was not moved" in str(failed[0])
    assert (photos / "cat" / "1.jpg").read_text() == "another"
    assert (reduce_record(record, made), record.exists()) == (None, False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        *(({"was": name, "is": "dog/1.jpg"}, "is not the name") for name in ("../x.jpg", "/x.jpg", "x\0.jpg", "")),
        ({"was": "cat/1.jpg", "is": "../secret.jpg"}, "is not the name"),
        ({"was": "out/x.jpg", "is": "dog/1.jpg"}, "leads outside of"),
        ({"was": "x.jpg", "is": "out/secret.jpg"}, "leads outside of"),
        ({"was": "round/x.jpg", "is": "dog/1.jpg"}, "a link leads to"),
        ({"was": 7, "is": "dog/1.jpg"}, "must be text"),
        ({"was": "cat/1.jpg"}, ".is is missing"),
        ({"was": "cat/1.jpg", "is": "x.jpg", "patchvote_moved": True}, "name that folder with --move"),
        ({"was": "cat/1.jpg", "is": "x.jpg", "patchvote_moved": "yes"}, "must be true or false"),
    ],
)
def test_a_record_of_a_stranger_reaches_nothing_outside_of_the_folders(line, says, photos, tmp_path):
    (tmp_path / "secret.jpg").write_text("secret")
    (photos / "out").symlink_to(tmp_path)
    (photos / "round").symlink_to(photos / "cat")
    (tmp_path / "record.jsonl").write_text(json.dumps({"patchvote_moved": False} | line))
    before = content(tmp_path)
    with pytest.raises(PatchvoteError, match=says):
        read_record(tmp_path / "record.jsonl", photos, None)
    assert content(tmp_path) == before


def test_only_photos_are_moved_and_no_links(photos, tmp_path):
    (photos / "cat" / "3.jpg").symlink_to(photos / "dog" / "1.jpg")
    os.mkfifo(photos / "cat" / "4.jpg")
    names = ("cat/notes.txt", "cat/3.jpg", "cat/4.jpg", "cat/absent.jpg")
    made, failed = make([Move(Spot(photos, name), Spot(tmp_path / "away", name)) for name in names])
    assert not made
    for error, says in zip(failed, ("not a photo", "a link", "not an ordinary", "not there"), strict=True):
        assert says in str(error)
    assert not (tmp_path / "away").exists()
