"""Commands about models: `fit`, `predict`, `explain`, `evaluate`, `add`, and what `info` tells of a model."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import PatchvoteError
from .common import (
    INTERRUPTED,
    SKIPPED,
    Cache,
    Jobs,
    Json,
    Mode,
    ModelArgument,
    Network,
    NoCache,
    PhotosArgument,
    Quiet,
    Seed,
    Verbose,
    say,
    size,
)

if TYPE_CHECKING:
    from ..classifier import Answer, ImageClassifier
    from ..photos import Photo
    from ..scores import Scores

ReportOption = Annotated[
    Path | None, typer.Option(help="File of the report.", show_default="beside the model, ending in .html")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.")]


def fit(
    photos: PhotosArgument,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File to write.")] = Path("model.patchvote"),
    voter: Annotated[str, typer.Option(help="auto, bagsvm, snbnl, nbnl, nbnn or localnbnn.")] = "auto",
    target: Annotated[
        Path | None,
        typer.Option(help="Photos like those to come, without classes, where another camera or place takes them."),
    ] = None,
    budget: Annotated[float, typer.Option(help="Seconds that trying settings may take.")] = 60.0,
    network: Network = "efficientnet-lite0",
    mode: Annotated[Mode, typer.Option(help="dense: all cells of the feature map. patch: patches.")] = Mode.dense,
    report: ReportOption = None,
    no_report: NoReport = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    jobs: Jobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Learn to tell apart the classes in PHOTOS, a folder each, and write MODEL and a report."""
    from ..classifier import ImageClassifier
    from ..grid import Dense, Patch
    from ..progress import ProgressLine
    from ..recipe import Recipe

    _check_folder(model)
    recipe = Recipe(network, Dense() if mode is Mode.dense else Patch())
    classifier = ImageClassifier(
        recipe, voter=voter, budget=budget, cache=False if no_cache else cache, jobs=jobs, seed=seed
    )
    with ProgressLine("extract", quiet) as line:
        try:
            classifier.fit(photos, target=target, progress=line.stage)
        except KeyboardInterrupt:
            kept = "" if no_cache else " What the network has seen is kept: run the same command again to go on."
            say(f"interrupted; {model} was not written.{kept}")
            raise typer.Exit(INTERRUPTED) from None
    _tell_skipped(classifier)
    classifier.save(model)
    page = _report_file(model, report, no_report)
    if page:
        classifier.report(page, title=f"{model.stem}: {photos.name}", measured="on photos held out of the training")
    about = classifier.model.about
    if as_json:
        print(json.dumps({"model": str(model), "report": page and str(page), **_told(classifier)}))
    elif not quiet:
        print("\n".join(_fit_lines(classifier, model, page)))
        if verbose:
            print("\n".join(_seconds_lines(about["seconds"], classifier)))
    _leave(classifier)


def add(
    model: ModelArgument,
    photos: PhotosArgument,
    output: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="MODEL itself, once all is done")
    ] = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    jobs: Jobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Teach MODEL more PHOTOS, of its classes or of new ones. The photos it was made from are not needed."""
    from ..progress import ProgressLine

    target = output or model
    _check_folder(target)
    classifier = _load(model, jobs=jobs, cache=False if no_cache else cache, seed=seed)
    with ProgressLine("extract", quiet) as line:
        classifier.add(photos, progress=line.stage)
    _tell_skipped(classifier)
    classifier.save(target)
    added = classifier.model.about["added"][-1]
    if as_json:
        print(json.dumps({"model": str(target), **added, **_told(classifier)}))
    elif not quiet:
        what = ", ".join(f"{count:,} of {label}" for label, count in added["images"].items())
        fresh = f" New: {', '.join(added['new_classes'])}." if added["new_classes"] else ""
        print(f"{target}: learned {what}.{fresh} It now knows {len(classifier.classes)} classes.")
        print(f"`patchvote evaluate {target} PHOTOS` measures how good it is now.")
    _leave(classifier)


def evaluate(
    model: ModelArgument,
    photos: PhotosArgument,
    report: ReportOption = None,
    no_report: NoReport = False,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare the answers of MODEL for labelled PHOTOS with their labels, and write a report."""
    from ..progress import ProgressLine

    classifier = _load(model, jobs=jobs)
    with ProgressLine("evaluate", quiet) as line:
        scores = classifier.evaluate(photos, progress=line.stage)
    _tell_skipped(classifier)
    page = _report_file(model.with_name(f"{model.stem}-{photos.stem}"), report, no_report)
    if page:
        measured = f"on {len(scores):,} photos of {photos.name}"
        classifier.report(page, title=f"{model.stem} on {photos.name}", measured=measured)
    if as_json:
        print(json.dumps({"model": str(model), "report": page and str(page), **scores.summary()}))
    elif not quiet:
        print("\n".join(_scores_lines(scores)))
        if page:
            print(f"wrote {page}")
    _leave(classifier)


