"""What a file may name as its network, and what only the user may."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import write_tiny_network
from experiments.protocol import Protocol, Setting
from experiments.results import Results
from experiments.runner import Selection, plan
from patchvote import (
    Dense,
    Extractor,
    ImageClassifier,
    ModelError,
    MomentRidge,
    NetworkError,
    PatchvoteError,
    Recipe,
    Store,
    fill,
    find_photos,
)
from patchvote.models.export import export_model
from patchvote.models.file import read_model, write_model
from patchvote.models.model import Model
from patchvote.networks import load, open_onnx
from patchvote.networks.names import beside

HOSTILE = {
    "abort": "torch:os:abort",
    "import": "torch:trap.sub:function",
    "caffe": "caffe:{outside}/net.prototxt,{outside}/net.caffemodel@fc7",
    "absolute": "{outside}/net.onnx",
    "relative": "../outside/net.onnx",
    "windows": "..\\outside\\net.onnx",
    "joined": "efficientnet-lite0+torch:trap.sub:function",
    "joined path": "efficientnet-lite0+{outside}/net.onnx",
    "download": "timm:resnet18?pretrained=yes",
    "weights": "torchvision:vgg16@fc7?weights={outside}/net.safetensors",
    "folder": "{outside}/.onnx",
    "nothing": "",
    "screen": "torch:\x1b[2J:x",
    "long": "torch:" + "x" * 60_000,
    "long path": "x" * 60_000 + ".onnx",
}

_seen: list[str] = []
_listening = False  # a hook cannot be removed, and other tests are not to fill the list


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if _listening and event in ("open", "import", "socket.connect", "subprocess.Popen"):
        _seen.append(f"{event} {arguments[0]}")


sys.addaudithook(_listen)


@pytest.fixture
def trap(tmp_path, monkeypatch) -> Path:
    """A folder with a package that leaves a trace when it is imported, and with files that nobody shall open."""
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "__init__.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()\n")
    (tmp_path / "trap" / "sub.py").write_text("def function(): raise SystemExit\n")
    (tmp_path / "outside").mkdir()
    for name in ("net.prototxt", "net.caffemodel", "net.safetensors", "net.toml"):
        (tmp_path / "outside" / name).write_text("")
    write_tiny_network(tmp_path / "outside" / "net.onnx")
    (tmp_path / "models").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "_listening", True)
    _seen.clear()
    return tmp_path


def untouched(folder: Path) -> bool:
    touched = [event for event in _seen if "outside" in event or "import trap" in event or "socket" in event]
    return not (folder / "trace").exists() and "trap" not in sys.modules and touched == []


def model_of(network: str, fingerprint: str = "abc", features: int = 6) -> Model:
    classes = ("Straße & Café", "brick", "grass", "gravel")
    bags = np.random.default_rng(0).random((8, features))
    scorer = MomentRidge().fit([bag[None] for bag in bags], np.array(classes)[np.arange(8) % 4]).scorer()
    return Model(scorer, classes, Recipe(network, Dense((64,), whole=False)), fingerprint, 1.0, 0.0)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_in_a_model_runs_opens_and_fetches_nothing(kind, trap):
    name = HOSTILE[kind].format(outside=trap / "outside")
    path = trap / "models" / "m.patchvote"
    write_model(model_of(name), path)
    with pytest.raises(ModelError, match="names the network .* it is not taken from a file") as caught:
        ImageClassifier.load(path)
    assert len(str(caught.value)) < 1500
    assert "\x1b" not in str(caught.value)
    shown = kind not in ("nothing", "screen", "long", "long path")
    assert (f"network={name!r}" in str(caught.value)) == shown
    for use in (
        lambda: Extractor(read_model(path).recipe),
        lambda: load(read_model(path).recipe.network),
        lambda: export_model(read_model(path), trap / "out.onnx"),
        lambda: ImageClassifier(read_model(path).recipe),
    ):
        with pytest.raises(NetworkError, match="it is not taken from a file"):
            use()
    assert untouched(trap)


def test_no_command_follows_such_a_name_and_each_shows_the_line_to_type(trap, photo_folder, command):
    path, photo = trap / "models" / "my model", next((photo_folder / "brick").iterdir())
    name = "torch:trap.sub:function@it's"
    write_model(model_of(name), path)
    for words in (
        ("predict", path, photo),
        ("predict", path, "--", photo),
        ("explain", path, photo, "-o", trap / "x.png"),
        ("evaluate", path, photo_folder, "--no-report"),
        ("add", path, photo_folder, "--no-cache"),
        ("export", path, trap / "x.onnx"),
    ):
        done = command(*words)
        assert done.code == 1, done.out
        first, line = done.err.splitlines()
        assert "my model names the network" in first
        typed = list(map(str, words))
        place = typed.index("--") if "--" in typed else len(typed)
        assert shlex.split(line) == ["patchvote", *typed[:place], "--network", name, *typed[place:]]
    assert name in command("info", path).out
    assert untouched(trap)


def test_an_onnx_file_beside_the_model_is_its_network_if_the_fingerprint_is_right(tmp_path, photo_folder):
    path = tmp_path / "m.patchvote"
    net = write_tiny_network(tmp_path / "net.onnx")
    net.with_suffix(".toml").write_text('output = "features"\n')
    fingerprint = open_onnx(net).spec.fingerprint
    photo = next((photo_folder / "brick").iterdir())
    for name in ("net.onnx", "nets/net.onnx", "C:\\nets\\net.onnx", str(tmp_path / "gone" / "net.onnx")):
        write_model(model_of(name, fingerprint), path)
        assert ImageClassifier.load(path).predict_proba([photo]).shape == (1, 4)
    both = load(f"efficientnet-lite0+{net}").spec
    write_model(model_of("efficientnet-lite0+net.onnx", both.fingerprint, both.dim), path)
    assert ImageClassifier.load(path).predict_proba([photo]).shape == (1, 4)
    write_model(model_of("net.onnx", "0" * 16), path)
    with pytest.raises(ModelError, match="made with another network than .* 0000.* the .toml beside it"):
        ImageClassifier.load(path)


def test_the_name_of_a_folder_is_never_read_as_a_join(trap, monkeypatch):
    monkeypatch.chdir(trap)
    folder = Path("efficientnet-lite0+torch:trap.sub:function+z")
    folder.mkdir()
    net = write_tiny_network(folder / "net.onnx")
    net.with_suffix(".toml").write_text('output = "features"\n')
    write_model(model_of("net.onnx+efficientnet-lite0"), folder / "m.patchvote")
    with pytest.raises(ModelError, match="not taken from a file"):
        ImageClassifier.load(folder / "m.patchvote")
    write_model(model_of("net.onnx", open_onnx(net).spec.fingerprint), folder / "m.patchvote")
    assert ImageClassifier.load(folder / "m.patchvote").recipe.network == str(net)
    assert untouched(trap)


def test_joined_networks_that_were_typed_with_folders_are_found_beside_the_model(tmp_path):
    for name in ("one.onnx", "two.onnx"):
        net = write_tiny_network(tmp_path / name)
        net.with_suffix(".toml").write_text('output = "features"\n')
    assert beside("nets/one.onnx+nets/two.onnx", tmp_path / "m.patchvote") == f"{tmp_path}/one.onnx+{tmp_path}/two.onnx"
    assert beside("efficientnet-lite0+nets/two.onnx", tmp_path / "m") == f"efficientnet-lite0+{tmp_path}/two.onnx"
    assert beside("c++/two.onnx", tmp_path / "m.patchvote") == f"{tmp_path}/two.onnx"


def test_what_lies_beside_a_model_must_be_a_file(tmp_path):
    write_model(model_of("net.onnx"), tmp_path / "m.patchvote")
    for make in (Path.mkdir, os.mkfifo):
        make(tmp_path / "net.onnx")
        with pytest.raises(ModelError, match="nor an ONNX file beside it"):
            ImageClassifier.load(tmp_path / "m.patchvote")
        (tmp_path / "net.onnx").rmdir() if make is Path.mkdir else (tmp_path / "net.onnx").unlink()


def test_a_backbone_that_the_caller_brings_needs_no_name(tmp_path, tiny_network):
    backbone = open_onnx(tiny_network, output="features")
    write_model(model_of("torch:os:abort", backbone.spec.fingerprint), tmp_path / "m.patchvote")
    classifier = ImageClassifier.load(tmp_path / "m.patchvote", backbone=backbone)
    assert classifier.predict_proba([np.zeros((64, 64, 3), np.uint8)]).shape == (1, 4)


def test_a_store_names_its_network_but_does_not_load_it(trap, photo_folder, tiny_network, command):
    named = Recipe("torch:trap.sub:function", Dense((64,)))
    extractor = Extractor(named, backbone=open_onnx(tiny_network, output="features"))
    fill(trap / "store", find_photos(photo_folder)[:2], extractor)
    store = Store.open(trap / "store")
    assert store.recipe == named
    assert "torch:trap.sub:function" in command("info", trap / "store").out
    for use in (Extractor, ImageClassifier):
        with pytest.raises(NetworkError, match="it is not taken from a file"):
            use(store.recipe)
    assert untouched(trap)


def test_a_name_that_joins_many_networks_is_refused():
    with pytest.raises(NetworkError, match="joins more than 8 networks"):
        load("+".join(["efficientnet-lite0"] * 10_000))


def test_a_protocol_names_embedded_networks_and_the_user_names_others(tmp_path):
    name = "torch:os:abort"
    own = Protocol("own", "Own", "", "folders", (Setting("all", "random", 1),), ("moment-ridge",), ("dense",), (name,))
    with pytest.raises(PatchvoteError, match="the protocol own names the network 'torch:os:abort'"):
        plan(own, Selection(), Results(tmp_path))
    groups, _ = plan(own, Selection(networks=(name,)), Results(tmp_path))
    assert {group.network for group in groups} == {name}
