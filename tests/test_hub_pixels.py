"""What a repository says about its network's input: the forms that the hub has, and what cannot be right."""

from __future__ import annotations

import numpy as np
import pytest

from patchvote import NetworkError
from patchvote.networks.hub import described, read_settings

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {"crop_size": 224, "do_center_crop": True, "size": 240, **IMAGENET}
DINOV2 = {
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 256},
    **IMAGENET,
}
SIGLIP = {"do_normalize": True, "rescale_factor": 1 / 255, "size": {"height": 256, "width": 256}, **HALF}
VIT = {"do_normalize": True, "size": 384, **HALF}
CONVNEXT = {"crop_pct": 0.875, "size": {"shortest_edge": 224}, **IMAGENET}
MOBILEVIT = {
    "do_center_crop": True,
    "crop_size": {"height": 256, "width": 256},
    "do_flip_channel_order": True,
    "do_normalize": False,
}
RAW = {"do_rescale": False, "image_mean": 127.5, "image_std": 127.5, "size": 64}
OFFSET = {**VIT, "rescale_factor": 1 / 127.5, "rescale_offset": True, "image_mean": 0.0, "image_std": 1.0}
TIMM = {"architecture": "x", "pretrained_cfg": {"input_size": [3, 256, 256], "mean": [0.5] * 3, "std": [0.5] * 3}}
PIXELS = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 3), dtype=np.uint8)


def imagenet(x):
    return (x / 255 - IMAGENET["image_mean"]) / IMAGENET["image_std"]


def half(x):
    return x / 127.5 - 1


@pytest.mark.parametrize(
    ("preprocessor", "config", "size", "reference"),
    [
        (CLIP, {}, 224, imagenet),
        (DINOV2, {}, 224, imagenet),
        (SIGLIP, {}, 256, half),
        (VIT, {}, 384, half),
        (CONVNEXT, {}, 224, imagenet),
        (MOBILEVIT, {}, 256, lambda x: x[..., ::-1] / 255),
        (RAW, {}, 64, half),
        (OFFSET, {}, 384, half),
        ({}, TIMM, 256, half),
        (TIMM, {}, 256, half),
        (CLIP, TIMM, 256, half),
    ],
)
def test_the_forms_of_the_hub_give_the_input_that_their_library_computes(preprocessor, config, size, reference):
    settings = described(preprocessor, config, "net")
    assert settings.size == size
    expected = reference(PIXELS.astype(np.float64)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(settings.preprocessing("NCHW")(PIXELS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image_mean": None}, "not known how pixels become"),
        ({"image_mean": [1, 2]}, "image_mean must be"),
        ({"image_mean": "x" * 10_000}, "image_mean must be"),
        ({"image_std": [10**400] * 3}, "image_std must be"),
        ({"image_std": 0}, "scale must not be 0"),
        ({"rescale_factor": 0}, "rescale_factor must be a number above 0"),
        ({"rescale_factor": "x"}, "rescale_factor must be"),
        ({"size": {"height": 100, "width": 200}}, "must be square"),
        ({"size": "large"}, "size must be a whole number"),
        ({"size": 10**9}, "size must be a whole number"),
        ({"size": -3}, "size must be a whole number"),
    ],
)
def test_what_cannot_be_right_is_refused_in_words(change, says):
    with pytest.raises(NetworkError, match=says) as caught:
        described({**VIT, **change}, {}, "net").preprocessing("NCHW")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000, '"x"', "\x00"])
def test_a_file_of_settings_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(content)
    with pytest.raises(NetworkError, match="is not a JSON file|must hold a table"):
        read_settings(path)
