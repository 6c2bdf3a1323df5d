"""The report of a learning as plain values: accuracy, mistakes, what to look at, and what to label next.

Everything comes from the classifier and the check; photos are named by their ids in the workspace.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from ..classifier import ImageClassifier
from ..models.answers import Answer
from ..models.check.findings import Checked, Suspect
from ..models.learning_curve import enough_sentence, expected_gain, hardest_class
from ..models.model import Model
from ..models.report.card import accuracy_of, few_classes
from ..models.scores import Scores

_MOST = 500  # entries of each list


def report_of(
    classifier: ImageClassifier,
    checked: Checked | None,
    suggestions: Sequence[Answer],
    ids: Mapping[str, str],
    mode: str,
    seconds: float,
) -> dict[str, Any]:
    """Return the report.

    Parameters
    ----------
    classifier : ImageClassifier
        Classifier that has learned.
    checked : Checked or None
        What a check of the labelled photos found, if there was one.
    suggestions : sequence of Answer
        Answers for the unlabelled photos that would teach the model most.
    ids : mapping
        Ids of photos by the names that the classifier knows them by.
    mode : str
        Whether the model was fitted or added to.
    seconds : float
        Duration of the learning.
    """
    about, scores = classifier.model.about, classifier.scores
    return {
        "mode": mode,
        "date": datetime.date.today().isoformat(),
        "photos": sum(about.images.values()),
        "seconds": round(seconds, 2),
        "held_out": None if scores is None else scores.summary(),
        "sentence": accuracy_of(about),
        "mistakes": [] if scores is None else _mistakes(scores, ids),
        "more_photos": _more_photos(classifier.model, checked),
        "suspects": [] if checked is None else [_suspect(one, ids) for one in checked.suspects[:_MOST]],
        "alike": [] if checked is None else [[ids[name] for name in group] for group in checked.alike[:_MOST]],
        "suggestions": [_suggestion(answer, ids) for answer in suggestions],
        "skipped": [{"photo": ids.get(error.name), "reason": error.reason} for error in classifier.skipped[:_MOST]],
    }


def _mistakes(scores: Scores, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the held-out photos of the workspace whose likeliest class is wrong, the surest first."""
    rejected = scores.rejected.tolist()
    return [
        {
            "photo": ids[scores.names[index]],
            "label": scores.classes[scores.expected[index]],
            "likeliest": scores.classes[scores.predicted[index]],
            "likeliest_probability": round(float(scores.sure[index]), 4),
            "rejected": rejected[index],
        }
        for index in scores.worst(_MOST).tolist()
        if scores.names[index] in ids  # an opened model has learned others
    ]


def _more_photos(model: Model, checked: Checked | None) -> dict[str, Any]:
    """Return whether more photos would help, and of which class, or why that is not known."""
    about = model.about
    classes = {} if about.held_out is None else about.held_out.get("classes", {})
    hardest = hardest_class(classes)
    return {
        "sentence": enough_sentence(about.curve, classes, few=few_classes(model)),
        "class": None if hardest is None else hardest[0],
        "gain": round(expected_gain(about.curve), 4) if len(about.curve) > 1 else None,
        "curve": [dict(point) for point in about.curve],
        "few": {} if checked is None else checked.few,
    }


def _suspect(suspect: Suspect, ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "photo": ids[suspect.name],
        "label": suspect.label,
        "finding": str(suspect.kind),
        "looks_like": suspect.looks_like or None,
        "probability": None if suspect.probability is None else round(suspect.probability, 4),
        "details": suspect.details,
        "others": [ids[name] for name in suspect.others],
    }


def _suggestion(answer: Answer, ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "photo": ids[answer.name],
        "likeliest": answer.likeliest,
        "likeliest_probability": round(answer.likeliest_probability, 4),
        "runner_up": answer.runner_up,
        "runner_up_probability": round(answer.runner_up_probability, 4),
    }
