"""What is released: files that anybody can build again, with everything in them and nothing else."""

from __future__ import annotations

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


def test_other_files_are_not_overwritten_and_uncommitted_changes_not_released(tmp_path):
    (tmp_path / "notes").write_text("mine")
    assert "notes" in tool("distribution.py", tmp_path, "--changed").stderr
    assert tool("distribution.py", tmp_path / "notes", "--changed").returncode == 1
    assert (tmp_path / "notes").read_text() == "mine"
    if subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=False).returncode:
        pytest.skip("git is not here")
    (tmp_path / "tools").mkdir()
    script = shutil.copy(TOOLS / "distribution.py", tmp_path / "tools")
    refused = subprocess.run([sys.executable, script, tmp_path / "dist"], capture_output=True, text=True, check=False)
    assert "not committed" in refused.stderr
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


def test_every_dependency_has_a_lower_bound_and_the_version_a_place_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## .*{re.escape(__version__)}", changelog, re.MULTILINE)
    oldest = tool("oldest.py", "demo", "plots", "heic", "web", "remote", "hub", "ray", "torch", "docs")
    assert "numpy==1.26" in oldest.stdout.splitlines(), oldest.stderr
