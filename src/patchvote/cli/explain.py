"""The command that draws where the votes of photos come from."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.remote import RemotePath, place
from ..utils.terminal import say, show, show_json
from .common import (
    FAILED,
    SKIPPED,
    ColumnsOption,
    Device,
    Force,
    Jobs,
    Json,
    MistypedError,
    ModelArgument,
    ModelNetwork,
    Quiet,
    check_order,
    is_manifest,
    load,
    named_columns,
    source_of,
)
from .paths import Null, outside, paths_of, photos_of
from .streams import interruption

if TYPE_CHECKING:
    from ..classifier import ImageClassifier
    from ..models.evidence import Evidence
    from ..photos.find import Found, Photo

_FOLDER = Path("evidence")  # where pictures of several photos go
_SHOWN_MATCHES = 5  # matching parts that are printed and drawn


@dataclasses.dataclass(frozen=True)
class _Files:
    """Files that are written for one photo; those that are not wanted are None."""

    picture: Path
    matches: Path | None
    arrays: Path | None

    def all(self) -> list[Path]:
        return [path for path in (self.picture, self.matches, self.arrays) if path is not None]


def explain(
    model: ModelArgument,
    photos: Annotated[
        list[str],
        typer.Argument(metavar="PHOTOS", help="Photos, folders or lists; - reads paths from standard input."),
    ],
    null: Null = False,
    columns: ColumnsOption = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--class", metavar="CLASS", help="Class to draw; may be repeated.", show_default="likeliest and runner-up"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="PNG to write; of several photos, the folder of their pictures.",
            show_default="PHOTO-evidence.png here, of several photos the folder evidence",
        ),
    ] = None,
    force: Force = False,
    arrays: Annotated[
        Path | None,
        typer.Option(
            help="Also write the votes of all parts for all classes, their boxes and maps to this .npz file, or folder."
        ),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(
            "--photos",
            metavar="DIR",
            parser=place,
            help="Folder of the training photos, to draw the parts that match, if MODEL stores them.",
        ),
    ] = None,
    network: ModelNetwork = None,
    device: Device = "cpu",
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw which parts of PHOTOS vote for a class, bright where they do; name the training photos that pulled them."""
    from ..models.evidence import cannot_tell
    from ..models.report.captions import missing_sentence

    names = paths_of(photos, null)
    paths = [place(name) for name in names]
    check_order(model, paths)
    named = named_columns(columns, [*paths, training])
    one = names == photos and len(names) == 1 and not paths[0].is_dir() and not is_manifest(paths[0])
    many = not one or (output is not None and output.is_dir())
    endings = (("--output", output, ".png"), ("--arrays", arrays, ".npz"))
    for option, path, ending in endings if many else ():
        if path is not None and path.suffix.lower() == ending and not path.is_dir():
            raise MistypedError(f"{option} is a folder for the files of several photos, got {path}.")
    classifier = load(model, network=network, jobs=jobs, device=device)
    if training is not None and not classifier.model.scorer.remembers:
        raise MistypedError(
            f"--photos can be used only with a model of a voter that stores parts of photos (nbnn); {model} has none."
        )
    folder = output or _FOLDER
    found = photos_of(names, named)
    found = outside(folder, found) if many else found
    files = _files(found, output, arrays, training is not None, folder if many else None)
    sources = (photo.source for photo in found if isinstance(photo.source, Path))
    lists = [path for path in paths if not path.is_dir()]  # pictures may be in a folder of photos
    inputs = itertools.chain([model, training, *lists], sources, _network_files(classifier))
    _check_outputs(files, inputs, force, named, [folder, arrays] if many else [])
    for option, path, ending in () if many else endings:
        if path is not None and path.suffix.lower() != ending:
            raise MistypedError(f"{option} writes a {ending} file, got {path}.")
    matching = {} if training is None else _by_name(source_of(training, named))
    explained = _Explained(classifier, label, matching, as_json)
    drawn = interruption(f"interrupted. Pictures that were drawn are complete, and in {folder}.")
    with drawn if many else contextlib.nullcontext():
        for photo, evidence in explained.each(found, strict=not many):
            written = explained.write(photo, evidence, files[id(photo)])
            if as_json:
                show_json({"photo": photo.name, **_plain(evidence), "files": [str(path) for path in written]})
            elif not quiet:
                lines = _lines(evidence, classifier.model.limit())
                show(*([f"{photo.name}:"] if many else []), *lines, f"wrote {' and '.join(map(str, written))}")
    say(*filter(None, [missing_sentence(explained.characters)]))
    if (reason := cannot_tell(classifier.model)) and not quiet and not as_json:
        show(reason)
    say(*classifier.passed_over.sentences())
    if classifier.skipped or classifier.passed_over.types:
        raise typer.Exit(FAILED if len(classifier.skipped) == len(found) else SKIPPED)


