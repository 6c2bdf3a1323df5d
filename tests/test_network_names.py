"""What a file may name as its network, and what only the user may."""

from __future__ import annotations

import importlib.metadata
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
from helpers.packages import install
from patchvote import Dense, Extractor, ImageClassifier, ModelError, MomentRidge, NetworkError, PhotoError, Recipe
from patchvote.models.export import export_model
from patchvote.models.file import read_model, write_model
from patchvote.models.model import Model
from patchvote.networks import EMBEDDED, graph_of, load
from patchvote.networks.names import beside, network_files
from patchvote.networks.onnx_file import load as open_onnx

HOSTILE = {
    "abort": "torch:os:abort",
    "caffe": "caffe:{outside}/net.prototxt,{outside}/net.caffemodel@fc7",
    "absolute": "{outside}/net.onnx",
    "relative": "../outside/net.onnx",
    "joined": "efficientnet-lite0+torch:trap.sub:function",
    "download": "timm:resnet18?pretrained=yes",
    "screen": "torch:\x1b[2J:x",
    "long": "torch:" + "x" * 60_000,
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
    for use in (
        lambda: Extractor(read_model(path).recipe),
        lambda: load(read_model(path).recipe.network),
        lambda: export_model(read_model(path), trap / "out.onnx"),
        lambda: ImageClassifier(read_model(path).recipe),
    ):
        with pytest.raises(NetworkError, match="it is not taken from a file"):
            use()
    assert untouched(trap)


def test_no_command_follows_such_a_name_and_each_shows_the_option_to_type(trap, photo_folder, command):
    path, photo = trap / "models" / "my model", next((photo_folder / "brick").iterdir())
    name = "torch:trap.sub:function@it's"
    write_model(model_of(name), path)
    for words in (
        ("predict", path, "--", photo),
        ("add", path, photo_folder, "--no-cache"),
        ("export", path, trap / "x.onnx"),
    ):
        done = command(*words)
        assert done.code == 1, done.out
        assert "my model names the network" in done.err
        assert done.err.endswith(f"name it yourself: --network {shlex.quote(name)}\n")
    assert name in command("info", path).out
    assert untouched(trap)


def beside_model(folder: Path, name: str = "net.onnx") -> Path:
    net = write_tiny_network(folder / name)
    net.with_suffix(".toml").write_text('output = "features"\n')
    return net


def test_an_onnx_file_beside_the_model_is_its_network_if_the_fingerprint_is_right(tmp_path):
    path, photo = tmp_path / "m.patchvote", np.zeros((64, 64, 3), np.uint8)
    for make in (Path.mkdir, os.mkfifo):
        write_model(model_of("net.onnx"), path)
        make(tmp_path / "net.onnx")
        with pytest.raises(ModelError, match="nor an ONNX file beside it"):
            ImageClassifier.load(path)
        (tmp_path / "net.onnx").rename(tmp_path / make.__name__)
    net = beside_model(tmp_path)
    fingerprint, both = open_onnx(net).spec.fingerprint, load(f"efficientnet-lite0+{net}").spec
    for name, *known in (
        ("C:\\nets\\net.onnx", fingerprint),
        (str(tmp_path / "gone" / "net.onnx"), fingerprint),
        ("efficientnet-lite0+nets/net.onnx", both.fingerprint, both.dim),
    ):
        write_model(model_of(name, *known), path)
        assert ImageClassifier.load(path).predict_proba([photo]).shape == (1, 4)
    write_model(model_of("net.onnx", "0" * 16), path)
    with pytest.raises(ModelError, match="made with another network"):
        ImageClassifier.load(path)
    assert beside("c++/net.onnx", path) == str(net)


def test_the_name_of_a_folder_is_never_read_as_a_join(trap, monkeypatch):
    monkeypatch.chdir(trap)
    folder = Path("efficientnet-lite0+torch:trap.sub:function+z")
    folder.mkdir()
    net = beside_model(folder)
    write_model(model_of("net.onnx+efficientnet-lite0"), folder / "m.patchvote")
    with pytest.raises(ModelError, match="not taken from a file"):
        ImageClassifier.load(folder / "m.patchvote")
    write_model(model_of("net.onnx", open_onnx(net).spec.fingerprint), folder / "m.patchvote")
    assert ImageClassifier.load(folder / "m.patchvote").recipe.network == str(net)
    assert untouched(trap)


def test_a_name_that_joins_many_networks_is_refused():
    with pytest.raises(NetworkError, match="joins more than 8 networks"):
        load("+".join(["efficientnet-lite0"] * 10_000))


def test_a_protocol_names_embedded_networks_and_the_user_names_others(tmp_path):
    name = "torch:os:abort"
    own = Protocol("own", "Own", "", "folders", (Setting("all", "random", 1),), ("moment-ridge",), ("dense",), (name,))
    with pytest.raises(NetworkError, match="the protocol own names the network"):
        plan(own, Selection(), Results(tmp_path))
    groups, _ = plan(own, Selection(networks=(name,)), Results(tmp_path))
    assert {group.network for group in groups} == {name}


# --- networks of other packages ---------------------------------------------------------------------------------------


COLOURS = '''
"""Describes every cell of 32 px by the mean of its colours, and by a constant."""

import hashlib

import numpy as np

from patchvote.networks import NetworkName, NetworkSpec, Preprocessing


class Colours:
    def __init__(self, name, power):
        weights = hashlib.sha256(str(power).encode()).hexdigest()
        self.spec = NetworkSpec(name, 4, 64, 32, Preprocessing(), "after", weights, "colours")
        self.power = power

    def __call__(self, images):
        n, height, width, _ = images.shape
        cells = images.reshape(n, height // 32, 32, width // 32, 32, 3).astype(np.float32) / 255
        mean = cells.mean(axis=(2, 4)) ** self.power
        return np.concatenate([mean, np.ones_like(mean[..., :1])], axis=-1)


def load(name, **settings):
    asked = NetworkName.parse(name, ("power",))
    return Colours(name, float(asked.options.get("power", 2 if asked.what == "square" else 1)))


WRONG = {
    "nchw": lambda outputs: outputs.transpose(0, 3, 1, 2),
    "list": lambda outputs: outputs.tolist(),
    "error": lambda outputs: 1 / 0,
    "nan": lambda outputs: outputs * np.nan,
}


def wrong(name, **settings):
    network, what = Colours(name, 1.0), NetworkName.parse(name).what
    changed = type("Changed", (), {"__call__": lambda self, images: WRONG[what](network(images))})()
    changed.spec = network.spec
    return changed


def broken(name, **settings):
    raise ValueError("no colours today\\nand more lines")


def nothing(name, **settings):
    return "a network"
'''

ENTRY_POINTS = """
[patchvote.networks]
colours = colour_networks:load
broken = colour_networks:broken
nothing = colour_networks:nothing
wrong = colour_networks:wrong
gone = colour_networks:gone
efficientnet-lite0 = colour_networks:broken
torch = colour_networks:broken
"""

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 64, 96, 3), dtype=np.uint8)


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A folder on Python's path in which another package is installed."""
    folder = install(tmp_path / "site", "colour_networks", COLOURS, ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path / "cache"))
    yield folder
    sys.modules.pop("colour_networks", None)


