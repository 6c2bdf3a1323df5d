"""The command `check`: what it prints and writes, and which photos it moves when it is told to."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image

from helpers.command import network_in
from patchvote.photos import placing

SHADES = {"dark": 0, "grey": 75, "light": 150}
WRONG = "dark/planted.png"


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


CHECK = ("check", "photos", "--network", "tiny.onnx", "--no-cache")


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def actions(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "action", "to"])
        writer.writerows(rows)


# --- looking ----------------------------------------------------------------------------------------------------------


def test_copies_are_found_in_each_of_several_folders_of_test_photos(here, command):
    (here / "later").mkdir()
    shutil.copy(here / "photos" / "grey" / "2.png", here / "later" / "b.png")
    done = command(*CHECK, "--test", "test", "--test", "later", "--no-report")
    assert "  light/5.png: the same as test/a.png of the test photos" in done.out
    assert "  grey/2.png: the same as later/b.png of the test photos" in done.out


def test_it_prints_and_writes_what_it_found_and_touches_no_photo(here, command):
    before = content(here / "photos")
    done = command(*CHECK, "--test", "test", "-o", "suspects.csv")
    assert done.code == 3  # a photo could not be read
    assert "33 photos of 3 classes" not in done.out
    assert "32 photos of 3 classes" in done.out
    assert f"  {WRONG}: looks like light (" in done.out
    assert "  grey/again.png: the same as grey/3.png" in done.out
    assert "  light/5.png: the same as a.png of the test photos" in done.out
    assert "wrote photos-check.html and suspects.csv" in done.out
    assert "skipped light/broken.jpg: is not an image" in done.err
    assert "passed over files: 1 with .nef" in done.err
    assert ".nef: Export such photos" in done.err
    assert "no photo was found in empty" in done.err
    assert content(here / "photos") == before
    rows = list(csv.DictReader((here / "suspects.csv").open(newline="")))
    assert [(row["file_name"], row["finding"], row["action"], row["to"]) for row in rows] == [
        (WRONG, "label", "", "light"),
        ("light/5.png", "in the test", "", ""),
        ("grey/again.png", "copy", "", ""),
        ("light/broken.jpg", "unreadable", "", ""),
    ]


def test_a_photo_without_a_class_is_told_with_all_other_findings(here, command):
    shutil.copy(here / "photos/light/5.png", here / "photos/loose.png")
    done = command(*CHECK, "-o", "suspects.csv")
    assert done.code == 3
    assert "skipped loose.png: has no class, and `fit` refuses it." in done.err
    assert "32 photos of 3 classes" in done.out
    assert "loose.png" not in (here / "suspects.csv").read_text()
    assert "loose.png" in (here / "photos-check.html").read_text()


def test_one_class_is_told_to_be_too_few(here, command):
    for name in ("grey", "light"):
        shutil.rmtree(here / "photos" / name)
    assert "With one class, labels cannot be checked: `fit` needs two" in command(*CHECK).out


def test_a_model_in_place_of_photos_is_told_what_it_is(here, command):
    assert command("fit", "photos", "m.patchvote", *CHECK[2:], "--no-report").code in (0, 3)
    done = command("check", "m.patchvote")
    assert done.code == 1
    assert "It is a model of patchvote: name the photos." in done.err


@pytest.mark.parametrize("words", [("check", "photos"), ("fit", "photos", "m.patchvote")])
@pytest.mark.parametrize("folder", ["photos", "photos/grey/cache"])
def test_a_cache_among_the_classes_is_refused(words, folder, here, command):
    before = content(here)
    done = command(*words, "--cache", folder)
    assert done.code == 2
    assert f"--cache {folder} is inside of photos, among the folders of its classes" in done.err
    assert content(here) == before


@pytest.mark.parametrize(
    ("option", "path", "says"),
    [
        ("--undo", "test", "--undo takes the record of an earlier run (…-moves.jsonl), and test is a folder."),
        ("--undo", "no.jsonl", "--undo takes the record of an earlier run (…-moves.jsonl), and no.jsonl is not there."),
        ("--apply", "no.csv", "--apply takes a list that --output wrote, and no.csv is not there."),
    ],
)
def test_a_list_that_is_no_file_is_told(option, path, says, here, command):
    done = command("check", "photos", option, path, "--move", "away")
    assert (done.code, says in done.err) == (2, True), done.err


def test_json_has_all_of_it(here, command):
    done = command(*CHECK, "--json", "--no-report")
    result = json.loads(done.out)
    assert result["photos"] == 32
    assert result["counts"] == {"label": 1, "copy": 1, "unreadable": 1}
    assert result["suspects"][0]["file_name"] == WRONG
    assert result["passed_over"]["empty"] == ["empty"]
    assert result["passed_over"]["advice"][0].startswith(".nef")
    assert result["report"] is None
    assert not list(here.glob("*.html"))


def test_the_advice_on_unreadable_types_is_told_once_and_not_when_quiet(here, command):
    (here / "photos" / "empty" / "2.heic.nef").write_bytes(b"raw")
    done = command(*CHECK, "--no-report")
    assert done.err.count("not readable here.") == 1
    assert done.err.count("RawTherapee") == 1
    assert done.err.count("Convert") == 0  # the short form of the same advice
    quiet = command(*CHECK, "--no-report", "--quiet")
    assert "not readable here." in quiet.err  # it is why the exit code is 3
    assert "RawTherapee" not in quiet.err
    assert quiet.out == ""


def test_a_second_check_renews_its_page_and_keeps_an_edited_list(here, command):
    command(*CHECK, "-o", "suspects.csv")
    done = command(*CHECK, "-o", "suspects.csv")
    assert done.code == 1
    assert "there is a list of suspects already" in done.err
    assert command(*CHECK, "-o", "suspects.csv", "--force").code == 3
    assert command(*CHECK, "-o", "photos/dark/1.png", "--force").code == 2
    (here / "photos-check.html").write_text("mine")
    assert "patchvote did not write it" in command(*CHECK).err


def test_a_fit_after_a_check_takes_its_bags_from_the_cache(here, command):
    command("check", "photos", "--network", "tiny.onnx", "--cache", "kept", "--no-report")
    done = command("fit", "photos", "m.patchvote", "--network", "tiny.onnx", "--cache", "kept", "--json", "--no-report")
    assert json.loads(done.out)["photos"]["extracted"] == 0


def test_fit_tells_in_a_few_lines_what_looks_wrong(here, command):
    done = command("fit", "photos", "m.patchvote", "--network", "tiny.onnx", "--no-cache", "--no-report")
    assert f"1 of the held-out photos looks mislabelled to this model: {WRONG} (light?). `patchvote check`" in done.out
    assert done.out.count("look alike") == 1
    again = command("fit", "photos", "n.patchvote", "--network", "tiny.onnx", "--no-cache", "--no-report", "--json")
    assert [row["file_name"] for row in json.loads(again.out)["suspects"]] == [WRONG]


def test_the_page_shows_every_suspect_and_asks_for_nothing(here, command):
    command(*CHECK)
    page = (here / "photos-check.html").read_text()
    assert page.count("<img src=") == page.count('<img src="data:image/jpeg;base64,') >= 2
    assert re.search(r"<b><bdi>dark</bdi></b>, looks like <b><bdi>light</bdi></b>", page)
    assert "Nothing was changed." in page


def test_the_page_names_what_could_not_be_compared(here, command):
    (here / "photos/alone").mkdir()
    noise(40, 7).save(here / "photos/alone/one.png")
    command(*CHECK)
    page = (here / "photos-check.html").read_text()
    assert "<p>1 photo could not be compared: no other photo has the class:</p>\n<p>  alone/one.png</p>" in page


# --- moving -----------------------------------------------------------------------------------------------------------


def test_suspects_are_moved_with_their_folders_and_come_back_when_it_is_undone(here, command):
    before = content(here / "photos")
    done = command(*CHECK, "--move", "away", "--no-report")
    assert "moved 3 photos" in done.out
    assert "to undo:\n  patchvote check photos --undo photos-moves.jsonl --move away" in done.out
    moved = content(here / "away")
    assert moved.keys() == {WRONG, "grey/again.png", "light/broken.jpg"}
    assert content(here / "photos") == {name: data for name, data in before.items() if name not in moved}
    back = command("check", "photos", "--undo", "photos-moves.jsonl", "--move", "away")
    assert (back.code, back.out) == (0, "moved 3 photos\n")
    assert content(here / "photos") == before
    assert content(here / "away") == {}


def test_a_photo_in_two_classes_stays_in_both_until_a_person_decides(here, command):
    noise(80, 7).save(here / "photos/grey/both.png")
    (here / "photos/alone").mkdir()  # a class of one photo, which nothing confirms
    shutil.copy(here / "photos/grey/both.png", here / "photos/alone/both.png")
    done = command(*CHECK, "--move", "away", "--no-report")
    assert "2 photos are also in other classes:" in done.out
    assert "2 suspects stay in place for you to decide" in done.out
    assert (here / "photos/grey/both.png").exists()
    assert (here / "photos/alone/both.png").exists()
    assert content(here / "away").keys() == {WRONG, "grey/again.png", "light/broken.jpg"}


def test_where_nothing_could_be_moved_nothing_is_offered_to_undo(here, command, monkeypatch):
    def full(source, target):
        raise OSError(errno.EROFS, "Read-only file system")

    before = content(here / "photos")
    monkeypatch.setattr("patchvote.photos.moves.move_new", full)
    done = command(*CHECK, "--move", "away", "--no-report")
    assert done.code == 3
    assert "moved 0 photos; 3 not" in done.out
    assert "to undo" not in done.out
    assert not list(here.glob("*-moves*.jsonl"))
    assert content(here / "photos") == before


def test_the_record_of_a_run_says_what_was_moved_and_what_was_not(here, command, monkeypatch):
    real = placing.move_new

    def some(source, target):
        if source.name == "again.png":
            raise OSError(errno.EACCES, "Permission denied")
        real(source, target)

    monkeypatch.setattr("patchvote.photos.moves.move_new", some)
    done = command(*CHECK, "--move", "away", "--no-report", "--quiet")
    assert (done.code, done.out) == (3, "")
    lines = [json.loads(line) for line in (here / "photos-moves.jsonl").read_text().splitlines()]
    assert [line["was"] for line in lines] == [WRONG, "light/broken.jpg"]
    back = command("check", "photos", "--undo", "photos-moves.jsonl", "--move", "away")
    assert (back.code, back.out) == (0, "moved 2 photos\n")


def test_undoing_says_which_folder_has_to_be_named(here, command):
    command(*CHECK, "--move", "away", "--no-report")
    done = command("check", "photos", "--undo", "photos-moves.jsonl")
    assert done.code == 1
    assert f"into another folder, '{here / 'away'}': name that folder with --move" in done.err
    assert "with --move" in " ".join(command("check", "--help").out.replace("│", " ").split())


def test_nothing_in_the_folder_is_overwritten(here, command):
    (here / "away" / "dark").mkdir(parents=True)
    (here / "away" / WRONG).write_text("mine")
    command(*CHECK, "--move", "away", "--no-report")
    assert (here / "away" / WRONG).read_text() == "mine"
    assert (here / "away" / "dark" / "planted (2).png").exists()
    command("check", "photos", "--undo", "photos-moves.jsonl", "--move", "away")
    assert (here / "photos" / WRONG).exists()


def test_an_edited_list_relabels_moves_and_drops(here, command):
    before = content(here / "photos")
    rows = [
        (WRONG, " Relabel ", "light"),
        ("dark/1.png", "move", ""),
        ("dark/2.png", "drop", ""),
        ("dark/3.png", "", ""),
    ]
    rows += [
        ("grey/more/9.png", "relabel", "empty"),
        ("grey/1.png", "keep", "light"),
        ("light/2.png", "relabel", "light"),
    ]
    actions(here / "todo.csv", rows)
    done = command("check", "photos", "--apply", "todo.csv", "--move", "away", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["moved"], result["failed"]) == (4, 0)
    after = content(here / "photos")
    assert after["light/planted.png"] == before[WRONG]
    assert after["empty/more/9.png"] == before["grey/more/9.png"]
    assert content(here / "away").keys() == {"dark/1.png", "dropped/dark/2.png"}
    assert len(after) == len(before) - 2
    assert command(*shlex.split(result["undo"])[1:]).code == 0
    assert content(here / "photos") == before


def test_relabelling_overwrites_nothing(here, command):
    actions(here / "todo.csv", [("dark/1.png", "relabel", "light")])
    before = content(here / "photos")
    assert command("check", "photos", "--apply", "todo.csv").code == 0
    after = content(here / "photos")
    assert after["light/1.png"] == before["light/1.png"]
    assert after["light/1 (2).png"] == before["dark/1.png"]


def test_the_list_that_a_check_wrote_can_be_applied_in_either_format(here, command):
    for name in ("todo.csv", "todo.jsonl"):
        command(*CHECK, "-o", name, "--no-report")
        text = (here / name).read_text()
        edited = text.replace('"action": ""', '"action": "relabel"', 1) if name.endswith("l") else None
        if edited is None:
            rows = list(csv.DictReader(text.splitlines()))
            rows[0]["action"] = "relabel"
            actions(here / name, [(row["file_name"], row["action"], row["to"]) for row in rows])
        else:
            (here / name).write_text(edited)
        done = command("check", "photos", "--apply", name, "--json")
        assert json.loads(done.out)["moved"] == 1, done.err
        assert (here / "photos/light/planted.png").exists()
        assert command(*shlex.split(json.loads(done.out)["undo"])[1:]).code == 0


def test_names_that_a_spreadsheet_would_take_for_formulas_are_found_again(here, command):
    name = "=1+1;@x\n.png"
    shutil.move(here / "photos" / WRONG, here / "photos" / "dark" / name)
    command(*CHECK, "-o", "todo.csv", "--no-report")
    (row,) = [row for row in csv.DictReader((here / "todo.csv").open(newline="")) if "+1" in row["file_name"]]
    actions(here / "todo.csv", [(row["file_name"], "relabel", "light")])
    assert command("check", "photos", "--apply", "todo.csv").code == 0
    assert (here / "photos" / "light" / name).exists()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"file_name": "../secret.png", "action": "move"}, "there is no photo '../secret.png' in photos"),
        ({"file_name": "/etc/passwd", "action": "move"}, "there is no photo '/etc/passwd'"),
        ({"file_name": "dark/../../secret.png", "action": "drop"}, "there is no photo"),
        ({"file_name": "dark/0.png", "action": "relabel", "to": "../outside"}, "there is no class '../outside'"),
        ({"file_name": "dark/0.png", "action": "relabel", "to": "lihgt"}, "Did you mean 'light'?"),
        ({"file_name": "dark/0.png", "action": "relabel"}, "relabel needs a class, and the column to is empty"),
        ({"file_name": "dark/0.png", "action": "relabel", "to": " "}, "relabel needs a class"),
        ({"file_name": "dark/0.png", "action": "relabel", "to": "new"}, "For a new class, make its folder in"),
        ({"file_name": "dark/0.png", "action": "relabel", "to": ["light"]}, "there is no class ['light']"),
        ({"file_name": "dark/0.png", "action": "delete"}, "action must be one of keep, relabel, move, drop or empty"),
        ({"file_name": "dark/0.png", "action": 7}, "action must be one of"),
        ({"file_name": 7, "action": "move"}, "there is no photo 7"),
        ({"action": "move"}, "there is no photo None"),
        ({"file_name": "light/IMG_1.NEF", "action": "move"}, "there is no photo"),
        ({"file_name": "dark/1.png", "action": "drop"}, "dark/1.png is to be moved twice. Leave one action of it."),
    ],
)
def test_a_list_that_asks_for_anything_else_moves_nothing(row, says, here, command):
    (here / "secret.png").write_text("secret")
    lines = [{"file_name": "dark/1.png", "action": "move"}, row]
    (here / "todo.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    before = content(here)
    done = command("check", "photos", "--apply", "todo.jsonl", "--move", "away")
    assert done.code == 1
    assert "todo.jsonl: line 2: " in done.err
    assert says in done.err
    assert content(here) == before


def test_photos_that_a_link_leads_to_are_not_moved(here, command):
    (here / "elsewhere").mkdir()
    noise(0, 1).save(here / "elsewhere/1.png")
    (here / "photos/linked").symlink_to(here / "elsewhere")
    (here / "photos/dark/link.png").symlink_to(here / "elsewhere/1.png")
    actions(
        here / "todo.csv", [("linked/1.png", "move", ""), ("dark/link.png", "move", ""), ("dark/1.png", "move", "")]
    )
    before = content(here / "elsewhere")
    done = command("check", "photos", "--apply", "todo.csv", "--move", "away")
    assert done.code == 3
    assert "linked/1.png: it was not moved: photos/linked leads outside of photos" in done.err
    assert "dark/link.png: it was not moved: it is a link" in done.err
    assert "moved 1 photo; 2 not" in done.out
    assert content(here / "elsewhere") == before
    (here / "photos/away").symlink_to(here / "elsewhere")
    actions(here / "todo.csv", [("dark/2.png", "relabel", "away")])
    assert command("check", "photos", "--apply", "todo.csv").code in (1, 3)
    assert content(here / "elsewhere") == before


def test_ctrl_c_while_photos_are_moved_says_how_to_undo_it(here, command, monkeypatch):
    real, before = placing.move_new, content(here / "photos")

    def interrupted(source, target):
        if source.name == "again.png":
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr("patchvote.photos.moves.move_new", interrupted)
    done = command(*CHECK, "--move", "away", "--no-report")
    assert done.code == 130
    assert "To undo what was moved: `patchvote check photos --undo photos-moves.jsonl --move away`" in done.err
    monkeypatch.undo()
    os.chdir(here)
    command("check", "photos", "--undo", "photos-moves.jsonl", "--move", "away")
    assert content(here / "photos") == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--apply", "a.csv", "--undo", "b.jsonl"), "--apply and --undo exclude each other"),
        (("--apply", "a.csv", "--test", "test"), "--apply checks nothing: leave out --test"),
        (("--undo", "a.jsonl", "-o", "x.csv"), "--undo checks nothing: leave out --output"),
        (("--move", "photos/away"), "--move needs a folder outside of photos"),
        (("--move", "."), "--move needs a folder outside of photos"),
        (("-o", "list.txt"), "--output writes .csv or .jsonl"),
        (("--report", "a.html", "--no-report"), "exclude each other"),
    ],
)
def test_words_that_exclude_each_other_are_refused_before_any_work(words, says, here, command):
    before = content(here)
    done = command("check", "photos", *words)
    assert done.code == 2
    assert says in done.err
    assert content(here) == before


@pytest.mark.parametrize(
    ("test", "how"),
    [
        ("photos", "is the same as"),
        ("./test/../photos", "is the same as"),
        ("linked", "is the same as"),
        ("photos/dark", "is inside of"),
        ("linked/dark", "is inside of"),
        (".", "contains"),
    ],
)
def test_test_photos_that_are_the_photos_are_refused(test, how, here, command):
    (here / "linked").symlink_to(here / "photos")
    before = content(here)
    done = command(*CHECK, "--test", test, "--move", "away", "--no-report")
    assert done.code == 2
    assert f"{how} photos, so that each test photo would be found to be its own copy" in done.err
    assert content(here) == before


def test_photos_that_a_list_or_a_link_names_as_test_photos_are_told_and_not_moved(here, command):
    (here / "test.csv").write_text("file_name,label\nphotos/light/5.png,light\n")
    (here / "links/light").mkdir(parents=True)
    (here / "links/light/5.png").symlink_to(here / "photos/light/5.png")
    before = content(here / "photos")
    for test in ("test.csv", "links"):
        assert "  light/5.png: the same as" in command(*CHECK, "--test", test, "--no-report").out
        done = command(*CHECK, "--test", test, "--move", "away", "--no-report")
        assert done.code == 2
        assert "--move would take 1 photo of photos away from the test as well" in done.err
    assert content(here / "photos") == before


def test_photos_of_a_manifest_are_checked_and_not_moved(here, command):
    rows = [f"photos/{label}/{index}.png,{label}\n" for label in SHADES for index in range(9)]
    (here / "list.csv").write_text("file_name,label\n" + "".join(rows))
    done = command("check", "list.csv", "--network", "tiny.onnx", "--no-cache")
    assert done.code == 0, done.err
    assert "27 photos of 3 classes" in done.out
    assert (here / "list-check.html").exists()
    done = command("check", "list.csv", "--move", "away")
    assert done.code == 2
    assert "photos are moved within a folder on this machine" in done.err
