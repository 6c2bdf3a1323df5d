"""The command that measures a model on labelled photos."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engines import EngineName
from ..utils.remote import RemotePath, place
from ..utils.terminal import counted, padded, printable, show, show_json, width
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
    ModelArgument,
    ModelNetwork,
    NoCache,
    NoReport,
    PhotosArgument,
    Quiet,
    ReportOption,
    Threshold,
    Workers,
    base_name,
    cache_of,
    check_insist,
    check_order,
    leave,
    load,
    named_columns,
    report_file,
    source_of,
    sources_of,
    tell_answers,
    tell_refusal,
    tell_skipped,
    workers_of,
)
from .streams import interruption

if TYPE_CHECKING:
    from ..models.scores import ClassScores, Scores, Strangers

_MAX_LISTED_CLASSES = 30  # classes that are printed, of more those that are found least
_MAX_SHOWN_CLASSES = 10  # unknown classes that are printed, those that are rejected least; the report has all of them


def evaluate(
    model: ModelArgument,
    photos: PhotosArgument,
    unknown: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            parser=place,
            help="Photos of classes that MODEL does not know: how many are rejected? May be repeated.",
        ),
    ] = None,
    threshold: Threshold = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt to PHOTOS without their labels; show before and after.")
    ] = False,
    insist: Insist = False,
    columns: ColumnsOption = None,
    report: ReportOption = None,
    no_report: NoReport = False,
    network: ModelNetwork = None,
    force: Force = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare the answers of MODEL for labelled PHOTOS with their labels, and write a report."""
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs
    from ..utils.marks import Kind, origin_of
    from .progress import ProgressLine

    check_insist(insist, adapt, "--adapt")
    kept = cache_of(cache, no_cache, photos)
    strangers = unknown or []
    check_order(model, [photos, *strangers])
    named = named_columns(columns, [photos, *strangers])
    names = base_name(model), base_name(photos)
    beside = Path() if isinstance(model, RemotePath) else model.parent
    default = beside / f"{names[0]}-{names[1]}.html"
    page = report_file(default, report, no_report)
    interrupted = interruption("interrupted; the photos were not all classified, and no report was written.")
    with interrupted, workers_of(engine, address, workers, jobs) as (where, threads):
        classifier = load(model, network=network, jobs=threads, cache=kept, device=device)
        inputs = itertools.chain([model, photos, *strangers], network_files(classifier.recipe.network))
        origin = origin_of([model, photos])
        renewed = {} if report else {default: origin}
        check_outputs([(page, Kind.report)], inputs, force=force, renewed=renewed, columns=named)
        tell_answers(photos)
        with ProgressLine("evaluate", quiet) as line:
            settings: dict[str, Any] = {"adapt": adapt, "insist": insist, "progress": line.stage, "engine": where}
            settings["unknown"] = sources_of(strangers, named)
            scores = classifier.evaluate(source_of(photos, named), threshold=threshold, **settings)
    tell_skipped(classifier)
    tell_refusal(classifier)
    before = classifier.before
    change = _change(before, scores, classifier.refusal) if before is not None else ""
    if page:
        known = f", {classifier.known:,} of which it had learned from" if classifier.known else ""
        measured = f"on {counted(len(scores), 'photo')} of {names[1]}{known}" + (f"; {change}" if change else "")
        classifier.report(page, title=f"{names[0]} on {names[1]}", measured=measured, origin=origin)
    if as_json:
        adapted: dict[str, Any] = {}
        if before is not None:
            adapted = {"adapted": classifier.refusal is None, "refusal": classifier.refusal, "before": before.summary()}
        record = {
            **scores.summary(),
            "accuracy_of_named": _plain(scores.accuracy_of_named),
            "threshold": scores.threshold,
            "unknown": scores.strangers and scores.strangers.summary(scores.decisive),
            "known": classifier.known,
            "passed_over": classifier.passed_over.plain(),
        }
        show_json({"model": str(model), "report": page and str(page), **record, **adapted})
    elif not quiet:
        show(*_scores_lines(scores))
        if classifier.known:
            known = counted(classifier.known, "of these photos was", "of these photos were")
            show(f"{known} used for training: the accuracy on new photos will be lower.")
        if change:
            show(change)
        if page:
            show(f"wrote {page}")
    leave(classifier)


