"""The device of the network: every command that runs it takes one, and says which are not there."""

from __future__ import annotations

import inspect

import pytest

from patchvote import NetworkError
from patchvote.cli import _COMMANDS, _demo, make_app
from patchvote.networks import load
from test_outputs import FIT

RUNS = {
    "check": ("photos", "--no-cache", "--no-report", "--network", "tiny.onnx"),
    "fit": ("photos", "new.patchvote", *FIT),
    "predict": ("m.patchvote", "photos"),
    "explain": ("m.patchvote", "photos/iris/1.jpg"),
    "evaluate": ("m.patchvote", "photos", "--no-report"),
    "suggest": ("m.patchvote", "photos"),
    "add": ("m.patchvote", "photos", "--no-cache"),
    "extract": ("photos", "bags", "--network", "tiny.onnx"),
    "serve": ("--data", "data"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_device_that_is_not_there_is_named_before_any_work(name, place, command):
    before = sorted(place.rglob("*"))
    done = command(name, *RUNS[name], "--device", "cuda")
    assert done.code == 1
    assert (
        "ONNX Runtime cannot use 'cuda' here: it has no CUDAExecutionProvider (pip install onnxruntime-gpu" in done.err
    )
    done = command(name, *RUNS[name], "--device", "gpu")
    assert done.code == 1
    assert "device must be one of cpu, cuda, mps, got 'gpu'." in done.err
    assert sorted(place.rglob("*")) == before


def test_the_device_cpu_is_the_default(place, command):
    assert (
        command("predict", "m.patchvote", "photos", "--device", "cpu").out
        == command("predict", "m.patchvote", "photos").out
    )


def test_every_command_that_runs_a_network_takes_a_device():
    networkless = {"info", "export", "cache"}
    app = make_app()
    commands = {one.name: one.callback for one in app.registered_commands}
    assert set(_COMMANDS) < set(commands)
    for name in set(_COMMANDS) - networkless:
        assert "device" in inspect.signature(commands[name]).parameters, name
    assert all("device" in inspect.signature(one).parameters for one in (_demo,))


def test_a_device_whose_driver_does_not_start_is_not_replaced_by_the_cpu_in_silence(monkeypatch):
    import onnxruntime

    # As in a build for graphics cards on a machine without one: the provider is listed, and the session runs without.
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider"),
        pytest.raises(NetworkError, match="'cuda' here: its CUDAExecutionProvider does not"),
    ):
        load("efficientnet-lite0", device="cuda")
