"""Fine-tuning: the last stages of a network learn together with the votes, from photos.

The network is cut in two. The trunk stays as it is, and sees every photo a few times, each time changed a little
(mirrored, cropped, lit otherwise); what it says is kept on disk. The tail and the head then learn from that, pass after
pass, without asking the trunk again, which saves most of the time on a laptop. The result is the same graph with other
numbers in its tail, and prototypes: a model for ONNX Runtime, without torch.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..backbones import EMBEDDED, NetworkSpec, Preprocessing, graph_of, open_onnx
from ..backbones.graph import cut, tail
from ..backbones.onnx_file import OnnxBackbone
from ..bags.boxes import Dense, cell_boxes
from ..bags.copies import equal_groups
from ..bags.recipe import Recipe
from ..errors import NetworkError, PatchvoteError, PhotoError
from ..models.fit import plain_settings
from ..models.memory import REMEMBERED
from ..models.model import Model, write_model
from ..models.report.card import card
from ..models.scores import Scores
from ..photos.decode import read_photo
from ..photos.find import Photo, Source, labelled
from ..utils.files import write_file
from ..utils.temporary import temporary_folder
from ..version import __version__
from ..voters.base import fit_temperature
from ..voters.labels import hold_out
from ..voters.prototypes.snbnl import SNBNL
from ..voters.votes import softmax
from .checkpoints import read_checkpoint, write_checkpoint
from .device import usable_device
from .layers import VoteHead
from .onnx_module import OnnxModule
from .trunk import Seen

if TYPE_CHECKING:
    import onnx

Progress = Callable[[str, int, int], None]

_MOMENTUM = 0.1  # of what is known of the tail's features, which drift as it learns
_STEPS = 400  # that sNBNL would have made: how small a step is when photos are added later
_REJECTION = 0.05  # of the rightly named held-out photos that "none of these" may cost


@dataclasses.dataclass(frozen=True)
class TuningSettings:
    """How to fine-tune.

    Parameters
    ----------
    start : str
        The tensor of the graph that the tail begins behind; for the embedded networks, the last stage by default.
    side : int, default 224
        Longest side of a photo in pixels.
    variants : int, default 4
        How often the trunk sees every training photo, each time changed.
    passes : int, default 20
        Most passes over the photos.
    batch : int, default 32
        Photos a step.
    rate, head_rate : float
        Learning rates of tail and head (AdamW, falling to 0 along a cosine).
    decay : float
        Weight decay of both.
    prototypes, q : int, float
        Of the votes.
    held_out : float, default 0.15
        Share of the photos that tell when to stop.
    patience : int, default 10
        Stop after so many passes that were not as good as the best.
    seed : int, default 0
        Fixes everything that is random.
    """

    start: str = ""
    side: int = 224
    variants: int = 4
    passes: int = 20
    batch: int = 32
    rate: float = 3e-4
    head_rate: float = 3e-3
    decay: float = 1e-2
    prototypes: int = 4
    q: float = 2.0
    held_out: float = 0.15
    patience: int = 10
    seed: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """A network and a head that learned together.

    Parameters
    ----------
    graph : onnx.ModelProto
        The network, from pixels to its feature map.
    head : module
        From the feature map to the votes.
    spec : NetworkSpec
        What the network was like before.
    classes : tuple of str
        In the order of the votes.
    side : int
        Longest side of a photo.
    history : list of dict
        Of every pass its loss and the accuracy on held-out photos.
    skipped : list of PhotoError
        Photos that could not be read.
    held_out : Scores or None
        Answers for the held-out photos beside their classes.
    temperature : float
        Of the probabilities, set on them.
    memory : dict of arrays
        Some descriptors of each class, as a model keeps them.
    images : dict
        Photos of each class.
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

    def save(self, path: str | Path) -> None:
        """Write a model for `ImageClassifier.load`, and its network to an ONNX file of the same name beside it."""
        head = self.head
        if not isinstance(head, VoteHead) or head.positions or len(head.level_weight) != 1:
            raise PatchvoteError("a model is made of a VoteHead of one level without positions.")
        network = self.save_network(Path(path).with_suffix(".onnx"))
        voter = SNBNL(head.vote.weight.shape[0], q=head.vote.q)
        arrays = {"weights": head.vote.weight, "mean": head.mean, "scale": head.scale}
        model = Model(
            "SNBNL",
            self.classes,
            Recipe(network.name, Dense((self.side,), whole=False)),  # beside the model, wherever that goes
            open_onnx(network).spec.fingerprint,
            plain_settings(voter),
            False,
            self.temperature,
            self.held_out.threshold if self.held_out else 0.0,
            {name: value.detach().numpy() for name, value in arrays.items()} | self.memory,
            {
                "made": {"patchvote": __version__, "date": datetime.date.today().isoformat()},
                "images": self.images,
                "held_out": self.held_out.summary() if self.held_out else None,
                "steps": _STEPS,
                "chosen": {
                    "words": f"{voter.prototypes} prototypes a class",
                    "why": f"trained together with the last stages of {self.spec.name}",
                },
            },
        )
        write_model(dataclasses.replace(model, card=card(model)), path)

    def save_network(self, path: str | Path) -> Path:
        """Write the network to an ONNX file, and what it takes to a TOML file beside it."""
        path, told = Path(path), self.spec.preprocessing
        lines = [
            f"output = {json.dumps(self.graph.graph.output[0].name, ensure_ascii=False)}",  # a name may hold quotes
            f"mean = {list(told.mean)}",
            f"scale = {list(told.scale)}",
            f'color = "{told.color}"',
            f"size = {self.spec.size}",
            f"stride = {self.spec.stride}",
        ]
        write_file(path, [self.graph.SerializeToString()])
        write_file(path.with_suffix(".toml"), ["\n".join([*lines, ""]).encode()])
        return path


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
        How.
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
    told, place = settings or TuningSettings(), usable_device(device)
    found = labelled(photos, labels, 2)
    graph, spec = _graph(network)
    start = told.start or _default_start(network, graph)
    trunk = _trunk(graph, start, spec)
    classes, numbers = np.unique([str(photo.label) for photo in found], return_inverse=True)
    copies = equal_groups([_content(photo) for photo in found])
    keep, out = hold_out(np.arange(len(found)), numbers, told.held_out, told.seed, copies)
    torch.manual_seed(told.seed)
    rest = _rest(graph, start, trunk.spec.dim).to(place)
    head = head or (lambda d, c: VoteHead(d, c, told.prototypes, q=told.q, momentum=_MOMENTUM))
    top = head(spec.dim, len(classes)).to(place)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        stride = spec.stride or 1
        seen = Seen(folder, found, keep, out, trunk, told.side, stride, told.variants, told.seed, progress)
        learner = _Learner(rest, top, seen, numbers, told, place)
        mark = _fingerprint(found, spec, start, told, top) if checkpoint else ""
        history = learner.run(Path(checkpoint) if checkpoint else None, mark, progress)
        names = tuple(photo.name for photo in found)
        held_out, temperature = learner.held_out_scores(tuple(classes.tolist()), names)
        memory = learner.memory(len(classes))
    rest.write_back(graph)
    images = dict(zip(classes.tolist(), np.bincount(numbers).tolist(), strict=True))
    top = top.cpu()
    return Tuned(
        graph, top, spec, tuple(images), told.side, history, seen.skipped, held_out, temperature, memory, images
    )


