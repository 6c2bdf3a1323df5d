"""SMM: the step of STOML3 as an optimiser of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..voters.ml3 import advance


class SMM(torch.optim.Optimizer):
    """Stochastic majorisation-minimisation, which stores nothing but the parameters and the number of steps.

    With the gradient G_t of the minibatch's mean loss, ``W_t = W_{t-1} - (G_t + lambda W_{t-1}) / (sqrt(t) (L +
    lambda))``: SGD with weight decay and a rate that falls with the root of the number of steps.

    Parameters
    ----------
    params : iterable
        Prototypes to optimise.
    curvature : float, default 0.3
        Curvature L of the surrogate; a larger value makes smaller steps.
    lam : float, default 1e-4
        Strength lambda of the regulariser. It is part of the step: do not add it to the loss.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimiser = SMM([weight], curvature=1.0, lam=0.0)
    >>> (weight**2 / 2).sum().backward()
    >>> optimiser.step()
    >>> weight.item()
    0.0
    """

    def __init__(self, params: Iterable[Any], curvature: float = 0.3, lam: float = 1e-4) -> None:
        if not curvature > 0 or not lam >= 0:
            raise ValueError(f"curvature must be above 0 and lam at least 0, got {curvature} and {lam}.")
        super().__init__(params, {"curvature": curvature, "lam": lam})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one step with the gradients of the parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                state["step"] = state.get("step", 0) + 1
                advance(weight, weight.grad.clone(), state["step"], group["curvature"], group["lam"])
        return loss
