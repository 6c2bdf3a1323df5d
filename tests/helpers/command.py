"""Runs the command line inside the tests' own process, which costs no start of Python."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from conftest import write_tiny_network
from patchvote.cli import main


@dataclasses.dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Command:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> Done:
        self._capsys.readouterr()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["patchvote", *map(str, words)])
            with pytest.raises(SystemExit) as left:
                main()
        out, err = self._capsys.readouterr()
        return Done(left.value.code or 0, out, err)


def network_in(folder: Path) -> Path:
    """Write a network that takes no time into a folder, with the settings that it needs."""
    (folder / "tiny.toml").write_text('output = "features"\n')
    return write_tiny_network(folder / "tiny.onnx")


def in_terminal(words: list[str], columns: int = 80, folder: Path | None = None, *, errors: bool = False) -> str:
    """Run a program in a terminal of so many columns; return all that it shows, or its messages alone."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    streams = {"stdout": subprocess.DEVNULL, "stderr": slave} if errors else {"stdout": slave}
    subprocess.run(words, check=True, timeout=120, env=environment, cwd=folder, **streams)
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 10_000):
            shown += part
    except OSError:  # all was read
        pass
    os.close(master)
    return shown.decode()


def content(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def words(*parts: object) -> list[str]:
    """Return the words that run a command in a process of its own."""
    return [sys.executable, "-m", "patchvote", *map(str, parts)]


def patchvote(*parts: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(words(*parts), capture_output=True, text=True, timeout=120, **kwargs)
