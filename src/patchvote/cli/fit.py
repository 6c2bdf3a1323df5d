"""Commands that train a model or extend it: `fit` and `add`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engines import EngineName
from ..utils.remote import place
from ..utils.terminal import counted, show, show_json
from ..voters.registry import OWN
from .common import (
    Address,
    Cache,
    ColumnsOption,
    Device,
    EngineOption,
    Force,
    Insist,
    Jobs,
    Json,
    MistypedError,
    Mode,
    ModelArgument,
    ModelNetwork,
    NoCache,
    NoReport,
    PhotosArgument,
    Quiet,
    ReportOption,
    Seed,
    Verbose,
    Workers,
    after_writing,
    base_name,
    cache_of,
    check_insist,
    check_order,
    leave,
    load,
    named_columns,
    recipe_of,
    refuse_folder_above,
    report_file,
    size,
    source_of,
    tell_hints,
    tell_one_scale,
    tell_refusal,
    tell_skipped,
    workers_of,
)
from .streams import KEPT, interruption

_MAX_SHOWN_CLASSES = 10  # classes printed with their numbers of photos; `info` prints all of them
VOTERS = f"How parts of a photo vote for its class: auto, {', '.join(OWN)}, or a voter of another package."

if TYPE_CHECKING:
    from ..classifier import ImageClassifier


def fit(
    photos: PhotosArgument,
    model: Annotated[Path, typer.Argument(metavar="MODEL", parser=place, help="File to write.")] = Path(
        "model.patchvote"
    ),
    voter: Annotated[str, typer.Option(help=VOTERS)] = "auto",
    target: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=place,
            help="Unlabelled photos like those to be predicted, if these are from another camera or place.",
        ),
    ] = None,
    insist: Insist = False,
    columns: ColumnsOption = None,
    budget: Annotated[float, typer.Option(min=0, help="Seconds for training, of voters that learn in passes.")] = 60.0,
    network: Annotated[
        str,
        typer.Option(
            help="efficientnet-lite0, dinov2-small, … (`patchvote networks` lists them), an ONNX file, hf:owner/name, "
            "torch:…, timm:…."
        ),
    ] = "efficientnet-lite0",
    mode: Annotated[Mode, typer.Option(help="dense: all cells of the feature map. patch: patches.")] = Mode.dense,
    report: ReportOption = None,
    no_report: NoReport = False,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    seed: Seed = 0,
    no_memory: Annotated[
        bool, typer.Option("--no-memory", help="Write a small model, which cannot learn, forget or adapt any more.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Learn to tell apart the classes in PHOTOS (one folder per class), and write MODEL and a report."""
    from ..classifier import ImageClassifier
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .progress import ProgressLine

    check_insist(insist, target, "--target")
    check_order(model, [photos])
    named = named_columns(columns, [photos, target])
    default, bags_folder = model.parent / f"{base_name(model)}.html", cache_of(cache, no_cache, photos)
    page = report_file(default, report, no_report)
    inputs = itertools.chain([photos, target], network_files(network))
    check_outputs([(model, Kind.model), (page, Kind.report)], inputs, force=force, columns=named)
    check_ending(model)
    source, others = source_of(photos, named), target and source_of(target, named)
    tell_hints(photos, named, 2)
    interrupted = interruption(f"interrupted; {model} was not written." + ("" if no_cache else f" {KEPT}"))
    with interrupted, workers_of(engine, address, workers, jobs) as (where, threads):
        settings: dict[str, Any] = {"budget": budget, "cache": bags_folder, "jobs": threads, "seed": seed}
        settings["device"] = device
        classifier = ImageClassifier(recipe_of(network, mode), voter=voter, **settings)
        if not quiet:
            tell_one_scale(classifier.extractor)
        with ProgressLine("extract", quiet) as line:
            classifier.fit(source, target=others, insist=insist, progress=line.stage, engine=where)
    tell_skipped(classifier)
    tell_refusal(classifier)
    classifier.save(model, memory=not no_memory)
    title = f"{base_name(model)}: {base_name(photos)}"
    if page:
        classifier.report(page, title=title, measured="on photos held out of the training")
    with after_writing(model):
        if as_json:
            show_json({"model": str(model), "report": page and str(page), **record_of(classifier)})
        elif not quiet:
            seconds = _seconds_lines(classifier.model.about.seconds, classifier) if verbose else []
            show(*fit_lines(classifier, model, page), *seconds)
    leave(classifier)