# --- the network in two parts ---------------------------------------------------------------------------------------


def _graph(network: str) -> tuple[onnx.ModelProto, NetworkSpec]:
    graph, spec = graph_of(network)
    if spec.stride is None or spec.preprocessing.layout != "NCHW":
        raise NetworkError(f"{network} does not give a feature map in the order NCHW, so it cannot be fine-tuned here.")
    return graph, spec


def _default_start(network: str, graph: onnx.ModelProto) -> str:
    if network not in EMBEDDED:
        raise PatchvoteError(f"say from which tensor of {network} on it shall learn: TuningSettings(start=…).")
    return str([node for node in graph.graph.node if node.op_type == "Add"][-1].output[0])


def _trunk(graph: onnx.ModelProto, start: str, spec: NetworkSpec) -> OnnxBackbone:
    """Return what stays as it is, from pixels to the tensor `start`; its width is found by asking it."""
    trunk = OnnxBackbone(spec, cut(graph, start).SerializeToString())
    answer = trunk.session.run(np.zeros((1, 3, spec.size, spec.size), np.float32))
    trunk.spec = dataclasses.replace(spec, dim=answer.shape[1])
    return trunk


def _rest(graph: onnx.ModelProto, start: str, width: int) -> OnnxModule:
    """Return what learns, from the tensor `start` on, after it was seen to compute what ONNX Runtime does."""
    part = tail(graph, start)
    rest, blank = OnnxModule(part), NetworkSpec("tail", 0, 0, None, Preprocessing(), "after", "", "")
    x = np.random.default_rng(0).normal(size=(1, width, 4, 6)).astype(np.float32)
    expected = OnnxBackbone(blank, part.SerializeToString()).session.run(x)
    with torch.no_grad():
        given = rest(torch.from_numpy(x)).numpy()
    if given.shape != expected.shape or np.abs(given - expected).max() > 1e-3 * max(1.0, np.abs(expected).max()):
        raise NetworkError(f"what follows {start!r} gives other numbers in torch than in ONNX Runtime: begin later.")
    return rest