def predict(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS…", help="Photos, folders or lists; - reads paths from standard input."),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a .csv or .jsonl file.")] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt to PHOTOS first, where another camera or place took them.")
    ] = False,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON a photo.")] = False,
) -> None:
    """Name PHOTOS: a table on a terminal, CSV in a pipe or a file."""
    from ..progress import ProgressLine

    classifier = _load(model, jobs=jobs)
    progress = ProgressLine("extract", quiet or not adapt)
    answers = classifier.answers(_photos(photos), adapt=adapt, progress=progress.stage)
    bad = 0

    def counted() -> Iterator[Answer]:
        nonlocal bad
        with progress:
            first = next(answers, None)  # once the first is there, all photos have been looked at
        for answer in itertools.chain([first] if first else [], answers):
            if answer.error is not None:
                bad += 1
                say(f"skipped {answer.error}")
            yield answer

    if output is not None:
        if output.suffix.lower() not in (".csv", ".jsonl"):
            raise PatchvoteError(f"--output writes .csv or .jsonl, got {output}.")
        _check_folder(output)
        lines = _json_lines if output.suffix.lower() == ".jsonl" else _csv_lines
        _write(output, (f"{line}\n".encode() for line in lines(counted())))
        if not quiet:
            say(f"wrote {output}")
    else:
        terminal = sys.stdout.isatty()
        way = _json_lines if as_json else _table_lines if terminal else _csv_lines
        for line in way(counted()):
            print(line, flush=terminal or as_json)
    if bad:
        raise typer.Exit(SKIPPED)


