"""ONNX files that would compute for ever, take all memory or read other files, and the TOML files beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from conftest import write_tiny_network
from helpers.waiting import wait_for
from patchvote import NetworkError
from patchvote.networks import graph_of, session
from patchvote.networks.onnx_file import load as open_onnx
from patchvote.utils.machine import memory

pytestmark = pytest.mark.slow

SECONDS = 30  # generous: each of these is refused in a fraction of a second on a machine that does nothing else


def write(path: Path, nodes: list, constants: tuple = (), functions: tuple = ()) -> Path:
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "h", "w"])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", [image], [out], list(constants))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    path.write_bytes(model.SerializeToString())
    return path


def ints(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def refused(path: Path, says: str) -> None:
    begin = time.monotonic()
    for use in (open_onnx, lambda path: graph_of(str(path))):
        with pytest.raises(NetworkError, match=says) as caught:
            use(path)
        assert len(str(caught.value)) < 3000
    assert time.monotonic() - begin < SECONDS


# --- loops ------------------------------------------------------------------------------------------------------------


def loop() -> onnx.NodeProto:
    """A loop that never ends."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go on"]), helper.make_node("Relu", ["x"], ["y"])],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        ],
    )
    return helper.make_node("Loop", ["", "true", "image"], ["out"], body=body)


TRUE = numpy_helper.from_array(np.array(True), "true")
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def call(name: str, source: str = "image", target: str = "out") -> onnx.NodeProto:
    return helper.make_node(name, [source], [target], domain="own")


def test_an_endless_loop_is_refused_also_in_a_branch(tmp_path):
    refused(write(tmp_path / "a.onnx", [loop()], (TRUE,)), "has the operation 'Loop'")
    value = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    branches = {name: helper.make_graph([loop()], name, [], [value]) for name in ("then_branch", "else_branch")}
    refused(write(tmp_path / "a.onnx", [helper.make_node("If", ["true"], ["out"], **branches)], (TRUE,)), "'Loop'")


def test_functions_which_could_unfold_without_bound_are_refused(tmp_path):
    function = helper.make_function("own", "f", ["a"], ["b"], [call("f", "a", "b")], OPSETS)
    refused(write(tmp_path / "a.onnx", [call("f")], (), (function,)), "has functions of its own|own.f")


# --- time -------------------------------------------------------------------------------------------------------------


def chain(path: Path, first: list, width: int, length: int) -> Path:
    """Write a graph of very many products, one after the other."""
    nodes = [helper.make_node("MatMul", [f"x{k}", "w"], [f"x{k + 1}"]) for k in range(length)]
    last = [
        helper.make_node("ReduceSum", [f"x{length}"], ["sum"], keepdims=0),
        helper.make_node("Add", ["image", "sum"], ["out"]),
    ]
    weights = numpy_helper.from_array(np.zeros((width, width), np.float32), "w")
    return write(path, [*first, *nodes, *last], (weights,))


def test_a_call_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    mean = [helper.make_node("ReduceMean", ["image"], ["m"], keepdims=0), helper.make_node("Add", ["w", "m"], ["x0"])]
    path = chain(tmp_path / "slow.onnx", mean, 200, 200)
    net, pixels = open_onnx(path), np.zeros((1, 32, 32, 3), np.uint8)
    assert net(pixels).shape == (1, 32, 32, 3)
    monkeypatch.setattr(session, "_CALL_SECONDS", 0.0)  # whatever it does takes longer
    for use in (lambda: net(pixels), lambda: open_onnx(path)):
        with pytest.raises(NetworkError, match="slow.onnx does not answer: it took more than 0 seconds"):
            use()


def run(limits: str, *words: object) -> subprocess.Popen[str]:
    """Begin a command in a process of its own, which has to end although the work in it does not."""
    code = f"from patchvote.networks import session\nfrom patchvote.cli import main\n{limits}\nmain()"
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_a_preparation_that_takes_too_long_is_given_up(tmp_path, photo_folder):
    path = chain(tmp_path / "constant.onnx", [helper.make_node("MatMul", ["w", "w"], ["x0"])], 700, 20_000)
    limits = "session._PREPARING_SECONDS, session._GRACE_SECONDS = 0.5, 0.1"
    process = run(limits, "extract", photo_folder, tmp_path / "store", "--network", path)
    _, errors = process.communicate(timeout=100)
    assert (process.returncode, len(errors.splitlines())) == (1, 1)
    assert "constant.onnx cannot be prepared: it took more than" in errors


