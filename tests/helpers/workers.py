"""Networks and jobs for workers of an engine: some leave the number of their process behind, some end it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from helpers.quick_network import QuickNetwork
from patchvote import StoreError


def faint(folder: Path) -> None:
    """End the first process that calls it."""
    with contextlib.suppress(FileExistsError):
        (folder / "fainted").touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)


class TracedNetwork(QuickNetwork):
    """Writes a file named after its process into a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __call__(self, images):
        (self.folder / str(os.getpid())).touch()
        return super().__call__(images)


class FaintingNetwork(TracedNetwork):
    """Ends the first process that calls it, in the middle of its work."""

    def __call__(self, images):
        answer = super().__call__(images)
        if self.calls > 15:
            faint(self.folder)
        return answer


class DeadlyNetwork(TracedNetwork):
    """Ends its process when it sees a red image, as a decoder or driver with a fault would."""

    def __call__(self, images):
        red = (images[..., 0] > 250) & (images[..., 1:] < 5).all(axis=-1)
        if red.all(axis=(1, 2)).any():
            (self.folder / f"{os.getpid()} died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(images)


class Doubling:
    """Doubles numbers."""

    name, per_task = "double", 3

    def start(self):
        return lambda numbers: [2 * number for number in numbers]


class Refusing(Doubling):
    def start(self):
        raise StoreError("this store is closed today.")


class Ending(Doubling):
    def start(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Fainting:
    """Adds numbers; the first process that is asked ends instead."""

    name = "add"

    def __init__(self, folder):
        self.folder = folder

    def start(self):
        return self._add

    def _add(self, shared, own):
        faint(self.folder)
        return shared + own
