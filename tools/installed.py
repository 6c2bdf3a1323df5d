"""Print how much disk the packages of an environment take, and fail where it is more than a limit.

    python tools/installed.py ENVIRONMENT/bin/python 600     # megabytes

pip and setuptools, which every environment has, are not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys

_ASK = """
import importlib.metadata, json, pathlib
sizes = {}
for package in importlib.metadata.distributions():
    # Bytecode is listed only if an installer wrote it; count it in any case, since Python writes it on first use.
    files = {pathlib.Path(package.locate_file(file)) for file in package.files or []}
    files |= {path for file in files if file.suffix == ".py"
              for path in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc")}
    sizes[package.metadata["Name"]] = sum(path.stat().st_size for path in files if path.is_file())
print(json.dumps(sizes))
"""


def main(python: str, limit: float) -> None:
    """Print the largest packages and the sum."""
    asked = subprocess.run([python, "-c", _ASK], check=True, capture_output=True, text=True)
    sizes = {name: size / 1e6 for name, size in json.loads(asked.stdout).items() if name not in ("pip", "setuptools")}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:8]:
        print(f"{sizes[name]:7.1f} MB  {name}")
    total = sum(sizes.values())
    print(f"{total:7.1f} MB  in all, {len(sizes)} packages; at most {limit:.0f} MB are allowed")
    if total > limit:
        raise SystemExit(f"the environment takes {total:.0f} MB, more than {limit:.0f} MB: which dependency has grown?")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
