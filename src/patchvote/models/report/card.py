"""The model card, and the sentences on accuracy and limits of a model that reports and commands share."""

from __future__ import annotations

import re

from ...utils.terminal import counted, printable, some
from ..about import About, Plain
from ..model import Model

FEW = 10  # photos of a class below which what is said of it is rough, and with which one begins to add photos


def card(model: Model) -> str:
    """Return the card of a model, as Markdown."""
    about = model.about
    measured = [accuracy_of(about), *filter(None, [rejection_sentence(about.held_out)])]
    lines = [
        f"# A classifier of {len(model.classes)} classes",
        "",
        f"It names a photo as one of: {', '.join(map(_text, model.classes))}.",
        "",
        "## How good it is",
        "",
        *map(_sentence, measured),
        "",
        "## What it has seen",
        "",
        "| class | photos |",
        "|---|---|",
        *(f"| {_text(label)} | {about.images.get(label, 0):,} |" for label in model.classes),
        "",
        *_additions(about.added),
        *_adaptation(about.adapted),
        "## How it was made",
        "",
        f"- network: {_text(model.recipe.network)}, {model.recipe.mode}; checksum of its weights "
        f"{_text(model.fingerprint)}",
        f"- method: {_text(model.kind)}: {_text(about.method)}",
        f"- patchvote {_text(about.made.get('patchvote', '?'))}, {_text(about.made.get('date', '?'))}",
        "",
        "## Its limits",
        "",
        *(f"- {_sentence(limit)}" for limit in limits(model)),
        "",
    ]
    return "\n".join(lines)


def _additions(added: list[Plain]) -> list[str]:
    lines = []
    for one in added:
        what = ", ".join(f"{count} of {_text(label)}" for label, count in one["images"].items())
        lines.append(f"- added {_text(one['date'])}: {what}")
    return [*lines, ""] if lines else []


def _adaptation(adapted: Plain | None) -> list[str]:
    if not adapted:
        return []
    return [
        f"- adapted {_text(adapted.get('date', ''))} to {counted(adapted.get('photos', 0), 'photo')} without labels, "
        f"of which it named {adapted.get('taken', 0):,} with enough confidence to learn from them",
        "",
    ]


