"""The package loads little, and has the names that it promises."""

from __future__ import annotations

import subprocess
import sys

import patchvote


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_core_works_where_torch_and_ray_are_absent():
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "ray"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import numpy, patchvote
for name in patchvote.__all__:
    getattr(patchvote, name)
import patchvote.cli, patchvote.cli.demo
print(len(patchvote.Extractor()(numpy.zeros((64, 64, 3), numpy.uint8))))
"""
    assert run(code) == "1\n"


def test_importing_and_help_load_no_heavy_module():
    code = """
import contextlib, sys
import patchvote
from patchvote.cli import make_app
sys.argv = ["patchvote", "--help"]
with contextlib.suppress(SystemExit):
    make_app()()
heavy = ("numpy", "sklearn", "torch", "ray", "onnx", "onnxruntime", "PIL")
print("loaded:", [name for name in heavy if name in sys.modules])
"""
    assert run(code).endswith("loaded: []\n")


def test_every_public_name_is_there_and_others_are_not():
    assert {name for name in dir(patchvote) if name[0].isalpha()} >= set(patchvote.__all__)
    assert set(patchvote.__all__) == set(patchvote._MODULES)
    assert not hasattr(patchvote, "Nonsense")
