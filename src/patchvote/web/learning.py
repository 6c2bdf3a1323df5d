"""Learning in a process of its own: `python -m patchvote.web.learning`, with a job as a line of JSON on standard input.

It reads photos of a workspace, writes model, report and names into the folder of a run, and tells its progress as lines
of JSON on standard output. It changes nothing else: the server makes the run the present one when it is complete. The
process has a lower priority than the server, whose answers come first, and ends when the server does, however that
ends: its standard input is then closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from ..classifier import ImageClassifier
from ..errors import PatchvoteError
from ..models.answers import Answer
from ..models.check.check import check_photos
from ..models.check.findings import Checked
from ..photos.find import Photo
from ..utils.files import write_atomically
from .reporting import report_of
from .tasks import Task

_NICE = 10  # lower priority than the server, which answers meanwhile
_PAUSE = 0.1  # seconds between two lines of progress

Tell = Callable[[str, int, int], None]


def learn(task: Task, tell: Tell) -> None:
    """Learn, check and suggest, and write model, report and names.

    Parameters
    ----------
    task : Task
        What to learn.
    tell : function
        Called with the name of the stage, how much of it is done, and its total.
    """
    start, folder, run = time.perf_counter(), Path(task.photos), Path(task.run)
    settings: dict[str, Any] = {"cache": Path(task.bags), "jobs": task.jobs, "device": task.device}
    if task.base is None:
        classifier = ImageClassifier(voter=task.voter, budget=task.budget, **settings)
    else:
        classifier = ImageClassifier.load(task.base, network=task.network, **settings)
    taken = set() if task.base is None else set(classifier.model.names)
    # A model calls photos by class and name, as those of a folder: that is what its card shows.
    names = unique_names([f"{label}/{name}" for _, name, label in task.labelled], taken)
    photos = [Photo(name, folder / photo, label) for name, (photo, _, label) in zip(names, task.labelled, strict=True)]
    free = unique_names([name for _, name in task.unlabelled], set(names))
    others = [Photo(name, folder / photo) for name, (photo, _) in zip(free, task.unlabelled, strict=True)]
    ids = {photo.name: Path(str(photo.source)).name for photo in (*photos, *others)}
    if task.base is None:
        classifier.fit(photos, progress=tell)
    else:
        classifier.add(photos, progress=tell)
    classifier.save(run / "model.patchvote")
    skipped = list(classifier.skipped)
    checked = _checked(photos, classifier, task, tell)
    suggestions = _suggestions(others, classifier, task.suggest, tell)
    classifier.skipped = skipped  # of the labelled photos
    report = report_of(
        classifier, checked, suggestions, ids, "fit" if task.base is None else "add", time.perf_counter() - start
    )
    write_atomically(run / "report.json", [json.dumps(report, allow_nan=False).encode()])
    write_atomically(run / "names.json", [json.dumps({name: ids[name] for name in names}).encode()])


def unique_names(names: Iterable[str], taken: set[str]) -> list[str]:
    """Return names, with a number behind each that is taken.

    Examples
    --------
    >>> unique_names(["cat/1.jpg", "cat/1.jpg", "dog/1.jpg"], {"dog/1.jpg"})
    ['cat/1.jpg', 'cat/1.jpg (2)', 'dog/1.jpg (2)']
    """
    used, unique = set(taken), []
    last: dict[str, int] = {}  # the last number that a name got, so that no number is tried twice
    for first in names:
        name, number = first, last.get(first, 1)
        while name in used:
            number += 1
            name = f"{first} ({number})"
        last[first] = number
        used.add(name)
        unique.append(name)
    return unique


def _checked(photos: list[Photo], classifier: ImageClassifier, task: Task, tell: Tell) -> Checked | None:
    """Look for copies and wrong labels; the bags of the photos are in the cache."""
    if len({photo.label for photo in photos}) < 2:
        return None
    tell("check", 0, len(photos))
    return check_photos(photos, classifier.extractor, cache=Path(task.bags))


def _suggestions(photos: list[Photo], classifier: ImageClassifier, count: int, tell: Tell) -> list[Answer]:
    if not photos or not count:
        return []
    return classifier.suggest(photos, count, progress=lambda _, done, total: tell("suggest", done, total))


def main() -> None:
    """Learn what a line on standard input says, and end with the process that started this one."""
    lines = _own_output()
    task = Task(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(AttributeError, OSError):  # Windows has no such call
        os.nice(_NICE)
    last = ("", 0.0)

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if stage != last[0] or done == total or now - last[1] > _PAUSE:
            last = stage, now
            _write(lines, {"stage": stage, "done": done, "total": total})

    try:
        learn(task, tell)
        _write(lines, {"end": "done"})
    except PatchvoteError as error:
        _write(lines, {"end": "failed", "message": str(error)})
    except MemoryError:
        _write(lines, {"end": "failed", "message": "there is not enough memory to learn from so many photos."})
    except OSError as error:  # such as a full disk; its text names a path
        _write(lines, {"end": "failed", "message": f"a file could not be read or written: {error.strerror}."})
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        _write(lines, {"end": "fault", "message": f"{type(error).__name__} at {where}"})


def _own_output() -> TextIO:
    """Return standard output for the lines of progress alone; whatever else is printed goes to standard error."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return lines


def _write(lines: TextIO, value: dict[str, Any]) -> None:
    try:
        lines.write(json.dumps(value) + "\n")
        lines.flush()
    except OSError:  # nobody reads any more: the server has ended
        os._exit(1)


def _end_with_parent() -> None:
    """Wait until standard input is closed, which the system does when the server ends."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
