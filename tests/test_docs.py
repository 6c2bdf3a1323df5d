"""The documentation: its claims about the code hold, and the site is built strictly and offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import patchvote
from helpers.pages import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_pages_name_the_tests_of_threats_and_every_public_name():
    named = set(re.findall(r"`(test_\w+\.py)`", text_of("security.md")))
    assert len(named) > 10
    assert [file for file in sorted(named) if not (ROOT / "tests" / file).is_file()] == []
    assert [name for name in patchvote.__all__ if f"`{name}`" not in text_of("parts.md")] == []


def test_links_of_the_readme_lead_somewhere():  # those of all other pages are checked when the site is built
    links = re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_way_of_the_data_is_short_and_the_architecture_shows_it():
    words = [sys.executable, ROOT / "tools" / "way.py"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
    files = {way: int(count) for way, count in re.findall(r"^(\w+): (\d+) files", printed, re.MULTILINE)}
    assert (files["fit"] <= 60, files["predict"] <= 40) == (True, True)
    shown, drawn = (
        {frozenset(re.split(r"[ ,]+", line)) for line in text.splitlines() if line.startswith("  ")}
        for text in (printed, text_of("architecture.md"))
    )
    assert shown <= drawn


# A build that asks any other machine for anything ends with this error, wherever a library catches exceptions.
_OFFLINE = """
import os, sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        os.write(2, f"CONNECTION: {event} {arguments}\\n".encode())
        os._exit(70)

sys.addaudithook(refuse)
from mkdocs.__main__ import cli
cli(sys.argv[1:])
"""


def test_the_site_is_built_strictly_and_offline_and_its_reference_has_every_public_name(tmp_path):
    pytest.importorskip("material", reason="the site needs the extra docs")
    words = ["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    settings = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "timeout": 600}
    built = subprocess.run([sys.executable, "-c", _OFFLINE, *words], **settings)
    assert built.returncode == 0, built.stderr[-3000:]
    reference = "".join(page.read_text(encoding="utf-8") for page in (tmp_path / "api").glob("*.html"))
    modules = {name: f"patchvote.{module}.{name}" for name, module in patchvote._MODULES.items()}
    assert [name for name, anchor in modules.items() if f'id="{anchor}"' not in reference] == []
