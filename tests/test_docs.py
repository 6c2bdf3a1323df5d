from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_that_the_page_of_security_names_exists():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(named) > 40
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_the_architecture_lists_every_module():
    page = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "src" / "patchvote"
    modules = [path.relative_to(package).as_posix() for path in package.rglob("*.py") if path.name != "__init__.py"]
    assert [module for module in modules if f"`{module}`" not in page] == []
