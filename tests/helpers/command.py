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


def in_terminal(words: list[str], columns: int = 80, folder: Path | None = None) -> str:
    """Run a program in a terminal of so many columns; return all that it shows."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run(words, stdout=slave, check=True, timeout=120, env=environment, cwd=folder)
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 10_000):
            shown += part
    except OSError:  # all was read
        pass
    os.close(master)
    return shown.decode()
