"""The command that trains a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..photos.outputs import Kind
from ..utils.remote import place
from ..utils.terminal import counted, some
from ..voters.registry import OWN
from .options import (
    Cache,
    Cluster,
    Describing,
    Force,
    Insist,
    Machine,
    MistypedError,
    NewModel,
    Printing,
    Report,
    Seed,
    check_insist,
    check_written,
)
from .output import leave, progress_line, size, tell_skipped
from .photos import Labelled, base_name

if TYPE_CHECKING:
    from ..bags.recipe import Recipe
    from ..classifier import ImageClassifier

_MAX_SHOWN_CLASSES = 10  # classes printed with their numbers of photos; `info` prints all of them


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitting(Cache, Report):
    """How a model is trained, for `fit` and `fine-tune`."""

    voter: Annotated[str, typer.Option(help=f"auto, {', '.join(OWN)}, or a voter of another package.")] = "auto"
    budget: Annotated[
        float, typer.Option(min=0, help="Seconds of processor time for training, of voters that learn in passes.")
    ] = 60.0
    seed: Seed = 0
    force: Force = False

    def check(
        self,
        photos: Labelled,
        model: Path,
        network: str,
        others: Sequence[Path | None] = (),
        beside: Iterable[tuple[Path, Kind]] = (),
    ) -> Path | None:
        """Refuse arguments that cannot be meant, and print what looks wrong; return the file of the report."""
        if self.cache is not None and photos.photos.absolute() in self.cache.absolute().parents:
            raise MistypedError(f"--cache {self.cache} is in {photos.photos}, where folders are classes.")
        page = self.file(model.parent / f"{base_name(model)}.html")
        outputs = [(model, Kind.model), (page, Kind.report), *beside]
        check_written(outputs, [photos.photos, *others], network, force=self.force)
        photos.tell_hints()
        return page

    def classifier(self, recipe: Recipe | str, machine: Machine) -> ImageClassifier:
        """Return a classifier with these settings."""
        from ..classifier import ImageClassifier

        settings: dict[str, Any] = {"budget": self.budget, "seed": self.seed, **machine.settings}
        return ImageClassifier(recipe, voter=self.voter, cache=self.folder, **settings)


def fit(
    photos: Labelled,
    model: NewModel = Path("model.patchvote"),
    target: Annotated[
        Path | None, typer.Option(metavar="DIR", parser=place, help="Unlabelled photos to adapt to.")
    ] = None,
    insist: Insist = False,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Write a small model, which learns no more.")] = False,
    *,
    fitting: Fitting,
    describing: Describing,
    cluster: Cluster,
    printing: Printing,
) -> None:
    """Learn to tell apart the classes in PHOTOS (one folder per class), and write MODEL and a report."""
    check_insist(insist, target, "--target")
    page = fitting.check(photos, model, describing.network, [target])
    with cluster.opened() as engine:
        classifier = fitting.classifier(describing.recipe(), cluster)
        with progress_line("extract", printing.quiet) as progress:
            others = target and photos.source(target)
            classifier.fit(photos.source(), target=others, insist=insist, progress=progress, engine=engine)
    tell_skipped(classifier)
    classifier.save(model, memory=not no_memory)
    write_report(classifier, page, photos, model)
    wrote = f"wrote {model} ({size(model)})" + (f" and {page}" if page else "")
    record = {"model": str(model), "report": page and str(page), **record_of(classifier)}
    printing.tell(record, *fit_lines(classifier), wrote)
    leave(classifier)


def write_report(classifier: ImageClassifier, page: Path | None, photos: Labelled, model: Path) -> None:
    """Write the report of what was learned, if one is wanted."""
    if page is not None:
        title = f"{base_name(model)}: {base_name(photos.photos)}"
        classifier.report(page, title=title, measured="on photos held out of the training")


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


def fit_lines(classifier: ImageClassifier) -> list[str]:
    """Return what was tried, chosen and measured, for people."""
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

    about, model = classifier.model.about, classifier.model
    counts = [f"{label} {about.images.get(label, 0):,}" for label in classifier.classes]
    photos = counted(sum(about.images.values()), "photo")
    lines = [
        f"{photos} of {len(classifier.classes):,} classes: {some(counts, _MAX_SHOWN_CLASSES)}",
        f"method: {model.kind}: {about.method}.",
        accuracy_sentence(about.held_out),
        *filter(None, [rejection_sentence(about.held_out)]),
    ]
    if about.held_out is not None:
        lines.append(enough_sentence(about.curve, about.held_out.get("classes", {}), few=few_classes(model)))
    lines += [*copies_sentences(about.copies), *cut_sentences(about.cut), *label_sentences(classifier.scores)]
    if about.held_out is None:
        lines += few_sentences(model)
    if adapted := about.adapted:
        lines.append(
            f"adapted to {counted(adapted['photos'], 'photo')} without classes: {adapted['taken']:,} with answers "
            f'confident enough to learn from, {adapted["rejected"]:,} still "none of these"; the accuracy above was '
            "measured before, on labelled photos that were held out."
        )
    return lines
