"""Build the wheel and the sdist, twice, and keep them only if both builds are the same byte by byte.

    python tools/distribution.py dist

A tree with changes that are not committed is refused, since nobody else could build the same (--changed builds it all
the same, for tests). The target holds nothing but what this script and `make sbom` write. Dates inside the files are
that of the last commit (or of SOURCE_DATE_EPOCH, if it is set), so that anybody can build the same files from the same
commit and compare.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_OURS = re.compile(r"patchvote-.*\.(whl|tar\.gz)|SHA256SUMS|sbom\.cdx\.json|licences\.md")  # files of a release


def epoch() -> str:
    """Return the second to which files are dated: that of the environment, of the last commit, or of the changelog."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    # Outside of a repository, as in an unpacked sdist, the changelog has the date that the sdist was built with.
    return asked.stdout.strip() or str(int((ROOT / "CHANGELOG.md").stat().st_mtime))


def build(folder: Path, seconds: str) -> dict[str, bytes]:
    """Build into a folder; return the files with their contents."""
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"hatchling could not build it:\n{done.stdout}{done.stderr}")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def changes() -> list[str]:
    """Return the files that differ from the last commit, also new ones; none where there is no repository."""
    words = ["git", "status", "--porcelain", "--", "."]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


def main(target: Path, *, changed: bool = False) -> None:
    """Build twice, compare, and leave the files with their SHA-256 in `target`."""
    if not changed and (names := changes()):
        raise SystemExit(f"these files are not committed: {', '.join(names[:5])}. Nothing was written.")
    if target.exists() and not target.is_dir():
        raise SystemExit(f"{target} is a file. Name a folder.")
    others = [path.name for path in target.glob("*") if not _OURS.fullmatch(path.name)]
    if others:
        raise SystemExit(f"{target} holds other files ({others[0]}). Name a new or empty folder.")
    seconds = epoch()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        once, again = build(Path(first), seconds), build(Path(second), seconds)
    if once != again:
        names = sorted(name for name in {*once, *again} if once.get(name) != again.get(name))
        raise SystemExit(f"two builds of the same commit differ: {', '.join(names)}. Nothing was written.")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    lines = []
    for name, content in once.items():
        (target / name).write_bytes(content)
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}")
        print(f"{name}: {len(content) / 1e6:.2f} MB, the same in both builds")
    (target / "SHA256SUMS").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--changed"]
    main(Path(given[0] if given else "dist"), changed="--changed" in sys.argv)