# --- learning -------------------------------------------------------------------------------------------------------


class _Learner:
    """Trains tail and head, pass after pass."""

    def __init__(
        self,
        rest: OnnxModule,
        head: nn.Module,
        seen: Seen,
        numbers: npt.NDArray[np.int64],
        told: TuningSettings,
        device: torch.device,
    ) -> None:
        self.rest, self.head, self.seen, self.told, self.device = rest, head, seen, told, device
        self.labels = torch.from_numpy(numbers[seen.training])
        self.numbers = numbers
        groups = [{"params": list(rest.parameters()), "lr": told.rate}]
        groups.append({"params": list(head.parameters()), "lr": told.head_rate})
        self.optimiser = torch.optim.AdamW(groups, weight_decay=told.decay)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}

    def run(self, checkpoint: Path | None, mark: str, progress: Progress | None) -> list[dict[str, float]]:
        if checkpoint is not None and checkpoint.exists():
            self._read(checkpoint, mark)
        elif isinstance(self.head, VoteHead):
            self._standardise(self.head)
        while not self._done():
            index = len(self.history)
            loss = self._one_pass(index)
            accuracy = self._accuracy()
            if not self.best or self._is_best(accuracy):
                self.best = {name: value.clone() for name, value in self._state().items()}
            self.history.append({"pass": index + 1, "loss": loss, "held_out_accuracy": accuracy})
            if checkpoint is not None:
                self._write(checkpoint, mark)
            if progress is not None:
                progress("fine-tune", index + 1, self.told.passes)
        self._load(self.best)
        return self.history

    def _is_best(self, accuracy: float) -> bool:
        """Whether no weights before are better; of equals the later are, having learned with smaller steps."""
        return not self.seen.held_out or accuracy >= max(told["held_out_accuracy"] for told in self.history)

    def _done(self) -> bool:
        accuracies = [told["held_out_accuracy"] for told in self.history]
        stale = int(np.argmax(accuracies[::-1])) if accuracies and self.seen.held_out else 0  # since the last best
        return len(self.history) >= self.told.passes or stale >= self.told.patience

    def _one_pass(self, index: int) -> float:
        told, total = self.told, 0.0
        self.head.train()
        torch.manual_seed(told.seed * 100_003 + index)  # a head may draw lots; resumed, it must draw the same
        rng = np.random.default_rng([told.seed, index])
        order = rng.permutation(len(self.labels))
        variants = rng.integers(told.variants, size=len(order))
        batches = np.array_split(order, max(1, round(len(order) / told.batch)))
        for number, rows in enumerate(batches):
            share = (index + number / len(batches)) / told.passes
            for group, rate in zip(self.optimiser.param_groups, (told.rate, told.head_rate), strict=True):
                group["lr"] = rate * (1 + np.cos(np.pi * share)) / 2
            self.optimiser.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type != "cpu"):
                features = self.rest(self.seen.batch(rows, variants[rows]).to(self.device))
            scores = self.head(features.float())  # votes have squares and roots: not for half precision
            loss = nn.functional.cross_entropy(scores, self.labels[rows].to(self.device))
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            total += float(loss.detach()) * len(rows)
        return total / len(order)

    @torch.no_grad()
    def _held_out_votes(self) -> npt.NDArray[np.float64]:
        votes = []
        self.head.eval()
        for features in self.seen.held_out.values():
            x = torch.from_numpy(features.astype(np.float32)).movedim(-1, 0)[None].to(self.device)
            votes.append(self.head(self.rest(x))[0].cpu().double().numpy())
        return np.array(votes)

    def _accuracy(self) -> float:
        """Return the share of held-out photos that are named rightly."""
        expected = self.numbers[list(self.seen.held_out)]
        return float(np.mean(self._held_out_votes().argmax(axis=1) == expected)) if len(expected) else 0.0

    def held_out_scores(self, classes: tuple[str, ...], names: tuple[str, ...]) -> tuple[Scores | None, float]:
        """Return the answers for held-out photos, and the temperature that was set on them."""
        images = list(self.seen.held_out)
        if not images:
            return None, 1.0
        votes, expected = self._held_out_votes(), self.numbers[images]
        temperature = fit_temperature(votes, expected)
        probability = softmax(votes / temperature)
        sure = probability.max(axis=1)[probability.argmax(axis=1) == expected]
        threshold = float(np.quantile(sure, _REJECTION)) if len(sure) else 0.0
        return Scores(classes, tuple(names[i] for i in images), expected, probability, threshold), temperature

    @torch.no_grad()
    def memory(self, classes: int) -> dict[str, npt.NDArray[Any]]:
        """Return some descriptors of each class, with their boxes: what a model remembers of its photos."""
        rng = np.random.default_rng(self.told.seed)
        values, boxes, numbers = [], [], []
        for number in range(classes):
            rows = rng.permutation(np.flatnonzero(self.labels.numpy() == number))[: REMEMBERED // 4]
            if not len(rows):
                continue
            maps = self.rest(self.seen.batch(rows, np.zeros_like(rows)).to(self.device)).cpu().numpy()
            cells = maps.transpose(0, 2, 3, 1).reshape(-1, maps.shape[1])
            places = np.tile(cell_boxes(*maps.shape[2:]), (len(rows), 1))
            chosen = rng.permutation(len(cells))[:REMEMBERED]
            values.append(cells[chosen].astype(np.float16))
            boxes.append(places[chosen])
            numbers.append(np.full(len(chosen), number))
        return {
            "memory_values": np.concatenate(values),
            "memory_boxes": np.concatenate(boxes),
            "memory_class": np.concatenate(numbers).astype(np.int64),
        }

    @torch.no_grad()
    def _standardise(self, head: VoteHead) -> None:
        """Let the head know the mean and the deviation of what the tail gives at first."""
        rows = np.sort(np.random.default_rng(self.told.seed).permutation(len(self.labels))[:256])
        head.standardise([self.rest(self.seen.batch(rows, np.zeros_like(rows)).to(self.device))])

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        state = {f"tail.{name}": value for name, value in self.rest.state_dict().items()}
        return state | {f"head.{name}": value for name, value in self.head.state_dict().items()}

    def _load(self, state: dict[str, Tensor]) -> None:
        for module, prefix in ((self.rest, "tail."), (self.head, "head.")):
            own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            module.load_state_dict(own)

    def _write(self, path: Path, mark: str) -> None:
        kept = {f"now.{name}": value for name, value in self._state().items()}
        kept |= {f"best.{name}": value for name, value in self.best.items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            kept |= {f"optimiser.{number}.{key}": torch.as_tensor(value) for key, value in state.items()}
        write_checkpoint(path, kept, mark, self.history)

    def _read(self, path: Path, mark: str) -> None:
        kept, self.history = read_checkpoint(path, mark)
        self._load({name.removeprefix("now."): value for name, value in kept.items() if name.startswith("now.")})
        self.best = {name.removeprefix("best."): v for name, v in kept.items() if name.startswith("best.")}
        state = copy.deepcopy(self.optimiser.state_dict())
        for name, value in kept.items():
            if name.startswith("optimiser."):
                _, number, key = name.split(".")
                state["state"].setdefault(int(number), {})[key] = value
        self.optimiser.load_state_dict(state)


def _content(photo: Photo) -> str:
    """Return the digest of a photo's content; of one that cannot be read, its name."""
    try:
        return read_photo(photo)[1]
    except PhotoError:
        return photo.name


def _fingerprint(photos: Sequence[Photo], spec: NetworkSpec, start: str, told: TuningSettings, head: nn.Module) -> str:
    """Return a short hash of all that a checkpoint must agree on."""
    shown = []
    for photo in photos:
        with contextlib.suppress(PhotoError):  # one that cannot be read teaches nothing
            shown.append([photo.name, str(photo.label), read_photo(photo)[1]])
    text = json.dumps([shown, spec.fingerprint, start, dataclasses.asdict(told), repr(head)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
