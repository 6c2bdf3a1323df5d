"""Recipe: how an image becomes a bag, as a value.

A recipe is frozen and hashable, can be written as JSON, and is stored in every store and model, so that bags of
different recipes are never mixed unnoticed.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal

from ..errors import PatchvoteError
from ..networks import EMBEDDED, Activation, NetworkSpec
from ..networks.names import NameFromFile
from ..utils.schema import brief
from .boxes import Dense, Patch

_MAX_NETWORK = 1 << 16  # characters in the name of a network: room for several of the longest paths

_MODES: dict[str, type[Dense] | type[Patch]] = {"dense": Dense, "patch": Patch}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How an image becomes a bag.

    Parameters
    ----------
    network : str, default "efficientnet-lite0"
        Name of an embedded network, path of an ONNX file, or any other name that `networks.load` accepts.
    sampling : Dense or Patch
        Regions of the image from which descriptors are extracted.
    activation : {"after", "before"}, default "after"
        Whether descriptors are taken after or before the network's last activation.

    Examples
    --------
    >>> recipe = Recipe(sampling=Patch(count=400))
    >>> recipe.mode
    'patch'
    >>> Recipe.from_json(recipe.to_json()) == recipe
    True
    """

    network: str = EMBEDDED[0]
    sampling: Dense | Patch = dataclasses.field(default_factory=Dense)
    activation: Activation = "after"

    def __post_init__(self) -> None:
        if not isinstance(self.network, str) or len(self.network) > _MAX_NETWORK:
            raise PatchvoteError(
                f"network of a recipe must be a name of at most {_MAX_NETWORK:,} characters, got {brief(self.network)}."
            )
        if not isinstance(self.sampling, (Dense, Patch)):
            raise PatchvoteError(f"sampling of a recipe must be Dense(…) or Patch(…), got {brief(self.sampling)}.")
        if self.activation not in ("after", "before"):
            raise PatchvoteError(f"activation of a recipe must be 'after' or 'before', got {brief(self.activation)}.")

    @property
    def mode(self) -> Literal["dense", "patch"]:
        """Name of the sampling."""
        return "dense" if isinstance(self.sampling, Dense) else "patch"

    def to_json(self) -> str:
        """Return the recipe as one line of JSON; equal recipes give equal lines."""
        return json.dumps({"mode": self.mode, **dataclasses.asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """Read a recipe from JSON. Its network is a `NameFromFile`: not all of these may be loaded."""
        try:
            fields: dict[str, Any] = json.loads(text)
            sampling_class = _MODES[fields.pop("mode")]
            sampling = fields.pop("sampling")
            if "sides" in sampling:
                sampling["sides"] = tuple(sampling["sides"])
            recipe = cls(sampling=sampling_class(**sampling), **fields)
            return dataclasses.replace(recipe, network=NameFromFile(recipe.network))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise PatchvoteError(f"this is not a recipe: {brief(text)} ({brief(str(error))}).") from None


def as_recipe(recipe: Recipe | str | None) -> Recipe:
    """Return a recipe; the name of a network means the default recipe with that network."""
    if recipe is None or isinstance(recipe, str):
        return Recipe() if recipe is None else Recipe(recipe)
    if not isinstance(recipe, Recipe):
        raise PatchvoteError(f"recipe must be a Recipe or the name of a network, got {brief(recipe)}.")
    return recipe


def fitting(recipe: Recipe, spec: NetworkSpec) -> Recipe:
    """Return a recipe whose dense sampling fits a network of one size: one scale, of that size."""
    if spec.fixed_size is None or spec.stride is None or not isinstance(recipe.sampling, Dense):
        return recipe
    sampling = dataclasses.replace(recipe.sampling, sides=(max(spec.fixed_size),))
    return dataclasses.replace(recipe, sampling=sampling)