def check_ending(model: Path) -> None:
    """Refuse a model file with the ending of a photo, a manifest or a report."""
    from ..photos.formats import endings
    from ..photos.manifests import ENDINGS as MANIFESTS

    if model.suffix.lower() in (*endings(), *MANIFESTS, ".html"):
        raise MistypedError(
            f"{model} has the ending of another type of file: write {model.with_suffix('.patchvote')} instead."
        )


def add(
    model: ModelArgument,
    photos: PhotosArgument,
    output: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="MODEL itself, once all is done")
    ] = None,
    columns: ColumnsOption = None,
    network: ModelNetwork = None,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train MODEL with more PHOTOS, of its classes or of new ones. The earlier photos are not needed."""
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .progress import ProgressLine

    target, bags_folder = output or model, cache_of(cache, no_cache, photos)
    check_order(model, [photos])
    named = named_columns(columns, [photos])
    is_left = "was not written" if output else "is as it was"
    with (
        interruption(f"interrupted; {target} {is_left}." + ("" if no_cache else f" {KEPT}")),
        workers_of(engine, address, workers, jobs) as (where, threads),
    ):

        def read() -> ImageClassifier:
            return load(model, network=network, jobs=threads, cache=bags_folder, seed=seed, device=device)

        classifier = read()
        inputs = itertools.chain([photos], network_files(classifier.recipe.network))
        check_outputs([(target, Kind.model)], inputs, force=force, updated=[model], columns=named)
        refuse_folder_above(photos, named, model, classifier.model.classes)
        tell_hints(photos, named)
        from ..models.file import change_and_save

        with ProgressLine("extract", quiet) as line:
            more: dict[str, Any] = {"progress": line.stage, "engine": where}
            source = source_of(photos, named)
            classifier, changed = change_and_save(classifier, lambda one: one.add(source, **more), target, reload=read)
    tell_skipped(classifier)
    added = classifier.added if changed else {}
    with after_writing(target):
        if as_json:
            record = {**record_of(classifier), "added": added, "changed": changed, "known": classifier.known}
            show_json({"model": str(target), **record})
        elif not quiet:
            show(*_add_lines(classifier, target, added))
    leave(classifier)


def _add_lines(classifier: ImageClassifier, target: Path, added: dict[str, int]) -> list[str]:
    from ..models.report.card import accuracy_of

    known = counted(classifier.known, "photo was", "photos were")
    again = [f"{known} learned before, and not learned again."] if classifier.known else []
    if not added:
        return [f"{target}: there was nothing new to learn.", *again]
    what = ", ".join(f"{count:,} of {label}" for label, count in added.items())
    new = [label for label, count in added.items() if classifier.model.about.images.get(label) == count]
    words = f" New: {', '.join(new)}." if new else ""
    return [
        f"{target}: learned {what}.{words} It now knows {len(classifier.classes)} classes.",
        *again,
        accuracy_of(classifier.model.about),
    ]


def forget(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(
            metavar="PHOTO...",
            help="Names of training photos, patterns such as 'cat/2019*', SHA-256 digests, or classes: cat/",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="MODEL itself, once all is done")
    ] = None,
    network: ModelNetwork = None,
    force: Force = False,
    device: Device = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make MODEL forget training photos or whole classes: as if it had been fitted without them."""
    from ..models.file import change_and_save
    from ..models.report.card import accuracy_of
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind

    target = output or model

    def read() -> ImageClassifier:
        return load(model, network=network, jobs=None, cache=False, seed=0, device=device)

    classifier = read()
    check_outputs([(target, Kind.model)], [], force=force, updated=[model])
    classifier, _ = change_and_save(classifier, lambda one: one.forget(photos), target, reload=read)
    gone = classifier.forgotten
    if as_json:
        show_json({"model": str(target), "forgotten": gone, **record_of(classifier)})
    elif not quiet:
        left = sum(classifier.model.about.images.values())
        show(
            f"{target}: forgot {counted(len(gone), 'photo')}; {counted(left, 'photo')} of {len(classifier.classes)} "
            "classes are left.",
            accuracy_of(classifier.model.about),
        )


