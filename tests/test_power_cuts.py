"""Power cuts: after each step of a command, what may be on the disk has every photo, and a whole model.

Commands run as they are and are recorded (`helpers.replay`); nothing is killed, and no step is left to luck.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.command import network_in, patchvote, words
from helpers.replay import Disk, Step, steps, traced
from patchvote.models.file import read_model

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, photo_folder: Path) -> Path:
    """A folder with photos of two classes, one more photo, unsorted ones, and a model of the former."""
    home = tmp_path / "home"
    for label in ("brick", "grass"):
        for number, photo in enumerate(sorted((photo_folder / label).iterdir())[:5]):
            place = home / (f"photos/{label}" if number < 3 else f"more/{label}" if number < 4 else "new")
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(photo, place)
    network_in(home)
    done = patchvote("fit", "photos", "m.patchvote", "--network", "tiny.onnx", "--no-report", cwd=home)
    assert not done.returncode, done.stderr
    return home


def run(home: Path, *parts: object, disk: Path | None = None) -> list[Step]:
    """Run a command in a folder; return its steps there, and on another disk."""
    before, log = Disk(*dict.fromkeys([home, disk or home])), Path(tempfile.mkdtemp(dir=home.parent)) / "log"
    done = subprocess.run(traced(words(*parts), log), cwd=home, capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr
    found = list(steps(before, log))
    assert found, "nothing was done"
    return found


def photos_of(files: dict[str, bytes]) -> set[bytes]:
    """Return the contents of all photos that have a name of their own."""
    return {content for name, content in files.items() if Path(name).suffix.lower() in (".png", ".jpg", ".webp")}


def losses(found: list[Step], wanted: set[bytes]) -> list[str]:
    """Return the steps after which a power cut may leave fewer photos than there were."""
    return [step.call for step in found if any(wanted - photos_of(state) for state in step.states)]


@pytest.mark.parametrize(
    "words", [["fit", "m.patchvote"], ["add", "more"], ["forget", "brick/brick no. 0*"]], ids=lambda w: w[0]
)
def test_a_model_is_whole_after_each_step(home, words):
    model = home / "m.patchvote"
    old = model.read_bytes()
    if words[0] == "fit":
        found = run(home, "fit", "more", model, "--force", "--network", "tiny.onnx", "--no-report")
    else:
        found = run(home, words[0], model, words[1])
    read_model(model)
    new = model.read_bytes()
    assert old != new
    assert {state.get(str(model)) for step in found for state in step.states} <= {old, new}
    assert {state[str(model)] for state in found[-1].states} == {new}


@pytest.fixture(params=["the same disk", "another disk"])
def place(request: pytest.FixtureRequest, home: Path) -> Iterator[Path]:
    """A folder to move photos into."""
    if request.param == "the same disk":
        yield home
    else:
        shared = Path("/dev/shm")
        if not shared.is_dir() or shared.stat().st_dev == home.stat().st_dev:
            pytest.skip("there is no second disk")
        folder = Path(tempfile.mkdtemp(dir=shared))
        yield folder
        shutil.rmtree(folder)


def test_no_photo_is_lost_while_photos_are_sorted(home, place):
    wanted = photos_of(Disk(home).states()[0])
    found = run(home, "predict", "m.patchvote", "new", "--sort-into", place / "sorted", "--move", disk=place)
    assert not losses(found, wanted)
    assert not list((home / "new").iterdir())


def test_no_photo_is_lost_while_photos_of_a_check_are_moved(home, place):
    shutil.copy(next((home / "photos" / "brick").iterdir()), home / "photos" / "grass")
    wanted = photos_of(Disk(home).states()[0])
    found = run(home, "check", "photos", "--move", place / "away", "--network", "tiny.onnx", disk=place)
    assert len(list((place / "away").rglob("*.*"))) == 1
    assert not losses(found, wanted)
    found = run(home, "check", "photos", "--undo", "photos-moves.jsonl", "--move", place / "away", disk=place)
    assert not losses(found, wanted)
    assert not list((place / "away").rglob("*.*"))
