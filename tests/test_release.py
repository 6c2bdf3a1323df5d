"""What is released: files that anybody can build again, with everything in them and nothing else."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from patchvote.version import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def tool(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / name), *map(str, words)], capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("release") / "dist"
    built = tool("distribution.py", folder, "--changed")
    assert built.returncode == 0, built.stderr
    assert built.stdout.count("the same in both builds") == 2
    return folder


def test_a_folder_with_other_files_is_not_emptied_for_a_release(tmp_path):
    (tmp_path / "notes").write_text("mine")
    refused = tool("distribution.py", tmp_path, "--changed")
    assert refused.returncode == 1
    assert "holds other files (notes)" in refused.stderr
    assert (tmp_path / "notes").read_text() == "mine"
    assert "is a file" in tool("distribution.py", tmp_path / "notes", "--changed").stderr


def test_changes_that_are_not_committed_are_not_released(tmp_path):
    if subprocess.run(["git", "status"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("this is no repository")
    for folder in ("src", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for words in (["init", "-q"], ["add", "tools"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    script = [sys.executable, str(tmp_path / "tools" / "distribution.py"), str(tmp_path / "dist")]
    refused = subprocess.run(script, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "these files are not committed" in refused.stderr
    assert not (tmp_path / "dist").exists()


def test_the_wheel_has_the_package_and_nothing_else(dist):
    names = zipfile.ZipFile(dist / f"patchvote-{__version__}-py3-none-any.whl").namelist()
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    wanted = {name for name in source if "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == wanted
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=False).returncode == 0


def test_the_sdist_has_what_the_tests_and_the_site_need(dist):
    with tarfile.open(dist / f"patchvote-{__version__}.tar.gz") as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    asked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip("this is no repository")
    hidden = re.compile(r"\.(ci|github|gitattributes)\b")
    missing = [name for name in asked.stdout.splitlines() if name not in inside and not hidden.match(name)]
    assert missing == []
    assert [name for name in inside if re.search(r"__pycache__|\.venv|/site/|^build/", name)] == []


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_dependency_has_a_lower_bound_and_the_version_a_place_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## .*{re.escape(__version__)}", changelog, re.MULTILINE)
    oldest = tool("oldest.py", "demo", "plots", "heic", "web", "remote", "hub", "ray", "torch", "docs")
    assert oldest.returncode == 0, oldest.stderr
    assert "numpy==1.26" in oldest.stdout.splitlines()
    assert "there is no extra 'nonsense'" in tool("oldest.py", "nonsense").stderr
    with pytest.raises(SystemExit, match="'numpy' has no lower bound"):
        load("oldest").constraints(["numpy"])


def test_an_environment_that_is_too_large_is_refused():
    listed = tool("installed.py", sys.executable, 1)
    assert listed.returncode == 1
    assert "more than 1 MB" in listed.stderr


@pytest.mark.parametrize("name", ["oldest", "licences", "site_hooks"])
def test_the_examples_in_the_tools_hold(name):
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    result = doctest.testmod(load(name))
    assert result.attempted > 0
    assert result.failed == 0
