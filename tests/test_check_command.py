"""The command `check`: what it prints and writes, and which photos it moves when it is told to."""

from __future__ import annotations

import csv
import errno
import json
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image

from helpers.command import content, network_in
from patchvote.photos import placing

SHADES = {"dark": 0, "grey": 75, "light": 150}
WRONG = "dark/planted.png"
CHECK = ("check", "photos", "--network", "tiny.onnx", "--no-cache", "--no-report")
UNDO = ("check", "photos", "--undo", "photos-moves.jsonl", "--move", "away")


def noise(shade, seed):
    pixels = np.random.default_rng(seed).integers(0, 90, (64, 64, 3)) + shade
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three classes of ten photos; one photo of `light` stands in `dark`, one file is there twice, one is broken."""
    folder = tmp_path_factory.mktemp("collection")
    for number, (label, shade) in enumerate(SHADES.items()):
        (folder / "photos" / label / "more").mkdir(parents=True)
        for index in range(10):
            where = "more/" if index == 9 else ""
            noise(shade, [number, index]).save(folder / "photos" / label / f"{where}{index}.png")
    noise(150, [9, 9]).save(folder / "photos" / WRONG)
    shutil.copy(folder / "photos/grey/3.png", folder / "photos/grey/again.png")
    (folder / "photos/light/broken.jpg").write_bytes(b"no photo")
    (folder / "photos/light/IMG_1.NEF").write_bytes(b"no photo")
    (folder / "photos/empty").mkdir()
    (folder / "test").mkdir()
    shutil.copy(folder / "photos/light/5.png", folder / "test/a.png")
    network_in(folder)
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_actions(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["file_name", "action", "to"], *rows])


# --- looking ----------------------------------------------------------------------------------------------------------


def test_it_prints_and_writes_what_it_found_and_touches_no_photo(here, command):
    before = content(here / "photos")
    done = command(*CHECK[:-1], "--test", "test", "-o", "suspects.csv")
    assert done.code == 3  # a photo could not be read
    for part in (f"  {WRONG}: looks like light (", "the same as grey/3.png", "the same as a.png of the test photos"):
        assert part in done.out
    assert "skipped light/broken.jpg: " in done.err
    assert content(here / "photos") == before
    rows = list(csv.DictReader((here / "suspects.csv").open(newline="")))
    assert [(row["file_name"], row["finding"], row["action"], row["to"]) for row in rows] == [
        (WRONG, "label", "", "light"),
        ("light/5.png", "in the test", "", ""),
        ("grey/again.png", "copy", "", ""),
        ("light/broken.jpg", "unreadable", "", ""),
    ]
    page = (here / "photos-check.html").read_text()
    assert page.count("<img src=") == page.count('<img src="data:image/jpeg;base64,') >= 2
    result = json.loads(command(*CHECK, "--json").out)
    assert (result["photos"], result["report"]) == (32, None)
    assert result["counts"] == {"label": 1, "copy": 1, "unreadable": 1}
    assert (result["suspects"][0]["file_name"], result["passed_over"]["empty"]) == (WRONG, ["empty"])


def test_a_second_check_renews_its_page_and_keeps_an_edited_list(here, command):
    command(*CHECK[:-1], "-o", "suspects.csv")
    done = command(*CHECK[:-1], "-o", "suspects.csv")
    assert (done.code, "by a list of suspects, but it exists" in done.err) == (1, True)
    assert command(*CHECK[:-1], "-o", "suspects.csv", "--force").code == 3
    (here / "photos-check.html").write_text("mine")
    assert "but it exists" in command(*CHECK[:-1]).err


# --- moving -----------------------------------------------------------------------------------------------------------


def test_suspects_are_moved_with_their_folders_and_come_back_when_it_is_undone(here, command):
    before = content(here / "photos")
    done = command(*CHECK, "--move", "away")
    assert "moved 3 photos" in done.out
    assert "to undo:\n  patchvote check photos --undo photos-moves.jsonl --move away" in done.out
    moved = content(here / "away")
    assert moved.keys() == {WRONG, "grey/again.png", "light/broken.jpg"}
    assert content(here / "photos") == {name: data for name, data in before.items() if name not in moved}
    unnamed = command(*UNDO[:4])
    assert (unnamed.code, f"'{here / 'away'}': name that folder with --move" in unnamed.err) == (1, True)
    back = command(*UNDO)
    assert (back.code, back.out) == (0, "moved 3 photos\n")
    assert (content(here / "photos"), content(here / "away")) == (before, {})


def test_the_record_of_a_run_has_what_was_moved_and_not_what_was_not(here, command, monkeypatch):
    def move(source, target):
        if source.name == "again.png":
            raise OSError(errno.EACCES, "no")
        placing.move_new(source, target)

    monkeypatch.setattr("patchvote.photos.moves.move_new", move)
    done = command(*CHECK, "--move", "away", "--quiet")
    assert (done.code, done.out) == (3, "")
    lines = [json.loads(line) for line in (here / "photos-moves.jsonl").read_text().splitlines()]
    assert [line["was"] for line in lines] == [WRONG, "light/broken.jpg"]
    assert command(*UNDO).out == "moved 2 photos\n"


# --- lists of actions -------------------------------------------------------------------------------------------------


def test_an_edited_list_relabels_moves_and_drops(here, command):
    before = content(here / "photos")
    rows = [
        (WRONG, " Relabel ", "light"),
        ("dark/1.png", "move", ""),
        ("dark/2.png", "drop", ""),
        ("dark/3.png", "", ""),
        ("dark/4.png", "relabel", "light"),  # where a photo has this name
        ("grey/more/9.png", "relabel", "empty"),
        ("grey/1.png", "keep", "light"),
        ("light/2.png", "relabel", "light"),
    ]
    write_actions(here / "todo.csv", rows)
    done = command("check", "photos", "--apply", "todo.csv", "--move", "away", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["moved"], result["failed"]) == (5, 0)
    after = content(here / "photos")
    assert after["light/planted.png"] == before[WRONG]
    assert after["empty/more/9.png"] == before["grey/more/9.png"]
    assert (after["light/4.png"], after["light/4 (2).png"]) == (before["light/4.png"], before["dark/4.png"])
    assert content(here / "away").keys() == {"dark/1.png", "dropped/dark/2.png"}
    assert command(*shlex.split(result["undo"])[1:]).code == 0
    assert content(here / "photos") == before


@pytest.mark.parametrize("name", ["todo.csv", "todo.jsonl"])
def test_the_list_that_a_check_wrote_can_be_applied_whatever_a_spreadsheet_would_take_for_formulas(name, here, command):
    photo = "=1+1;@x\n.png"
    shutil.move(here / "photos" / WRONG, here / "photos" / "dark" / photo)
    command(*CHECK, "-o", name)
    text = (here / name).read_text()
    if name.endswith("csv"):
        (row,) = [row for row in csv.DictReader((here / name).open(newline="")) if "+1" in row["file_name"]]
        write_actions(here / name, [(row["file_name"], "relabel", "light")])
    else:
        (here / name).write_text(text.replace('"action": ""', '"action": "relabel"', 1))
    done = command("check", "photos", "--apply", name)
    assert (done.code, "moved 1 photo\n" in done.out) == (0, True), done.err
    assert (here / "photos" / "light" / photo).exists()


@pytest.mark.parametrize(
    "row",
    [
        {"file_name": "../secret.png", "action": "move"},
        {"file_name": "dark/../../secret.png", "action": "drop"},
        {"file_name": "dark/0.png", "action": "relabel", "to": "../outside"},
        {"file_name": "dark/0.png", "action": "relabel", "to": "lihgt"},
        {"file_name": "dark/0.png", "action": "delete"},
        {"file_name": 7, "action": "move"},
        {"file_name": "light/IMG_1.NEF", "action": "move"},
        {"file_name": "dark/1.png", "action": "drop"},
    ],
)
def test_a_list_that_asks_for_anything_else_moves_nothing(row, here, command):
    (here / "secret.png").write_text("secret")
    lines = [{"file_name": "dark/1.png", "action": "move"}, row]
    (here / "todo.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    before = content(here)
    done = command("check", "photos", "--apply", "todo.jsonl", "--move", "away")
    assert (done.code, "todo.jsonl: line 2" in done.err) == (1, True)
    assert content(here) == before
