"""Adaptation as a voter of a protocol: any voter, at any resolution, adapted to test photos without their labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from ...bags.bags import Bags
from ...bags.store import Store
from ...errors import PatchvoteError
from ...voters import registry
from ...voters.adapted import Adapted
from ...voters.doubts import AdaptationWarning
from ..registered import make_registered, settings_of
from .pooled import blocks_of
from .probabilities import Probabilities
from .scales import at_scale, check_scales, each_scale, is_signed, levels_of

_SCALES = ("bag", "whole", "first", "last", "each")


class AdaptedVoter(Probabilities, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """`Adapted`, with settings that a name in a table can include.

    Parameters
    ----------
    voter : str, default "bag-svm"
        Kind of voter that is adapted: any of the registry, with its settings in protocols.
    scales : {"bag", "whole", "first", "last", "each"}, default "bag"
        The descriptors that it sees: all of the bag, or those of one scale (see `scales`): "bag-svm" with one of these
        is the pooled image at that resolution, adapted in the same way. "each" concatenates the means of the scales,
        for a voter that uses only means.
    C : float, default 0.3
        Inverse regularisation strength, where the voter has one.
    gains : bool, default True
        Whether the features of the source are rescaled by gains.
    rounds : int, default 2
        Rounds of self-training.
    calibration : float, default 0
        Share of the labelled images held out to calibrate probabilities. Only a calibrated voter has the safeguards of
        `Adapted`: it leaves photos out that are unlike all classes, and may refuse to adapt. A jury always has them.

    Attributes
    ----------
    adapted_ : Adapted
        The adapted voter.
    refusal_ : str or None
        Reason why the voter was not adapted.
    """

    def __init__(
        self,
        voter: str = "bag-svm",
        *,
        scales: str = "bag",
        C: float = 0.3,
        gains: bool = True,
        rounds: int = 2,
        calibration: float = 0.0,
    ) -> None:
        self.voter = voter
        self.scales = scales
        self.C = C
        self.gains = gains
        self.rounds = rounds
        self.calibration = calibration

    def fit(self, X: Bags | Store, y: Any, target: Sequence[Bags | Store], target_y: Any) -> Self:
        """Learn from labelled images of the source, and from images of the target in one or more parts."""
        self._check_settings()
        voter = self._voter()
        self.signed_ = self.scales == "each" and is_signed(X)
        parts = [self._condensed(part, voter) for part in (X, *target)]
        adapted = Adapted(voter, gains=self.gains, shares=Adapted().shares[: self.rounds])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdaptationWarning)  # a refusal stands in the cell
            self.adapted_ = adapted.fit(parts[0], y, Bags.join(parts[1:]), target_y)
        self.classes_, self.refusal_ = self.adapted_.classes_, self.adapted_.refusal_
        self.rejection_threshold_ = self.adapted_.rejection_threshold_
        return self

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.adapted_.predict(self._seen(X)))

    def predict_proba(self, X: Bags) -> npt.NDArray[Any]:
        """Return the probability of each class, for each image."""
        return np.asarray(self.adapted_.predict_proba(self._seen(X)))

    def _voter(self) -> Any:
        """Return the voter to adapt."""
        settings = settings_of(self.voter)
        if "calibration" in settings:
            settings["calibration"] = self.calibration
        voter = make_registered(self.voter, **settings).for_target()
        return voter.set_params(C=self.C) if "C" in voter.get_params(deep=False) else voter

    def _seen(self, bags: Bags) -> Bags:
        """Return the bags with the descriptors that the voter sees."""
        if self.scales == "bag":
            return bags
        if self.scales == "each":
            return each_scale(bags, self.signed_)
        return at_scale(bags, levels_of(self.scales, int(bags.level.max()))[0])

    def _condensed(self, images: Bags | Store, voter: Any) -> Bags:
        """Return bags with what the voter sees, as small as it can do with."""
        return Bags.join([voter.condensed(self._seen(bags)) for bags in blocks_of(images)])

    def _check_settings(self) -> None:
        check_scales(self.scales, _SCALES)
        try:
            kind = registry.kind_of(self.voter)
        except PatchvoteError as error:
            raise ValueError(f"voter of adapted: {error}") from None
        if kind != self.voter:
            raise ValueError(f"voter of adapted is named {kind!r}, got {self.voter!r}.")
        if self.scales == "each" and not registry.voter_class(self.voter).means_only:
            raise ValueError(
                f"scales=each concatenates the means of the scales, and {self.voter} votes with every descriptor: name "
                "one scale, or a voter that uses only means, such as bag-svm."
            )
        if self.rounds not in (0, 1, 2):
            raise ValueError(f"rounds must be 0, 1 or 2, got {self.rounds}.")
