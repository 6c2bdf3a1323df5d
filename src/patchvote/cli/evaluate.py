"""The command that measures a model on labelled photos."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..photos.outputs import Kind
from ..utils.remote import RemotePath, place
from ..utils.terminal import counted, padded, printable, width
from .options import Adapting, Cache, Cluster, ModelFile, Printing, Report
from .output import leave, progress_line, tell_skipped
from .photos import Labelled, base_name

if TYPE_CHECKING:
    from ..classifier import ImageClassifier
    from ..models.scores import Scores

_MAX_LISTED_CLASSES = 30  # classes that are printed: those that are found least
_MAX_SHOWN_CLASSES = 10  # unknown classes that are printed: those that are rejected least


def evaluate(
    model: ModelFile,
    photos: Labelled,
    unknown: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", parser=place, help="Photos of classes that MODEL does not know.")
    ] = None,
    *,
    adapting: Adapting,
    report: Report,
    cache: Cache,
    cluster: Cluster,
    printing: Printing,
) -> None:
    """Compare the answers of MODEL for labelled PHOTOS with their labels, and write a report."""
    settings, strangers = adapting.settings, unknown or []
    path, names = model.model, (base_name(model.model), base_name(photos.photos))
    default = (Path() if isinstance(path, RemotePath) else path.parent) / f"{names[0]}-{names[1]}.html"
    page = report.file(default)
    with cluster.opened() as engine:
        classifier = model.load(cluster, cache=cache.folder)
        inputs = [photos.photos, *strangers]
        model.check_written(classifier, [(page, Kind.report)], inputs, renewed=default)
        photos.tell_hints()
        others = photos.sources(strangers)
        with progress_line("evaluate", printing.quiet) as progress:
            scores = classifier.evaluate(photos.source(), unknown=others, progress=progress, engine=engine, **settings)
    tell_skipped(classifier)
    change = _change(classifier, scores)
    if page:
        known = f", {classifier.known:,} of which it had learned from" if classifier.known else ""
        measured = f"on {counted(len(scores), 'photo')} of {names[1]}{known}" + (f"; {change}" if change else "")
        classifier.report(page, title=f"{names[0]} on {names[1]}", measured=measured)
    lines = _scores_lines(scores)
    if classifier.known:
        known = counted(classifier.known, "of these photos was", "of these photos were")
        lines.append(f"{known} used for training: the accuracy on new photos will be lower.")
    lines += filter(None, [change, f"wrote {page}" if page else ""])
    printing.tell({"model": str(path), "report": page and str(page), **_record(classifier, scores)}, *lines)
    leave(classifier)


def _record(classifier: ImageClassifier, scores: Scores) -> dict[str, Any]:
    record = {
        **scores.summary(),
        "accuracy_of_named": None if math.isnan(scores.accuracy_of_named) else scores.accuracy_of_named,
        "threshold": scores.threshold,
        "unknown": scores.strangers and scores.strangers.summary(scores.decisive),
        "known": classifier.known,
        "passed_over": classifier.passed_over.plain(),
    }
    if (before := classifier.before) is not None:
        refusal = classifier.refusal
        record |= {"adapted": refusal is None, "refusal": refusal, "before": before.summary()}
    return record


def _change(classifier: ImageClassifier, after: Scores) -> str:
    """Return what adapting changed, in words; empty if that was not asked for."""
    before, refusal = classifier.before, classifier.refusal
    if before is None:
        return ""
    parts = [
        f'{100 * scores.accuracy:.1f} % classified correctly, {int(scores.rejected.sum()):,} "none of these"'
        for scores in (before, after)
    ]
    change = f"before adapting {parts[0]}; " + (f"after adapting {parts[1]}" if refusal is None else "not adapted")
    if refusal is None:
        newly = int((after.rejected & ~before.rejected).sum()), int((before.rejected & ~after.rejected).sum())
        change += f", of which {newly[0]:,} are newly so; {newly[1]:,} that were have a class now"
    if refusal is None and after.accuracy < before.accuracy:
        change += ". Adapting made it worse: use the model without --adapt for such photos, or teach it some of them"
    return change


def _scores_lines(scores: Scores) -> list[str]:
    from ..models.report.card import accuracy_sentence

    summary: Any = scores.summary()
    lines = [accuracy_sentence(summary, "photos", held_out=False)]
    measured = sorted((one for one in scores.by_class() if one.images), key=lambda one: one.found)
    lines += _shares((one.label, one.found, one.images, "") for one in measured[:_MAX_LISTED_CLASSES])
    if (left_out := len(measured) - _MAX_LISTED_CLASSES) > 0:
        more = counted(left_out, "more class does", "more classes do")
        lines.append(f"  {more} as well or better; the report and --json have all of them")
    if rejected := int(scores.rejected.sum()):
        named = "none" if math.isnan(scores.accuracy_of_named) else f"{100 * scores.accuracy_of_named:.1f} %"
        lines.append(
            f'{rejected:,} would be rejected as "none of these", which the figures above ignore; the likeliest class '
            f"is right for {scores.rejected_right:,} of these. Of the other {len(scores) - rejected:,}, {named} were "
            "classified correctly."
        )
    if (strangers := scores.strangers) is not None:
        lines.append(
            f"{100 * strangers.rejected.mean():.1f} % of {counted(len(strangers), 'photo')} of unknown classes are "
            f"rejected, at the price of {100 * scores.rejected.mean():.1f} % of the photos above; AUROC "
            f"{strangers.auroc(scores.decisive):.3f}"
        )
        rows = [row for row in strangers.by_class() if row[0]][:_MAX_SHOWN_CLASSES]
        lines += _shares(
            (label, out / images, images, f", the others named {most} mostly" if most else "")
            for label, images, out, most in rows
        )
    return lines


def _shares(rows: Iterable[tuple[str, float, int, str]]) -> list[str]:
    """Return an aligned line per class: the share of its photos, and more."""
    kept = [(printable(label), share, count, more) for label, share, count, more in rows]
    columns = max((width(label) for label, *_ in kept), default=0)
    return [f"  {padded(label, columns)} {100 * share:5.1f} % of {count:,}{more}" for label, share, count, more in kept]
