"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python tools/oldest.py demo web > oldest.txt      # of the package itself, and of these extras
    pip install -c oldest.txt '.[demo,web]'

Only the dependencies that are named in pyproject.toml are held at their lower bounds; what these need themselves is the
newest that fits, as for a user who updates everything but one package.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,-]*\])?\s*(?P<bound>[>=]=)\s*(?P<version>[\w.]+)")


def constraints(requirements: list[str]) -> list[str]:
    """Return one constraint per requirement: its lower bound.

    >>> constraints(["numpy>=1.26", "opencv-python-headless>=4.9,<5", "moto[server]>=5.0", "weights==0.1.0"])
    ['moto==5.0', 'numpy==1.26', 'opencv-python-headless==4.9', 'weights==0.1.0']
    """
    found = []
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no lower bound. Give it one that is tested.")
        found.append(f"{match['name']}=={match['version']}")
    return sorted(found)


def main(extras: list[str]) -> None:
    """Print the constraints of the package and of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    others = project["optional-dependencies"]
    if unknown := set(extras) - set(others):
        raise SystemExit(f"there is no extra {sorted(unknown)[0]!r}; there are {', '.join(others)}.")
    wanted = project["dependencies"] + [requirement for extra in extras for requirement in others[extra]]
    print("\n".join(constraints(wanted)))


if __name__ == "__main__":
    main(sys.argv[1:])
