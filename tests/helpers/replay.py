"""Record what a program does to a folder, and find out what a power cut after each of its steps would leave there.

Until a file is synced, the disk may hold nothing of its content; until a folder is synced, it may hold the names from
before or those of now. So four states are possible after each step: all has reached the disk; only what was synced
has; of the rest, only removals have; of the rest, only names have, and no content. This is how ALICE (Pillai et al.,
OSDI 2014) finds files that are written in an order that only luck protects.
"""

# ruff: noqa: PTH113, PTH118, PTH120
# Paths are texts here: most are of files that are not there any more.

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_CALLS = (
    "openat,write,pwrite64,writev,sendfile,copy_file_range,ftruncate,rename,renameat,renameat2,link,linkat,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat,fsync,fdatasync"
)
_LINE = re.compile(r"(\d+\.\d+) (\w+)\((.*)\)\s+= (\d+)(?:<.*>)?$")
_WRITES = {"write", "pwrite64", "writev", "sendfile", "copy_file_range", "ftruncate"}


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of the system: what it did, when, and the four states that may be on the disk after it."""

    time: float
    call: str
    states: tuple[dict[str, bytes], ...]


class Disk:
    """Folders as they were when this was made, then as programs see them (`now`, `content`), and what of it was synced.

    Programs are expected to run in the first of them.
    """

    def __init__(self, *roots: Path) -> None:
        self.roots = tuple(map(str, roots))
        self.now: dict[str, int] = {}  # path -> file
        self.content: dict[int, bytes | None] = {}  # file -> bytes; None of a folder
        for folder, _, files in itertools.chain(*map(os.walk, self.roots)):
            self._new(folder, None)
            for name in files:
                path = os.path.join(folder, name)
                self._new(path, Path(path).read_bytes() if os.path.isfile(path) else b"")
        self.synced_names, self.synced = dict(self.now), dict(self.content)

    def _new(self, path: str, content: bytes | None) -> None:
        number = len(self.content)
        self.now[path], self.content[number] = number, content

    def has(self, path: str) -> bool:
        return path.startswith(self.roots)

    def open(self, path: str, flags: str) -> None:
        if "O_CREAT" in flags and path not in self.now:
            self._new(path, b"")
        elif "O_TRUNC" in flags:
            self.content[self.now[path]] = b""

    def write(self, path: str, new: bytes) -> None:
        number = self.now.get(path)
        if number is not None:  # not a file that was removed while it was open
            self.content[number] = (self.content[number] or b"") + new

    def rename(self, old: str, new: str) -> None:
        for path in [path for path in self.now if path == old or path.startswith(old + "/")]:
            self.now[new + path[len(old) :]] = self.now.pop(path)

    def sync(self, path: str) -> None:
        if path not in self.now:
            return
        number = self.now[path]
        if self.content[number] is not None:
            self.synced[number] = self.content[number]
            return
        for child in [child for child in self.synced_names if os.path.dirname(child) == path]:
            if child not in self.now:
                del self.synced_names[child]
        for child, file in self.now.items():
            if os.path.dirname(child) == path:
                self.synced_names[child] = file
                self.synced.setdefault(file, None if self.content[file] is None else b"")

    def states(self) -> tuple[dict[str, bytes], ...]:
        """Return what may be on the disk: the contents of all files, by name."""
        removed = {path: file for path, file in self.synced_names.items() if path in self.now}
        return (
            self._files(self.now, self.content),
            self._files(self.synced_names, self.synced),
            self._files(removed, self.synced),
            self._files(self.now, self.synced),
        )

    def _files(self, names: dict[str, int], content: dict[int, bytes | None]) -> dict[str, bytes]:
        def is_reached(path: str) -> bool:
            return path in self.roots or (path in names and is_reached(os.path.dirname(path)))

        return {
            path: content.get(file) or b""
            for path, file in names.items()
            if self.content[file] is not None and is_reached(path)
        }


def traced(words: list[str], log: Path) -> list[str]:
    """Return words that run a program and record its calls; skip the test where that is not possible."""
    trace = ["strace", "-ff", "-ttt", "-y", "-xx", "-s", "100000000", "-e", f"trace={_CALLS}", "-e", "signal=none"]
    if shutil.which("strace") is None or subprocess.run([*trace, "true"], capture_output=True).returncode:
        pytest.skip("strace cannot be used here")
    return [*trace, "-o", str(log), *words]


def steps(before: Disk, log: Path) -> Iterator[Step]:
    """Yield the steps that changed folders, in order; at the end, check that the record tells what is there now."""
    lines = [line for file in log.parent.glob(f"{log.name}.*") for line in file.read_text().splitlines()]
    for line in sorted(lines, key=lambda line: float(line.split(maxsplit=1)[0])):
        if (found := _LINE.match(line)) and _apply(before, found[2], found[3].split(", "), int(found[4])):
            yield Step(float(found[1]), found[2], before.states())
    assert before.states()[0] == Disk(*map(Path, before.roots)).states()[0], (
        "the record of calls does not tell what was done"
    )


def _apply(disk: Disk, call: str, args: list[str], result: int) -> bool:
    """Do to the disk what a call did; return whether it changed anything there."""
    if call in _WRITES or call in ("fsync", "fdatasync"):
        path = _path_of(args[0] if call != "copy_file_range" else args[2])
        if not disk.has(path):
            return False
        if call in ("fsync", "fdatasync"):
            disk.sync(path)
        elif call == "ftruncate":
            disk.content[disk.now[path]] = (disk.content[disk.now[path]] or b"")[: int(args[1])]
        elif call in ("sendfile", "copy_file_range"):
            source = _path_of(args[1] if call == "sendfile" else args[0])
            whole = disk.content[disk.now[source]] if source in disk.now else Path(source).read_bytes()
            start = len(disk.content[disk.now[path]] or b"")
            disk.write(path, (whole or b"")[start : start + result])
        else:
            parts = re.findall(r'"((?:\\x..)*)"', ", ".join(args[1:]))
            disk.write(path, b"".join(map(_bytes, parts))[:result])
        return True
    names = _names(args, disk.roots[0])
    if not any(map(disk.has, names)):
        return False
    if call == "openat":
        if "O_CREAT" not in args[2]:
            return False
        disk.open(names[0], args[2])
    elif call.startswith("mkdir"):
        disk._new(names[0], None)
    elif call.startswith("symlink"):
        disk._new(names[-1], b"link")
    elif call.startswith("rename"):
        disk.rename(*names)
    elif call.startswith("link"):
        if names[0] not in disk.now:
            disk._new(names[1], Path(names[1]).read_bytes())
        else:
            disk.now[names[1]] = disk.now[names[0]]
    else:  # unlink, unlinkat, rmdir
        disk.now.pop(names[0], None)
    return True


def _names(args: list[str], folder: str) -> list[str]:
    """Return the paths among the arguments, absolute: each may follow the folder that it is relative to."""
    names = []
    for arg in args:
        if arg.startswith('"'):
            names.append(os.path.normpath(os.path.join(folder, os.fsdecode(_bytes(arg.strip('"'))))))
        elif "<" in arg:
            folder = _path_of(arg)
    return names


def _path_of(arg: str) -> str:
    """Return the path of an open file, as in ``3<\\x2f\\x74>``."""
    return os.fsdecode(_bytes(arg.partition("<")[2].rpartition(">")[0])) if "<" in arg else ""


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()
