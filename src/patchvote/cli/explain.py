"""The command that draws where the votes of a photo come from."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.terminal import say, show, show_json
from .common import Force, Jobs, Json, MistypedError, ModelArgument, ModelNetwork, Quiet, check_order, load
from .streams import interruption

if TYPE_CHECKING:
    from ..models.evidence import Evidence


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
    force: Force = False,
    arrays: Annotated[
        Path | None,
        typer.Option(help="Also write the votes of all parts for all classes, their boxes and maps to this .npz file."),
    ] = None,
    photos: Annotated[
        Path | None,
        typer.Option(help="Folder of the training photos, to draw the parts that match, if MODEL stores them."),
    ] = None,
    network: ModelNetwork = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw which parts of PHOTO vote for a class: it is bright where they do."""
    from ..backbones.network_files import network_files
    from ..models.report.captions import missing_sentence
    from ..models.report.picture import draw, draw_matches, encoded
    from ..photos.decode import SHOWN, load_image
    from ..photos.find import Photo, find_photos
    from ..photos.outputs import check_outputs
    from ..utils.files import write_file
    from ..utils.marks import Kind

    check_order(model, [photo])
    target = output or Path(f"{photo.stem}-evidence.png")
    parts = target.with_name(f"{target.stem}-matches.png") if photos is not None else None
    outputs = [(target, Kind.picture), (parts, Kind.picture), (arrays, Kind.arrays)]
    classifier = load(model, network=network, jobs=jobs)
    if photos is not None and not classifier.model.names:
        raise MistypedError(
            f"--photos can be used only with a model of a voter that stores parts of photos (nbnn); {model} has none."
        )
    inputs = itertools.chain([model, photo, photos], network_files(classifier.recipe.network))
    check_outputs(outputs, inputs, force=force)
    for option, file, ending in (("--output", output, ".png"), ("--arrays", arrays, ".npz")):
        if file is not None and file.suffix.lower() != ending:
            raise MistypedError(f"{option} writes a {ending} file, got {file}.")
    with interruption("interrupted; no picture was written."):
        evidence = classifier.explain(photo, label[0] if label else None)
    image = load_image(Photo(photo.name, photo), SHOWN)
    write_file(target, [encoded(draw(evidence, image, label))])
    say(*filter(None, [missing_sentence([evidence.name, *(label or evidence.ranking[:2])])]))
    written = [target]
    if evidence.matches and photos is not None and parts is not None:
        wanted = {match.name for match in evidence.matches[:5]}
        others = {one.name: load_image(one, SHOWN) for one in find_photos(photos) if one.name in wanted}
        written.append(parts)
        write_file(parts, [encoded(draw_matches(evidence, image, others))])
    if arrays is not None:
        write_file(arrays, [evidence.as_npz()])
        written.append(arrays)
    if as_json:
        show_json({"photo": str(photo), **_plain(evidence), "files": [str(path) for path in written]})
    elif not quiet:
        show(*_lines(evidence, classifier.model.limit()), f"wrote {' and '.join(map(str, written))}")


def _plain(evidence: Evidence) -> dict[str, Any]:
    probability = dict(zip(evidence.classes, evidence.probability.tolist(), strict=True))
    matches = [dataclasses.asdict(match) for match in evidence.matches[:5]]
    return {
        "rejected": evidence.rejected,
        "familiarity": evidence.familiarity,
        "probability": probability,
        "matches": matches,
    }


def _lines(evidence: Evidence, limit: float) -> list[str]:
    from ..voters.votes import NONE

    reason = f"no class reaches {100 * limit:.0f} %"
    if evidence.familiarity is not None:
        reason = f"at most {100 * max(evidence.familiarity, 0.001):.1f} % of known photos look as strange"
    lines = [f'"{NONE}" is the better answer: {reason}.'] if evidence.rejected else []
    for name in evidence.ranking[:3]:
        lines.append(f"{100 * evidence.probability[evidence.number(name)]:5.1f} %  {name}")
    for match in evidence.matches[:5]:
        lines.append(f"  {_place(match.box)} looks like {_place(match.there)} of {match.name}")
    return lines


def _place(box: tuple[float, float, float, float]) -> str:
    """Return in words where in a photo a box is."""
    across, down = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if min(box[2] - box[0], box[3] - box[1]) > 0.9:
        return "the whole"
    row = "top" if down < 1 / 3 else "bottom" if down > 2 / 3 else ""
    column = "left" if across < 1 / 3 else "right" if across > 2 / 3 else ""
    return f"the {' '.join(filter(None, (row, column))) or 'middle'}"
