"""Small real things that the tests share: photos, a tiny network, and the research data where it is at hand."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import tempfile
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before scipy comes in: one of scikit-learn's checks skips without it
if "127.0.0.1" not in os.environ.get("HF_ENDPOINT", ""):  # this file is read again as a module, in the middle of tests
    os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # the hub's library reads it on import; nobody listens there
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # some tests import ONNX Runtime before patchvote, or without it

# Beside other workers, each has its share of the cores: libraries whose threads wait for one another by spinning take
# several times as long where there are more threads than cores. Before numpy comes in; started processes inherit it.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    _SHARE = max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_name, str(_SHARE))

import hypothesis
import numpy as np
import platformdirs
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent

# Bags of the tests do not go into the user's cache, where networks of one fingerprint would share them. Embedded
# networks that were built once are used.
_CACHE = Path(tempfile.mkdtemp(prefix="patchvote-tests-"))
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)
_NETWORKS = Path(
    os.environ.get("PATCHVOTE_CACHE") or platformdirs.user_cache_dir("patchvote", appauthor=False), "networks"
)
_NETWORKS.mkdir(parents=True, exist_ok=True)
(_CACHE / "networks").symlink_to(_NETWORKS.resolve())
os.environ["PATCHVOTE_CACHE"] = str(_CACHE)

# The same examples in every run, and no limits of time: on a busy machine, what takes milliseconds may take a second.
hypothesis.settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")

# Started in the background, a shell's child ignores Ctrl-C, and so would the programs that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the research image sets: `$PATCHVOTE_DATA`, or `shared/data` beside the project."""
    folder = Path(os.environ.get("PATCHVOTE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the research image sets are not here; PATCHVOTE_DATA may name their folder")
    return folder


@pytest.fixture(scope="session")
def real_photos() -> Path:
    """Folder of the photos that scikit-image's wheel carries."""
    import skimage.data

    return Path(skimage.data.data_dir)


@pytest.fixture(scope="session")
def demo_photos(tmp_path_factory: pytest.TempPathFactory, real_photos: Path) -> Path:
    """The crops of the demonstration: `train` and `test` with six class folders, and `collage.png` of four of them."""
    from patchvote.cli.demo import make_photos

    folder = tmp_path_factory.mktemp("demo photos")
    make_photos(folder)
    return folder


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory: pytest.TempPathFactory, real_photos: Path) -> Path:
    """Forty crops of real photos in four class folders, of differing sizes, some with names that need care."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for label in ("brick", "grass", "gravel", "Straße & Café"):
        (root / label).mkdir()
        name = {"Straße & Café": "coffee"}.get(label, label)
        image = Image.open(real_photos / f"{name}.png").convert("RGB")
        for index in range(10):
            width, height = (int(side) for side in rng.integers(60, 160, 2))
            left, top = int(rng.integers(image.width - width)), int(rng.integers(image.height - height))
            crop = image.crop((left, top, left + width, top + height))
            crop.save(root / label / f"{name} no. {index}.{('png', 'jpg', 'WEBP')[index % 3]}")
    return root


@pytest.fixture(scope="session")
def tiny_network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file with one convolution of stride 32: `features` (a map, after ReLU) and `vector` (its mean)."""
    return write_tiny_network(tmp_path_factory.mktemp("network") / "tiny.onnx")


