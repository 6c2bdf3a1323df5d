"""ML3 as a layer, from descriptors to class votes; the head that computes the vote of an image; its optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..voters.ml3 import advance, phi_and_gradient


class _Phi(torch.autograd.Function):
    """The score of `voters.ml3` with an explicit derivative: that of autograd would be 0/0 where the score is 0."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, q: float) -> Tensor:
        score, gradient = phi_and_gradient(z, q)
        ctx.save_for_backward(gradient)
        return score  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None


def phi(z: Tensor, q: float) -> Tensor:
    """Return the score of each class, ``||[z]_+||_q`` over the first axis; the derivative of a score of 0 is 0."""
    return _Phi.apply(z, q)  # type: ignore[no-any-return,no-untyped-call]


class ML3(nn.Module):
    """Votes ``phi(W x)`` of descriptors ``(..., features)`` by a few prototypes per class.

    Parameters
    ----------
    features, classes : int
        Number of features per descriptor, and number of classes.
    prototypes : int, default 10
        Number of prototypes per class.
    q : float, default 2
        Order of the norm over the products with a class's prototypes, from 1 to ``math.inf``.
    start_scale : float, default 0.01
        Standard deviation of the initial prototypes.

    Attributes
    ----------
    weight : Parameter of shape (prototypes, classes, features)
        Prototypes of all classes.

    Examples
    --------
    >>> layer = ML3(4, 3, prototypes=2)
    >>> layer(torch.ones(5, 7, 4)).shape
    torch.Size([5, 7, 3])
    """

    def __init__(
        self, features: int, classes: int, prototypes: int = 10, *, q: float = 2.0, start_scale: float = 0.01
    ) -> None:
        super().__init__()
        if min(features, classes, prototypes) < 1 or not q >= 1:
            raise ValueError("features, classes, prototypes and q must be at least 1.")
        self.q = q
        self.weight = nn.Parameter(torch.randn(prototypes, classes, features) * start_scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the votes ``(..., classes)`` of descriptors ``(..., features)``."""
        prototypes, classes, features = self.weight.shape
        flat = x.reshape(-1, features)
        z = self.weight.reshape(-1, features) @ flat.T
        votes = phi(z.reshape(prototypes, classes, len(flat)), self.q)
        return votes.T.reshape(*x.shape[:-1], classes)

    def extra_repr(self) -> str:
        """Return the sizes and q, for `repr`."""
        prototypes, classes, features = self.weight.shape
        return f"{features}, {classes}, prototypes={prototypes}, q={self.q:g}"


class ML3Conv2d(ML3):
    """ML3 as a 1 x 1 convolution, from a feature map to a map of votes.

    Examples
    --------
    >>> ML3Conv2d(4, 3)(torch.ones(2, 4, 5, 6)).shape
    torch.Size([2, 3, 5, 6])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the votes ``(n, classes, rows, columns)`` of a map ``(n, features, rows, columns)``."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class VoteHead(nn.Module):
    """Head of a network, from a feature map to the mean vote of each image; its cells are standardised first.

    Parameters
    ----------
    features, classes, prototypes, q, start_scale
        Parameters of `ML3`.
    momentum : float, default 0
        Share of `mean` and `variance` that every training batch updates, as in batch normalisation, for a network whose
        features drift because it is trained as well. Such a batch is standardised by its own statistics.

    Attributes
    ----------
    vote : ML3Conv2d
        Layer with the prototypes.
    mean, variance : buffers
        Mean and variance of the features, which are standardised by them; set by `standardise`.
    """

    mean: Tensor
    variance: Tensor

    def __init__(
        self,
        features: int,
        classes: int,
        prototypes: int = 10,
        *,
        q: float = 2.0,
        start_scale: float = 0.01,
        momentum: float = 0.0,
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.vote = ML3Conv2d(features, classes, prototypes, q=q, start_scale=start_scale)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))

    def standardise(self, maps: Sequence[Tensor]) -> None:
        """Set mean and variance so that the features of these maps have mean 0 and deviation 1."""
        rows = torch.cat([x.movedim(1, -1).flatten(0, -2) for x in maps]).cpu().double()  # some devices have no float64
        self.mean.copy_(rows.mean(dim=0))
        self.variance.copy_(rows.var(dim=0, correction=0))

    def vote_map(self, x: Tensor) -> Tensor:
        """Return the votes of every cell of a map, ``(n, classes, rows, columns)``."""
        drifts = self.training and self.momentum > 0 and x.numel() > x.shape[1]
        x = functional.batch_norm(x, self.mean, self.variance, training=drifts, momentum=self.momentum)
        votes: Tensor = self.vote(x)
        return votes

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean vote ``(n, classes)`` of images."""
        return self.vote_map(x).mean(dim=(2, 3))

    def extra_repr(self) -> str:
        """Return the setting that is not of an inner layer, for `repr`."""
        return f"momentum={self.momentum:g}"


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
