"""Fine-tuning: the last stages of a network are trained together with the votes, from photos.

The trunk of the network is frozen: it runs once on a few augmented variants of every photo. The tail and the head are
trained on its outputs, pass after pass. The result is the same graph with new weights in its tail, and prototypes: a
model for ONNX Runtime, without torch.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..bags.boxes import Dense
from ..bags.copies import equal_groups
from ..bags.recipe import Recipe
from ..errors import PatchvoteError, PhotoError
from ..models.about import About
from ..models.arguments import check_classes
from ..models.file import write_model
from ..models.model import Model
from ..models.report.card import card
from ..models.scores import Scores
from ..networks import NetworkSpec, open_onnx
from ..networks.onnx_file import write_network
from ..photos.decode import digest_of
from ..photos.find import Photo, Source, labelled
from ..utils.arrays import on_device
from ..utils.files import temporary_folder
from ..utils.remote import place
from ..utils.terminal import Progress
from ..version import __version__
from ..voters.labels import hold_out
from ..voters.prototype_training import Checkpoint
from ..voters.prototype_votes import SnbnlVotes
from ..voters.snbnl import SNBNL
from .layers import VoteHead
from .learner import Learner
from .trunk import Seen, default_start, tail_of, trunk_of, tunable_graph

if TYPE_CHECKING:
    import onnx

_MOMENTUM = 0.1  # of the statistics of the tail's features, which drift in training; the default of batch normalisation
_STEPS = 400  # steps that a training of sNBNL makes; they set the size of further steps, when photos are added later


@dataclasses.dataclass(frozen=True)
class TuningSettings:
    """Settings of fine-tuning."""

    start: str = ""  # tensor after which the tail begins; by default, the tail is the last stage of an embedded network
    sides: tuple[int, ...] = (224,)  # longest sides of a photo in pixels, one per scale; variants are of the smallest
    variants: int = 4  # augmented variants of every training photo, which take turns at the scales
    passes: int = 20  # at most
    batch: int = 32  # photos per step
    rate: float = 3e-4  # of the tail, by AdamW with a cosine schedule that ends at 0
    head_rate: float = 3e-3
    decay: float = 1e-2  # of the weights of tail and head
    prototypes: int = 4  # per class
    q: float = 2.0  # order of the norm that turns the products with the prototypes into a vote
    held_out: float = 0.15  # share of the photos that are held out, for early stopping and calibration
    patience: int = 10  # passes without an accuracy as good as the best after which training stops
    seed: int = 0

    @property
    def side(self) -> int:
        """Side of the variants in pixels."""
        return min(self.sides)


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """A network and a head that were trained together; `spec` is that of the network before.

    `history` has the loss and held-out accuracy of every pass, `memory` some descriptors of each class as a model
    stores them, `images` the number of photos per class that could be read, in the order of the votes.
    """

    graph: onnx.ModelProto
    head: nn.Module
    spec: NetworkSpec
    settings: TuningSettings
    history: list[dict[str, float]]
    skipped: list[PhotoError]
    held_out: Scores | None
    temperature: float
    memory: dict[str, npt.NDArray[Any]]
    images: dict[str, int]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the votes."""
        return tuple(self.images)

    def save(self, path: str | Path) -> None:
        """Write a model for `ImageClassifier.load`, and its network to an ONNX file of the same name beside it."""
        head = self.head
        if not isinstance(head, VoteHead):
            raise PatchvoteError("only a VoteHead makes a model.")
        network = self.save_network(network_beside(path))
        settings = SNBNL(head.vote.weight.shape[0], q=head.vote.q)._plain_settings()
        learned = {"weights": head.vote.weight, "mean": head.mean, "scale": head.scale}
        arrays = {name: value.detach().numpy() for name, value in learned.items()} | self.memory
        held_out: Any = self.held_out.summary() if self.held_out else None
        model = Model(
            SnbnlVotes(arrays, settings, len(self.classes)),
            self.classes,
            Recipe(network.name, Dense(self.settings.sides, whole=False)),  # relative: it stays beside the model
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
    """Return the ONNX file of a model's network, which has its settings in a TOML file of the same name."""
    if Path(path).suffix.lower() in (".onnx", ".toml"):
        name = Path(path).with_suffix(".patchvote").name
        raise PatchvoteError(f"{path} cannot be a model: its network has that name. Name the model {name}, say.")
    return Path(path).with_suffix(".onnx")


def fine_tune(
    network: str,
    photos: Source,
    labels: Sequence[str] | None = None,
    *,
    settings: TuningSettings | None = None,
    head: Callable[[int, int], nn.Module] | None = None,
    checkpoint: str | Path | None = None,
    device: str = "cpu",
    trunk_device: str = "cpu",
    progress: Progress | None = None,
) -> Tuned:
    """Train the last stages of a network together with a head that votes.

    Parameters
    ----------
    network : str
        Embedded network, or path of an ONNX file.
    photos, labels
        As for `ImageClassifier.fit`.
    settings : TuningSettings, optional
        Settings of the training.
    head : function, optional
        Function of the numbers of features and classes that returns a module from feature maps to scores; it makes a
        `VoteHead` by default.
    checkpoint : path, optional
        File that is written after every pass, and from which an interrupted training continues exactly.
    device, trunk_device : str, default "cpu"
        Devices on which torch trains tail and head, and ONNX Runtime runs the trunk: "cpu", "cuda" or "mps".
    progress : function, optional
        Function that is called with the current step, the number of finished items, and the total.
    """
    settings, torch_device = settings or TuningSettings(), on_device(np.zeros(1, np.float32), device).device
    found = labelled(photos, labels, 2)
    check_classes(found)
    graph, spec = tunable_graph(network)
    start = settings.start or default_start(network, graph)
    trunk = trunk_of(graph, start, spec, trunk_device)
    names, texts = tuple(photo.name for photo in found), [str(photo.label) for photo in found]
    classes, numbers = np.unique(texts, return_inverse=True)
    digests = [_digest(photo) for photo in found]
    copies = equal_groups([digest or name for digest, name in zip(digests, names, strict=True)])
    _, held = hold_out(np.arange(len(found)), numbers, settings.held_out, settings.seed, copies)
    torch.manual_seed(settings.seed)
    tail = tail_of(graph, start, trunk.spec.dim).to(torch_device)
    head = head or partial(VoteHead, prototypes=settings.prototypes, q=settings.q, momentum=_MOMENTUM)
    top = head(spec.dim, len(classes)).to(torch_device)
    work = [names, texts, digests, spec.fingerprint, start, dataclasses.asdict(settings), repr(top)]
    mark = hashlib.sha256(json.dumps(work).encode()).hexdigest()[:16]
    kept = Checkpoint(place(checkpoint), mark) if checkpoint else None  # refused before the trunk runs for minutes
    with temporary_folder() as folder:
        seen = Seen(folder, found, set(held.tolist()), trunk, settings, progress)
        learner = Learner(tail, top, seen, numbers, settings, torch_device)
        history = learner.run(kept, progress)
        held_out, temperature = learner.held_out_scores(tuple(classes.tolist()), names)
        memory = learner.memory(len(classes))
    tail.write_back(graph)
    counts = np.bincount(numbers[[*seen.training, *seen.held_out]], minlength=len(classes))
    images = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    return Tuned(graph, top.cpu(), spec, settings, history, seen.skipped, held_out, temperature, memory, images)


def _digest(photo: Photo) -> str:
    """Return the digest of a photo's content; empty where the photo cannot be read."""
    try:
        return digest_of(photo)
    except PhotoError:
        return ""
