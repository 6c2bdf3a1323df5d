"""What the words and numbers in the header of a model may be: settings of each voter, and what is told about it.

Settings are the parameters of the voters, as plain data: naming photos must not import the voters, which need
scikit-learn. What is told about a model is printed, added up and written into reports, so every value has a type that
these can rely on.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ModelError
from ..utils.schema import Check, either, flag, listed, number, one_of, record, table, text, whole
from .checks import MAX_NAME

_MAX_CARD = 1 << 23  # characters; the card of 100,000 classes
_WORDS = text(10_000)  # a sentence
_PATH = text(1 << 15)  # the longest path of any system

_COUNT = whole(0, 1 << 53)
_SECONDS = number(0, 1e12)
_SHARE = number(0, 1)
_NONE = one_of(None)

_STEPS = whole(1, 1 << 53)
_WEIGHT = number(0, 1e12)
_SEED = either(_NONE, whole(0, (1 << 32) - 1))
_CLASS_WEIGHT = either(_NONE, one_of("balanced"), table(_WEIGHT, text(MAX_NAME)))
_Q = either(one_of("inf"), number(1, 1e300))

_PROTOTYPES: dict[str, Check] = {
    "prototypes": _STEPS,
    "q": _Q,
    "minibatch": _STEPS,
    "position_weight": _WEIGHT,
    "standardise": flag,
    "class_weight": _CLASS_WEIGHT,
    "calibration": number(0, 0.9),
    "rejection": _SHARE,
    "block": _STEPS,
    "random_state": _SEED,
}
_BANK: dict[str, Check] = {
    "neighbours": _STEPS,
    "normalise": flag,
    "position_weight": _WEIGHT,
    "search": one_of("exact", "pca", "hnsw", "ivf"),
    "dtype": one_of("float32", "float16"),
    "calibration": _WEIGHT,
    "rejection": _WEIGHT,
}
SETTINGS: dict[str, dict[str, Check]] = {
    "BagSVM": {
        "C": number(1e-12, 1e12),
        "power": number(math.ulp(0.0), 1),
        "class_weight": _CLASS_WEIGHT,
        "calibration": number(0, 0.9),
        "rejection": _SHARE,
        "random_state": _SEED,
    },
    "SNBNL": {
        **_PROTOTYPES,
        "lam": _WEIGHT,
        "curvature": number(1e-12, 1e12),
        "passes": _STEPS,
        "min_steps": _COUNT,
        "start": one_of("random", "data", "kmeans"),
        "start_scale": _WEIGHT,
        "held_out": number(0, 0.9),
        "average": flag,
    },
    "NBNL": {**_PROTOTYPES, "lam": either(_NONE, _WEIGHT), "rounds": _STEPS, "epochs": _STEPS},
    "NBNN": {**_BANK, "condense": either(_NONE, _STEPS), "random_state": _SEED},
    "LocalNBNN": _BANK,
}
_NEEDED = {"BagSVM": "power", "SNBNL": "q", "NBNL": "q"}  # what naming a photo takes

_IMAGES = table(_COUNT, text(MAX_NAME))
_HELD_OUT = record(
    {"images": _COUNT, "accuracy": _SHARE, "interval": listed(_SHARE, length=2)},
    {
        "rejected": _COUNT,
        "calibration_error": either(_NONE, _SHARE),
        "classes": table(
            record({"images": _COUNT}, {"found": either(_NONE, _SHARE), "right": either(_NONE, _SHARE)}),
            text(MAX_NAME),
        ),
        "left_out": table(_WORDS, text(MAX_NAME)),
    },
)
_COPIES = record(
    {
        "groups": _COUNT,
        "photos": _COUNT,
        "examples": listed(listed(_PATH)),
        "in_several_classes": _COUNT,
        "examples_in_several_classes": listed(listed(listed(_PATH, length=2))),
    }
)
_ABOUT = record(
    {},
    {
        "made": record({}, {"patchvote": _WORDS, "date": _WORDS}),
        "images": _IMAGES,
        "descriptors": _IMAGES,
        "tried": listed(
            record({"words": _WORDS, "accuracy": _SHARE, "loss": number(-1e300, 1e300), "seconds": _SECONDS})
        ),
        "chosen": record({}, {"words": _WORDS, "why": _WORDS}),
        "held_out": either(_NONE, _HELD_OUT),
        "added": listed(record({"date": _WORDS, "images": _IMAGES}, {"new_classes": listed(text(MAX_NAME))})),
        "adapted": either(_NONE, record({}, {"date": _WORDS, "photos": _COUNT, "taken": _COUNT, "rejected": _COUNT})),
        "steps": _COUNT,
        "seconds": table(_SECONDS, _WORDS),
        "names": listed(_PATH),
        "copies": either(_NONE, _COPIES),
        "cut": listed(_WORDS),
        "photos": table(listed(text(64)), text(MAX_NAME)),
    },
)
_FINGERPRINT = text(256)
_CARD = text(_MAX_CARD)


def check_words(kind: str, classes: tuple[str, ...], settings: Any, fingerprint: Any, about: Any, card: Any) -> None:
    """Refuse settings that the voter does not have, and words and numbers of other types or sizes than a model's.

    Raises
    ------
    ModelError
        It says which value is wrong, and what it must be.
    """
    known = SETTINGS[kind]
    strange = sorted(map(repr, set(settings) - set(known))) if isinstance(settings, dict) else []
    if strange:
        raise ModelError(
            f"{strange[0][:60]} is not a setting of {kind}. It may come from a newer version of patchvote."
        )
    needed = {name: check for name, check in known.items() if name == _NEEDED.get(kind)}
    for name, check, value in (
        ("settings", record(needed, known), settings),
        ("fingerprint", _FINGERPRINT, fingerprint),
        ("about", _ABOUT, about),
        ("card", _CARD, card),
    ):
        wrong = check(value)
        if wrong is not None:
            raise ModelError(f"{name}{wrong}.")
    weights = settings.get("class_weight")
    if "prototypes" in known and isinstance(weights, dict) and not weights.keys() <= set(classes):
        raise ModelError("its settings have weights of classes that are not there.")