def _text(name: str) -> str:
    """Return a name escaped for Markdown: it can neither begin nor end a table, link, code or tag."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", printable(name))


def _sentence(words: str) -> str:
    """Return a sentence escaped for Markdown, but for the commands in it: letters and dashes in backquotes."""
    parts = re.split("(`[a-z -]+`)", words)
    return "".join(part if number % 2 else _text(part) for number, part in enumerate(parts))


# --- sentences, which reports and commands share ----------------------------------------------------------------------


def accuracy_of(about: About) -> str:
    """Return a sentence on the accuracy of a model, and on what has changed since it was measured."""
    sentence = accuracy_sentence(about.held_out)
    added = sum(sum(one["images"].values()) for one in about.added)
    new = list(dict.fromkeys(label for one in about.added for label in one.get("new_classes", [])))
    of_new = f" (among them the new {'class' if len(new) == 1 else 'classes'} {some(new)})" if new else ""
    since = [f"{counted(added, 'photo was', 'photos were')} added{of_new}"] if added else []
    if about.adapted:
        since.append("it was adapted to other photos")
    if not about.held_out or not since:
        return sentence
    return (
        f"{sentence} That was measured before {' and '.join(since)}: `patchvote evaluate` measures the current model."
    )


def accuracy_sentence(
    scores: Plain | None, which: str = "photos that it had not seen", *, held_out: bool = True
) -> str:
    """Return a sentence on `About.held_out` or on other scores: accuracy, interval, and classes without photos."""
    if not scores:
        return (
            "The accuracy is not known: no photo was held out. Two per class that do not look alike are the least, ten "
            "are better. `patchvote evaluate` measures it on other labelled photos."
        )
    low, high = scores["interval"]
    return (
        f"{100 * scores['accuracy']:.1f} % of {scores['images']:,} {which} were classified correctly; for "
        f"photos of the same kind the share is between {100 * low:.1f} and {100 * high:.1f} % (95 % confidence)."
        f"{_not_measured(scores, held_out)}"
    )


def _not_measured(scores: Plain, held_out: bool) -> str:
    reasons = scores.get("left_out", {})
    missing = [label for label, one in scores.get("classes", {}).items() if not one["images"]]
    named = [f"{label} ({reasons[label]})" if label in reasons else label for label in missing]
    if not named:
        return ""
    if not held_out:
        return f" This says nothing of {some(named)}: none of these photos is of {'it' if len(named) == 1 else 'them'}."
    return (
        f" This says nothing of {some(named)}: a class is measured on photos of it that are held out, so it needs two "
        "at least that do not look alike."
    )


def rejection_sentence(scores: Plain | None) -> str | None:
    """Return a sentence on the held-out photos that are rejected, if their number is known."""
    if not scores or "rejected_right" not in scores:
        return None
    rejected, right = scores.get("rejected", 0), scores["rejected_right"]
    of_these = f"; the likeliest class is right for {right:,} of these" if rejected else ""
    return f'{f"{rejected:,}" if rejected else "None"} of them would be rejected as "none of these"{of_these}.'


def limits(model: Model) -> list[str]:
    """Return sentences on the limits of a model."""
    return [
        "It knows its classes and nothing else. A photo of something else gets one of their names, or "
        f'"none of these": it rejects {rejects(model)}.',
        "Photos from another camera, place or time may be classified less accurately than photos like those it has seen"
        + ("." if not model.scorer.adapts else "; `fit --target` and `predict --adapt` make up for much of that."),
        *few_sentences(model),
        *copies_sentences(model.about.copies),
        *cut_sentences(model.about.cut),
    ]


def rejects(model: Model) -> str:
    """Return in words which photos a model rejects as "none of these"."""
    if model.familiarity is None:
        if model.threshold > 0:
            return f"photos whose likeliest class has a probability below {model.threshold:.2f}"
        adapted = "it was adapted on condition that all photos show its classes"
        return f"no photo: {adapted if model.about.adapted else 'none was held out that would tell what is strange'}"
    share = f"{100 * model.familiarity.rejection:g} %"
    return (
        f"photos that look stranger than all but {share} of the photos of its classes that were held out, and so about "
        f"{share} of photos like those it learned from; more of photos unlike these: of another camera or place, or of "
        "a class of which it has seen few"
    )


def copies_sentences(copies: Plain | None) -> list[str]:
    """Return sentences on photos that look alike, copies among them, and on those in several classes."""
    if not copies:
        return []
    groups = "; ".join([*map(" ~ ".join, copies["examples"]), *["…"] * (copies["groups"] > len(copies["examples"]))])
    sentences = [
        f"{copies['photos']:,} photos look alike (copies, or nearly), in {counted(copies['groups'], 'group')}; "
        f"such photos were held out together ({groups})."
    ]
    if mixed := copies["in_several_classes"]:
        examples = copies["examples_in_several_classes"]
        named = [" ~ ".join(f"{name} ({label})" for name, label in group) for group in examples]
        more = f"; and {mixed - len(named):,} more" if mixed > len(named) else ""
        sentences.append(
            f"Photos that look alike (copies, or nearly) stand in several classes: {'; '.join(named)}{more}."
        )
    return sentences


def few_sentences(model: Model) -> list[str]:
    """Return a sentence on the classes of which few photos were seen, if there are any."""
    few = few_classes(model)
    return [f"Fewer than {FEW} photos were seen of: {some(few)}. What is said of these is rough."] if few else []


def few_classes(model: Model) -> list[str]:
    """Return the classes of which few photos were seen."""
    return [label for label in model.classes if model.about.images.get(label, 0) < FEW]


def cut_sentences(cut: list[str]) -> list[str]:
    """Return a sentence on what the time budget cut short, if anything."""
    if not cut:
        return []
    return [f"The budget of time cut it short: {'; '.join(cut)}. A larger `--budget` gives it more."]
