"""Networks for workers of an engine: they leave the number of their process behind, or end it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from helpers.quick_network import QuickNetwork


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
            with contextlib.suppress(FileExistsError):
                (self.folder / "fainted").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return answer


class DeadlyNetwork(TracedNetwork):
    """Ends its process when it sees a red image, as a decoder or driver with a fault would."""

    def __call__(self, images):
        red = (images[..., 0] > 250) & (images[..., 1:] < 5).all(axis=-1)
        if red.all(axis=(1, 2)).any():
            (self.folder / f"{os.getpid()} died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(images)