def slow_for_white_photos(path: Path) -> Path:
    """Write a graph with one operation that takes hours for a white image and no time for any with a black pixel."""
    nodes = [
        helper.make_node("ReduceMin", ["image"], ["darkest"], keepdims=0),
        helper.make_node("Cast", ["darkest"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Mul", ["whole", "many"], ["more"]),
        helper.make_node("Add", ["more", "one"], ["length"]),
        helper.make_node("Concat", ["one", "one", "length"], ["shape"], axis=0),
        helper.make_node("Expand", ["value", "shape"], ["kernel"]),
        helper.make_node("Concat", ["kernel", "kernel"], ["row"], axis=2),
        helper.make_node("Conv", ["row", "kernel"], ["product"]),
        helper.make_node("ReduceMin", ["product"], ["least"], keepdims=0),
        helper.make_node("Add", ["image", "least"], ["out"]),
    ]
    value = numpy_helper.from_array(np.zeros((1, 1, 1), np.float32), "value")
    return write(path, nodes, (ints("many", 40_000), ints("one", 1), value))


def extract_white_photos(tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    """Begin to extract two white photos by such a network, calls of which have a limit."""
    path, photos = slow_for_white_photos(tmp_path / "slow.onnx"), tmp_path / "photos"
    photos.mkdir()
    for name, height in (("a.png", 32), ("b.png", 16)):  # of two shapes, so that they are two calls
        Image.new("RGB", (32, height), "white").save(photos / name)
    limits = f"session._CALL_SECONDS, session._GRACE_SECONDS = {seconds}, 0.1"
    return run(limits, "extract", photos, tmp_path / "store", "--network", path, "--sides", 32, "-j", 1)


def test_one_operation_that_does_not_end_is_left_behind(tmp_path):
    process = extract_white_photos(tmp_path, 3.0)  # more than the short calls take on a busy machine
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "skipped a.png: " in errors
    assert "b.png" in errors
    assert "an earlier call could not be stopped" in errors  # and is not tried again for every photo


def test_ctrl_c_ends_a_command_whose_network_does_not_end(tmp_path):
    process = extract_white_photos(tmp_path, 1000.0)
    wait_for((tmp_path / "store").exists)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.startswith("interrupted.")


# --- operations -------------------------------------------------------------------------------------------------------


def test_operations_whose_cost_depends_on_the_photo_are_refused_where_they_are_used(tmp_path):
    nodes = [
        helper.make_node("Relu", ["image"], ["features"]),
        helper.make_node("NonZero", ["image"], ["odd"]),
        helper.make_node("Cast", ["odd"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["number"], ["top"], keepdims=0),
        helper.make_node("Add", ["features", "top"], ["out"]),
    ]
    path = write(tmp_path / "a.onnx", nodes)
    refused(path, "has the operation 'NonZero', which descriptors of photos do not need")
    assert open_onnx(path, output="features").spec.dim == 3  # a detector may have it behind its features
    refused(write(tmp_path / "a.onnx", [call("Relu")]), "has the operation 'own.Relu'")  # of a set that is not known


def test_an_answer_whose_shape_depends_on_the_photo_is_refused(tmp_path):
    nodes = [
        helper.make_node("ReduceMax", ["image"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["length"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["length", "zero"], ["more"]),
        helper.make_node("Max", ["more", "one"], ["count"]),
        helper.make_node("Concat", ["one", "count"], ["shape"], axis=0),
        helper.make_node("Expand", ["top", "shape"], ["out"]),
    ]
    path = write(tmp_path / "a.onnx", nodes, (ints("one", 1), ints("zero", 0)))
    refused(path, "must depend on the size of the image alone")
    nodes = [helper.make_node("Slice", ["image", "zero", "zero", "axis"], ["out"])]
    refused(write(tmp_path / "a.onnx", nodes, (ints("zero", 0), ints("axis", 2))), "nothing is in it")


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.6, 1e3])  # of the machine's memory, which the system would partly give
def test_a_network_that_asks_for_more_memory_than_its_share_is_refused(tmp_path, share):
    nodes = [
        helper.make_node("Shape", ["image"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["three"]),
        helper.make_node("Mul", ["three", "count"], ["wanted"]),
        helper.make_node("ConstantOfShape", ["wanted"], ["large"]),
        helper.make_node("ReduceMax", ["large"], ["top"], keepdims=0),
        helper.make_node("Add", ["image", "top"], ["out"]),
    ]
    count = int(share * memory() / 4 / 3)
    refused(write(tmp_path / "large.onnx", nodes, (ints("one", 1), ints("count", count))), "cannot take an input")


@pytest.mark.parametrize(
    "shape", [(1, 3, 1 << 40, 1 << 40), (1 << 30, 3, 64, 64), ("n", 3, 10**6, "w"), (0, 3, 64, 64)]
)
def test_an_input_of_absurd_size_is_refused(tmp_path, shape):
    path = write_tiny_network(tmp_path / "a.onnx", shape=shape)
    with pytest.raises(NetworkError, match="pixels at once; sides may have up to 4,096|not a graph"):
        open_onnx(path, output="features")


# --- files ------------------------------------------------------------------------------------------------------------


def outside(location: str, dims: tuple[int, ...] = (3,), **told: int) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **told}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def adding(path: Path, constant: TensorProto, inside: bool) -> Path:
    """Write a graph that adds a constant, which stands among the constants or inside a node."""
    nodes = [
        helper.make_node("ReduceSum", ["w"], ["sum"], keepdims=0),
        helper.make_node("Add", ["image", "sum"], ["out"]),
    ]
    if inside:
        return write(path, [helper.make_node("Constant", [], ["w"], value=constant), *nodes])
    return write(path, nodes, (constant,))


@pytest.mark.parametrize("inside", [False, True])
def test_weights_lie_in_the_folder_of_the_graph(tmp_path, monkeypatch, inside):
    folder = tmp_path / "nets"
    folder.mkdir()
    np.ones(3, np.float32).tofile(tmp_path / "secret")
    monkeypatch.chdir(tmp_path)  # where ONNX Runtime itself would look
    (folder / "link").symlink_to(tmp_path / "secret")
    for location in ("../secret", str(tmp_path / "secret"), "link", "", "../../../../../../etc/passwd"):
        refused(adding(folder / "a.onnx", outside(location), inside), "not a file in its folder")
    refused(adding(folder / "a.onnx", outside("secret"), inside), "a.onnx cannot be read: No such file")
    os.mkfifo(folder / "pipe")
    refused(adding(folder / "a.onnx", outside("pipe"), inside), "it is a pipe, not an ordinary file")
    np.ones(3, np.float32).tofile(folder / "own")
    net = open_onnx(adding(folder / "a.onnx", outside("own"), inside))
    assert net(np.zeros((1, 32, 32, 3), np.uint8)).max() == 3


def test_weights_may_not_be_one_file_many_times(tmp_path):
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(1 << 30)  # a hole, which takes no room on the disk
    constants = []
    for k in range(10):
        constants.append(outside("zeros", (1 << 28,)))
        constants[-1].name = f"w{k}"
    nodes = [helper.make_node("Sum", ["image", *(one.name for one in constants)], ["out"])]
    refused(write(tmp_path / "a.onnx", nodes, tuple(constants)), "bytes of weights")


def test_a_file_that_is_no_file_or_too_large_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(tmp_path / "pipe.onnx", "cannot be read: it is a pipe")
    (tmp_path / "device.onnx").symlink_to("/dev/zero")
    refused(tmp_path / "device.onnx", "cannot be read: it is a device")
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(1 << 40)
    refused(tmp_path / "large.onnx", "cannot be read: it has more than the 2,147,483,647 bytes")
    os.mkfifo(tmp_path / "net.toml")
    refused(write_tiny_network(tmp_path / "net.onnx"), "net.toml cannot be read: it is a pipe")


def test_what_onnx_runtime_says_of_names_in_the_file_does_not_reach_the_terminal_raw(tmp_path, capfd):
    node = helper.make_node("Reshape", ["image", "shape"], ["out"], name="\x1b[2J\x1b]0;title\x07")
    path = write(tmp_path / "a.onnx", [node], (ints("shape", 7, 7),))
    with pytest.raises(NetworkError, match="cannot take an input"):
        open_onnx(path)
    assert capfd.readouterr().err == ""


# --- the TOML file beside it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mean = " + "[" * 10_000, "is not a TOML file"),
        ("x" * 10_000 + " = 1", "has an unknown key"),
        ("mean = 1979-05-27", "mean must be"),
        ("scale = nan", "scale must be"),
        ("size = 99999999999999999999", "size must be a whole number"),
        ("color = ['RGB']", "color must be"),
        ("output = 'features'\n#" + "x" * 10_000_000, "cannot be read: it has more than"),
        ("mean = '\x00'", "is not a TOML file"),
    ],
    ids=range(8),
)
def test_a_toml_file_of_any_content_is_a_network_error(tmp_path, text, says):
    path = write_tiny_network(tmp_path / "net.onnx")
    (tmp_path / "net.toml").write_text(text if "output" in text else f"output = 'features'\n{text}")
    refused(path, says)
