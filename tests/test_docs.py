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