def test_a_network_of_another_package_is_loaded_by_its_name_and_options(package):
    plain, power = load("colours"), load("colours?power=3")
    np.testing.assert_allclose(power(IMAGES)[..., :3], plain(IMAGES)[..., :3] ** 3, rtol=1e-5)
    np.testing.assert_allclose(load("colours:square")(IMAGES)[..., :3], plain(IMAGES)[..., :3] ** 2, rtol=1e-5)
    assert plain.spec.fingerprint != power.spec.fingerprint
    assert load(f"{EMBEDDED[0]}+colours").spec.dim == 1280 + 4


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", r"cannot load 'broken': no colours today$"),
        ("gone:x", "the engine 'gone' .*gone"),
        ("nothing", "is no backbone"),
        ("colours?size=3", "'size=3' is no option"),
        ("coulours:square", "Did you mean 'colours'?"),
    ],
)
def test_what_goes_wrong_in_another_package_is_one_network_error(name, says, package):
    with pytest.raises(NetworkError, match=says):
        load(name)
    with pytest.raises(NetworkError, match="can only be read 'after'"):
        load("colours", activation="before")
    with pytest.raises(NetworkError, match="no graph in ONNX"):
        graph_of("colours")


def test_our_names_stay_ours_and_other_packages_are_not_looked_for_by_them(package, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: pytest.fail("other packages were looked for"))
    assert load("efficientnet-lite0").spec.dim == 1280
    for name in ("torch:nothing", str(tmp_path / "what?is=this.onnx")):
        with pytest.raises(NetworkError):
            load(name)


def test_the_files_that_a_name_leads_to_are_found_by_its_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["a.prototxt", "b.caffemodel", "m.binaryproto", "w.safetensors", "x+y.onnx", "odd?name.onnx"]
    for name in names:
        Path(name).touch()
    for network, files in (
        ("caffe:a.prototxt,b.caffemodel@fc7?mean=m.binaryproto&scale=2", names[:3]),
        ("torchvision:vgg16@fc7?weights=w.safetensors+caffe:a.prototxt,none@fc7", ["w.safetensors", "a.prototxt"]),
        ("x+y.onnx", ["x+y.onnx", "x+y.toml"]),
        ("odd?name.onnx", ["odd?name.onnx", "odd?name.toml"]),
        ("torch:os:abort", []),
    ):
        assert list(map(str, network_files(network))) == files


def test_a_network_that_returns_what_it_should_not_is_refused(package, photo_folder):
    for what in ("nchw", "list"):
        with pytest.raises(NetworkError, match=f"'wrong:{what}' returned .*, expected"):
            Extractor(Recipe(f"wrong:{what}", Dense((256,))))(IMAGES[0, :, :64])
    with pytest.raises(NetworkError, match="'wrong:error' failed .*: ZeroDivisionError"):
        ImageClassifier(Recipe("wrong:error", Dense((64,))), cache=False).fit(photo_folder)
    with pytest.raises(PhotoError, match="'wrong:nan' describes it by NaN or infinity"):
        Extractor(Recipe("wrong:nan", Dense((64,))))(IMAGES[0])
