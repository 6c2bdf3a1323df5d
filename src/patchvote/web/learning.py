"""Learning in a process of its own: `python -m patchvote.web.learning`, with a job as a line of JSON on standard input.

It reads photos of a workspace, writes model, report and names into the folder of a run, and tells its progress as lines
of JSON on standard output. It changes nothing else: the server makes the run the present one when it is complete. The
process has a lower priority than the server, whose answers come first, and ends when the server does, however that
ends: its standard input is then closed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from ..classifier import ImageClassifier
from ..errors import PatchvoteError
from ..models.answers import Answer, row
from ..models.check.check import check_photos
from ..models.check.findings import Checked
from ..models.learning_curve import enough_sentence, expected_gain, hardest_class
from ..models.report.card import accuracy_of, few_classes
from ..models.scores import Scores
from ..photos.find import Photo
from ..photos.placing import file_names
from ..utils.files import write_atomically
from .decoding import Decoders

_NICE = 10  # lower priority than the server, which answers meanwhile
_MAX_ENTRIES = 500  # of each list of the report

Tell = Callable[[str, int, int], None]  # takes the name of a stage, how much of it is done, and its total


@dataclasses.dataclass(frozen=True)
class Task:
    """What to learn, as the server hands it to the process that learns."""

    photos: str  # folder of the photos, which are named by their ids
    run: str  # folder to write into
    bags: str  # folder of the cache
    labelled: list[list[str]]  # id, name and class of every labelled photo
    unlabelled: list[list[str]]  # id and name of every unlabelled photo
    base: str | None = None  # model to add to; None starts anew
    network: str | None = None  # of that model, if its file does not tell it
    voter: str = "auto"
    budget: float = 60.0  # seconds for trying settings and training
    suggest: int = 12  # unlabelled photos to suggest
    jobs: int | None = None
    device: str = "cpu"


def learn(task: Task, tell: Tell) -> None:
    """Learn, check and suggest, and write model, report and names."""
    start, run = time.perf_counter(), Path(task.run)
    settings: dict[str, Any] = {"cache": Path(task.bags), "jobs": task.jobs, "device": task.device}
    if task.base is None:
        classifier = ImageClassifier(voter=task.voter, budget=task.budget, **settings)
    else:
        classifier = ImageClassifier.load(task.base, network=task.network, **settings)
    classifier.extractor.decode = Decoders()
    taken = [] if task.base is None else classifier.model.names
    # A model calls photos by class and name, as those of a folder: that is what its card shows.
    names = different([f"{label}/{name}" for _, name, label in task.labelled], taken)
    free = different([name for _, name in task.unlabelled], names)
    ids = dict(zip([*names, *free], [one[0] for one in (*task.labelled, *task.unlabelled)], strict=True))
    folder, labels = Path(task.photos), [label for *_, label in task.labelled]
    photos = [Photo(name, folder / ids[name], label) for name, label in zip(names, labels, strict=True)]
    if task.base is None:
        classifier.fit(photos, progress=tell)
    else:
        classifier.add(photos, progress=tell)
    classifier.save(run / "model.patchvote")
    skipped = classifier.skipped[:_MAX_ENTRIES]  # of the labelled photos
    checked = Checked({})
    if len(set(labels)) > 1:
        tell("check", 0, len(photos))
        checked = check_photos(photos, classifier.extractor, cache=Path(task.bags))
    suggestions: list[Answer] = []
    if free and task.suggest:
        others = [Photo(name, folder / ids[name]) for name in free]
        suggestions = classifier.suggest(others, task.suggest, progress=lambda _, *done: tell("suggest", *done))
    report = {
        "mode": "fit" if task.base is None else "add",
        "seconds": round(time.perf_counter() - start, 2),
        **_found(classifier, checked, ids),
        "suggestions": [row(answer) | {"photo": ids[answer.name]} for answer in suggestions],
        "skipped": [{"photo": ids.get(error.name), "reason": error.reason} for error in skipped],
    }
    write_atomically(run / "report.json", [json.dumps(report, allow_nan=False).encode()])
    write_atomically(run / "names.json", [json.dumps({name: ids[name] for name in names}).encode()])


def different(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Return names of which no two are the same, even where case does not count: with a number before the ending."""
    every = [*taken, *names]
    endings = [PurePosixPath(name).suffix for name in every]
    stems = file_names(name.removesuffix(ending) for name, ending in zip(every, endings, strict=True))
    return [stem + ending for stem, ending in zip(stems, endings, strict=True)][len(taken) :]


def _found(classifier: ImageClassifier, checked: Checked, ids: Mapping[str, str]) -> dict[str, Any]:
    """Return accuracy, mistakes, what to look at, and whether more photos would help; photos are named by their ids."""
    about, scores = classifier.model.about, classifier.scores
    classes = {} if about.held_out is None else about.held_out.get("classes", {})
    hardest = hardest_class(classes)
    return {
        "date": datetime.date.today().isoformat(),
        "photos": sum(about.images.values()),
        "held_out": None if scores is None else scores.summary(),
        "sentence": accuracy_of(about),
        "mistakes": [] if scores is None else mistakes_of(scores, ids),
        "more_photos": {
            "sentence": enough_sentence(about.curve, classes, few=few_classes(classifier.model)),
            "class": None if hardest is None else hardest[0],
            "gain": round(expected_gain(about.curve), 4) if len(about.curve) > 1 else None,
            "curve": [dict(point) for point in about.curve],
            "few": checked.few,
        },
        "suspects": [
            {
                "photo": ids[suspect.name],
                "label": suspect.label,
                "finding": str(suspect.kind),
                "looks_like": suspect.looks_like or None,
                "probability": None if suspect.probability is None else round(suspect.probability, 4),
                "details": suspect.details,
                "others": [ids[name] for name in suspect.others],
            }
            for suspect in checked.suspects[:_MAX_ENTRIES]
        ],
        "alike": [[ids[name] for name in group] for group in checked.alike[:_MAX_ENTRIES]],
    }


def mistakes_of(scores: Scores, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the held-out photos of the workspace whose likeliest class is wrong, the surest first."""
    rejected = scores.rejected.tolist()
    return [
        {
            "photo": ids[scores.names[index]],
            "label": scores.classes[scores.expected[index]],
            "likeliest": scores.classes[scores.predicted[index]],
            "likeliest_probability": round(float(scores.confidence[index]), 4),
            "rejected": rejected[index],
        }
        for index in scores.worst(_MAX_ENTRIES).tolist()
        if scores.names[index] in ids  # an opened model has learned others
    ]


def main() -> None:
    """Learn what a line on standard input says, and end with the process that started this one."""
    # Whatever else is printed goes to standard error.
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    task = Task(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(AttributeError, OSError):  # Windows has no such call
        os.nice(_NICE)
    try:
        learn(task, lambda stage, done, total: _write(lines, stage=stage, done=done, total=total))
        _write(lines, end="done")
    except PatchvoteError as error:
        _write(lines, end="failed", message=str(error))
    except MemoryError:
        _write(lines, end="failed", message="there is not enough memory to learn from so many photos.")
    except OSError as error:  # such as a full disk; its text names a path
        _write(lines, end="failed", message=f"a file could not be read or written: {error.strerror}.")
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        _write(lines, end="fault", message=f"{type(error).__name__} at {where}")


def _write(lines: TextIO, **values: Any) -> None:
    print(json.dumps(values), file=lines, flush=True)


def _end_with_parent() -> None:
    """Wait until standard input is closed, which the system does when the server ends."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