@dataclasses.dataclass(frozen=True)
class _Explained:
    """Explains photos one by one, and writes the files of each."""

    classifier: ImageClassifier
    label: list[str] | None
    matching: Mapping[str, Photo]
    as_json: bool
    characters: dict[str, None] = dataclasses.field(default_factory=dict)  # of all captions, in order

    def each(self, photos: Found, *, strict: bool) -> Iterator[tuple[Photo, Evidence]]:
        """Yield photos and their evidence; name those that cannot be read, or raise the error if `strict`."""
        told = 0
        # Of many photos, some may have been drawn; what is said then is said around the loop over them.
        with interruption("interrupted; no picture was written.") if strict else contextlib.nullcontext():
            for evidence in self.classifier.explain_each(photos, self.label[0] if self.label else None):
                told = self._tell(told)
                if evidence.photo is not None:
                    yield evidence.photo, evidence
        if strict and self.classifier.skipped:
            raise self.classifier.skipped[0]
        self._tell(told)

    def _tell(self, told: int) -> int:
        for error in self.classifier.skipped[told:]:
            say(f"skipped {error}")
            if self.as_json:
                show_json({"photo": error.name, "error": error.reason})
        return len(self.classifier.skipped)

    def write(self, photo: Photo, evidence: Evidence, files: _Files) -> list[Path]:
        """Write the files of a photo; return which were written."""
        from ..models.report.picture import draw, draw_matches, encoded
        from ..photos.decode import SHOWN, load_image
        from ..utils.files import write_file

        image = load_image(photo, SHOWN)
        write_file(files.picture, [encoded(draw(evidence, image, self.label))])
        self.characters.update(dict.fromkeys("".join([evidence.name, *(self.label or evidence.ranking[:2])])))
        written = [files.picture]
        if files.matches is not None and evidence.matches:
            wanted = [match.name for match in evidence.matches[:_SHOWN_MATCHES] if match.name in self.matching]
            others = {name: load_image(self.matching[name], SHOWN) for name in wanted}
            write_file(files.matches, [encoded(draw_matches(evidence, image, others, _SHOWN_MATCHES))])
            written.append(files.matches)
        if files.arrays is not None:
            write_file(files.arrays, [evidence.as_npz()])
            written.append(files.arrays)
        return written


def _name(photo: Photo) -> str:
    """Return the name of a picture, without its ending: a local photo's own, which is allowed here."""
    from ..photos.folder_names import folder_name, kept_name

    if isinstance(photo.source, Path) and not isinstance(photo.source, RemotePath):
        return kept_name(f"{photo.source.stem}-evidence")
    return folder_name(f"{Path(photo.name).stem}-evidence")


def _files(
    photos: Found, output: Path | None, arrays: Path | None, matches: bool, folder: Path | None
) -> dict[int, _Files]:
    """Return the files of each photo, by its identity: in a folder, or one picture; no two have the same name."""
    from ..photos.folder_names import file_names

    names = file_names(map(_name, photos))
    if folder is None:
        pictures, npz = [output or Path(f"{names[0]}.png")], [arrays]
    else:
        pictures = [folder / f"{name}.png" for name in names]
        npz = [arrays and arrays / f"{name}.npz" for name in names]
    return {
        id(photo): _Files(picture, picture.with_name(f"{picture.stem}-matches.png") if matches else None, array)
        for photo, picture, array in zip(photos, pictures, npz, strict=True)
    }


def _check_outputs(
    files: Mapping[int, _Files],
    inputs: Iterator[Path | int | None],
    force: bool,
    columns: Any,
    folders: Sequence[Path | None],
) -> None:
    """Check what would be replaced, and make the folders that do not exist."""
    from ..photos.outputs import check_outputs
    from ..photos.placing import check_folder
    from ..utils.files import make_folder
    from ..utils.marks import Kind

    for folder in filter(None, folders):
        check_folder(folder)
    new = [folder for folder in folders if folder is not None and not folder.exists()]
    outputs = [
        (path, kind)
        for one in files.values()
        for path, kind in ((one.picture, Kind.picture), (one.matches, Kind.picture), (one.arrays, Kind.arrays))
        if path is not None and path.parent not in new
    ]
    check_outputs([*((folder, Kind.picture) for folder in new), *outputs], inputs, force=force, columns=columns)
    for folder in new:
        make_folder(folder)


def _network_files(classifier: ImageClassifier) -> Iterator[Path]:
    from ..networks.names import network_files

    yield from network_files(classifier.recipe.network)


def _by_name(training: Path | Found) -> dict[str, Photo]:
    from ..photos.find import find_photos

    return {photo.name: photo for photo in find_photos(training)}


def _plain(evidence: Evidence) -> dict[str, Any]:
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
    # Parts that are near one another are called the same.
    lines.extend(
        dict.fromkeys(
            f"  {_place(match.box)} looks like {_place(match.there)} of {match.name}"
            for match in evidence.matches[:_SHOWN_MATCHES]
        )
    )
    if evidence.pulls:
        lines.append(f"training photos that pulled it most to {evidence.pulls[0].label}:")
        lines.extend(f"  {100 * pull.share:5.1f} %  {pull.name}" for pull in evidence.pulls)
    return lines


def _place(box: tuple[float, float, float, float]) -> str:
    """Return in words where in a photo a box is."""
    across, down = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if min(box[2] - box[0], box[3] - box[1]) > 0.9:
        return "the whole"
    row = "top" if down < 1 / 3 else "bottom" if down > 2 / 3 else ""
    column = "left" if across < 1 / 3 else "right" if across > 2 / 3 else ""
    return f"the {' '.join(filter(None, (row, column))) or 'middle'}"
