"""Nothing leaves the machine, and nothing is written where nobody asked for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# A whole job, and then rest: what ONNX Runtime would report, it reports about 9 seconds after it was imported.
WORK = """
import sys, time
begin = time.monotonic()
from patchvote import Dense, ImageClassifier, Recipe
photos, photo, model = sys.argv[1:]
ImageClassifier(Recipe(sampling=Dense(sides=(64,)))).fit(photos).save(model)
classifier = ImageClassifier.load(model)
print(classifier.predict([photo])[0], classifier.explain(photo).ranking[0])
time.sleep(max(0, 15 - (time.monotonic() - begin)))
"""


def _tracer(trace: Path) -> list[str]:
    """Words that make a program tell its connections, where this machine allows it."""
    words = ["strace", "-f", "-qq", "-e", "signal=none", "-e", "trace=connect,sendto,sendmsg", "-o", str(trace)]
    if shutil.which("strace") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        return []
    return words


def test_fifteen_seconds_of_work_connect_nowhere_and_write_only_into_their_own_folders(photo_folder, tmp_path):
    folders = {name: tmp_path / name for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR", "PATCHVOTE_CACHE", "here")}
    for folder in folders.values():
        folder.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "ORT_"))}
    environment |= {name: str(folder) for name, folder in folders.items() if name != "here"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    trace = tmp_path / "trace"
    photo = next((photo_folder / "brick").iterdir())
    tracer = _tracer(trace)
    command = [*tracer, sys.executable, "-c", WORK, photo_folder, photo, folders["here"] / "m.patchvote"]
    done = subprocess.run(command, cwd=folders["here"], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "brick brick\n"
    written = {path for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR") for path in folders[name].rglob("*")}
    assert written == set()
    assert [path.name for path in folders["here"].iterdir()] == ["m.patchvote"]
    assert sorted(path.name for path in folders["PATCHVOTE_CACHE"].iterdir()) == ["bags", "networks"]
    if not tracer:
        pytest.skip("strace cannot be used here: whether anything was connected to is not known, all else is right")
    assert trace.read_text() == ""
