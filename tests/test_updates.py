"""No update of a model is lost, and no photo counts twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import pytest

from helpers.command import network_in, words
from patchvote import ImageClassifier, Recipe
from patchvote.errors import ModelChangedError, WaitWarning
from patchvote.models.about import About, with_photos
from patchvote.models.file import read_model
from patchvote.utils.files import locked


@pytest.fixture(scope="module")
def learned(photo_folder, real_photos, tmp_path_factory):
    """A model of a network that takes no time, its photos, and two folders with photos of two new classes."""
    folder = tmp_path_factory.mktemp("learned")
    shutil.copytree(photo_folder, folder / "photos")
    recipe = Recipe(str(network_in(folder)))
    ImageClassifier(recipe, cache=False).fit(folder / "photos").save(folder / "m.patchvote")
    for label, names in (("cat", ("chelsea.png", "coins.png")), ("moon", ("moon.png", "rocket.jpg"))):
        (folder / f"more {label}" / label).mkdir(parents=True)
        for name in names:
            shutil.copy(real_photos / name, folder / f"more {label}" / label)
    return folder


@pytest.fixture
def made(learned, tmp_path):
    """A copy of the folder, which may be changed, the model and the photos in it."""
    folder = shutil.copytree(learned, tmp_path / "made")
    return folder, folder / "m.patchvote", folder / "photos"


# --- models -----------------------------------------------------------------------------------------------------------


def test_two_processes_that_add_at_once_lose_nothing(made):
    folder, model, _ = made
    commands = [words("add", model, folder / f"more {label}", "--no-cache") for label in ("cat", "moon")]
    running = [subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for one in commands]
    for process in running:
        said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert {"cat", "moon"} <= set(read_model(model).classes)
    assert not list(model.parent.glob(".*"))


COUNTING = """
import os, sys
from pathlib import Path
from patchvote.utils.files import locked, write_atomically
path, user = Path(sys.argv[1]), int(sys.argv[2])
os.setgroups([]), os.setgid(12345), os.setuid(user)
for _ in range(60):
    with locked(path):
        write_atomically(path, [str(int(path.read_bytes()) + 1).encode()])
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become two users")
def test_two_users_of_one_folder_lose_no_update():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # pytest's own folder is closed to other users
        folder = Path(name)
        (folder / "count").write_text("0")
        (folder / "count").chmod(0o664)
        folder.chmod(0o2775)
        for path in (folder, folder / "count"):
            os.chown(path, 0, 12345)
        started = [[sys.executable, "-c", COUNTING, str(folder / "count"), user] for user in ("12346", "12347")]
        running = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True) for one in started]
        said = [process.communicate(timeout=120)[1] for process in running]
        assert [process.returncode for process in running] == [0, 0], said
        assert (folder / "count").read_text() == "120"


def test_a_change_between_reading_and_writing_is_noticed_and_learned_from(made, command, monkeypatch):
    folder, model, _ = made
    other = ImageClassifier.load(model, cache=False).add(folder / "more cat")
    real_add = ImageClassifier.add

    def slow_add(self, *args, **more):
        monkeypatch.setattr(ImageClassifier, "add", real_add)
        done = real_add(self, *args, **more)
        other.save(model)  # somebody else is faster
        return done

    monkeypatch.setattr(ImageClassifier, "add", slow_add)
    assert command("add", model, folder / "more moon", "--no-cache").code == 0
    assert {"cat", "moon"} <= set(read_model(model).classes)


def test_a_model_that_was_changed_since_it_was_read_is_not_overwritten(made):
    folder, model, _ = made
    one, two = ImageClassifier.load(model, cache=False), ImageClassifier.load(model, cache=False)
    one.add(folder / "more cat").save(model)
    with pytest.raises(ModelChangedError, match="changed by another process"):
        two.add(folder / "more moon").save(model)
    assert "cat" in read_model(model).classes
    two.save(model.with_name("elsewhere.patchvote"))  # where nobody's work is lost
    one.add(folder / "more moon").save(model)  # what it wrote itself is no change by others
    assert {"cat", "moon"} <= set(read_model(model).classes)


# --- locks ------------------------------------------------------------------------------------------------------------


def test_whoever_waits_for_a_lock_is_told_so_after_a_second(tmp_path, monkeypatch):
    path, held, told = tmp_path / "m.pv", threading.Event(), threading.Event()
    warn = warnings.warn

    def hold() -> None:
        with locked(path):
            held.set()
            told.wait(60)

    def tell(*what: object, **more: object) -> None:
        warn(*what, **more)
        told.set()  # the lock is held until then

    monkeypatch.setattr(warnings, "warn", tell)
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    with pytest.warns(WaitWarning, match=r"until another process has written beside .*m\.pv"), locked(path):
        pass
    holder.join()
    assert told.is_set()


# --- photos that were learned before ----------------------------------------------------------------------------------


def test_the_same_folder_added_twice_counts_once(made, command):
    folder, model, _ = made
    add = ("add", model, folder / "more cat", "--no-cache")
    first = json.loads(command(*add, "--json").out)
    assert (first["images"]["cat"], first["known"], first["changed"]) == (2, 0, True)
    before = model.read_bytes()
    assert "nothing new" in command(*add).out
    told = json.loads(command(*add, "--json").out)
    assert (told["images"]["cat"], told["known"], told["changed"]) == (2, 2, False)
    assert model.read_bytes() == before


def test_a_known_photo_of_another_class_is_named_and_not_learned(made, command):
    _, model, photos = made
    (photos / "wrong" / "grass").mkdir(parents=True)
    shutil.copy(photos / "brick" / "brick no. 0.png", photos / "wrong" / "grass" / "x.png")
    done = command("add", model, photos / "wrong", "--no-cache")
    assert done.code == 3
    assert "skipped grass/x.png: it was learned as brick, and is not learned as grass, too." in done.err
    assert read_model(model).about.images["grass"] == 10


def test_so_many_photos_that_a_header_would_burst_are_not_kept(monkeypatch):
    monkeypatch.setattr("patchvote.models.about._MAX_PHOTOS", 3)
    about = with_photos(About(), [("a", "1"), ("b", "2"), ("a", "3")])
    assert about.known == {"1": {"a"}, "3": {"a"}, "2": {"b"}}
    assert with_photos(about, [("a", "4")]).known == {}
