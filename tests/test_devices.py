"""The device of the network: every command that runs it takes one, and says which are not there."""

from __future__ import annotations

import pytest

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
    for device, says in (("cuda", "has no CUDAExecutionProvider"), ("gpu", "must be one of cpu, cuda, mps")):
        done = command(name, *RUNS[name], "--device", device)
        assert (done.code, says in done.err) == (1, True), done.err
    assert sorted(place.rglob("*")) == before
