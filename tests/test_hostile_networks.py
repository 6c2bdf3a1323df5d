"""ONNX files that would compute for ever, take all memory or read other files, and the TOML files beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx.parser
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

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
SECONDS = 30  # generous: each of these is refused in a fraction of a second on a machine that does nothing else


def write(path: Path, text: str, constants: tuple = (), functions: tuple = (), nodes: tuple = ()) -> Path:
    """Write a graph from the language of ONNX, after some nodes that are given."""
    parsed = onnx.parser.parse_graph(f"graph (float[n,3,h,w] image) => (float[] out) {{ {text} }}")
    graph = helper.make_graph([*nodes, *parsed.node], "graph", parsed.input, parsed.output, list(constants))
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=8, functions=functions)
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


TRUE = numpy_helper.from_array(np.array(True), "true")
LOOP = """out = Loop <body = body (int64 step, bool go, float[] x) => (bool on, float[] y) {
    on = Identity (go)  y = Relu (x)
}> ("", true, image)"""


def test_an_endless_loop_is_refused_also_in_a_branch(tmp_path):
    refused(write(tmp_path / "a.onnx", LOOP, (TRUE,)), "has the operation 'Loop'")
    branches = ", ".join(f"{name} = {name} () => (float[] out) {{ {LOOP} }}" for name in ("then_branch", "else_branch"))
    refused(write(tmp_path / "a.onnx", f"out = If <{branches}> (true)", (TRUE,)), "has the operation 'Loop'")


def test_functions_which_could_unfold_without_bound_are_refused(tmp_path):
    function = helper.make_function("own", "f", ["a"], ["b"], [onnx.parser.parse_node("b = own.f (a)")], OPSETS)
    refused(write(tmp_path / "a.onnx", "out = own.f (image)", (), (function,)), "has functions of its own")


# --- time -------------------------------------------------------------------------------------------------------------


def chain(path: Path, first: str, width: int, length: int) -> Path:
    """Write a graph of very many products, one after the other."""
    products = " ".join(f"x{k + 1} = MatMul (x{k}, w)" for k in range(length))
    text = f"{first} {products} sum = ReduceSum <keepdims = 0> (x{length}) out = Add (image, sum)"
    return write(path, text, (numpy_helper.from_array(np.zeros((width, width), np.float32), "w"),))


def test_a_call_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    path = chain(tmp_path / "slow.onnx", "m = ReduceMean <keepdims = 0> (image) x0 = Add (w, m)", 200, 200)
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
    path = chain(tmp_path / "constant.onnx", "x0 = MatMul (w, w)", 700, 20_000)
    limits = "session._PREPARING_SECONDS, session._GRACE_SECONDS = 0.5, 0.1"
    process = run(limits, "extract", photo_folder, tmp_path / "store", "--network", path)
    _, errors = process.communicate(timeout=100)
    assert (process.returncode, len(errors.splitlines())) == (1, 1)
    assert "constant.onnx cannot be prepared: it took more than" in errors


def slow_for_white_photos(path: Path) -> Path:
    """Write a graph with one operation that takes hours for a white image and no time for any with a black pixel."""
    text = """
        darkest = ReduceMin <keepdims = 0> (image)  whole = Cast <to = 7> (darkest)
        more = Mul (whole, many)  length = Add (more, one)  shape = Concat <axis = 0> (one, one, length)
        kernel = Expand (value, shape)  row = Concat <axis = 2> (kernel, kernel)  product = Conv (row, kernel)
        least = ReduceMin <keepdims = 0> (product)  out = Add (image, least)
    """
    value = numpy_helper.from_array(np.zeros((1, 1, 1), np.float32), "value")
    return write(path, text, (ints("many", 40_000), ints("one", 1), value))


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
    text = """
        features = Relu (image)  odd = NonZero (image)  number = Cast <to = 1> (odd)
        top = ReduceMax <keepdims = 0> (number)  out = Add (features, top)
    """
    path = write(tmp_path / "a.onnx", text)
    refused(path, "has the operation 'NonZero', which descriptors of photos do not need")
    assert open_onnx(path, output="features").spec.dim == 3  # a detector may have it behind its features
    refused(
        write(tmp_path / "a.onnx", "out = own.Relu (image)"), "has the operation 'own.Relu'"
    )  # of a set that is not known


def test_an_answer_whose_shape_depends_on_the_photo_is_refused(tmp_path):
    text = """
        top = ReduceMax <keepdims = 0> (image)  length = Cast <to = 7> (top)  more = Unsqueeze (length, zero)
        count = Max (more, one)  shape = Concat <axis = 0> (one, count)  out = Expand (top, shape)
    """
    path = write(tmp_path / "a.onnx", text, (ints("one", 1), ints("zero", 0)))
    refused(path, "must depend on the size of the image alone")
    text = "out = Slice (image, zero, zero, axis)"
    refused(write(tmp_path / "a.onnx", text, (ints("zero", 0), ints("axis", 2))), "nothing is in it")


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.6, 1e3])  # of the machine's memory, which the system would partly give
def test_a_network_that_asks_for_more_memory_than_its_share_is_refused(tmp_path, share):
    text = """
        shape = Shape (image)  three = Gather (shape, one)  wanted = Mul (three, count)
        large = ConstantOfShape (wanted)  top = ReduceMax <keepdims = 0> (large)  out = Add (image, top)
    """
    count = int(share * memory() / 4 / 3)
    refused(write(tmp_path / "large.onnx", text, (ints("one", 1), ints("count", count))), "cannot take an input")


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
    text = "sum = ReduceSum <keepdims = 0> (w) out = Add (image, sum)"
    node = helper.make_node("Constant", [], ["w"], value=constant)
    return write(path, text, nodes=(node,)) if inside else write(path, text, (constant,))


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
    text = f"out = Sum (image, {', '.join(one.name for one in constants)})"
    refused(write(tmp_path / "a.onnx", text, tuple(constants)), "bytes of weights")


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
    path = write(tmp_path / "a.onnx", "", (ints("shape", 7, 7),), nodes=(node,))
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
