"""Choose a network for photos: those at hand are tried on held-out photos, the cheapest first.

A network may take a limited time per photo on this machine, which is measured on a few of the photos. The cheapest one
within the limit is chosen, unless a costlier one is clearly better: by the log loss of its answers for the same
held-out photos, by more than the standard error of the difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..backbones.at_hand import names_at_hand
from ..bags.cache import cached_bags
from ..bags.extract import Extractor
from ..bags.filled import Filled
from ..bags.recipe import Recipe
from ..errors import NetworkError, PatchvoteError, first_line
from ..photos.find import Photo, Source, labelled
from ..utils.counting import counted
from ..utils.timing import Progress
from .arguments import check_classes, kind_of_voter
from .choose import clearly_less, log_losses
from .fit import fit_model
from .needs import learned_from
from .photo_cost import seconds_per_photo
from .scores import Scores

_MAX_PHOTOS = 400  # photos that networks are tried on; a fifth of them, or each in turn, is held out


@dataclasses.dataclass(frozen=True)
class NetworkTrial:
    """What a network costs and brings.

    Parameters
    ----------
    network : str
        Name of the network.
    seconds : float or None
        Seconds per photo on this machine; None if it could not be loaded.
    accuracy : float or None
        Share of the held-out photos that were classified correctly; None if it was not tried.
    loss : float or None
        Mean log loss of the answers for the held-out photos.
    images : int
        Number of held-out photos.
    note : str
        Why it was not tried.
    """

    network: str
    seconds: float | None
    accuracy: float | None = None
    loss: float | None = None
    images: int = 0
    note: str = ""

    def sentence(self) -> str:
        """Return the trial in words.

        Examples
        --------
        >>> NetworkTrial("efficientnet-lite0", 0.02, 0.95, 0.2, 80).sentence()
        'efficientnet-lite0: 0.020 s per photo, 95.0 % of 80 held-out photos'
        """
        cost = "" if self.seconds is None else f" {self.seconds:.3f} s per photo,"
        brings = self.note if self.accuracy is None else f"{100 * self.accuracy:.1f} % of "
        return f"{self.network}:{cost} {brings}" + (
            "" if self.accuracy is None else counted(self.images, "held-out photo")
        )


@dataclasses.dataclass(frozen=True)
class NetworkChoice:
    """The chosen network, all trials in the order of their cost, and the reason."""

    network: str
    trials: list[NetworkTrial]
    why: str


def choose_network(
    photos: Source,
    *,
    limit: float,
    networks: Sequence[str] | None = None,
    recipe: Recipe | None = None,
    voter: Any = "auto",
    budget: float = 60.0,
    cache: str | Path | bool | None = None,
    jobs: int | None = None,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> NetworkChoice:
    """Try networks on held-out photos, and choose one.

    Parameters
    ----------
    photos : Source
        Labelled photos: a folder with one folder per class, or a manifest.
    limit : float
        Seconds per photo that a network may take on this machine.
    networks : sequence of str, optional
        Names of the networks to try; by default all that can be loaded without a download.
    recipe : Recipe, optional
        Recipe whose sampling is used with every network; by default the one that fits the network.
    voter : str or estimator, default "auto"
        Voter that learns from the bags.
    budget : float, default 60
        Seconds for training and testing voters, for all networks together.
    cache, jobs, device, seed
        Same as for `ImageClassifier`; the bags of the chosen network are in the cache when it is fitted.
    progress : function, optional
        Called with the name of the stage, how much of it is done, and its total.

    Raises
    ------
    PatchvoteError
        No network can be loaded and is fast enough.
    """
    found = labelled(photos, None, 2)
    check_classes(found)
    names, sample = list(names_at_hand() if networks is None else networks), _sample(found, seed)

    def extractor_of(name: str) -> Extractor:
        named = name if recipe is None else dataclasses.replace(recipe, network=name)
        return Extractor(named, jobs=jobs, device=device)

    def tell(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress(what, done, total)

    timed = []
    for number, name in enumerate(names):
        tell(f"time {name}", number, len(names))
        timed.append(_timed(name, extractor_of, sample, limit))
    timed.sort(key=lambda trial: (trial.seconds is None, trial.seconds or 0.0))
    fast = sum(not trial.note for trial in timed)
    settings = {"voter": voter, "budget": budget / max(1, fast), "cache": cache, "seed": seed}
    trials: list[NetworkTrial] = []
    chosen: tuple[NetworkTrial, dict[str, float]] | None = None
    for trial in timed:
        losses: dict[str, float] = {}
        if not trial.note:  # loaded once more: all networks together could take more memory than there is
            trial, losses = _tried(trial, extractor_of(trial.network), sample, tell, settings)
            if chosen is None or _is_better(losses, chosen[1]):
                chosen = trial, losses
        trials.append(trial)
    if chosen is None:
        raise PatchvoteError(
            f"no network can be used within {limit:g} s per photo. Allow more with --photo-seconds, or name one.",
            lines=[f"  {trial.sentence()}" for trial in trials],
        )
    return NetworkChoice(chosen[0].network, trials, _why(chosen[0], trials))


def _sample(photos: Sequence[Photo], seed: int) -> list[Photo]:
    """Return all photos, or about `_MAX_PHOTOS` with the shares of the classes, at least two of each; in order."""
    if len(photos) <= _MAX_PHOTOS:
        return list(photos)
    rng = np.random.default_rng(seed)
    labels = np.array([str(photo.label) for photo in photos])
    chosen: list[int] = []
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        count = max(2, round(_MAX_PHOTOS * len(of_class) / len(photos)))
        chosen += rng.permutation(of_class)[:count].tolist()
    return [photos[index] for index in sorted(chosen)]


def _timed(name: str, load: Callable[[str], Extractor], sample: Sequence[Photo], limit: float) -> NetworkTrial:
    """Load a network and measure its time per photo; the note says why it cannot be used, or takes too long."""
    try:
        seconds = seconds_per_photo(load(name), sample)
    except NetworkError as error:
        return NetworkTrial(name, None, note=f"cannot be used: {first_line(error)}")
    return NetworkTrial(name, seconds, note=f"not tried: more than {limit:g} s" if seconds > limit else "")


def _tried(
    trial: NetworkTrial, extractor: Extractor, sample: list[Photo], tell: Progress, settings: dict[str, Any]
) -> tuple[NetworkTrial, dict[str, float]]:
    """Train and test a voter on the bags of a network; return the trial, and the log loss of each held-out photo."""
    voter, seed = settings["voter"], settings["seed"]
    need = learned_from(voter, kind_of_voter(voter), seed)

    def show(filled: Filled) -> None:
        tell(f"try {trial.network}", filled.done, filled.photos)

    with cached_bags(sample, extractor, need=need, cache=settings["cache"], progress=show) as (_, store):
        more: dict[str, Any] = {"budget": settings["budget"], "seed": seed, "progress": None, "seconds": {}}
        scores = fit_model(store, voter, extractor, **more).held_out
    if scores is None:
        return dataclasses.replace(trial, note="not compared: no photo could be held out"), {}
    losses = _losses(scores)
    loss = float(np.mean(list(losses.values())))
    return dataclasses.replace(trial, accuracy=scores.accuracy, loss=loss, images=len(scores)), losses


def _losses(scores: Scores) -> dict[str, float]:
    return dict(zip(scores.names, log_losses(scores.probability, scores.expected).tolist(), strict=True))


def _is_better(losses: dict[str, float], others: dict[str, float]) -> bool:
    """Whether the answers for photos that both were tested on are clearly better."""
    common = [name for name in losses if name in others]
    if not common:
        return False
    return clearly_less(np.array([losses[name] for name in common]), np.array([others[name] for name in common]))


def _why(chosen: NetworkTrial, trials: Sequence[NetworkTrial]) -> str:
    compared = [trial for trial in trials if trial.accuracy is not None]
    if len(compared) < 2:
        return "the only one that could be tried" if compared else "the fastest; no photo could be held out"
    if chosen == compared[0]:
        return f"the fastest of {len(compared)}, and no other was clearly better on held-out photos (log loss)"
    return "no faster one is as good on held-out photos, and no slower one clearly better (log loss)"
