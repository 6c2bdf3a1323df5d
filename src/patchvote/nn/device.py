"""The step of sNBNL on a device of torch: the same mathematics, other memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import PatchvoteError
from ..voters.ml3 import minibatch_gradient


def usable_device(name: str) -> torch.device:
    """Return the device of this name.

    Raises
    ------
    PatchvoteError
        torch cannot use it here.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise PatchvoteError(f"torch cannot use the device {name!r} here: {str(error).splitlines()[0]}") from None
    return device


class DeviceStoml3:
    """Prototypes that learn on a device, one minibatch after the other; see `stoml3.Stoml3`.

    Parameters
    ----------
    weights : array of shape (prototypes, classes, features)
        The start.
    q, lam, curvature : float
        Of the score, of the regulariser, of the surrogate.
    step : int
        Steps made before.
    device : str
        "cuda", "mps", "cpu", or as torch names it.
    """

    def __init__(
        self, weights: npt.NDArray[Any], q: float, lam: float, curvature: float, step: int, device: str
    ) -> None:
        self._device = usable_device(device)
        self._weights = torch.from_numpy(np.ascontiguousarray(weights)).to(self._device)
        self.q, self.lam, self.curvature, self.t = q, lam, curvature, step
        self._mean: torch.Tensor | None = None
        self._counted = 0
        self._pinned: dict[str, torch.Tensor] = {}

    @property
    def weights(self) -> npt.NDArray[Any]:
        """The prototypes now, in the memory of the host."""
        return np.array(self._weights.cpu().numpy())

    @weights.setter
    def weights(self, weights: npt.NDArray[Any]) -> None:
        self._weights = torch.from_numpy(weights).to(self._device)

    @property
    def mean(self) -> npt.NDArray[Any] | None:
        """Mean of the prototypes over the steps since `begin_mean`."""
        return None if self._mean is None else np.array(self._mean.cpu().numpy())

    def begin_mean(self) -> None:
        """Take the mean of the prototypes over the steps that come."""
        self._mean, self._counted = torch.zeros_like(self._weights), 0

    def step(self, x: npt.NDArray[Any], labels: npt.NDArray[np.int64], weight: npt.NDArray[Any] | None = None) -> float:
        """Learn from one minibatch; return its mean loss before the step."""
        self.t += 1
        counts = np.ones(len(x), x.dtype) if weight is None else weight
        counts = counts / counts.sum(dtype=np.float64).astype(x.dtype)
        values, share, numbers = (self._there(name, a) for name, a in (("x", x), ("w", counts), ("y", labels)))
        prototypes, classes, dim = self._weights.shape
        flat = self._weights.reshape(-1, dim)
        z = (flat @ values.T).reshape(prototypes, classes, len(x))
        loss, residual = minibatch_gradient(z, numbers, share, self.q)
        gradient = residual.reshape(prototypes * classes, -1) @ values
        total = self.curvature + self.lam
        if self.t == 1:
            flat.mul_(self.curvature / total).sub_(gradient, alpha=1 / total)
        else:
            rate = 1 / math.sqrt(self.t)
            flat.mul_(1 - rate * self.lam / total).sub_(gradient, alpha=rate / total)
        if self._mean is not None:
            self._counted += 1
            self._mean += (self._weights - self._mean) / self._counted
        return float(loss @ share)

    def _there(self, name: str, array: npt.NDArray[Any]) -> torch.Tensor:
        """Bring an array to the device, through pinned memory where it is another card's."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self._device.type != "cuda":
            return tensor.to(self._device)
        kept = self._pinned.get(name)
        if kept is None or len(kept) < len(tensor) or kept.dtype != tensor.dtype:
            kept = self._pinned[name] = torch.empty_like(tensor).pin_memory()
        part = kept[: len(tensor)]
        part.copy_(tensor)
        return part.to(self._device, non_blocking=True)
