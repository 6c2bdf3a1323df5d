"""What the pages of the documentation tell a reader to type: commands, and programs in Python."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
PAGES.remove(ROOT / "docs" / "results.md")  # made from records; it says how they came about

_BLOCKS = re.compile(
    r"^```(?P<language>\w*)\n(?P<fenced>(?:.*\n)*?)```$|^ {4,}(?P<command>patchvote [a-z](?:.*\\\n)*.*)$", re.MULTILINE
)


@dataclasses.dataclass(frozen=True)
class Step:
    """A command (`language` is "shell"), or a block of code, as a page shows it."""

    language: str
    text: str


def steps(page: Path) -> list[Step]:
    """Return the commands and blocks of a page, in its order; comments after a command are left out."""
    found = []
    for block in _BLOCKS.finditer(page.read_text(encoding="utf-8")):
        if block["command"]:
            words = re.sub(r"\\\n\s*", "", block["command"])
            found.append(Step("shell", re.sub(r"\s+#\s.*$", "", words)))
        else:
            found.append(Step(block["language"], block["fenced"]))
    return found


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a page in one language."""
    return [step.text for step in steps(page) if step.language == language]
