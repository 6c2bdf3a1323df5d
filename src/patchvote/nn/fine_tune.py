"""Fine-tuning: the last stages of a network are trained together with the votes, from photos.

The network is cut in two. The trunk is frozen: it runs once on a few augmented variants of every photo (crop, mirror,
brightness, contrast), and its outputs are kept on disk. The tail and the head are trained on these outputs, pass after
pass, without running the trunk again, which saves most of the time on a laptop. The result is the same graph with new
weights in its tail, and prototypes: a model for ONNX Runtime, without torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..bags.copies import equal_groups
from ..errors import PhotoError
from ..models.arguments import check_classes
from ..photos.decode import digest_of
from ..photos.find import Photo, Source, labelled
from ..utils.devices import on_device
from ..utils.temporary import temporary_folder
from ..utils.timing import Progress
from ..voters.labels import hold_out
from .checkpoints import read_checkpoint
from .layers import VoteHead
from .learner import Learner
from .parts import default_start, tail_of, trunk_of, tunable_graph
from .settings import TuningSettings
from .trunk import Seen
from .tuned import Tuned

_MOMENTUM = 0.1  # of the statistics of the tail's features, which drift in training; the default of batch normalisation


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
    photos : Source
        Labelled photos.
    labels : sequence of str, optional
        Classes of the photos, where the source does not have them.
    settings : TuningSettings, optional
        Settings of the training.
    head : function, optional
        Function of the numbers of features and classes that returns a module from feature maps to scores; it makes a
        `VoteHead` by default.
    checkpoint : path, optional
        File that is written after every pass. If it exists, training resumes from it, with the same result as without
        the interruption.
    device : str, default "cpu"
        Device on which tail and head are trained: "cpu", "cuda" or "mps".
    trunk_device : str, default "cpu"
        Device of ONNX Runtime on which the trunk runs.
    progress : function, optional
        Function that is called with the current step, the number of finished items, and the total.
    """
    settings, torch_device = settings or TuningSettings(), on_device(np.zeros(1, np.float32), device).device
    labelled_photos = labelled(photos, labels, 2)
    check_classes(labelled_photos)
    graph, spec = tunable_graph(network)
    start = settings.start or default_start(network, graph)
    trunk = trunk_of(graph, start, spec, trunk_device)
    classes, numbers = np.unique([str(photo.label) for photo in labelled_photos], return_inverse=True)
    digests = [_digest(photo) for photo in labelled_photos]
    copies = equal_groups([digest or photo.name for digest, photo in zip(digests, labelled_photos, strict=True)])
    _, held = hold_out(np.arange(len(labelled_photos)), numbers, settings.held_out, settings.seed, copies)
    torch.manual_seed(settings.seed)
    tail = tail_of(graph, start, trunk.spec.dim).to(torch_device)
    top = (head or _vote_head(settings))(spec.dim, len(classes)).to(torch_device)
    others = [spec.fingerprint, start, dataclasses.asdict(settings), repr(top)]
    mark = _fingerprint(labelled_photos, digests, others)
    if checkpoint and Path(checkpoint).exists():  # refuse that of another training before the trunk runs for minutes
        read_checkpoint(Path(checkpoint), mark)
    with temporary_folder() as folder:
        seen = Seen(folder, labelled_photos, set(held.tolist()), trunk, settings, progress)
        learner = Learner(tail, top, seen, numbers, settings, torch_device)
        history = learner.run(Path(checkpoint) if checkpoint else None, mark, progress)
        names = tuple(photo.name for photo in labelled_photos)
        held_out, temperature = learner.held_out_scores(tuple(classes.tolist()), names)
        memory = learner.memory(len(classes))
    tail.write_back(graph)
    read = [*seen.training, *seen.held_out]
    images = dict(zip(classes.tolist(), np.bincount(numbers[read], minlength=len(classes)).tolist(), strict=True))
    top, side = top.cpu(), settings.side
    found = history, seen.skipped, held_out, temperature, memory, images
    return Tuned(graph, top, spec, tuple(images), side, *found, settings.sides)


def _vote_head(settings: TuningSettings) -> Callable[[int, int], nn.Module]:
    """Return the function that makes the default head from the numbers of features and classes."""
    return lambda features, classes: VoteHead(features, classes, settings.prototypes, q=settings.q, momentum=_MOMENTUM)


def _digest(photo: Photo) -> str | None:
    """Return the digest of a photo's content; None where the photo cannot be read."""
    try:
        return digest_of(photo)
    except PhotoError:
        return None


def _fingerprint(photos: Sequence[Photo], digests: Sequence[str | None], others: list[Any]) -> str:
    """Return a short hash by which a training recognises its checkpoint: of all readable photos, and of `others`."""
    readable = [[photo.name, str(photo.label), digest] for photo, digest in zip(photos, digests, strict=True) if digest]
    return hashlib.sha256(json.dumps([readable, *others]).encode()).hexdigest()[:16]