def tiny_weights(channels: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return (rng.normal(size=(channels, 3, 32, 32)) / 100).astype(np.float32), np.zeros(channels, np.float32)


def write_tiny_network(
    path: Path, *, shape: tuple = ("n", 3, "h", "w"), channels: int = 6, vector: str = "vector"
) -> Path:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    kernel, bias = tiny_weights(channels)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "kernel", "bias"], ["linear"], strides=[32, 32], kernel_shape=[32, 32]),
            helper.make_node("Relu", ["linear"], ["features"]),
            helper.make_node("GlobalAveragePool", ["features"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], [vector]),
        ],
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", channels, "rows", "columns"]),
            helper.make_tensor_value_info(vector, TensorProto.FLOAT, ["n", channels]),
        ],
        [numpy_helper.from_array(kernel, "kernel"), numpy_helper.from_array(bias, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def flowers(tmp_path_factory):
    """A folder of photos, a network that takes no time, and models of both, linear and NBNN; nobody changes them."""
    from helpers.command import network_in
    from patchvote import ImageClassifier, Recipe

    folder = tmp_path_factory.mktemp("flowers")
    rng = np.random.default_rng(0)
    for number, label in enumerate(("iris", "rose")):
        (folder / "photos" / label).mkdir(parents=True)
        for index in range(6):
            pixels = (rng.integers(0, 100, (64, 64, 3)) + 120 * number).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{index}.jpg")
    recipe = Recipe(str(network_in(folder)))
    ImageClassifier(recipe, cache=False).fit(folder / "photos").save(folder / "m.patchvote")
    ImageClassifier(recipe, cache=False, voter="nbnn").fit(folder / "photos").save(folder / "n.patchvote")
    return folder


@pytest.fixture
def place(flowers, tmp_path, monkeypatch):
    """A copy of it all to work in, the current folder."""
    shutil.copytree(flowers, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a command in this process: `command("info", "m.patchvote")` gives its code and what it printed."""
    from helpers.command import Command

    return Command(monkeypatch, capsys)


@pytest.fixture(scope="session")
def cluster():
    """Address of a Ray cluster on this machine with two workers, which know the helpers of the tests."""
    ray = pytest.importorskip("ray")
    from ray._private import ray_constants

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)  # it then listens on 127.0.0.1 alone
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "120")  # on a busy machine, 30 seconds are not enough
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # without one, Ray writes one to the user's home
        settings = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        for attempts_left in (2, 1, 0):  # on a busy machine, Ray may give up
            try:
                context = ray.init("local", **settings, object_store_memory=100 << 20)
                break
            except Exception:
                ray.shutdown()
                if not attempts_left:
                    raise
        yield context.address_info["gcs_address"]
        ray.shutdown()


@pytest.fixture
def engine(cluster):
    """An engine with two workers of the cluster."""
    from patchvote.engines.ray import RayEngine

    return RayEngine(workers=2)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hugging Face hub on loopback, with an empty cache; no other address is known to the library."""
    from helpers.hub_server import hub_server

    with hub_server() as server:
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path / "cache"))
        constants = pytest.importorskip("huggingface_hub.constants")  # the library read its variables on import
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        url = f"{server.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server


@pytest.fixture
def trace(tmp_path):
    """Folder in which networks of workers leave the numbers of their processes."""
    folder = tmp_path / "trace"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def surfaces(real_photos):
    """Six small crops of each of three real photos of surfaces, as names and contents."""
    from helpers.web import crops

    return {name: crops(real_photos, name, 6) for name in ("brick", "grass", "gravel")}


@pytest.fixture(scope="session")
def surface_models(tmp_path_factory, surfaces):
    """Files of two models of these, made with the default network: `surfaces`, and `nearest`, which remembers parts."""
    from patchvote import ImageClassifier

    folder = tmp_path_factory.mktemp("models")
    contents = [content for photos in surfaces.values() for _, content in photos]
    labels = [name for name, photos in surfaces.items() for _ in photos]
    for name, voter in (("surfaces", "auto"), ("nearest", "nbnn")):
        ImageClassifier(voter=voter, cache=folder / "bags").fit(contents, labels).save(folder / f"{name}.patchvote")
    return folder


@pytest.fixture(scope="session")
def served(tmp_path_factory, surface_models):
    """A client of a server in this process, which was started with both models; `folder` has its workspaces."""
    from helpers.web import client, settings

    models = (surface_models / "surfaces.patchvote", surface_models / "nearest.patchvote")
    with client(settings(tmp_path_factory.mktemp("served"), models=models)) as made:
        yield made


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A client of a server in this process without models; `folder` has its workspaces."""
    from helpers.web import client, settings

    with client(settings(tmp_path_factory.mktemp("home"))) as made:
        yield made


@pytest.fixture
def workspace(home):
    """Id of an empty workspace of `home`."""
    return home.post("/v1/workspaces", json={}).json()["id"]


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """Address of a server of the page."""
    from helpers.web import live

    with live(tmp_path_factory.mktemp("data")) as server:
        yield server.address


@pytest.fixture(scope="session")
def browser():
    """A browser with a camera that shows a test picture."""
    from helpers.browser import start_browser

    with start_browser() as started:
        yield started
