"""Fine-tune the network of a model, and keep it only if it answers held-out photos better than the frozen one.

The tuned network is kept if its accuracy or its log loss is better by more than the standard error, the accuracy is not
lower, and the log loss is not clearly worse: with few photos, tuning loses more often than it wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.boxes import Dense
from ..classifier import ImageClassifier
from ..errors import PatchvoteError
from ..models.scores import Scores
from ..photos.find import Found, Source, labelled
from ..utils.arrays import on_device
from ..utils.files import temporary_folder
from ..utils.terminal import Progress, counted
from ..voters.votes import clearly_less, log_losses
from .fine_tune import Tuned, TuningSettings, fine_tune
from .trunk import default_start, tunable_graph

_HELD_OUT = 0.2  # share of the photos on which tuned and frozen network are compared


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Accuracies and mean log losses of the tuned and the frozen network on the same held-out photos."""

    photos: int
    tuned: float
    frozen: float
    better: bool
    tuned_loss: float
    frozen_loss: float

    @classmethod
    def of(cls, tuned: Scores, frozen: Scores) -> Comparison:
        """Compare the answers for the photos that both have answered."""
        common = sorted(set(tuned.names) & set(frozen.names))
        (new, new_losses), (old, old_losses) = (_right_and_losses(scores, common) for scores in (tuned, frozen))
        gain = clearly_less(new_losses, old_losses) or clearly_less(1.0 - new, 1.0 - old)
        better = gain and new.mean() >= old.mean() and not clearly_less(old_losses, new_losses)
        losses = float(new_losses.mean()), float(old_losses.mean())
        return cls(len(common), float(new.mean()), float(old.mean()), bool(better), *losses)

    @property
    def figures(self) -> str:
        """Both accuracies, in words."""
        photos = counted(self.photos, "photo that was", "photos that were")
        return (
            f"on {photos} held out, {100 * self.tuned:.1f} % were right with the tuned network and "
            f"{100 * self.frozen:.1f} % with the frozen one"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class TuneOrKeep:
    """What came of fine-tuning: the classifier that is kept, with the tuned or the frozen network.

    `comparison` is None if there were too few photos to hold any out; then nothing was tuned.
    """

    classifier: ImageClassifier
    comparison: Comparison | None = None
    network: Tuned | None = None

    @property
    def is_tuned(self) -> bool:
        """Whether the tuned network is kept."""
        return self.comparison is not None and self.comparison.better

    @property
    def sentence(self) -> str:
        """Which network is kept and why, for people."""
        found = self.comparison
        if found is None:
            return "There are too few photos to hold any out, so nothing was tuned: the frozen network is kept."
        if found.better:
            verdict = "the tuned network is kept."
        elif found.tuned < found.frozen:
            verdict = "the frozen network is kept. Tuning needs many photos, a hundred per class rather than ten."
        else:
            verdict = "that is no clear gain, so the frozen network is kept."
        return f"{found.figures[0].upper()}{found.figures[1:]}: {verdict}"

    def save(self, path: str | Path) -> list[Path]:
        """Write the model and, if it is kept, the tuned network beside it; return all files, which belong together."""
        path, written = Path(path), []
        if self.is_tuned and self.network is not None:
            network = self.network.save_network(network_beside(path))
            written = [network, network.with_suffix(".toml")]
            recipe = dataclasses.replace(self.classifier.model.recipe, network=network.name)  # it stays beside
            self.classifier.model = dataclasses.replace(self.classifier.model, recipe=recipe)
        self.classifier.save(path)
        return [path, *written]


def network_beside(path: str | Path) -> Path:
    """Return the ONNX file of a model's network, which has its settings in a TOML file of the same name."""
    if Path(path).suffix.lower() in (".onnx", ".toml"):
        name = Path(path).with_suffix(".patchvote").name
        raise PatchvoteError(f"{path} cannot be a model: its network has that name. Name the model {name}, say.")
    return Path(path).with_suffix(".onnx")


def tune_or_keep(
    classifier: ImageClassifier,
    photos: Source,
    labels: Sequence[str] | None = None,
    *,
    settings: TuningSettings | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> TuneOrKeep:
    """Tune the network of a classifier for labelled photos, and keep it if it is better on photos that were held out.

    Parameters
    ----------
    classifier : ImageClassifier
        Classifier that has learned nothing yet: its recipe, voter and other settings are used.
    photos, labels
        As for `ImageClassifier.fit`.
    settings : TuningSettings, optional
        Settings of the training; by default, the scales are those of the recipe.
    checkpoint, progress
        As for `fine_tune`.
    """
    recipe, device = classifier.recipe, classifier.device
    if not isinstance(recipe.sampling, Dense):
        raise PatchvoteError("only networks that see photos densely are tuned: use a recipe with Dense(…).")
    settings = settings or TuningSettings(sides=recipe.sampling.sides, seed=classifier.seed)
    on_device(np.zeros(1, np.float32), device)  # refuse a device that torch does not have
    if not settings.start:  # refuse a network that cannot be tuned before any photo is read
        default_start(recipe.network, tunable_graph(recipe.network)[0])
    found = labelled(photos, labels, 2)
    classifier.fit(found, held_out=_HELD_OUT, progress=progress)
    frozen = classifier.scores
    if frozen is None:
        return TuneOrKeep(classifier)
    rest = Found([photo for photo in found if photo.name not in frozen.names])
    more: dict[str, Any] = {"device": device, "progress": progress}
    network = fine_tune(recipe.network, rest, settings=settings, checkpoint=checkpoint, **more)
    with temporary_folder() as folder:
        path = network.save_network(folder / "tuned.onnx")
        changed = {"recipe": dataclasses.replace(recipe, network=str(path))}
        other = ImageClassifier(**classifier.get_params() | changed)
        other.fit(found, held_out=frozen.names, progress=progress)
    if other.scores is None:
        raise PatchvoteError("the held-out photos cannot be read any more. Run it again.")
    comparison = Comparison.of(other.scores, frozen)
    kept = other if comparison.better else classifier
    about, name = kept.model.about, f"the {'tuned' if comparison.better else 'frozen'} {recipe.network}"
    about = dataclasses.replace(about, method=f"{about.method}; with {name}: {comparison.figures}")
    kept.model = dataclasses.replace(kept.model, about=about)
    return TuneOrKeep(kept, comparison, network)


def _right_and_losses(scores: Scores, names: Sequence[str]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return which answers for some photos are right, and their log losses."""
    rows = [scores.names.index(name) for name in names]
    expected, probability = scores.expected[rows], scores.probability[rows]
    return probability.argmax(axis=1) == expected, log_losses(probability, expected)