def explain(
    model: ModelArgument,
    photo: Annotated[Path, typer.Argument(metavar="PHOTO", help="One photo.")],
    label: Annotated[
        list[str] | None,
        typer.Option("--class", help="Class to draw; may be repeated.", show_default="likeliest and runner-up"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="PNG to write.", show_default="PHOTO-evidence.png here")
    ] = None,
    arrays: Annotated[Path | None, typer.Option(help="Also write votes, boxes and maps to this .npz file.")] = None,
    photos: Annotated[
        Path | None,
        typer.Option(help="Folder of the training photos, to draw the parts that match (models of NBNN)."),
    ] = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw where in PHOTO the votes for a class come from."""
    from ..images import load_image
    from ..photos import Photo, find_photos
    from ..picture import draw, draw_matches, encoded

    classifier = _load(model, jobs=jobs)
    evidence = classifier.explain(photo, label[0] if label else None)
    image = load_image(Photo(photo.name, photo))
    target = output or Path(f"{photo.stem}-evidence.png")
    _check_folder(target)
    _write(target, [encoded(draw(evidence, image, label))])
    written = [target]
    if evidence.matches and photos is not None:
        wanted = {match.name for match in evidence.matches[:5]}
        others = {one.name: load_image(one) for one in find_photos(photos) if one.name in wanted}
        written.append(target.with_name(f"{target.stem}-matches.png"))
        _write(written[-1], [encoded(draw_matches(evidence, image, others))])
    if arrays is not None:
        _check_folder(arrays)
        _write_arrays(arrays, evidence)
        written.append(arrays)
    if as_json:
        probability = dict(zip(evidence.classes, evidence.probability.tolist(), strict=True))
        matches = [dataclasses.asdict(match) for match in evidence.matches[:5]]
        told = {"photo": str(photo), "probability": probability, "matches": matches, "files": [str(p) for p in written]}
        print(json.dumps(told))
    elif not quiet:
        for name in evidence.ranking[:3]:
            number = evidence.number(name)
            print(f"{100 * evidence.probability[number]:5.1f} %  {name}")
        for match in evidence.matches[:5]:
            print(f"  {_place(match.box)} looks like {_place(match.there)} of {match.name}")
        print(f"wrote {' and '.join(map(str, written))}")


def model_info(path: Path, card: bool, as_json: bool) -> None:
    """Tell what a model is and how good it is."""
    from ..card import accuracy_sentence
    from ..model import read_model

    model = read_model(path)
    if card:
        print(model.card)
        return
    if as_json:
        told = {"kind": model.kind, "classes": list(model.classes), "recipe": json.loads(model.recipe.to_json())}
        print(json.dumps({"model": str(path), **told, "fingerprint": model.fingerprint, "about": model.about}))
        return
    images = model.about.get("images", {})
    rows = [
        ("model", f"{path} ({size(path)}), {model.kind}: {model.about.get('chosen', {}).get('words', '')}"),
        ("network", f"{model.recipe.network}, {model.recipe.mode} (fingerprint {model.fingerprint})"),
        ("accuracy", accuracy_sentence(model.about.get("held_out"))),
        ("classes", ", ".join(f"{label} ({images.get(label, 0):,})" for label in model.classes)),
    ]
    for name, text in rows:
        print(f"{name:<10} {text}")


# --- what the commands share ----------------------------------------------------------------------------------------


def _load(path: Path, **settings: Any) -> ImageClassifier:
    from ..classifier import ImageClassifier

    return ImageClassifier.load(path, **settings)


def _photos(words: list[str]) -> Any:
    """Return one folder or list as it is, so that names stay short; several things as the photos in all of them."""
    from ..photos import find_photos

    if words == ["-"]:
        words = [line.strip() for line in sys.stdin if line.strip()]
        if not words:
            raise PatchvoteError("standard input names no photo. Give one path a line.")
    found: list[Photo] = []
    for word in words:
        path = Path(word)
        if path.is_dir() or path.suffix.lower() in (".csv", ".jsonl"):
            found.extend(dataclasses.replace(one, name=str(path / one.name)) for one in find_photos(path))
        else:
            found.extend(find_photos([path]))
    return found


def _tell_skipped(classifier: ImageClassifier) -> None:
    for error in classifier.skipped:
        say(f"skipped {error}")


def _leave(classifier: ImageClassifier) -> None:
    if classifier.skipped:
        raise typer.Exit(SKIPPED)


def _check_folder(path: Path) -> None:
    """Say that a file cannot be written before the work begins, not after it."""
    folder = path.parent
    if not folder.is_dir():
        raise PatchvoteError(f"{path} cannot be written: there is no folder {folder}.")
    if path.is_dir():
        raise PatchvoteError(f"{path} cannot be written: it is a folder.")


def _report_file(model: Path, report: Path | None, no_report: bool) -> Path | None:
    if no_report:
        return None
    page = report or model.with_suffix(".html")
    _check_folder(page)
    return page


def _told(classifier: ImageClassifier) -> dict[str, Any]:
    about, filled = classifier.model.about, classifier.filled
    kept = {"extracted": filled.extracted, "kept": filled.kept, "reused": filled.reused}
    skipped = [{"name": error.name, "reason": error.reason} for error in classifier.skipped]
    keys = ("images", "held_out", "tried", "chosen", "adapted", "seconds")
    return {**{key: about.get(key) for key in keys}, "photos": kept, "skipped": skipped}


def _fit_lines(classifier: ImageClassifier, model: Path, page: Path | None) -> list[str]:
    from ..card import accuracy_sentence

    about = classifier.model.about
    photos = sum(about["images"].values())
    lines = [f"{photos:,} photos of {len(classifier.classes)} classes"]
    width = max((len(one["words"]) for one in about["tried"]), default=0)
    for one in about["tried"]:
        lines.append(f"  tried {one['words']:<{width}}  {100 * one['accuracy']:5.1f} %  in {one['seconds']:.1f} s")
    lines.append(f"chose {about['chosen']['words']}: {about['chosen']['why']}.")
    lines.append(accuracy_sentence(about["held_out"]))
    if adapted := about.get("adapted"):
        lines.append(
            f"adapted to {adapted['photos']:,} photos without classes, {adapted['taken']:,} of them sure enough to "
            "learn from; the accuracy above was measured before, on photos like the first."
        )
    lines.append(f"wrote {model} ({size(model)})" + (f" and {page}" if page else ""))
    return lines


def _seconds_lines(seconds: dict[str, float], classifier: ImageClassifier) -> list[str]:
    total = sum(seconds.values())
    lines = [f"  {name:<10} {took:8.2f} s {100 * took / max(total, 1e-9):6.1f} %" for name, took in seconds.items()]
    filled = classifier.filled
    return [*lines, f"  {filled.extracted:,} photos went through the network, {filled.kept:,} were in the cache"]


def _scores_lines(scores: Scores) -> list[str]:
    low, high = scores.interval
    width = max(map(len, scores.classes))
    lines = [
        f"{100 * scores.accuracy:.1f} % of {len(scores):,} photos are named rightly "
        f"({100 * low:.1f} to {100 * high:.1f} %, 95 % confidence)"
    ]
    for own in scores.by_class():
        if own.images:
            lines.append(f"  {own.label:<{width}} {100 * own.found:5.1f} % of {own.images:,}")
    if scores.rejected.any():
        lines.append(f'{int(scores.rejected.sum()):,} would rather be "none of these"')
    return lines


def _row(answer: Answer) -> dict[str, Any]:
    from ..voting import NONE

    return {
        "file": answer.name,
        "label": NONE if answer.rejected else answer.label or "",
        "probability": round(answer.probability, 4),
        "likeliest": answer.label or "",
        "runner_up": answer.runner_up or "",
        "runner_up_probability": round(answer.runner_up_probability, 4),
        "error": answer.error.reason if answer.error else "",
    }


def _json_lines(answers: Iterable[Answer]) -> Iterator[str]:
    for answer in answers:
        yield json.dumps(_row(answer), ensure_ascii=False)


def _csv_lines(answers: Iterable[Answer]) -> Iterator[str]:
    text = io.StringIO()
    writer = None
    for answer in answers:
        row = _row(answer)
        if writer is None:
            writer = csv.DictWriter(text, list(row), lineterminator="")
            writer.writeheader()
            yield _taken(text)
        writer.writerow(row)
        yield _taken(text)


def _taken(text: io.StringIO) -> str:
    line = text.getvalue()
    text.seek(0)
    text.truncate()
    return line


def _table_lines(answers: Iterable[Answer]) -> Iterator[str]:
    for answer in answers:
        name = answer.name if len(answer.name) <= 48 else "…" + answer.name[-47:]
        if answer.error is not None:
            yield f"{name:<48}  cannot be read"
            continue
        row = _row(answer)
        label = f"{row['label']} ({answer.label}?)" if answer.rejected else row["label"]
        second = f"{answer.runner_up} {100 * answer.runner_up_probability:.0f} %"
        yield f"{name:<48}  {100 * answer.probability:3.0f} %  {label:<24}  else {second}"


def _place(box: tuple[float, float, float, float]) -> str:
    """Say where in a photo a box is."""
    across, down = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if min(box[2] - box[0], box[3] - box[1]) > 0.9:
        return "the whole"
    row = "top" if down < 1 / 3 else "bottom" if down > 2 / 3 else ""
    column = "left" if across < 1 / 3 else "right" if across > 2 / 3 else ""
    return f"the {' '.join(filter(None, (row, column))) or 'middle'}"


def _write(path: Path, parts: Iterable[bytes]) -> None:
    from ..files import write_atomically

    try:
        write_atomically(path, parts)
    except OSError as error:
        raise PatchvoteError(f"{path} cannot be written: {error.strerror or error}.") from error


def _write_arrays(path: Path, evidence: Any) -> None:
    import numpy as np

    data = io.BytesIO()
    maps = np.stack([evidence.map(label, 64, 64) for label in evidence.classes])
    np.savez(
        data,
        classes=np.array(evidence.classes),
        votes=evidence.votes,
        boxes=evidence.boxes,
        probability=evidence.probability,
        maps=maps,
    )
    _write(path, [data.getvalue()])
