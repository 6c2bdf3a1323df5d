"""Photos of strangers are decoded in child processes, with limits on memory and time for each photo.

A child that fails costs the photo that it decodes, and is replaced: headers need not be trusted. This module is also
the program of a child: it reads contents of photos from standard input, pickled, and writes to standard output a line
of JSON, with the shapes of the pictures or the reason why there are none, and then their pixels.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
from PIL import AvifImagePlugin

from ..errors import PhotoError
from ..photos.decode import Pixels, Sizes, content_of, pictures_in
from ..photos.find import Photo
from ..utils.machine import cores, give_back_memory, resident_memory

_MEMORY = 640 << 20  # bytes of addresses of a child; 48 million pixels take up to 600 MB (WebP: 900)
_SECONDS = 5  # of processor time for a photo; 48 million pixels take up to one
_KEPT = 128 << 20  # bytes that a child keeps for its next photo
_MAX_LINE = 10_000  # bytes of the line before the pixels
_DIGEST = re.compile(r"[0-9a-f]{64}")  # name of a photo in a workspace: the SHA-256 of its content
# One thread for OpenBLAS, as others take addresses; and glibc keeps memory for the next photo, which saves a tenth.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT),
}


class Decoders:
    """Decodes photos as `pictures` does, in one child per core; children start when they are needed."""

    def __init__(self) -> None:
        self._free: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        for _ in range(cores()):
            self._free.put(None)

    def __call__(self, photo: Photo, sizes: Sizes, known: Container[str] = ()) -> tuple[list[Pixels], str]:
        """Return the pixels of a photo at each of the sizes, and its digest; no pixels if that is known."""
        content = content_of(photo)
        digest = hashlib.sha256(content).hexdigest()
        if isinstance(photo.source, Path) and _DIGEST.fullmatch(photo.source.name) and photo.source.name != digest:
            raise PhotoError(photo.name, "its file was damaged on the server's disk. Add the photo again.")
        if digest in known:
            return [], digest
        child = self._free.get()
        try:
            if child is None or child.process.poll() is not None:
                child = _Child()
            answer = child.decoded(photo.name, content, sizes)
        except BaseException as error:
            if child is not None:
                child.kill()
            child = None
            if not isinstance(error, (OSError, ValueError)):
                raise
            answer = "takes too much memory or time to decode, or is damaged in a way that ends its decoder."
        finally:
            self._free.put(child)
        if isinstance(answer, str):
            raise PhotoError(photo.name, answer)
        return answer, digest

    def close(self) -> None:
        """End the children that decode nothing; others end by themselves when this process does."""
        for child in [self._free.get() for _ in range(self._free.qsize())]:
            if child is not None:
                child.end()
            self._free.put(None)  # for photos that are still on their way


class _Child:
    """A process that decodes one photo after the other."""

    def __init__(self) -> None:
        self.process: Any = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,  # stays open: when the server ends, so does the child
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # warnings of libraries, which may name photos
            env=os.environ | _ENVIRONMENT,
        )

    def decoded(self, name: str, content: bytes, sizes: Sizes) -> list[Pixels] | str:
        """Return pictures, or why there are none; `OSError` or `ValueError` if the process ends before."""
        pickle.dump((name, content, sizes), self.process.stdin, pickle.HIGHEST_PROTOCOL)
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline(_MAX_LINE))
        if "reason" in answer:
            return str(answer["reason"])
        shapes = answer["shapes"]
        return [np.frombuffer(self.process.stdout.read(math.prod(s)), np.uint8).reshape(s) for s in shapes]

    def kill(self) -> None:
        """End the process whatever it does."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Close the pipes of the process, which ends when it waits for a photo."""
        with contextlib.suppress(OSError):  # of a request that is not read any more
            self.process.communicate()


def main() -> None:
    """Decode photos until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all its processes: the server decides
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    with contextlib.suppress(EOFError):
        while True:
            name, content, sizes = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
            _limit()
            made: list[Pixels] = []
            try:
                made = pictures_in(name, content, sizes)
                answer: dict[str, Any] = {"shapes": [picture.shape for picture in made]}
            except PhotoError as error:
                answer = {"reason": error.reason}
            answers.write(f"{json.dumps(answer)}\n".encode())
            answers.writelines(picture.data for picture in made)
            answers.flush()
            del content, made
            if resident_memory() > _KEPT:
                give_back_memory()


def _limit() -> None:
    """Limit the memory of this process, and the processor time of its next photo."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    limit = int(time.process_time()) + _SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
