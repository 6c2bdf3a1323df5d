"""Networks in 8-bit integers: near the network that they are made from, and networks of their own."""

from __future__ import annotations

import itertools
import json
import logging
import shutil

import numpy as np
import pytest

from patchvote import Extractor, ImageClassifier, ModelError, NetworkError
from patchvote.backbones import load
from patchvote.models.quantize_network import quantize_network
from patchvote.utils.marks import Kind, kind_of

LITE0 = "efficientnet-lite0"


@pytest.fixture(scope="module")
def quantized(tmp_path_factory, demo_photos):
    """Lite0 in 8-bit integers, calibrated on the photos of the demonstration."""
    path = tmp_path_factory.mktemp("int8") / "lite0-int8.onnx"
    return quantize_network(demo_photos / "train", path, voter="bag-svm")


@pytest.fixture(scope="module")
def photos(demo_photos):
    return sorted((demo_photos / "test").glob("*/*"))[::20]


def test_descriptors_are_near_those_of_the_network_itself(quantized, photos):
    exact, rounded = (Extractor(name)(photos) for name in (LITE0, str(quantized.path)))
    np.testing.assert_array_equal(rounded.boxes, exact.boxes)
    errors = []
    for start, end in itertools.pairwise(exact.offsets):
        expected, found = exact.values[start:end], rounded.values[start:end]
        errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    assert 0 < np.median(errors) < 0.5, errors


def test_descriptors_of_a_photo_do_not_depend_on_other_photos(quantized, photos):
    extractor = Extractor(str(quantized.path))
    together = extractor(photos)
    alone = [extractor([photo]) for photo in photos]
    np.testing.assert_array_equal(together.values, np.concatenate([bag.values for bag in alone]))


def test_the_products_between_the_first_and_the_last_have_8_bits(quantized):
    import onnx

    kinds = [node.op_type for node in onnx.load(str(quantized.path)).graph.node]
    assert kinds.count("Conv") == 49
    assert kinds.count("QuantizeLinear") > 40
    weights = [item for item in onnx.load(str(quantized.path)).graph.initializer if item.data_type == 3]  # INT8
    kernels = [onnx.numpy_helper.to_array(item) for item in weights if len(item.dims) == 4]
    assert len(kernels) == 49 - 5  # four first ones and the last one stay as they are
    assert (
        max(int(np.abs(kernel.astype(int)).max()) for kernel in kernels) <= 64
    )  # no sum of two products exceeds 16 bits


def test_it_is_compared_with_the_network_on_the_same_photos(quantized):
    assert quantized.calibrated == 32
    assert quantized.before.images == quantized.after.images > 0
    assert quantized.after.accuracy > 0.9
    before, after, comparison = quantized.sentences()
    assert before.startswith(f"{LITE0}: ")
    assert after.startswith(f"{quantized.path}: ")
    assert f"takes {quantized.time_ratio:.2f} of the time on this machine" in comparison
    assert "held-out photos are classified correctly" in comparison


def test_a_model_that_learned_from_one_network_refuses_the_other(quantized, demo_photos, tmp_path):
    assert load(str(quantized.path)).spec.fingerprint != load(LITE0).spec.fingerprint
    ImageClassifier(LITE0, voter="bag-svm", cache=False).fit(demo_photos / "train").save(tmp_path / "m.patchvote")
    with pytest.raises(ModelError, match="was made with another network than"):
        ImageClassifier.load(tmp_path / "m.patchvote", network=str(quantized.path))


def test_a_network_that_is_quantized_already_is_refused(quantized, demo_photos, tmp_path):
    with pytest.raises(NetworkError, match="is quantized already"):
        quantize_network(demo_photos / "train", tmp_path / "again.onnx", str(quantized.path))
    assert not (tmp_path / "again.onnx").exists()


