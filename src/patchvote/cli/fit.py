"""Commands that make a model or teach it more: `fit` and `add`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.counting import counted
from ..utils.terminal import show, show_json
from ..voters.registry import OWN
from .common import (
    Cache,
    Force,
    Insist,
    Jobs,
    Json,
    MistypedError,
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
    after_writing,
    base_name,
    cache_of,
    check_insist,
    check_order,
    leave,
    load,
    report_file,
    size,
    tell_hints,
    tell_refusal,
    tell_skipped,
)
from .streams import interruption

_CLASSES_NAMED = 10  # classes that are printed with their numbers of photos; `info` has all of them
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
    budget: Annotated[
        float, typer.Option(min=0, help="Seconds that trying settings and the training may take.")
    ] = 60.0,
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

    check_insist(insist, target, "--target")
    check_order(model, [photos])
    default, kept_in = model.parent / f"{base_name(model)}.html", cache_of(cache, no_cache)
    page = report_file(default, report, no_report)
    inputs = itertools.chain([photos, target], network_files(network))
    check_outputs([(model, Kind.model), (page, Kind.report)], inputs, force=force)
    _check_ending(model)
    recipe = Recipe(network, Dense() if mode is Mode.dense else Patch())
    classifier = ImageClassifier(recipe, voter=voter, budget=budget, cache=kept_in, jobs=jobs, seed=seed)
    tell_hints(photos)
    kept = "" if no_cache else " What the network has seen is kept: run the same command again to go on."
    with ProgressLine("extract", quiet) as line, interruption(f"interrupted; {model} was not written.{kept}"):
        classifier.fit(photos, target=target, insist=insist, progress=line.stage)
    tell_skipped(classifier)
    tell_refusal(classifier)
    classifier.save(model)
    title = f"{base_name(model)}: {base_name(photos)}"
    if page:
        classifier.report(page, title=title, measured="on photos held out of the training")
    with after_writing(model):
        if as_json:
            show_json({"model": str(model), "report": page and str(page), **_told(classifier)})
        elif not quiet:
            seconds = _seconds_lines(classifier.model.about.seconds, classifier) if verbose else []
            show(*_fit_lines(classifier, model, page), *seconds)
    leave(classifier)


def _check_ending(model: Path) -> None:
    """Refuse a model that would look like a photo, a manifest or a report."""
    from ..photos.find import ENDINGS
    from ..photos.manifests import ENDINGS as MANIFESTS

    if model.suffix.lower() in (*ENDINGS, *MANIFESTS, ".html"):
        raise MistypedError(
            f"{model} has the ending of another kind of file than a model: write {model.with_suffix('.patchvote')}."
        )


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
    from ..models.updating import add_and_save
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .progress import ProgressLine

    target, kept_in = output or model, cache_of(cache, no_cache)
    check_order(model, [photos])

    def read() -> ImageClassifier:
        return load(model, network=network, jobs=jobs, cache=kept_in, seed=seed)

    classifier = read()
    inputs = itertools.chain([photos], network_files(classifier.recipe.network))
    check_outputs([(target, Kind.model)], inputs, force=force, updated=[model])
    tell_hints(photos)
    with ProgressLine("extract", quiet) as line, interruption(f"interrupted; {target} was not written."):
        classifier, changed = add_and_save(classifier, photos, target, reload=read, progress=line.stage)
    tell_skipped(classifier)
    nothing: Added = {"date": "", "images": {}, "new_classes": []}
    added = classifier.model.about.added[-1] if changed else nothing
    with after_writing(target):
        if as_json:
            told = {**added, **_told(classifier), "changed": changed, "known": classifier.known}
            show_json({"model": str(target), **told})
        elif not quiet:
            show(*_add_lines(classifier, target, added))
    leave(classifier)


def _add_lines(classifier: ImageClassifier, target: Path, added: Added) -> list[str]:
    known = counted(classifier.known, "photo was", "photos were")
    again = f"{known} learned before, and not counted again."
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
    each = [f"{label} {about.images.get(label, 0):,}" for label in classifier.classes]
    more = f", and {len(each) - _CLASSES_NAMED:,} more" if len(each) > _CLASSES_NAMED else ""
    each = each[:_CLASSES_NAMED]
    lines = [f"{counted(photos, 'photo')} of {len(classifier.classes):,} classes: {', '.join(each)}{more}"]
    width = max((len(one["words"]) for one in about.tried), default=0)
    for one in about.tried:
        lines.append(f"  tried {one['words']:<{width}}  {100 * one['accuracy']:5.1f} %  in {one['seconds']:.1f} s")
    lines.append(f"chose {about.chosen['words']}: {about.chosen['why']}.")
    lines.extend([accuracy_sentence(about.held_out), *copies_sentences(about.copies), *cut_sentences(about.cut)])
    if adapted := about.adapted:
        lines.append(
            f"adapted to {counted(adapted['photos'], 'photo')} without classes, {adapted['taken']:,} of them sure "
            f'enough to learn from and {adapted["rejected"]:,} still "none of these"; the accuracy above was measured '
            "before, on photos like the first."
        )
    lines.append(f"wrote {model} ({size(model)})" + (f" and {page}" if page else ""))
    return lines


def _seconds_lines(seconds: dict[str, float], classifier: ImageClassifier) -> list[str]:
    total = sum(seconds.values())
    lines = [f"  {name:<10} {took:8.2f} s {100 * took / max(total, 1e-9):6.1f} %" for name, took in seconds.items()]
    filled = classifier.filled
    return [
        *lines,
        f"  {counted(filled.extracted, 'photo')} went through the network, {filled.kept:,} were in the cache",
    ]
