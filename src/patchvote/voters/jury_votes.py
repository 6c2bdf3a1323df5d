"""JuryVotes: votes of the parts and votes of the bag, added with the weights that held-out images gave them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import ModelError
from ..utils.onnx_graph import GraphBuilder
from ..utils.schema import Check, record
from .linear import LinearVotes
from .onnx_nodes import Exported, softmax_of
from .prototypes.votes import SnbnlVotes
from .scorer import FLOATS, Schema, Scorer, Spec
from .settings import PART, SEED, SHARE

MEMBERS: dict[str, type[Scorer]] = {"bag": LinearVotes, "parts": SnbnlVotes}


def _prefixed(part: str, specs: Mapping[str, Spec]) -> dict[str, Spec]:
    return {f"{part}_{name}": spec for name, spec in specs.items()}


def _settings(member: type[Scorer]) -> Check:
    """Return the check of a member's settings: those of its own schema."""
    known = member.schema.settings
    return record({name: known[name] for name in member.schema.needed}, known)


class JuryVotes(Scorer):
    """Votes of `Jury`."""

    kind = "jury"
    traces = True
    schema = Schema(
        arrays={
            "balance": (1, FLOATS),
            **_prefixed("bag", LinearVotes.schema.arrays),
            **_prefixed("parts", SnbnlVotes.schema.arrays),
        },
        kept={
            **_prefixed("bag", {"weight": LinearVotes.schema.kept["weight"]}),
            **_prefixed("parts", SnbnlVotes.schema.kept),
        },
        settings={
            **{part: _settings(member) for part, member in MEMBERS.items()},
            "validation_fraction": PART,
            "rejection": SHARE,
            "random_state": SEED,
        },
        needed=tuple(MEMBERS),
    )

    @functools.cached_property
    def members(self) -> dict[str, Scorer]:
        """Scorers of the members, by the part that they play."""
        scorers: dict[str, Scorer] = {}
        for part, member in MEMBERS.items():
            prefix = f"{part}_"
            arrays = {n.removeprefix(prefix): a for n, a in self.arrays.items() if n.startswith(prefix)}
            positions = self.positions and part == "parts"
            scorers[part] = member(arrays, self.settings[part], self.classes, positions)
        return scorers

    @property
    def features(self) -> int:
        """Number of features per descriptor, without positions."""
        return self.members["bag"].features

    def votes(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the weighted sum of the members' votes of every descriptor."""
        return self._sum([member.votes(bags) for member in self.members.values()])

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the weighted sum of the members' scores of each bag, which is the mean of its votes."""
        return self._sum([member.scores(bags) for member in self.members.values()])

    def pulls(self, bags: Bags, number: int) -> npt.NDArray[Any] | None:
        """Return how much each training image pulls by the member that learned from bags; the other keeps none."""
        return self.members["bag"].pulls(bags, number)

    def _sum(self, votes: list[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        return np.asarray(sum(w * vote for w, vote in zip(self.arrays["balance"], votes, strict=True)), np.float64)

    def check(self, images: int | None = None) -> None:
        """Refuse members that are inconsistent, alone or together."""
        balance = self.arrays["balance"]
        if balance.shape != (len(MEMBERS),) or balance.min() < 0 or balance.max() <= 0:
            raise ModelError(f"the array 'balance' must have {len(MEMBERS)} numbers, none negative, and one above 0.")
        for part, member in self.members.items():
            try:
                member.check_settings(self.settings[part])
                member.check_all(images if part == "bag" else None)
            except ModelError as error:
                raise ModelError(f"its member {part!r}: {error}") from None
        if self.members["parts"].features != self.features:
            raise ModelError("its members have different numbers of features.")

    def to_onnx(
        self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float, threshold: float
    ) -> Exported:
        """Add the nodes of both members, and the weighted sums of what they return."""
        exported = [member.to_onnx(graph, maps, whole, 1.0, 0.0) for member in self.members.values()]

        def added(values: list[str]) -> str:
            scaled = [
                graph.node("Mul", value, graph.constant(float(weight)))
                for value, weight in zip(values, self.arrays["balance"], strict=True)
            ]
            return graph.node("Sum", *scaled)

        votes = [added([one.votes[scale] for one in exported]) for scale in range(len(maps))]
        scores = added([one.scores for one in exported])
        return Exported(votes, scores, softmax_of(graph, scores, temperature))
