"""What a repository says about its network's input: the forms that the hub has, and what cannot be right."""

from __future__ import annotations

import json

import numpy as np
import pytest

from patchvote import NetworkError
from patchvote.networks.hub_pixels import named_pixels, pixels_of, read_settings

CLIP = {
    "crop_size": 224,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "size": 224,
}
DINOV2 = {
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_rescale": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 256},
}
SIGLIP = {
    "do_normalize": True,
    "do_rescale": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 256, "width": 256},
}
VIT = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": 384}
CONVNEXT = {
    "crop_pct": 0.875,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "size": {"shortest_edge": 224},
}
MOBILEVIT = {
    "do_center_crop": True,
    "crop_size": {"height": 256, "width": 256},
    "do_flip_channel_order": True,
    "do_normalize": False,
    "size": {"shortest_edge": 288},
}
RAW = {"do_rescale": False, "do_normalize": True, "image_mean": 127.5, "image_std": 127.5, "size": 64}
OFFSET = {**VIT, "rescale_factor": 1 / 127.5, "rescale_offset": True, "image_mean": 0.0, "image_std": 1.0}
TIMM = {"architecture": "x", "pretrained_cfg": {"input_size": [3, 256, 256], "mean": [0.5] * 3, "std": [0.5] * 3}}
PIXELS = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("table", "size", "reference"),
    [
        (CLIP, 224, lambda x: (x / 255 - CLIP["image_mean"]) / CLIP["image_std"]),
        (DINOV2, 224, lambda x: (x / 255 - DINOV2["image_mean"]) / DINOV2["image_std"]),
        (SIGLIP, 256, lambda x: x / 127.5 - 1),
        (VIT, 384, lambda x: x / 127.5 - 1),
        (CONVNEXT, 224, lambda x: (x / 255 - CONVNEXT["image_mean"]) / CONVNEXT["image_std"]),
        (MOBILEVIT, 256, lambda x: x[..., ::-1] / 255),
        (RAW, 64, lambda x: x / 127.5 - 1),
        (OFFSET, 384, lambda x: x / 127.5 - 1),
    ],
)
def test_the_forms_of_the_hub_give_the_input_that_their_library_computes(table, size, reference):
    settings = pixels_of(json.loads(json.dumps(table)), None, "net")
    assert settings.size == size
    expected = reference(PIXELS.astype(np.float64)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(settings.preprocessing("NCHW")(PIXELS), expected, atol=1e-5)


def test_the_form_of_timm_is_read_from_either_file_and_comes_first():
    for files in ((None, TIMM), (TIMM, None), (CLIP, TIMM)):
        settings = pixels_of(*files, "net")
        assert settings.size == 256
        np.testing.assert_allclose(
            settings.preprocessing("NCHW")(PIXELS), PIXELS.transpose(0, 3, 1, 2) / 127.5 - 1, atol=1e-5
        )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image_mean": None}, "has no image_mean and image_std. Look it up, and add one of .pixels=imagenet"),
        ({"image_mean": [1, 2]}, "image_mean of net must be a number or three numbers"),
        ({"image_mean": "x" * 10_000}, "image_mean of net must be a number or three numbers"),
        ({"image_std": [10**400] * 3}, "image_std of net is too large"),
        ({"rescale_factor": 0}, "rescale_factor of net must be a number above 0, got 0"),
        ({"rescale_factor": [1, 2, 3]}, "rescale_factor of net must be a number"),
        ({"size": {"height": 100, "width": 200}}, "only square inputs are supported"),
        ({"size": "large"}, "must be a whole number of pixels, got 'large'"),
        ({"size": 10**9}, "size may be up to 4,096 pixels"),
        ({"size": -3}, "size must be a whole number above 0"),
    ],
)
def test_what_cannot_be_right_is_refused_in_words(change, says):
    with pytest.raises(NetworkError, match=says) as caught:
        pixels_of({**VIT, **change}, None, "net")
    assert len(str(caught.value)) < 500


def test_a_scale_of_zero_is_refused_before_anything_is_divided():
    settings = pixels_of({**VIT, "image_std": 0}, None, "net")
    with pytest.raises(NetworkError, match="scale must be finite and not 0"):
        settings.preprocessing("NCHW")


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000, '"x"', "\x00"])
def test_a_file_of_settings_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(content)
    with pytest.raises(NetworkError, match="is not a JSON file|must hold a table"):
        read_settings(path)


def test_usual_normalisations_have_names():
    np.testing.assert_allclose(
        named_pixels("half", "net").preprocessing("NCHW")(PIXELS).max(), PIXELS.max() / 127.5 - 1, rtol=1e-5
    )
