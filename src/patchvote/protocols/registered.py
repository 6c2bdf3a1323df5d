"""Voters of the registry, with the settings that protocols give them.

Training without calibration is what the paper times, and a calibration holds images out. A protocol that compares
probabilities says so (`calibrated`); then every voter is calibrated on held-out training images, as users' models are.
"""

from __future__ import annotations

from typing import Any

from ..voters import registry

HELD_OUT = 0.2  # share of the training images held out to calibrate, the default of the voters

# Settings that differ from the defaults of the estimators. Searching in a PCA finds the nearest neighbour in 90 % of
# cases for patches and in 80 % for `dense` cells, which are more similar to each other; otherwise it finds one nearly
# as close. For patches of Scene-15, 99.7 % of the labels equal those of the exact search, in a fifth of the time.
# Results include the recall.
SETTINGS: dict[str, dict[str, Any]] = {"nbnn": {"search": "pca"}, "local-nbnn": {"search": "pca"}}


def settings_of(kind: str, calibrated: bool = False) -> dict[str, Any]:
    """Return the settings of a registered voter in protocols.

    Parameters
    ----------
    kind : str
        Kind of the voter.
    calibrated : bool, default False
        Whether to hold images out for its probabilities. A jury does so in any case, to set its mixture.

    Examples
    --------
    >>> settings_of("nbnn"), settings_of("jury", calibrated=True)
    ({'search': 'pca', 'calibration': 0}, {})
    """
    return {**SETTINGS.get(kind, {}), **calibration_of(registry.voter_class(kind)._get_param_names(), calibrated)}


def calibration_of(parameters: list[str], calibrated: bool) -> dict[str, Any]:
    """Return the setting that makes an estimator with these parameters hold images out, or not."""
    return {"calibration": HELD_OUT if calibrated else 0} if "calibration" in parameters else {}


def make_registered(kind: str, **settings: Any) -> Any:
    """Make the estimator of a kind in the registry."""
    return registry.voter_class(kind)(**settings)
