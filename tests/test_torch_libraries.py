"""Networks of timm and torchvision against the real packages, with weights that the tests write themselves.

`make test-torch` installs the packages and runs this file. What a name gives is compared with what the library's own
module answers for the same pixels.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from patchvote import Dense, Extractor, NetworkError, Recipe  # noqa: E402
from patchvote.networks import load  # noqa: E402

_KEPT = []  # operators exist as long as their library does


def torch_libraries():
    """Return timm and torchvision; skip the tests where they are not installed.

    The wheel of torchvision comes with operators in C++, which load only beside the torch that it was built with.
    Beside another one, the import fails at the first function that is registered for such an operator. The networks
    need none of them, so the two that are missing are declared, without a body, before a second attempt.
    """
    try:
        import torchvision
    except ModuleNotFoundError as error:
        pytest.skip(f"{error}; `make test-torch` installs it", allow_module_level=True)
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        _KEPT.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import torchvision
    return pytest.importorskip("timm"), torchvision


timm, torchvision = torch_libraries()

from safetensors.torch import save_file  # noqa: E402

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """One cache for the whole file: no network is converted twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATCHVOTE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Make a network of a library with random weights, and return it with the option that names their file."""
    made = {}
    folder = tmp_path_factory.mktemp("weights")

    def make(name: str, size: int | None = None):
        if name not in made:
            engine, _, what = name.partition(":")
            torch.manual_seed(len(made))
            maker = timm.create_model if engine == "timm" else torchvision.models.get_model
            module = maker(what).eval()
            with torch.no_grad():  # scales of 1 and biases of 0 would hide mistakes
                for key, value in module.state_dict().items():
                    if value.is_floating_point() and value.ndim == 1 and not key.endswith("running_var"):
                        value += 0.1 * torch.randn_like(value)
            file = folder / f"{what}.safetensors"
            save_file({key: value.contiguous() for key, value in module.state_dict().items()}, file)
            made[name] = module, file
        module, file = made[name]
        own = getattr(module, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[1]
        if size in (None, own):
            return module, f"weights={file}"
        # timm interpolates position embeddings where it loads weights for another size.
        resized_module = timm.create_model(
            name.partition(":")[2], pretrained=True, pretrained_cfg_overlay={"file": str(file)}, img_size=size
        )
        return resized_module.eval(), f"weights={file}&size={size}"

    return make


def photo(width: int, height: int) -> np.ndarray:
    """Return an image of soft shapes, which interpolation changes little."""
    small = Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def answer(function, backbone, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return function(torch.from_numpy(backbone.spec.preprocessing(images))).numpy()


def caught(module, layer: str):
    """Return a function that answers with the output of a layer of the module."""

    def function(x):
        outputs = []
        hook = module.get_submodule(layer).register_forward_hook(lambda *told: outputs.append(told[2].clone()))
        module(x)
        hook.remove()
        return outputs[0]

    return function


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * max(1.0, float(np.abs(theirs).max())))


@torchvision.models._api.register_model()
def narrow_swin(weights=None, progress=True):
    """Return torchvision's Swin with fewer channels and blocks than the published ones."""
    settings = {"embed_dim": 16, "depths": [2, 2, 2, 2], "num_heads": [1, 2, 4, 8], "window_size": [7, 7]}
    return torchvision.models.swin_transformer.SwinTransformer([4, 4], **settings)


@pytest.mark.parametrize(
    ("kind", "name", "layer", "size", "stride"),
    [
        ("tokens", "timm:test_vit3", "", 160, 16),  # a class token and a register
        ("tokens", "timm:test_vit3", "blocks.4", 160, 16),
        ("tokens", "timm:vit_small_patch14_reg4_dinov2", "", 98, 14),  # and four registers, at another size
        ("features last", "timm:swin_tiny_patch4_window7_224", "", 224, 32),
        ("features last", "torchvision:narrow_swin", "norm", 224, 32),
        ("any size", "timm:test_convnext", "", None, 32),
        ("any size", "timm:test_resnet", "", None, 32),
        ("any size", "timm:test_efficientnet", "", None, 32),
        ("any size", "torchvision:resnet18", "layer4", None, 32),
    ],
)
def test_descriptors_are_the_map_that_the_library_computes(kind, name, layer, size, stride, library):
    module, weights = library(name, size if kind == "tokens" else None)
    full = f"{name}{'@' if layer else ''}{layer}?{weights}"
    backbone = load(full)
    assert (backbone.spec.stride, backbone.spec.fixed_size) == (stride, size and (size, size))
    image = photo(size or 192, size or 96)
    expected = answer(caught(module, layer) if layer else module.forward_features, backbone, image[None])[0]
    if kind == "tokens":
        expected = expected[module.num_prefix_tokens :]
    elif kind == "any size":
        expected = expected.transpose(1, 2, 0)
    expected = expected.reshape(-1, backbone.spec.dim)
    bag = Extractor(Recipe(full, Dense(sides=(size,) if size else (192, 96))))(image)
    assert len(bag.values) == 1 + ((size // stride) ** 2 if size else 6 * 3 + 3 * 2)  # 48 rows of pixels: two of cells
    close(bag.values[1 : 1 + len(expected)], expected)
    if size:
        close(bag.values[0], expected.mean(axis=0))


def test_a_block_that_ends_with_an_activation_can_be_read_before_it(library):
    module, weights = library("torchvision:resnet18")
    backbone = load(f"torchvision:resnet18@layer4?{weights}", activation="before")
    image = photo(96, 96)
    ours, after = backbone(image[None])[0], answer(caught(module, "layer4"), backbone, image[None])[0]
    assert ours.min() < 0
    close(np.maximum(ours, 0), after.transpose(1, 2, 0))


def test_preprocessing_is_that_of_the_library(library):
    module, weights = library("timm:test_vit3")
    spec = load(f"timm:test_vit3?{weights}").spec
    assert spec.preprocessing.mean == tuple(255 * value for value in module.pretrained_cfg["mean"])
    assert spec.size == module.pretrained_cfg["input_size"][1]
    _, weights = library("torchvision:resnet18")
    spec = load(f"torchvision:resnet18@layer4?{weights}").spec
    published = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    assert spec.preprocessing.mean == pytest.approx([255 * value for value in published.mean])
    assert spec.preprocessing.scale == pytest.approx([255 * value for value in published.std])
    assert spec.size == published.crop_size[0]


def test_a_library_is_not_asked_to_download_and_unknown_names_are_refused(library):
    for name in ("timm:test_vit3", "torchvision:resnet18"):
        with pytest.raises(NetworkError, match="would have random weights"):
            load(name)
    for name in ("timm:no_such_net?pretrained=yes", "torchvision:no_such_net?pretrained=yes"):
        with pytest.raises(NetworkError, match="has no network 'no_such_net'"):
            load(name)
    _, weights = library("timm:test_resnet")
    for name in ("timm:test_vit3", "timm:test_vit3?size=96", "torchvision:resnet18"):
        with pytest.raises(NetworkError, match="cannot be made, or its weights do not fit"):
            load(f"{name}{'&' if '?' in name else '?'}{weights}")