def test_a_network_with_hardly_any_products_is_refused(tiny_network, demo_photos, tmp_path):
    tiny_network = shutil.copy(tiny_network, tmp_path / "tiny.onnx")
    (tmp_path / "tiny.toml").write_text('output = "features"')
    with pytest.raises(NetworkError, match="too few products to quantize: 1"):
        quantize_network(demo_photos / "train", tmp_path / "q.onnx", str(tiny_network))


def test_two_networks_side_by_side_are_refused(demo_photos, tmp_path):
    with pytest.raises(NetworkError, match="not one graph"):
        quantize_network(demo_photos / "train", tmp_path / "q.onnx", f"{LITE0}+efficientnet-lite2")


def test_the_level_of_the_root_logger_stays(quantized):
    assert logging.getLogger().level == logging.WARNING


def test_the_command_writes_a_network_that_fit_and_predict_take(demo_photos, tmp_path, command):
    network, model = tmp_path / "net.onnx", tmp_path / "m.patchvote"
    done = command("quantize", demo_photos / "train", network, "--voter", "bag-svm", "--json", "--quiet")
    assert done.code == 0, done.err
    assert done.err == ""
    record = json.loads(done.out)
    assert record["calibrated"] == 32
    assert [trial["network"] for trial in record["trials"]] == [LITE0, str(network)]
    assert {path.name for path in tmp_path.iterdir()} == {"net.onnx", "net.toml"}
    fitted = command("fit", demo_photos / "train", model, "--network", network, "--voter", "bag-svm", "--no-report")
    assert fitted.code == 0, fitted.err
    asked = command("predict", model, next((demo_photos / "test").glob("*/*")))
    assert asked.code == 0, asked.err


def test_without_its_settings_beside_it_the_network_sees_the_same_pixels(quantized, photos, tmp_path):
    alone = shutil.copy(quantized.path, tmp_path / "alone.onnx")
    assert load(str(alone)).spec.fingerprint == load(str(quantized.path)).spec.fingerprint
    (tmp_path / "alone.toml").write_text("mean = 0")
    assert load(str(alone)).spec.preprocessing.mean == (0, 0, 0)  # what the user writes counts


def test_damaged_settings_in_a_graph_are_told(quantized, tmp_path):
    import onnx

    for text, message in (("mean = [", "are damaged"), ("means = 1", "unknown key 'means'"), ("x." * 9000, "damaged")):
        graph = onnx.load(str(quantized.path))
        onnx.helper.set_model_props(graph, {"patchvote": text})
        onnx.save(graph, tmp_path / "damaged.onnx")
        with pytest.raises(NetworkError, match=message):
            load(str(tmp_path / "damaged.onnx"))


def test_what_it_writes_is_recognised_as_its_own(quantized):
    assert kind_of(quantized.path) is Kind.graph
    assert kind_of(quantized.path.with_suffix(".toml")) is Kind.settings


@pytest.mark.parametrize("stopped_in", ["write_network", "choose_network"])
def test_ctrl_c_says_whether_the_network_was_written(stopped_in, demo_photos, tmp_path, command, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"patchvote.models.quantize_network.{stopped_in}", interrupted)
    done = command("quantize", demo_photos / "train", tmp_path / "net.onnx")
    is_written = stopped_in == "choose_network"
    assert done.code == 130
    assert ("net.onnx was written, but not compared" in done.err) == is_written
    assert ("net.onnx was not written" in done.err) != is_written
    assert (tmp_path / "net.onnx").exists() == is_written


@pytest.mark.parametrize(
    ("output", "message"),
    [("net.bin", "must be a local file that ends in .onnx"), ("memory://net.onnx", "must be a local file")],
)
def test_an_output_of_another_kind_is_refused(output, message, demo_photos, command):
    done = command("quantize", demo_photos / "train", output)
    assert done.code == 2
    assert message in done.err


def test_the_network_that_is_read_is_never_replaced(tiny_network, demo_photos, command):
    before = tiny_network.read_bytes()
    done = command("quantize", demo_photos / "train", tiny_network, "--network", tiny_network, "--force")
    assert done.code == 1
    assert "this command reads it" in done.err
    assert tiny_network.read_bytes() == before
