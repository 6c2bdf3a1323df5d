"""The classifiers whose evidence is measured: every voter, and a linear head on the pooled map, for Grad-CAM."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from common import timed
from evidence_measures import GRID, Map, as_drawn, grad_cam, spread, vote_maps
from patchvote import Bags, Evidence
from patchvote.networks import graph_of
from patchvote.voters.registry import OWN, voter_class

DEFAULT = "less the strongest other"  # the map that pictures show
GRAD_CAM = "Grad-CAM"
GRAD_CAM_OF_LOG = "Grad-CAM of the log probability"  # like our map, it is lowered by what supports other classes
POOLED = "pooled map + linear head"
HAS_TORCH = importlib.util.find_spec("torch") is not None
_OTHER_MAPS = ("votes", "less the mean of the others", "softmax", "finest scale")
_WITH_OTHERS = ("moment-ridge", "snbnl")  # their other maps are measured by deletion and insertion, too
_SLOW = ("nbnn", "local-nbnn")  # a search takes longer than the network
_FEWEST = 24  # descriptors per photo in training, as in `patchvote fit`
# The search and the rounds that the project's own protocols use; exact search and 30 rounds take several times as long.
_SETTINGS: dict[str, dict[str, Any]] = {
    "nbnl": {"max_iter": 10},
    "nbnn": {"search": "pca"},
    "local-nbnn": {"search": "pca"},
}


@dataclasses.dataclass(frozen=True, eq=False)
class Looked:
    """A photo as the classifiers see it: its pixels at the finest scale, and its bag."""

    pixels: npt.NDArray[np.uint8]
    bag: Bags


class Voted:
    """A voter of this package, trained as `patchvote fit` does."""

    default = DEFAULT

    def __init__(self, kind: str, bags: Bags, labels: npt.NDArray[Any], most: int = 36_000) -> None:
        self.name, self.is_slow = kind, kind in _SLOW
        voter = voter_class(kind).default(0).set_options(calibration=0.2).set_params(**_SETTINGS.get(kind, {}))
        voter.fit(bags if voter.leaves_out else thinned(bags, most), labels)
        self.voter, self.scorer = voter, voter.scorer()
        self.classes = tuple(map(str, voter.classes_))
        self.curves = (DEFAULT, *(_OTHER_MAPS if kind in _WITH_OTHERS else ()))

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the scores of bags, divided by the temperature: the logarithms of probabilities but for a constant."""
        return np.asarray(self.scorer.scores(bags) / self.voter.temperature_)

    def evidence(self, looked: Looked) -> Evidence:
        """Return the evidence of a photo, as `ImageClassifier.explain` does."""
        votes = self.scorer.votes(looked.bag).astype(np.float64)
        probability = np.exp(log_softmax(self.scores(looked.bag)[0]))
        return Evidence("", self.classes, votes, looked.bag.boxes.astype(np.float64), probability)

    def maps(self, looked: Looked, numbers: list[int]) -> list[dict[str, Map]]:
        """Return the maps of some classes, each by name."""
        evidence, found = self.evidence(looked), []
        for number in numbers:
            maps = vote_maps(evidence, looked.bag.level, number, self.voter.temperature_)
            maps["as drawn"] = as_drawn(maps[DEFAULT])
            found.append(maps)
        return found


class Pooled:
    """A linear head on the mean of the finest map, trained by logistic regression, whose maps are those of Grad-CAM."""

    name, default, is_slow = POOLED, GRAD_CAM, False
    curves = (GRAD_CAM, GRAD_CAM_OF_LOG, DEFAULT)

    def __init__(self, network: str, bags: Bags, labels: npt.NDArray[Any]) -> None:
        import torch

        from patchvote.nn.onnx_module import OnnxModule

        means = self._means(bags)
        centre, scale = means.mean(axis=0), means.std(axis=0) + 1e-6
        solver = LogisticRegression(C=0.01, max_iter=2000).fit((means - centre) / scale, labels)
        self.classes = tuple(map(str, solver.classes_))
        self.weights = solver.coef_ / scale
        self.bias = solver.intercept_ - self.weights @ centre
        graph, self.spec = graph_of(network)
        self.network = OnnxModule(graph).eval()
        weights, bias = torch.from_numpy(self.weights).float(), torch.from_numpy(self.bias).float()
        self.head = lambda features: weights @ features.mean(dim=(1, 2)) + bias

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the scores of bags, of which the cells of the finest map alone are used."""
        return np.asarray(self._means(bags) @ self.weights.T + self.bias)

    def maps(self, looked: Looked, numbers: list[int]) -> list[dict[str, Map]]:
        """Return the maps of Grad-CAM for some classes, by a network in torch, and that of the votes of the cells."""
        import torch

        with torch.no_grad():
            features = self.network(torch.from_numpy(self.spec.preprocessing(looked.pixels[None])))[0]
        finest = looked.bag.level == looked.bag.level.max()
        boxes, found = looked.bag.boxes[finest], []
        votes = looked.bag.values[finest] @ self.weights.T + self.bias  # their mean is the score
        for number in numbers:
            plain = grad_cam(features, self.head, number)
            of_log = grad_cam(features, lambda one: torch.log_softmax(self.head(one), 0), number)
            contrast = votes[:, number] - np.delete(votes, number, axis=1).max(axis=1)
            maps = {GRAD_CAM: plain, GRAD_CAM_OF_LOG: of_log, DEFAULT: contrast}
            found.append({name: spread(values.ravel(), boxes) for name, values in maps.items()})
        return found

    @staticmethod
    def _means(bags: Bags) -> npt.NDArray[np.float64]:
        rows = [bag.values[bag.level == bag.level.max()].mean(axis=0, dtype=np.float64) for bag in bags]
        return np.stack(rows)


Classifier = Voted | Pooled


def trained(
    bags: Bags, labels: npt.NDArray[Any], network: str, most: int, kinds: Sequence[str] = tuple(OWN)
) -> list[Classifier]:
    """Train voters on so many descriptors, and the linear head for Grad-CAM where torch is installed."""
    classifiers: list[Classifier] = []
    for kind in kinds:
        seconds, voted = timed(functools.partial(Voted, kind, bags, labels, most))
        classifiers.append(voted)
        print(f"{kind}: trained in {seconds:.1f} s", flush=True)
    if HAS_TORCH:
        classifiers.append(Pooled(network, bags, labels))
    else:
        print("torch is not installed: Grad-CAM is left out.", flush=True)
    return classifiers


def thinned(bags: Bags, most: int) -> Bags:
    """Return a random part of every bag, as `patchvote fit` trains on; the descriptor of the whole photo stays."""
    most = max(_FEWEST, most // len(bags))
    rng, parts = np.random.default_rng(0), []
    for bag in bags:
        count = len(bag.values)
        others = 1 + np.sort(rng.permutation(count - 1)[: most - 1])
        rows = np.concatenate([[0], others])
        parts.append(Bags(bag.values[rows], np.array([0, len(rows)]), bag.boxes[rows], bag.level[rows]))
    return Bags.join(parts)


def random_map(seed: int) -> Map:
    """Return a map of random numbers."""
    return np.random.default_rng([7, seed]).random((GRID, GRID))


def centre_map() -> Map:
    """Return a map that falls from the centre to the corners."""
    steps = np.arange(GRID) - (GRID - 1) / 2
    return -np.hypot(steps[:, None], steps)