def _change(before: Scores, after: Scores, refusal: str | None) -> str:
    """Say what adapting changed."""
    parts = [
        f'{100 * scores.accuracy:.1f} % classified correctly, {int(scores.rejected.sum()):,} "none of these"'
        for scores in (before, after)
    ]
    change = f"before adapting {parts[0]}; " + (f"after adapting {parts[1]}" if refusal is None else "not adapted")
    if refusal is None and after.accuracy < before.accuracy:
        change += ". Adapting made it worse: use the model without --adapt for such photos, or teach it some of them"
    return change


def _scores_lines(scores: Scores) -> list[str]:
    from ..models.report.card import likeliest_is

    low, high = scores.interval
    columns = max(width(printable(label)) for label in scores.classes)
    lines = [
        f"{100 * scores.accuracy:.1f} % of {counted(len(scores), 'photo')} "
        f"{'is' if len(scores) == 1 else 'are'} classified correctly "
        f"({100 * low:.1f} to {100 * high:.1f} %, 95 % confidence)"
    ]
    measured = [one for one in scores.by_class() if one.images]
    left_out: list[ClassScores] = []
    if len(measured) > _MAX_LISTED_CLASSES:
        measured.sort(key=lambda one: one.found)
        measured, left_out = measured[:_MAX_LISTED_CLASSES], measured[_MAX_LISTED_CLASSES:]
    for one in measured:
        lines.append(f"  {padded(printable(one.label), columns)} {100 * one.found:5.1f} % of {one.images:,}")
    if left_out:
        lines.append(f"  {_better(measured[-1], left_out)}; the report and --json have all of them")
    missing = [one.label for one in scores.by_class() if not one.images]
    if missing:
        more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
        lines.append(f"  there was no photo of {', '.join(missing[:5])}{more}")
    if rejected := int(scores.rejected.sum()):
        lines.append(
            f'{rejected:,} would be rejected as "none of these", which the figures above ignore; '
            f"{likeliest_is(scores.rejected_right, rejected)}. Of the other {len(scores) - rejected:,}, "
            f"{_percent(scores.accuracy_of_named)} are classified correctly."
        )
    if scores.strangers is not None:
        lines.extend(_strangers_lines(scores, scores.strangers))
    return lines


def _better(last: ClassScores, left_out: Sequence[ClassScores]) -> str:
    """Say how classes compare with the last one that is listed; they are sorted by the share that was found."""
    how = "better" if left_out[0].found > last.found else "as well or better"
    if left_out[-1].found == last.found:
        how = "as well"
    return f"{counted(len(left_out), 'more class does', 'more classes do')} {how}"


def _strangers_lines(scores: Scores, strangers: Strangers) -> list[str]:
    rejected, count = int(strangers.rejected.sum()), len(strangers)
    lines = [
        f"{100 * rejected / count:.1f} % of {counted(count, 'photo')} of unknown classes are rejected, at the price of "
        f"{100 * scores.rejected.mean():.1f} % of the photos above; AUROC {strangers.auroc(scores.decisive):.3f}"
    ]
    rows = [row for row in strangers.by_class() if row[0]][:_MAX_SHOWN_CLASSES]
    columns = max((width(printable(label)) for label, *_ in rows), default=0)
    for label, images, out, most in rows:
        others = f", the others named {most} mostly" if most else ""
        lines.append(f"  {padded(printable(label), columns)} {100 * out / images:5.1f} % of {images:,}{others}")
    return lines


def _plain(share: float) -> float | None:
    return None if math.isnan(share) else share


def _percent(share: float) -> str:
    return "none" if math.isnan(share) else f"{100 * share:.1f} %"
