"""Fine-tuning: the last stages of a network are trained together with the votes, from photos.

The trunk of the network is frozen: it runs once on a few augmented variants of every photo. The tail and the head are
trained on its outputs, pass after pass. The result is the same graph with new weights in its tail: a network on which
any voter learns, in ONNX Runtime, without torch.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

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
from .onnx_module import OnnxModule
from .trunk import Seen, default_start, tail_of, trunk_of, tunable_graph

if TYPE_CHECKING:
    import onnx

_MOMENTUM = 0.1  # of the statistics of the tail's features, which drift in training; the default of batch normalisation
_STANDARDISED = 256  # photos from which the head learns mean and deviation of the features


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


class Learner:
    """Trains tail and head on the outputs of the trunk, pass after pass, with exact resume.

    `numbers` has the class of every photo.
    """

    def __init__(
        self,
        tail: OnnxModule,
        head: nn.Module,
        seen: Seen,
        numbers: npt.NDArray[np.int64],
        settings: TuningSettings,
        device: torch.device,
    ) -> None:
        self.modules, self.seen, self.settings = nn.ModuleDict({"tail": tail, "head": head}), seen, settings
        self.tail, self.head, self.numbers, self.device = tail, head, numbers, device
        self.labels = torch.from_numpy(numbers[seen.training])
        self.rates = (settings.rate, settings.head_rate)
        groups = [{"params": list(part.parameters())} for part in (tail, head)]
        self.optimiser = torch.optim.AdamW(groups, weight_decay=settings.decay)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}

    def run(self, checkpoint: Checkpoint | None, progress: Progress | None) -> list[dict[str, float]]:
        """Make all passes, from a checkpoint on where it has any; return the loss and accuracy of each."""
        if checkpoint is not None and checkpoint.saved is not None:
            self._resume(*checkpoint.saved)
        elif isinstance(self.head, VoteHead):
            self._standardise(self.head)
        while not self._done():
            index = len(self.history)
            loss = self._one_pass(index)
            accuracy = self._accuracy()
            if self._is_best(accuracy):
                self.best = {name: value.clone() for name, value in self.modules.state_dict().items()}
            self.history.append({"pass": index + 1, "loss": loss, "held_out_accuracy": accuracy})
            if checkpoint is not None:
                checkpoint.write(self._arrays(), {"history": self.history})
            if progress is not None:
                progress("fine-tune", index + 1, self.settings.passes)
        self.modules.load_state_dict(self.best)
        return self.history

    def _is_best(self, accuracy: float) -> bool:
        """Return whether no earlier pass was better. The later of equal passes is preferred: its steps were smaller."""
        earlier = [record["held_out_accuracy"] for record in self.history]
        return not self.seen.held_out or accuracy >= max(earlier, default=0.0)

    def _done(self) -> bool:
        accuracies = [record["held_out_accuracy"] for record in self.history]
        stale = int(np.argmax(accuracies[::-1])) if accuracies and self.seen.held_out else 0  # passes since the best
        return len(self.history) >= self.settings.passes or stale >= self.settings.patience

    def _one_pass(self, index: int) -> float:
        settings, total = self.settings, 0.0
        self.head.train()
        torch.manual_seed(settings.seed * 100_003 + index)  # a head may use random numbers: the same when resumed
        rng = np.random.default_rng([settings.seed, index])
        order = rng.permutation(len(self.labels))
        variants = rng.integers(settings.variants, size=len(order))
        batches = np.array_split(order, max(1, round(len(order) / settings.batch)))
        for number, rows in enumerate(batches):
            done = (index + number / len(batches)) / settings.passes
            for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
                group["lr"] = rate * (1 + np.cos(np.pi * done)) / 2
            self.optimiser.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type != "cpu"):
                features = self._features(rows, variants[rows])
            scores = self.head(features.float())  # squares and roots of votes need full precision
            loss = nn.functional.cross_entropy(scores, self.labels[rows].to(self.device))
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            total += float(loss.detach()) * len(rows)
        return total / len(order)

    def _features(self, rows: npt.NDArray[np.int64], variants: npt.NDArray[np.int64] | int = 0) -> Tensor:
        """Return the outputs of the tail for some training photos."""
        features: Tensor = self.tail(self.seen.batch(rows, np.broadcast_to(variants, rows.shape)).to(self.device))
        return features

    @torch.no_grad()
    def _held_out_votes(self) -> npt.NDArray[np.float64]:
        votes = []
        self.head.eval()
        for maps in self.seen.held_out.values():
            of_maps = []
            for features in maps:
                x = torch.from_numpy(features.astype(np.float32)).movedim(-1, 0)[None].to(self.device)
                of_maps.append(self.head(self.tail(x))[0].cpu().double().numpy())
            cells = [features.shape[0] * features.shape[1] for features in maps]
            votes.append(np.average(of_maps, axis=0, weights=cells))  # every cell counts the same, as in a bag
        return np.array(votes)

    def _accuracy(self) -> float:
        expected = self.numbers[list(self.seen.held_out)]
        return float(np.mean(self._held_out_votes().argmax(axis=1) == expected)) if len(expected) else 0.0

    @torch.no_grad()
    def _standardise(self, head: VoteHead) -> None:
        """Set mean and deviation of the head from the outputs of the untrained tail."""
        rows = np.sort(np.random.default_rng(self.settings.seed).permutation(len(self.labels))[:_STANDARDISED])
        parts = np.array_split(rows, max(1, round(len(rows) / self.settings.batch)))  # Ctrl-C waits for one part only
        head.standardise([self._features(part) for part in parts])

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that a checkpoint keeps."""
        tensors = {f"now.{name}": value for name, value in self.modules.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{key}": torch.as_tensor(value) for key, value in state.items()}
        return {name: value.detach().cpu().numpy() for name, value in tensors.items()}

    def _resume(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        self.history = state["history"]
        self.modules.load_state_dict(_within(arrays, "now."))
        self.best = _within(arrays, "best.")
        optimiser = copy.deepcopy(self.optimiser.state_dict())
        for name, value in _within(arrays, "optimiser.").items():
            number, key = name.split(".")
            optimiser["state"].setdefault(int(number), {})[key] = value
        self.optimiser.load_state_dict(optimiser)


def _within(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> dict[str, Tensor]:
    """Return the arrays whose names begin with a prefix, as tensors without it."""
    return {name.removeprefix(prefix): torch.from_numpy(a) for name, a in arrays.items() if name.startswith(prefix)}
