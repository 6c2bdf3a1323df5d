"""The command that tunes a network for photos, and keeps the result if it is better on photos that were held out."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import PatchvoteError
from ..photos.outputs import Kind
from .fit import Fitting, fit_lines, record_of, write_report
from .options import Machine, NewModel, Printing, numbers_of
from .output import leave, progress_line, tell_skipped
from .photos import Labelled, base_name


def fine_tune(
    photos: Labelled,
    model: NewModel,
    sides: Annotated[str, typer.Option(help="Longest sides in pixels; 224 alone is a fifth of the work.")] = "224,448",
    network: Annotated[
        str, typer.Option(help="efficientnet-lite0, -lite1, -lite2, or an ONNX file.")
    ] = "efficientnet-lite0",
    start: Annotated[
        str | None, typer.Option(help="Tensor after which it is tuned; the last stage by default.")
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="Most passes over the photos.")] = 20,
    *,
    fitting: Fitting,
    machine: Machine,
    printing: Printing,
) -> None:
    """Tune the last stage of a network for the classes in PHOTOS, and write MODEL; needs the extra torch.

    The tuned network is kept if it is better than the frozen one on photos that were held out, and is then written
    beside MODEL. Tuning pays with many photos, about a hundred per class. Interrupted, the same command continues after
    the last finished pass.
    """
    from ..bags.boxes import Dense
    from ..bags.recipe import Recipe

    try:
        from ..nn import TuningSettings, tune_or_keep
    except PatchvoteError:  # it names the module, which nobody has typed
        raise PatchvoteError("fine-tune needs torch. Install it with: pip install 'patchvote[torch]'") from None
    all_sides = numbers_of("--sides", sides)
    beside = [(model.with_suffix(".onnx"), Kind.graph), (model.with_suffix(".toml"), Kind.settings)]
    page = fitting.check(photos, model, network, beside=beside)
    checkpoint = model.with_name(f"{base_name(model)}-tuning.safetensors")
    tuning = TuningSettings(start=start or "", sides=all_sides, passes=passes, seed=fitting.seed)
    classifier = fitting.classifier(Recipe(network, Dense(all_sides)), machine)
    with progress_line("extract", printing.quiet) as progress:
        result = tune_or_keep(classifier, photos.source(), settings=tuning, checkpoint=checkpoint, progress=progress)
    classifier = result.classifier
    tell_skipped(classifier)
    written = [str(path) for path in result.save(model)]
    checkpoint.unlink(missing_ok=True)
    write_report(classifier, page, photos, model)
    compared = None if result.comparison is None else vars(result.comparison)
    files = {"model": str(model), "network": written[1] if result.is_tuned else None, "report": page and str(page)}
    lines = [*fit_lines(classifier), result.sentence, f"wrote {model}" + (f" and {page}" if page else "")]
    if result.is_tuned:
        lines.append(f"its network is {written[1]}, with {written[2]}: keep them beside {model}.")
    printing.tell({**files, "tuned": result.is_tuned, "compared": compared, **record_of(classifier)}, *lines)
    leave(classifier)
