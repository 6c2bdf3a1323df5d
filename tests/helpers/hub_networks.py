"""Tiny networks as the hub has them: torch modules, exported by the tests, with the files of settings beside them."""

from __future__ import annotations

import functools
import io
import json
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional

DINO = {
    "crop_size": {"height": 64, "width": 64},
    "do_center_crop": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 72},
}
TIMM = {"architecture": "tiny", "pretrained_cfg": {"input_size": [3, 64, 64], "mean": [0.5] * 3, "std": [0.5] * 3}}


class Block(nn.Module):
    """Attention, added to what it reads; any number of tokens."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.three = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.three(self.norm(x)).chunk(3, dim=-1)
        return x + (q @ k.transpose(-2, -1) / x.shape[-1] ** 0.5).softmax(dim=-1) @ v


class TinyViT(nn.Module):
    """A transformer with a class token and registers; its position embeddings fit other sizes if it is `free`."""

    def __init__(self, registers: int = 0, free: bool = True, token: bool = True) -> None:
        super().__init__()
        patch, dim = 16, 24
        self.patch = nn.Conv2d(3, dim, patch, stride=patch)
        self.first = nn.Parameter(torch.randn(1, registers + token, dim))
        self.place = nn.Parameter(torch.randn(1, dim, 64 // patch, 64 // patch))
        self.blocks = nn.ModuleList(Block(dim) for _ in range(2))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 5)
        self.free = free

    def tokens(self, x: Tensor) -> Tensor:
        cells = self.patch(x)
        place = self.place
        if self.free:
            place = functional.interpolate(place, size=cells.shape[2:], mode="bilinear", align_corners=False)
        cells = (cells.flatten(2) + place.flatten(2)).transpose(1, 2)
        tokens = torch.cat([self.first.expand(x.shape[0], -1, -1), cells], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.tokens(x)
        return tokens, self.head(tokens[:, 0])


class TinyConvNet(nn.Module):
    """Convolutions with squeeze and excitation, pooling and a classifier; only scores come out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 4, stride=4)
        self.squeeze = nn.Conv2d(12, 12, 1)
        self.body = nn.Conv2d(12, 20, 3, stride=4, padding=1)
        self.head = nn.Linear(20, 7)

    def features(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = x * torch.sigmoid(self.squeeze(functional.adaptive_avg_pool2d(x, 1)))
        return functional.gelu(self.body(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Only(nn.Module):
    """One of the outputs of a network."""

    def __init__(self, module: nn.Module, index: int) -> None:
        super().__init__()
        self.module, self.index = module, index

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)[self.index]


def vit(**settings: int) -> TinyViT:
    torch.manual_seed(3)
    return TinyViT(**settings).eval()


def convnet() -> TinyConvNet:
    torch.manual_seed(4)
    return TinyConvNet().eval()


def exported(module: nn.Module, *outputs: str, half: bool = False) -> bytes:
    """Return a module as an ONNX file, with free batch, height and width."""
    file = io.BytesIO()
    axes = {"pixel_values": {0: "batch_size", 2: "height", 3: "width"}, **{name: {0: "batch_size"} for name in outputs}}
    if "last_hidden_state" in outputs:
        axes["last_hidden_state"][1] = "sequence_length"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        names = {"input_names": ["pixel_values"], "output_names": list(outputs), "dynamic_axes": axes}
        torch.onnx.export(module, (torch.randn(2, 3, 64, 64),), file, **names, opset_version=17, dynamo=False)
    if not half:
        return file.getvalue()
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return bytes(convert_float_to_float16(onnx.load_from_string(file.getvalue())).SerializeToString())


@functools.cache
def vit_file(**settings: int) -> bytes:
    """Return the ONNX file of `vit`."""
    return exported(vit(**settings), "last_hidden_state", "logits")


def repository(graph: bytes, settings: dict, name: str = "onnx/model.onnx") -> dict[str, bytes]:
    """Return the files of a repository."""
    file = "config.json" if "pretrained_cfg" in settings else "preprocessor_config.json"
    return {name: graph, file: json.dumps(settings).encode(), "README.md": b"A tiny network."}
