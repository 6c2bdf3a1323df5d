"""The command that tunes a network for photos, and keeps the result if it is better on photos that were held out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import PatchvoteError
from ..utils.remote import place
from ..utils.terminal import counted, show, show_json
from .common import (
    Cache,
    ColumnsOption,
    Device,
    Force,
    Jobs,
    Json,
    NoCache,
    NoReport,
    PhotosArgument,
    Quiet,
    ReportOption,
    Seed,
    after_writing,
    base_name,
    cache_of,
    check_order,
    leave,
    named_columns,
    numbers_of,
    report_file,
    source_of,
    tell_hints,
    tell_skipped,
)
from .fit import VOTERS, check_ending, fit_lines, record_of
from .streams import KEPT, interruption


def fine_tune(
    photos: PhotosArgument,
    model: Annotated[Path, typer.Argument(metavar="MODEL", parser=place, help="File to write.")],
    voter: Annotated[str, typer.Option(help=VOTERS)] = "auto",
    sides: Annotated[
        str, typer.Option(help="Longest sides of a photo in pixels, one per scale; 224 alone is a fifth of the work.")
    ] = "224,448",
    network: Annotated[str, typer.Option(help="efficientnet-lite0, -lite1, -lite2, or an ONNX file.")] = (
        "efficientnet-lite0"
    ),
    start: Annotated[
        str | None, typer.Option(help="Tensor of an ONNX file after which it is tuned.", show_default="last stage")
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="Most passes over the photos.")] = 20,
    columns: ColumnsOption = None,
    budget: Annotated[float, typer.Option(min=0, help="Seconds for training a voter, as for fit.")] = 60.0,
    report: ReportOption = None,
    no_report: NoReport = False,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tune the last stage of a network for the classes in PHOTOS, and write MODEL; needs the extra torch.

    The tuned network is kept if it is better than the frozen one on photos that were held out, and is then written
    beside MODEL. Tuning pays with many photos, about a hundred per class.
    """
    from ..bags.boxes import Dense
    from ..bags.recipe import Recipe
    from ..classifier import ImageClassifier
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind
    from .progress import ProgressLine

    try:
        from ..nn import TuningSettings, tune_or_keep
    except PatchvoteError:  # it names the module, which nobody has typed
        raise PatchvoteError("fine-tune needs torch. Install it with: pip install 'patchvote[torch]'") from None
    check_order(model, [photos])
    named, all_sides = named_columns(columns, [photos]), numbers_of("--sides", sides)
    page = report_file(model.parent / f"{base_name(model)}.html", report, no_report)
    outputs = [(model, Kind.model), (page, Kind.report), (model.with_suffix(".onnx"), Kind.graph)]
    outputs.append((model.with_suffix(".toml"), Kind.settings))
    inputs = itertools.chain([photos], network_files(network))
    check_outputs(outputs, inputs, force=force, columns=named)
    check_ending(model)
    tell_hints(photos, named, 2)
    checkpoint = model.with_name(f"{base_name(model)}-tuning.safetensors")
    recipe = Recipe(network, Dense(all_sides))
    settings: dict[str, Any] = {
        "budget": budget,
        "cache": cache_of(cache, no_cache, photos),
        "jobs": jobs,
        "seed": seed,
    }
    tuning = TuningSettings(start=start or "", sides=all_sides, passes=passes, seed=seed)
    passes_done: list[str] = []

    def show_progress(step: str, done: int, total: int) -> None:
        if step == "fine-tune":  # the checkpoint has been written
            passes_done[:] = [f"{done:,} of {counted(total, 'pass', 'passes')}"]
        line.stage(step, done, total)

    def kept() -> str:
        return f"interrupted; {model} was not written. {_kept(checkpoint, passes_done, no_cache)}"

    with interruption(kept), ProgressLine("extract", quiet) as line:
        classifier = ImageClassifier(recipe, voter=voter, device=device, **settings)
        more: dict[str, Any] = {"settings": tuning, "checkpoint": checkpoint, "progress": show_progress}
        result = tune_or_keep(classifier, source_of(photos, named), **more)
    classifier = result.classifier
    tell_skipped(classifier)
    written = result.save(model)
    checkpoint.unlink(missing_ok=True)
    if page:
        title = f"{base_name(model)}: {base_name(photos)}"
        classifier.report(page, title=title, measured="on photos held out of the training")
    with after_writing(model):
        if as_json:
            compared = None if result.comparison is None else vars(result.comparison)
            files = {"model": str(model), "network": str(written[1]) if result.is_tuned else None}
            record = {**files, "report": page and str(page), "tuned": result.is_tuned, "compared": compared}
            show_json({**record, **record_of(classifier)})
        elif not quiet:
            show(*fit_lines(classifier, model, page)[:-1], result.sentence, *_written(written, page))
    leave(classifier)


def _kept(checkpoint: Path, passes: list[str], no_cache: bool) -> str:
    """Return what an interrupted tuning keeps."""
    if checkpoint.exists():
        done = passes[0] if passes else "What was finished of the passes"
        verb = "are" if passes else "is"
        return f"{done} {verb} kept in {checkpoint}: run the same command again to continue after them."
    return "Nothing is kept." if no_cache else KEPT


def _written(files: list[Path], page: Path | None) -> list[str]:
    names = [str(path) for path in files]
    report = f" and {page}" if page else ""
    if len(files) == 1:
        return [f"wrote {names[0]}{report}"]
    network, settings = names[1:]
    return [f"wrote {names[0]}{report}", f"its network is {network}, with {settings}: keep them beside {names[0]}."]
