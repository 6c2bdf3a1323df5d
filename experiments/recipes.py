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

from patchvote.bags.boxes import Dense, Patch
from patchvote.bags.recipe import Recipe
from patchvote.errors import PatchvoteError


def parse_recipe(name: str, network: str) -> Recipe:
    """Return the recipe of this name.

    Examples
    --------
    >>> parse_recipe("patch-16x2-n400-64px-before", "efficientnet-lite0").sampling
    Patch(count=400, smallest=16, levels=2, whole=True, side=200, input=64)
    >>> parse_recipe("dense", "efficientnet-lite0") == Recipe()
    True
    """
    words = name.removesuffix("-before")
    activation: Any = "after" if words == name else "before"
    if match := re.fullmatch(r"dense((?:-\d+)*)", words):
        sides = tuple(map(int, match[1].split("-")[1:]))
        return Recipe(network, Dense(sides) if sides else Dense(), activation)
    match = re.fullmatch(
        r"patch(?:-(?P<smallest>\d+)x(?P<levels>\d+))?(?:-n(?P<count>\d+))?(?:-(?P<input>\d+)px)?", words
    )
    if match is None:
        raise PatchvoteError(
            f"{name!r} does not name a recipe. Such names are dense, dense-224-448-672, patch, "
            "patch-16x2-n400-64px-before (smallest patch and levels, patches per image, input size of the network)."
        )
    settings: dict[str, Any] = {key: int(value) for key, value in match.groupdict().items() if value}
    return Recipe(network, Patch(**settings), activation)