def record_of(classifier: ImageClassifier) -> dict[str, Any]:
    """Return what was learned, and from which photos, for JSON."""
    from ..models.check.suspects import plain_labels

    about, filled = classifier.model.about, classifier.filled
    photos = {"extracted": filled.extracted, "kept": filled.kept} if filled else {}
    skipped = [{"name": error.name, "reason": error.reason} for error in classifier.skipped]
    keys = ("images", "held_out", "curve", "copies", "method", "cut", "adapted", "seconds")
    record = {key: getattr(about, key) for key in keys} | {"refusal": classifier.refusal}
    found = {"suspects": plain_labels(classifier.scores), "passed_over": classifier.passed_over.plain()}
    return {**record, "photos": photos, "skipped": skipped, **found}


def fit_lines(classifier: ImageClassifier, model: Path, page: Path | None) -> list[str]:
    """Return what was tried, chosen and measured, for people; the last line says what was written."""
    from ..models.check.suspects import label_sentences
    from ..models.learning_curve import enough_sentence
    from ..models.report.card import (
        accuracy_sentence,
        copies_sentences,
        cut_sentences,
        few_classes,
        few_sentences,
        rejection_sentence,
    )

    about = classifier.model.about
    photos = sum(about.images.values())
    counts = [f"{label} {about.images.get(label, 0):,}" for label in classifier.classes]
    more = f", and {len(counts) - _MAX_SHOWN_CLASSES:,} more" if len(counts) > _MAX_SHOWN_CLASSES else ""
    shown = ", ".join(counts[:_MAX_SHOWN_CLASSES])
    lines = [f"{counted(photos, 'photo')} of {len(classifier.classes):,} classes: {shown}{more}"]
    lines.append(f"method: {classifier.model.kind}: {about.method}.")
    lines.append(accuracy_sentence(about.held_out))
    if sentence := rejection_sentence(about.held_out):
        lines.append(sentence)
    if about.held_out is not None:
        few = few_classes(classifier.model)
        lines.append(enough_sentence(about.curve, about.held_out.get("classes", {}), few=few))
    lines.extend([*copies_sentences(about.copies), *cut_sentences(about.cut)])
    lines.extend(label_sentences(classifier.scores))
    if about.held_out is None:
        lines.extend(few_sentences(classifier.model))
    if adapted := about.adapted:
        lines.append(
            f"adapted to {counted(adapted['photos'], 'photo')} without classes: {adapted['taken']:,} with answers "
            f'confident enough to learn from, {adapted["rejected"]:,} still "none of these"; the accuracy above was '
            "measured before, on labelled photos that were held out."
        )
    lines.append(f"wrote {model} ({size(model)})" + (f" and {page}" if page else ""))
    return lines


def _seconds_lines(seconds: dict[str, float], classifier: ImageClassifier) -> list[str]:
    total = sum(seconds.values())
    lines = [f"  {name:<10} {took:8.2f} s {100 * took / max(total, 1e-9):6.1f} %" for name, took in seconds.items()]
    if (filled := classifier.filled) is not None:
        network = counted(filled.extracted, "photo")
        lines.append(f"  {network} went through the network, {filled.kept:,} were in the cache")
    return lines
