"""The benchmark of networks: maps of tokens, its table, and the page that has the table of the records."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from patchvote import Dense, Extractor, Recipe
from patchvote.networks.joined import unit

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def modules():
    """The modules of the benchmark, which import one another by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield {name: importlib.import_module(f"networks_{name}") for name in ("table", "tokens", "bags")}


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """A graph with the outputs of ViT-Tiny: patches as tokens of 4 features behind a class token, at two depths."""
    rng = np.random.default_rng(0)
    weights = {
        "kernel": rng.normal(size=(4, 3, 16, 16)).astype(np.float32) / 30,
        "mix": rng.normal(size=(4, 4)).astype(np.float32),
        "shape": np.array([0, 4, -1]),
        "first": np.array([0]),
    }
    nodes = [
        helper.make_node("Conv", ["input", "kernel"], ["map4"], strides=[16, 16], kernel_shape=[16, 16]),
        helper.make_node("Reshape", ["map4", "shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("ReduceMean", ["patches"], ["special"], axes=[1]),
        helper.make_node("Concat", ["special", "patches"], ["tokens_block9"], axis=1),
        helper.make_node("MatMul", ["tokens_block9", "mix"], ["tokens"]),
        helper.make_node("Gather", ["tokens", "first"], ["kept"], axis=1),
        helper.make_node("Squeeze", ["kept", "axis"], ["cls"]),
    ]
    weights["axis"] = np.array([1])
    outputs = [("tokens", ["n", "t", 4]), ("tokens_block9", ["n", "t", 4]), ("cls", ["n", 4])]
    graph = helper.make_graph(
        nodes,
        "transformer",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = tmp_path_factory.mktemp("transformer") / "vit.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def asked(path: Path, pixels: np.ndarray) -> dict[str, np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    x = ((pixels.transpose(2, 0, 1)[None].astype(np.float32) - 127.5) / 127.5).astype(np.float32)
    return dict(zip(("tokens", "tokens_block9", "cls"), session.run(None, {"input": x}), strict=True))


def test_tokens_become_a_map_in_their_order_with_the_class_token_at_every_cell(modules, transformer, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    expected = asked(transformer, pixels)
    one = modules["tokens"].write_token_maps(transformer, tmp_path / "one.onnx", ("tokens_block9",))
    bag = Extractor(Recipe(str(one), Dense(sides=(96,))))(pixels)
    np.testing.assert_allclose(bag.values[1:], expected["tokens_block9"][0, 1:], atol=1e-4)
    two = modules["tokens"].write_token_maps(transformer, tmp_path / "two.onnx", ("tokens", "cls"), unit=False)
    bag = Extractor(Recipe(str(two), Dense(sides=(96,))))(pixels)
    np.testing.assert_allclose(bag.values[1:, :4], expected["tokens"][0, 1:], atol=1e-4)
    np.testing.assert_allclose(bag.values[1:, 4:], np.tile(expected["cls"], (24, 1)), atol=1e-4)


@pytest.mark.parametrize("network", ["vit-block9", "vit-last-class", "vit-last-block9"])
def test_columns_of_a_store_are_the_bags_of_the_network_whose_cost_is_measured(
    network, modules, transformer, tmp_path, monkeypatch, photo_folder
):
    from patchvote import find_photos

    bags = modules["bags"]
    monkeypatch.setattr(bags, "WIDTH", 4)
    photos = find_photos(photo_folder)[:3]
    stores = bags.Stores(tmp_path / "stores", transformer, photos, 1)
    found = stores.bags(network, [photo.name for photo in photos])
    own = Extractor(Recipe(bags.name_of(network, transformer, tmp_path)), jobs=1)(photos)
    np.testing.assert_array_equal(found.offsets, own.offsets)
    np.testing.assert_allclose(found.values, own.values, atol=0.01 * np.abs(own.values).max())


def test_pooled_tokens_stand_beside_a_network_with_larger_cells(modules, transformer, tmp_path):
    pixels = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = modules["tokens"].write_token_maps(transformer, tmp_path / "pooled.onnx", ("tokens", "cls"), 2)
    extractor = Extractor(Recipe(f"efficientnet-lite0+{path}", Dense(sides=(64,))))
    bag = extractor(pixels)
    assert bag.values.shape == (5, 1288)
    tokens = asked(transformer, pixels)["tokens"][0, 1:].reshape(2, 2, 2, 2, 4).mean(axis=(1, 3)).reshape(4, 4)
    both = np.hstack([unit(tokens), unit(np.tile(asked(transformer, pixels)["cls"], (4, 1)))])
    np.testing.assert_allclose(bag.values[1:, 1280:], unit(both), atol=1e-4)


# --- records, table, page ---------------------------------------------------------------------------------------------


def cell(accuracy, network="lite0", method="bag-svm", **more):
    sizes = {"train": None, "test": None, "train_photos": 20, "test_photos": 30, "commit": "abc"}
    place = {"set": "office", "pair": "amazon-webcam", "split": 1}
    return {**place, **sizes, "network": network, "method": method, "accuracy": accuracy, **more}


def test_pairs_count_the_same_however_many_splits_they_have(modules):
    records = [cell(0.9), cell(0.8, split=2), cell(0.95, pair="webcam-amazon")]
    assert modules["table"].accuracy_of(records, "office", "lite0", "bag-svm") == pytest.approx(90.0)


def test_the_table_has_a_row_per_network_with_cost_beside_accuracy(modules):
    cost = {"network": "vit-last", "method": "cost", "cpu_seconds": 0.2704, "features": 192}
    records = [
        cell(0.9),
        cell(0.8, "vit-last"),
        cell(0.85, "vit-last", "default", set="scene15", pair=None),
        cost,
    ]
    lines = modules["table"].lines_of(records)
    assert lines[0] == "| network | features | ms per photo | Scene-15: default | Office: bag-svm |"
    assert "| EfficientNet-Lite0 |  |  |  | 90.0 |" in lines
    assert "| ViT-Tiny, tokens of the last block | 192 | 270 | 85.0 | 80.0 |" in lines
    assert "Office: 1 split, 1 pair of domains, 30 test photos." in lines[-1]


def test_every_network_has_a_title(modules):
    assert list(modules["table"].TITLES) == list(modules["bags"].NETWORKS)


def test_records_are_written_and_the_same_cell_is_known_again(modules, tmp_path):
    table = modules["table"]
    assert table.read_records(tmp_path) == []
    table.write_records(tmp_path, [cell(0.9)])
    (known,) = table.read_records(tmp_path)
    assert table.key_of(known) == table.key_of(cell(0.5))
    assert table.key_of(known) != table.key_of(cell(0.9, split=2))
    assert table.key_of(known) != table.key_of(cell(0.9, train=5))


def test_the_page_has_the_table_of_the_records(modules):
    table = modules["table"]
    page = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    lines = "\n".join(table.lines_of(table.read_records(ROOT / "results" / "networks")))
    assert f"<!-- {table.NAME} -->\n\n{lines}\n\n<!-- end of {table.NAME} -->" in page
