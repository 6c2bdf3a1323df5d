"""The result of fine-tuning: a network and a head that were trained together, and the files of their model."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import nn

from ..bags.boxes import Dense
from ..bags.recipe import Recipe
from ..errors import PatchvoteError, PhotoError
from ..models.about import About
from ..models.file import write_model
from ..models.model import Model
from ..models.report.card import card
from ..models.scores import Scores
from ..networks import NetworkSpec, open_onnx
from ..networks.write_network import write_network
from ..version import __version__
from ..voters.prototypes.snbnl import SNBNL
from ..voters.prototypes.votes import SnbnlVotes
from .layers import VoteHead

if TYPE_CHECKING:
    import onnx

_STEPS = 400  # steps that a training of sNBNL makes; they set the size of further steps, when photos are added later


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """A network and a head that were trained together.

    Parameters
    ----------
    graph : onnx.ModelProto
        Graph of the network, from pixels to its feature map.
    head : module
        Module that computes votes from the feature map.
    spec : NetworkSpec
        Specification of the network before fine-tuning.
    classes : tuple of str
        Names of the classes, in the order of the votes.
    side : int
        Longest side of a photo in pixels.
    history : list of dict
        Loss and held-out accuracy of every pass.
    skipped : list of PhotoError
        Errors of the photos that could not be read.
    held_out : Scores or None
        Predictions and classes of the held-out photos.
    temperature : float
        Temperature of the probabilities, fitted on the held-out photos.
    memory : dict of arrays
        Some descriptors of each class, as stored in a model.
    images : dict
        Number of photos per class that could be read.
    sides : tuple of int
        Longest sides of photos at all scales, if there are several.
    """

    graph: onnx.ModelProto
    head: nn.Module
    spec: NetworkSpec
    classes: tuple[str, ...]
    side: int
    history: list[dict[str, float]]
    skipped: list[PhotoError]
    held_out: Scores | None
    temperature: float
    memory: dict[str, npt.NDArray[Any]]
    images: dict[str, int]
    sides: tuple[int, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write a model for `ImageClassifier.load`, and its network to an ONNX file of the same name beside it."""
        head = self.head
        if not isinstance(head, VoteHead) or head.positions or len(head.level_weight) != 1:
            raise PatchvoteError("a model needs a VoteHead of one level without positions.")
        network = self.save_network(network_beside(path))
        settings = SNBNL(head.vote.weight.shape[0], q=head.vote.q)._plain_settings()
        learned = {"weights": head.vote.weight, "mean": head.mean, "scale": head.scale}
        arrays = {name: value.detach().numpy() for name, value in learned.items()} | self.memory
        held_out: Any = self.held_out.summary() if self.held_out else None
        model = Model(
            SnbnlVotes(arrays, settings, len(self.classes)),
            self.classes,
            Recipe(network.name, Dense(self.sides or (self.side,), whole=False)),  # relative: it stays beside the model
            open_onnx(network).spec.fingerprint,
            self.temperature,
            self.held_out.threshold if self.held_out else 0.0,
            About(
                made={"patchvote": __version__, "date": datetime.date.today().isoformat()},
                images=self.images,
                held_out=held_out,
                method=f"{settings['n_prototypes']} prototypes per class, trained with the end of {self.spec.name}",
            ),
            steps=_STEPS,
        )
        write_model(dataclasses.replace(model, card=card(model)), path)

    def save_network(self, path: str | Path) -> Path:
        """Write the network to an ONNX file, and its settings to a TOML file beside it."""
        return write_network(path, self.graph, self.spec)


def network_beside(path: str | Path) -> Path:
    """Return the ONNX file of a model's network, which has its settings in a TOML file of the same name.

    Raises
    ------
    PatchvoteError
        The model has the name of one of these files.

    Examples
    --------
    >>> network_beside("birds.patchvote").name
    'birds.onnx'
    """
    if Path(path).suffix.lower() in (".onnx", ".toml"):
        raise PatchvoteError(
            f"{path} cannot be a model: its network is written beside it, to a file of that name. Name it otherwise, "
            f"such as {Path(path).with_suffix('.patchvote').name}."
        )
    return Path(path).with_suffix(".onnx")
