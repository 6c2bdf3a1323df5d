"""Small networks of torch that the tests name."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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


def alexnet() -> nn.Module:
    torch.manual_seed(0)
    return SmallAlexNet()


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


def residual() -> nn.Module:
    torch.manual_seed(1)
    return Residual()


class SmallViT(nn.Module):
    """Patches as tokens, behind a class token and two registers."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 16, stride=16)
        self.special = nn.Parameter(torch.randn(1, 3, 16))
        self.place = nn.Parameter(torch.randn(1, 3 + 16, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.special.expand(len(x), -1, -1), tokens], dim=1) + self.place
        return self.norm(self.block(tokens))


def vit() -> nn.Module:
    torch.manual_seed(2)
    return SmallViT()


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


def silu() -> nn.Module:
    torch.manual_seed(3)
    return Bent(nn.SiLU())


def gelu() -> nn.Module:
    torch.manual_seed(3)
    return Bent(nn.GELU())


def relu() -> nn.Module:
    torch.manual_seed(3)
    return Bent(nn.ReLU(inplace=True))


def in_place() -> nn.Module:
    torch.manual_seed(3)
    return InPlace(nn.ReLU())


class ChannelsLast(nn.Module):
    """Gives a map whose last axis is the features, as windowed transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 16, stride=16)

    def forward(self, x: Tensor) -> Tensor:
        return self.patch(x).permute(0, 2, 3, 1)


def channels_last() -> nn.Module:
    torch.manual_seed(4)
    return ChannelsLast()


def patches_of_14() -> nn.Module:
    """Patches of 14 pixels, for images of any size."""
    torch.manual_seed(4)
    return nn.Conv2d(3, 8, 14, stride=14)


def without_padding() -> nn.Module:
    """A cell every 3 pixels, but none at the edges."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 8, 3))


class FewTokens(nn.Module):
    """A class token, four registers and four places: nine tokens, which could be three rows of three."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 32, stride=32)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([torch.zeros(len(x), 5, 16), tokens], dim=1)


def few_tokens() -> nn.Module:
    torch.manual_seed(5)
    return FewTokens()


def broken() -> nn.Module:
    raise OSError("no weights here\nand more lines")


NOT_A_FUNCTION = 3
