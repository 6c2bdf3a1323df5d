"""The training loop of fine-tuning: tail and head learn from the outputs of the trunk, with exact resume."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..utils.terminal import Progress
from ..voters.prototype_training import Checkpoint
from .layers import VoteHead
from .onnx_module import OnnxModule
from .trunk import Seen

if TYPE_CHECKING:
    from .fine_tune import TuningSettings

_STANDARDISED = 256  # photos from which the head learns mean and deviation of the features


class Learner:
    """Trains tail and head, pass after pass; `numbers` has the class of every photo."""

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
