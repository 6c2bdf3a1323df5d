"""Names of recipes in tables and on the command line.

A name is a mode and its settings, joined by hyphens; settings that are not named have their defaults:

- ``dense``, ``dense-224``, ``dense-224-448-672``: longest sides of the image in pixels;
- ``patch``, ``patch-16x2``: side of the smallest patch and number of levels; ``n400``: patches per image; ``64px``:
  size to which each patch is resized;
- ``before``: descriptors are read before the network's last activation.
"""

from __future__ import annotations

import re
from typing import Any

from ..bags.boxes import Dense, Patch
from ..bags.recipe import Recipe
from ..errors import PatchvoteError


def parse_recipe(name: str, network: str) -> Recipe:
    """Return the recipe of this name.

    Examples
    --------
    >>> parse_recipe("patch-16x2-n400-64px-before", "efficientnet-lite0").sampling
    Patch(count=400, smallest=16, levels=2, whole=True, side=200, input=64)
    >>> parse_recipe("dense", "efficientnet-lite0") == Recipe()
    True
    """
    mode, *words = name.split("-")
    settings: dict[str, Any] = {}
    sides: list[int] = []
    activation = "after"
    for word in words:
        if word == "before":
            activation = "before"
        elif mode == "dense" and word.isdigit():
            sides.append(int(word))
        elif mode == "patch" and (match := re.fullmatch(r"(\d+)x(\d+)", word)):
            settings["smallest"], settings["levels"] = int(match[1]), int(match[2])
        elif mode == "patch" and (match := re.fullmatch(r"n(\d+)", word)):
            settings["count"] = int(match[1])
        elif mode == "patch" and (match := re.fullmatch(r"(\d+)px", word)):
            settings["input"] = int(match[1])
        else:
            mode = ""
    if mode not in ("dense", "patch"):
        raise PatchvoteError(
            f"{name!r} does not name a recipe. Such names are dense, dense-224-448-672, patch, "
            "patch-16x2-n400-64px-before (smallest patch and levels, patches per image, input size of the network)."
        )
    sampling = Patch(**settings) if mode == "patch" else Dense(tuple(sides)) if sides else Dense()
    return Recipe(network, sampling, activation)  # type: ignore[arg-type]
