"""Fine-tuning: the last stages of a network learn together with the votes, from photos.

The network is cut in two. The trunk stays as it is, and sees every photo a few times, each time changed a little
(mirrored, cropped, lit otherwise); what it says is kept on disk. The tail and the head then learn from that, pass after
pass, without asking the trunk again, which saves most of the time on a laptop. The result is the same graph with other
numbers in its tail, and prototypes: a model for ONNX Runtime, without torch.
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
from ..photos.decode import read_photo
from ..photos.find import Photo, Source, labelled
from ..utils.devices import on_device
from ..utils.temporary import temporary_folder
from ..voters.labels import hold_out
from .layers import VoteHead
from .learner import Learner
from .parts import default_start, tail_of, trunk_of, tunable_graph
from .settings import TuningSettings
from .trunk import Progress, Seen
from .tuned import Tuned

_MOMENTUM = 0.1  # of what is known of the tail's features, which drift as it learns


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
        An embedded network, or the path of an ONNX file.
    photos : Source
        Labelled photos.
    labels : sequence of str, optional
        Classes of the photos, where they do not say themselves.
    settings : TuningSettings, optional
        How to learn.
    head : function, optional
        From the numbers of features and classes to a module that turns feature maps into scores; a `VoteHead` by
        default.
    checkpoint : path, optional
        A file to write after every pass. Where it is there, training goes on from it, and ends where it would have
        ended without the interruption.
    device : str, default "cpu"
        Where tail and head learn: "cpu", "cuda", "mps".
    progress : function, optional
        Called with what is being done, how much of it is done, and of how much.
    """
    settings, place = settings or TuningSettings(), on_device(np.zeros(1, np.float32), device).device
    found = labelled(photos, labels, 2)
    graph, spec = tunable_graph(network)
    start = settings.start or default_start(network, graph)
    trunk = trunk_of(graph, start, spec)
    classes, numbers = np.unique([str(photo.label) for photo in found], return_inverse=True)
    digests = [_digest(photo) for photo in found]
    copies = equal_groups([digest or photo.name for digest, photo in zip(digests, found, strict=True)])
    _, out = hold_out(np.arange(len(found)), numbers, settings.held_out, settings.seed, copies)
    torch.manual_seed(settings.seed)
    rest = tail_of(graph, start, trunk.spec.dim).to(place)
    top = (head or _vote_head(settings))(spec.dim, len(classes)).to(place)
    with temporary_folder() as folder:
        seen = Seen(folder, found, set(out.tolist()), trunk, settings, progress)
        learner = Learner(rest, top, seen, numbers, settings, place)
        mark = _fingerprint(found, digests, [spec.fingerprint, start, dataclasses.asdict(settings), repr(top)])
        history = learner.run(Path(checkpoint) if checkpoint else None, mark, progress)
        names = tuple(photo.name for photo in found)
        held_out, temperature = learner.held_out_scores(tuple(classes.tolist()), names)
        memory = learner.memory(len(classes))
    rest.write_back(graph)
    read = [*seen.training, *seen.held_out]
    images = dict(zip(classes.tolist(), np.bincount(numbers[read], minlength=len(classes)).tolist(), strict=True))
    top, side = top.cpu(), settings.side
    return Tuned(graph, top, spec, tuple(images), side, history, seen.skipped, held_out, temperature, memory, images)


def _vote_head(settings: TuningSettings) -> Callable[[int, int], nn.Module]:
    """Return what makes the default head, from the numbers of features and classes."""
    return lambda d, c: VoteHead(d, c, settings.prototypes, q=settings.q, momentum=_MOMENTUM)


def _digest(photo: Photo) -> str | None:
    """Return the digest of a photo's content; None where it cannot be read."""
    try:
        return read_photo(photo)[1]
    except PhotoError:
        return None


def _fingerprint(photos: Sequence[Photo], digests: Sequence[str | None], others: list[Any]) -> str:
    """Return a short hash of all that a checkpoint must agree on: photos that can be read, and the `others`."""
    shown = [[photo.name, str(photo.label), digest] for photo, digest in zip(photos, digests, strict=True) if digest]
    return hashlib.sha256(json.dumps([shown, *others]).encode()).hexdigest()[:16]
