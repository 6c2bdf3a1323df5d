"""Commands that make a model or teach it more: `fit` and `add`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.terminal import show, show_json
from ..voters.registry import OWN
from .common import (
    Cache,
    Force,
    Insist,
    Jobs,
    Json,
    Mode,
    ModelArgument,
    ModelNetwork,
    Network,
    NoCache,
    NoReport,
    PhotosArgument,
    Quiet,
    ReportOption,
    Seed,
    Verbose,
    leave,
    load,
    report_file,
    size,
    tell_refusal,
    tell_skipped,
)
from .streams import interruption

_VOTERS = f"auto, {', '.join(OWN)}, or one that another package brings."

if TYPE_CHECKING:
    from ..classifier import ImageClassifier
    from ..models.about import Added


def fit(
    photos: PhotosArgument,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File to write.")] = Path("model.patchvote"),
    voter: Annotated[str, typer.Option(help=_VOTERS)] = "auto",
    target: Annotated[
        Path | None,
        typer.Option(help="Photos like those to come, without classes, where another camera or place takes them."),
    ] = None,
    insist: Insist = False,
    budget: Annotated[float, typer.Option(help="Seconds that trying settings and the training may take.")] = 60.0,
    network: Network = "efficientnet-lite0",
    mode: Annotated[Mode, typer.Option(help="dense: all cells of the feature map. patch: patches.")] = Mode.dense,
    report: ReportOption = None,
    no_report: NoReport = False,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    jobs: Jobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Learn to tell apart the classes in PHOTOS, a folder each, and write MODEL and a report."""
    from ..backbones.network_files import network_files
    from ..bags.boxes import Dense, Patch
    from ..bags.recipe import Recipe
    from ..classifier import ImageClassifier
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .progress import ProgressLine

    page = report_file(model.with_suffix(".html"), report, no_report)
    inputs = itertools.chain([photos, target], network_files(network))
    check_outputs([(model, Kind.model), (page, Kind.report)], inputs, force=force)
    recipe = Recipe(network, Dense() if mode is Mode.dense else Patch())
    classifier = ImageClassifier(
        recipe, voter=voter, budget=budget, cache=False if no_cache else cache, jobs=jobs, seed=seed
    )
    kept = "" if no_cache else " What the network has seen is kept: run the same command again to go on."
    with ProgressLine("extract", quiet) as line, interruption(f"interrupted; {model} was not written.{kept}"):
        classifier.fit(photos, target=target, insist=insist, progress=line.stage)
    tell_skipped(classifier)
    tell_refusal(classifier)
    classifier.save(model)
    if page:
        classifier.report(page, title=f"{model.stem}: {photos.name}", measured="on photos held out of the training")
    about = classifier.model.about
    if as_json:
        show_json({"model": str(model), "report": page and str(page), **_told(classifier)})
    elif not quiet:
        show(*_fit_lines(classifier, model, page))
        if verbose:
            show(*_seconds_lines(about.seconds, classifier))
    leave(classifier)


def add(
    model: ModelArgument,
    photos: PhotosArgument,
    output: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="MODEL itself, once all is done")
    ] = None,
    network: ModelNetwork = None,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    jobs: Jobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Teach MODEL more PHOTOS, of its classes or of new ones. The photos it was made from are not needed."""
    from ..backbones.network_files import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .progress import ProgressLine
    from .updating import add_and_save

    target = output or model

    def read() -> ImageClassifier:
        return load(model, network=network, jobs=jobs, cache=False if no_cache else cache, seed=seed)

    classifier = read()
    inputs = itertools.chain([photos], network_files(classifier.recipe.network))
    check_outputs([(target, Kind.model)], inputs, force=force)
    with ProgressLine("extract", quiet) as line, interruption(f"interrupted; {target} was not written."):
        classifier, changed = add_and_save(classifier, photos, target, reload=read, progress=line.stage)
    tell_skipped(classifier)
    nothing: Added = {"date": "", "images": {}, "new_classes": []}
    added = classifier.model.about.added[-1] if changed else nothing
    if as_json:
        show_json({"model": str(target), **added, **_told(classifier), "changed": changed, "known": classifier.known})
    elif not quiet:
        show(*_add_lines(classifier, target, added))
    leave(classifier)


def _add_lines(classifier: ImageClassifier, target: Path, added: Added) -> list[str]:
    again = f"{classifier.known:,} photos were learned before, and are not counted again."
    if not added["images"]:
        return [f"{target}: there was nothing new to learn.", *([again] if classifier.known else [])]
    what = ", ".join(f"{count:,} of {label}" for label, count in added["images"].items())
    fresh = f" New: {', '.join(new)}." if (new := added.get("new_classes", [])) else ""
    return [
        f"{target}: learned {what}.{fresh} It now knows {len(classifier.classes)} classes.",
        *([again] if classifier.known else []),
        f"`patchvote evaluate {target} PHOTOS` measures how good it is now.",
    ]


def _told(classifier: ImageClassifier) -> dict[str, Any]:
    about, filled = classifier.model.about, classifier.filled
    kept = {"extracted": filled.extracted, "kept": filled.kept, "reused": filled.reused}
    skipped = [{"name": error.name, "reason": error.reason} for error in classifier.skipped]
    keys = ("images", "held_out", "copies", "tried", "chosen", "cut", "adapted", "seconds")
    told = {key: getattr(about, key) for key in keys} | {"refusal": classifier.refusal}
    return {**told, "photos": kept, "skipped": skipped, "passed_over": classifier.passed_over.plain()}


def _fit_lines(classifier: ImageClassifier, model: Path, page: Path | None) -> list[str]:
    from ..models.report.card import accuracy_sentence, copies_sentences, cut_sentences

    about = classifier.model.about
    photos = sum(about.images.values())
    lines = [f"{photos:,} photos of {len(classifier.classes)} classes"]
    width = max((len(one["words"]) for one in about.tried), default=0)
    for one in about.tried:
        lines.append(f"  tried {one['words']:<{width}}  {100 * one['accuracy']:5.1f} %  in {one['seconds']:.1f} s")
    lines.append(f"chose {about.chosen['words']}: {about.chosen['why']}.")
    lines.extend([accuracy_sentence(about.held_out), *copies_sentences(about.copies), *cut_sentences(about.cut)])
    if adapted := about.adapted:
        lines.append(
            f"adapted to {adapted['photos']:,} photos without classes, {adapted['taken']:,} of them sure enough to "
            f'learn from and {adapted["rejected"]:,} still "none of these"; the accuracy above was measured before, on '
            "photos like the first."
        )
    lines.append(f"wrote {model} ({size(model)})" + (f" and {page}" if page else ""))
    return lines


def _seconds_lines(seconds: dict[str, float], classifier: ImageClassifier) -> list[str]:
    total = sum(seconds.values())
    lines = [f"  {name:<10} {took:8.2f} s {100 * took / max(total, 1e-9):6.1f} %" for name, took in seconds.items()]
    filled = classifier.filled
    return [*lines, f"  {filled.extracted:,} photos went through the network, {filled.kept:,} were in the cache"]
