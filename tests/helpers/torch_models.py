"""Small networks of torch that the tests name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from helpers.hub_networks import Only, TinyViT


def seeded(seed: int, make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def network() -> nn.Module:
        torch.manual_seed(seed)
        return make()

    return network


class SmallAlexNet(nn.Module):
    """Convolutions, pooling to a fixed size, and a classifier of three linear layers, as AlexNet has."""

    preprocessing = {"mean": (100.0, 110.0, 120.0), "scale": (50.0, 50.0, 50.0), "size": 64}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((4, 4))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(192, 20), nn.ReLU(), nn.Dropout(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Residual(nn.Module):
    """A convolutional network whose activations are functions, not modules."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 10, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.inner(x))
        return torch.relu(self.last(x)).mean(dim=(2, 3))


class Bent(nn.Module):
    """Activations that ONNX writes as several nodes, and a sum that is written into a layer's own answer."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.layer = nn.Conv2d(8, 8, 1)
        self.activation = activation
        self.end = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.activation(self.layer(self.stem(x))))


class InPlace(Bent):
    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.layer(x)
        y += x
        return self.end(torch.relu_(y))


class ChannelsLast(nn.Module):
    """Gives a map whose last axis is the features, as windowed transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 16, stride=16)

    def forward(self, x: Tensor) -> Tensor:
        return self.patch(x).permute(0, 2, 3, 1)


class FewTokens(nn.Module):
    """A class token, four registers and four places: nine tokens, which could be three rows of three."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 32, stride=32)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([torch.zeros(len(x), 5, 16), tokens], dim=1)


alexnet, residual = seeded(0, SmallAlexNet), seeded(1, Residual)
vit = seeded(2, lambda: Only(TinyViT(registers=2, free=False), 0))
silu, gelu, relu = (seeded(3, lambda kind=kind: Bent(kind())) for kind in (nn.SiLU, nn.GELU, nn.ReLU))
in_place, channels_last, few_tokens = (
    seeded(3, lambda: InPlace(nn.ReLU())),
    seeded(4, ChannelsLast),
    seeded(5, FewTokens),
)
patches_of_14 = seeded(4, lambda: nn.Conv2d(3, 8, 14, stride=14))  # for images of any size
# A cell every 3 pixels, but none at the edges.
without_padding = seeded(4, lambda: nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 8, 3)))


def broken() -> nn.Module:
    raise OSError("no weights here\nand more lines")


NOT_A_FUNCTION = 3
