"""Fine-tuning: the last stages of a network are trained together with the votes, from photos.

The trunk of the network is frozen: it runs once on a few augmented variants of every photo. The tail and the head are
trained on its outputs, pass after pass. The result is the same graph with new weights in its tail: a network on which
any voter learns, in ONNX Runtime, without torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ..bags.copies import equal_groups
from ..errors import PhotoError
from ..models.arguments import check_classes
from ..networks import NetworkSpec
from ..networks.onnx_file import write_network
from ..photos.decode import digest_of
from ..photos.find import Photo, Source, labelled
from ..utils.arrays import on_device
from ..utils.files import temporary_folder
from ..utils.remote import place
from ..utils.terminal import Progress
from ..voters.labels import hold_out
from ..voters.prototype_training import Checkpoint
from .layers import VoteHead
from .learner import Learner
from .trunk import Seen, default_start, tail_of, trunk_of, tunable_graph

if TYPE_CHECKING:
    import onnx

_MOMENTUM = 0.1  # of the statistics of the tail's features, which drift in training; the default of batch normalisation


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

    `history` has the loss and held-out accuracy of every pass, `classes` their names in the order of the votes.
    """

    graph: onnx.ModelProto
    head: nn.Module
    spec: NetworkSpec
    settings: TuningSettings
    history: list[dict[str, float]]
    skipped: list[PhotoError]
    classes: tuple[str, ...]

    def save_network(self, path: str | Path) -> Path:
        """Write the network to an ONNX file, and its settings to a TOML file beside it."""
        return write_network(path, self.graph, self.spec)


def fine_tune(
    network: str,
    photos: Source,
    labels: Sequence[str] | None = None,
    *,
    settings: TuningSettings | None = None,
    head: Callable[[int, int], nn.Module] | None = None,
    checkpoint: str | Path | None = None,
    device: str = "cpu",
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
    device : str, default "cpu"
        Device on which torch trains tail and head, and ONNX Runtime runs the trunk: "cpu", "cuda" or "mps".
    progress : function, optional
        Function that is called with the current step, the number of finished items, and the total.
    """
    settings, torch_device = settings or TuningSettings(), on_device(np.zeros(1, np.float32), device).device
    found = labelled(photos, labels, 2)
    check_classes(found)
    graph, spec = tunable_graph(network)
    start = settings.start or default_start(network, graph)
    trunk = trunk_of(graph, start, spec, device)
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
    tail.write_back(graph)
    return Tuned(graph, top.cpu(), spec, settings, history, seen.skipped, tuple(classes.tolist()))


def _digest(photo: Photo) -> str:
    """Return the digest of a photo's content; empty where the photo cannot be read."""
    try:
        return digest_of(photo)
    except PhotoError:
        return ""
