"""Commands that change what a model has learned: `add` and `forget`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..photos.outputs import Kind
from ..utils.terminal import counted, say
from .fit import record_of
from .options import Cache, ChangedModel, Cluster, Machine, ModelFile, Printing, Seed
from .output import leave, progress_line, tell_skipped
from .photos import Labelled

if TYPE_CHECKING:
    from ..classifier import ImageClassifier


def add(
    model: ModelFile,
    photos: Labelled,
    output: ChangedModel = None,
    seed: Seed = 0,
    *,
    cache: Cache,
    cluster: Cluster,
    printing: Printing,
) -> None:
    """Train MODEL with more PHOTOS, of its classes or of new ones. The earlier photos are not needed."""
    from ..models.file import change_and_save

    target = output or model.model

    def read() -> ImageClassifier:
        return model.load(cluster, cache=cache.folder, seed=seed)

    with cluster.opened() as engine:
        classifier, outputs = read(), [(target, Kind.model)]
        model.check_written(classifier, outputs, [photos.photos], updated=[model.model])
        photos.tell_hints()
        source = photos.source()
        with progress_line("extract", printing.quiet) as progress:
            classifier, changed = change_and_save(
                classifier, lambda one: one.add(source, progress=progress, engine=engine), target, reload=read
            )
    tell_skipped(classifier)
    added = classifier.added if changed else {}
    record = {**record_of(classifier), "added": added, "changed": changed, "known": classifier.known}
    printing.tell({"model": str(target), **record}, *_add_lines(classifier, target, added))
    leave(classifier)


def _add_lines(classifier: ImageClassifier, target: Path, added: dict[str, int]) -> list[str]:
    from ..models.report.card import accuracy_of
    from ..photos.find import similar_names

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
        *filter(None, [similar_names(classifier.classes)]),
    ]


def forget(
    model: ModelFile,
    photos: Annotated[
        list[str], typer.Argument(metavar="PHOTO...", help="Names, patterns ('cat/2*'), digests, or classes: cat/")
    ],
    output: ChangedModel = None,
    *,
    machine: Machine,
    printing: Printing,
) -> None:
    """Make MODEL forget training photos or whole classes: as if it had been fitted without them."""
    from ..models.file import change_and_save
    from ..models.report.card import accuracy_of

    target = output or model.model

    def read() -> ImageClassifier:
        return model.load(machine, cache=False)

    classifier = read()
    model.check_written(classifier, [(target, Kind.model)], updated=[model.model])
    content = dict(zip(classifier.model.names, classifier.model.digests, strict=False))
    classifier, _ = change_and_save(classifier, lambda one: one.forget(photos), target, reload=read)
    gone, now = classifier.forgotten, classifier.model
    forgotten = {content.get(name) for name in gone}
    same = [name for name, digest in zip(now.names, now.digests, strict=False) if digest in forgotten]
    if same and not (printing.quiet or printing.as_json):
        say(f"learned still, with the same content: {', '.join(same[:3])}. A digest forgets all that have it.")
    left = counted(sum(now.about.images.values()), "photo")
    printing.tell(
        {"model": str(target), "forgotten": gone, **record_of(classifier)},
        f"{target}: forgot {counted(len(gone), 'photo')}; {left} of {len(now.classes)} classes are left.",
        accuracy_of(now.about),
    )
