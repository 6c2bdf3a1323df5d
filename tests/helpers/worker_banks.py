"""A job of workers that keep banks, in which one process ends while it searches."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from pathlib import Path

from patchvote.voters.on_workers import BankJob


@dataclasses.dataclass(frozen=True)
class FaintingBankJob(BankJob):
    """Answers as every worker; the first process that is asked for neighbours ends instead."""

    folder: Path = Path()

    def start(self):
        answer = super().start()

        def ask(asked, pieces):
            with contextlib.suppress(FileExistsError):
                if asked.what == "nearest":
                    (self.folder / "fainted").touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)
            return answer(asked, pieces)

        return ask
