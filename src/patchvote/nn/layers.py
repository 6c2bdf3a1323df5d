"""ML3 as a layer: descriptors in, class votes out; and the head that turns a feature map into the vote of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..voters.ml3 import phi_and_gradient

_LEAST = 1e-5  # added to a batch's variances: a feature that is silent in it stays finite


class _Phi(torch.autograd.Function):
    """The score of the shared mathematics, with its own derivative: autograd's would be 0/0 where the score is 0."""

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
    """Score of each class, ``||[z]_+||_q`` over the first axis; its derivative is 0 where it is 0."""
    return _Phi.apply(z, q)  # type: ignore[no-any-return,no-untyped-call]


class ML3(nn.Module):
    """Votes by a few prototypes a class: ``phi(W x)``, of descriptors ``(..., features)``.

    Parameters
    ----------
    features, classes : int
        Of a descriptor; to vote for.
    prototypes : int, default 10
        Prototypes a class.
    q : float, default 2
        How products with a class's prototypes become one vote, from 1 to ``math.inf``.
    start_scale : float, default 0.01
        Standard deviation of the random numbers that prototypes begin with.

    Attributes
    ----------
    weight : Parameter of shape (prototypes, classes, features)
        The prototypes.

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
            raise ValueError(
                f"features, classes and prototypes must be at least 1 and q, too; got {features}, {classes}, "
                f"{prototypes} and {q}."
            )
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
        """Tell the sizes."""
        prototypes, classes, features = self.weight.shape
        return f"{features}, {classes}, prototypes={prototypes}, q={self.q:g}"


class ML3Conv2d(ML3):
    """ML3 as a 1 x 1 convolution with prototypes: a feature map in, a map of votes out.

    Examples
    --------
    >>> ML3Conv2d(4, 3)(torch.ones(2, 4, 5, 6)).shape
    torch.Size([2, 3, 5, 6])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the votes ``(n, classes, rows, columns)`` of a map ``(n, features, rows, columns)``."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class VoteHead(nn.Module):
    """The head of a network that votes: feature maps in, the mean vote of each image out.

    Cells are standardised, get their positions where asked for, and vote; a map's vote is the mean of its cells', an
    image's the weighted mean of its maps'.

    Parameters
    ----------
    features, classes, prototypes, q, start_scale
        As for `ML3`.
    positions : bool, default False
        Whether the position of a cell, in 0..1 both ways, takes part.
    levels : int, default 1
        Maps (scales) of an image; with several, how much each counts is learned.
    momentum : float, default 0
        For a network that learns along, whose features drift: while training, every batch is standardised by itself,
        and renews this share of `mean` and `scale`, as in batch normalisation. With 0 they stay as they were set.
        For one level only.

    Attributes
    ----------
    vote : ML3Conv2d
        The prototypes.
    mean, scale : buffers
        A feature x is standardised to ``(x - mean) * scale``; set them with `standardise`.
    level_weight : Parameter of shape (levels,)
        Levels count by its softmax.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        features: int,
        classes: int,
        prototypes: int = 10,
        *,
        q: float = 2.0,
        start_scale: float = 0.01,
        positions: bool = False,
        levels: int = 1,
        momentum: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= momentum <= 1 or (momentum and levels > 1):
            raise ValueError(
                "momentum must be from 0 to 1, and 0 for several levels, which share one mean and scale; "
                f"got {momentum} for {levels}."
            )
        self.positions, self.momentum = positions, momentum
        width = features + 2 * positions
        self.vote = ML3Conv2d(width, classes, prototypes, q=q, start_scale=start_scale)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.level_weight = nn.Parameter(torch.zeros(levels))

    def standardise(self, maps: Sequence[Tensor]) -> None:
        """Set mean and scale so that the features of these maps have mean 0 and deviation 1."""
        rows = torch.cat([self._placed(one).movedim(1, -1).flatten(0, -2) for one in maps])
        rows = rows.cpu().double()  # some devices have no float64
        deviation = rows.std(dim=0, correction=0)
        self.mean.copy_(rows.mean(dim=0))
        self.scale.copy_(1 / torch.where(deviation > 1e-6 * rows.abs().mean(dim=0), deviation, 1.0))

    def vote_map(self, x: Tensor) -> Tensor:
        """Return the votes of every cell of a map, ``(n, classes, rows, columns)``."""
        x = self._placed(x)
        if self.training and self.momentum and x.numel() > x.shape[1]:
            x = self._drifting(x)
        else:
            x = (x - self.mean[:, None, None]) * self.scale[:, None, None]
        votes: Tensor = self.vote(x)
        return votes

    def forward(self, *maps: Tensor) -> Tensor:
        """Return the mean vote ``(n, classes)`` of images, given a map for each level."""
        if len(maps) != len(self.level_weight):
            raise ValueError(f"this head takes {len(self.level_weight)} maps, got {len(maps)}.")
        share = self.level_weight.softmax(0)
        means = [self.vote_map(one).mean(dim=(2, 3)) for one in maps]
        return torch.stack([weight * mean for weight, mean in zip(share, means, strict=True)]).sum(0)

    def extra_repr(self) -> str:
        """Tell what the layers below do not."""
        return f"positions={self.positions}, momentum={self.momentum:g}"

    def _drifting(self, x: Tensor) -> Tensor:
        """Standardise a batch by itself, and let mean and scale follow."""
        variance = (self.scale**-2 - _LEAST).clamp(min=0)
        x = nn.functional.batch_norm(x, self.mean, variance, training=True, momentum=self.momentum, eps=_LEAST)
        self.scale.copy_((variance + _LEAST).rsqrt())
        return x

    def _placed(self, x: Tensor) -> Tensor:
        """Append the positions of the cells' centres, where they take part."""
        if not self.positions:
            return x
        n, _, rows, columns = x.shape
        across = (torch.arange(columns, device=x.device, dtype=x.dtype) + 0.5) / columns
        down = (torch.arange(rows, device=x.device, dtype=x.dtype) + 0.5) / rows
        places = torch.stack([across.expand(rows, columns), down[:, None].expand(rows, columns)])
        return torch.cat([x, places.expand(n, 2, rows, columns)], dim=1)
