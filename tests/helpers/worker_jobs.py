"""Jobs for engines: one that works, one that cannot start, one whose start ends its worker."""

from __future__ import annotations

import contextlib
import os
import signal

from patchvote import StoreError


class Doubling:
    """Doubles numbers."""

    name, per_task = "double", 3

    def start(self):
        return lambda numbers: [2 * number for number in numbers]


class Refusing(Doubling):
    def start(self):
        raise StoreError("this store is closed today.")


class Fainting:
    """Adds numbers; the first process that is asked ends instead."""

    name = "add"

    def __init__(self, folder):
        self.folder = folder

    def start(self):
        return self._add

    def _add(self, shared, own):
        with contextlib.suppress(FileExistsError):
            (self.folder / "fainted").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return shared + own


class Ending(Doubling):
    def start(self):
        os.kill(os.getpid(), signal.SIGKILL)
