"""The command that draws where the votes of photos come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..photos.outputs import Kind
from ..utils.remote import place
from ..utils.terminal import say, show, show_json
from .options import Machine, MistypedError, ModelFile, Printing
from .output import leave, tell_skipped
from .photos import Unlabelled, is_list, outside

if TYPE_CHECKING:
    from ..models.evidence import Evidence
    from ..photos.find import Found, Photo

_FOLDER = Path("evidence")  # where pictures of several photos go
_SHOWN_MATCHES = 5  # matching parts that are printed and drawn

Files = dict[str, tuple[Path, Kind]]  # of one photo: its picture and, if wanted, its matches and arrays


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What is drawn, and where it goes."""

    label: Annotated[
        list[str] | None, typer.Option("--class", metavar="CLASS", help="Class to draw; may be repeated.")
    ] = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="PNG to write; of several photos, a folder.")
    ] = None
    arrays: Annotated[
        Path | None, typer.Option(help="Also write all votes as numbers: a .npz, or a folder of them.")
    ] = None
    training: Annotated[
        Path | None,
        typer.Option("--photos", metavar="DIR", parser=place, help="Training photos, whose matching parts are drawn."),
    ] = None

    def folder(self, photos: Unlabelled) -> Path | None:
        """Return the folder of the pictures; None for one photo, whose picture is a file."""
        is_one = photos.names == photos.photos and len(photos.names) == 1
        if is_one and not (photos.paths[0].is_dir() or is_list(photos.paths[0]) or (self.output or Path("a")).is_dir()):
            return None
        return self.output or _FOLDER

    def files(self, photos: Found, folder: Path | None) -> dict[int, Files]:
        """Return the files of each photo, by its identity; no two have the same name."""
        from ..photos.placing import file_names, kept_name

        files: dict[int, Files] = {}
        names = file_names(kept_name(f"{Path(str(photo.source)).stem}-evidence") for photo in photos)
        for photo, name in zip(photos, names, strict=True):
            picture = self.output or Path(f"{name}.png") if folder is None else folder / f"{name}.png"
            arrays = self.arrays and (self.arrays if folder is None else self.arrays / f"{name}.npz")
            files[id(photo)] = {"picture": (picture, Kind.picture)}
            if self.training is not None:
                files[id(photo)]["matches"] = picture.with_name(f"{picture.stem}-matches.png"), Kind.picture
            if arrays is not None:
                files[id(photo)]["arrays"] = arrays, Kind.arrays
        return files

    def write(self, evidence: Evidence, photo: Photo, files: Files, trained: Mapping[str, Photo]) -> list[str]:
        """Write the files of a photo; return which were written."""
        from ..models.report.picture import draw, draw_matches, encoded
        from ..photos.decode import SHOWN, load_image
        from ..utils.files import write_file

        image = load_image(photo, SHOWN)
        contents = {"picture": encoded(draw(evidence, image, self.label))}
        if "matches" in files and evidence.matches:
            wanted = [match.name for match in evidence.matches[:_SHOWN_MATCHES] if match.name in trained]
            others = {name: load_image(trained[name], SHOWN) for name in wanted}
            contents["matches"] = encoded(draw_matches(evidence, image, others, _SHOWN_MATCHES))
        if "arrays" in files:
            contents["arrays"] = evidence.as_npz()
        for name, content in contents.items():
            write_file(files[name][0], [content])
        return [str(files[name][0]) for name in contents]


def explain(model: ModelFile, photos: Unlabelled, *, drawing: Drawing, machine: Machine, printing: Printing) -> None:
    """Draw which parts of PHOTOS vote for a class, bright where they do; name the training photos that pulled them."""
    from ..models.evidence import cannot_tell
    from ..models.report.picture import missing_sentence
    from ..photos.find import find_photos
    from ..utils.files import make_folder

    folder = drawing.folder(photos)
    classifier = model.load(machine)
    if drawing.training is not None and not classifier.model.scorer.remembers:
        raise MistypedError(f"--photos needs a model of a voter that stores parts of photos (nbnn), not {model.model}.")
    found = photos.found() if folder is None else outside(folder, photos.found())
    files = drawing.files(found, folder)
    for path in (folder, folder and drawing.arrays):
        if path is not None:
            make_folder(path)
    read = [path for path in photos.paths if not path.is_dir()]  # pictures may be in a folder of photos
    read += [photo.source for photo in found if isinstance(photo.source, Path)]
    outputs = [file for one in files.values() for file in one.values()]
    model.check_written(classifier, outputs, [drawing.training, *read])
    trained = {} if drawing.training is None else {photo.name: photo for photo in find_photos(drawing.training)}
    captions: list[str] = []
    for evidence in classifier.explain_each(found, drawing.label[0] if drawing.label else None):
        if (photo := evidence.photo) is None:
            continue
        written = drawing.write(evidence, photo, files[id(photo)], trained)
        captions += [evidence.name, *(drawing.label or evidence.ranking[:2])]
        if printing.as_json:
            show_json({"photo": photo.name, **_record(evidence), "files": written})
        elif not printing.quiet:
            head = [] if folder is None else [f"{photo.name}:"]
            show(*head, *_lines(evidence, classifier.model.limit()), f"wrote {' and '.join(written)}")
    tell_skipped(classifier)
    for error in classifier.skipped if printing.as_json else ():
        show_json({"photo": error.name, "error": error.reason})
    say(*filter(None, [missing_sentence(captions)]))
    if (reason := cannot_tell(classifier.model)) and not printing.quiet and not printing.as_json:
        show(reason)
    leave(classifier, found)


def _record(evidence: Evidence) -> dict[str, Any]:
    from ..models.answers import answer_in, row

    answer = row(answer_in(evidence))
    del answer["file"], answer["error"]
    return {
        **answer,
        "rejected": evidence.rejected,
        "probabilities": dict(zip(evidence.classes, evidence.probability.tolist(), strict=True)),
        "matches": [dataclasses.asdict(match) for match in evidence.matches[:_SHOWN_MATCHES]],
        "pulls": [dataclasses.asdict(pull) for pull in evidence.pulls],
    }


def _lines(evidence: Evidence, limit: float) -> list[str]:
    from ..voters.votes import NONE

    reason = f"no class reaches {100 * limit:.0f} %"
    if evidence.familiarity is not None:
        reason = f"at most {100 * max(evidence.familiarity, 0.001):.1f} % of known photos look as strange"
    lines = [f'"{NONE}" is the better answer: {reason}.', "likeliest classes:"] if evidence.rejected else []
    indent = "  " if evidence.rejected else ""
    for name in evidence.ranking[:3]:
        lines.append(f"{indent}{100 * evidence.probability[evidence.number(name)]:5.1f} %  {name}")
    if evidence.matches:
        names = dict.fromkeys(match.name for match in evidence.matches[:_SHOWN_MATCHES])
        lines.append(f"its parts look like parts of {', '.join(names)}")
    if evidence.pulls:
        lines.append(f"training photos that pulled it most to {evidence.pulls[0].label}:")
        lines.extend(f"  {100 * pull.share:5.1f} %  {pull.name}" for pull in evidence.pulls)
    return lines
