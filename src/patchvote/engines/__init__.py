"""Where work runs: in this process (`local`), or on the workers of a Ray cluster (`ray`, an extra)."""

from __future__ import annotations

import contextlib
import enum
import importlib.util
from collections.abc import Iterator

from ..errors import PatchvoteError
from ..utils.engine import Engine


class EngineName(enum.StrEnum):
    """Where the work runs."""

    local = "local"
    ray = "ray"


@contextlib.contextmanager
def opened_engine(
    name: EngineName, address: str | None, workers: int | None, threads: int | None
) -> Iterator[Engine | None]:
    """Yield the engine of this name, and release its workers at the end; None for this process."""
    if name is EngineName.local:
        yield None
        return
    if importlib.util.find_spec("ray") is None:
        raise PatchvoteError("--engine ray needs Ray, which is not installed: pip install 'patchvote[ray]'.")
    from .ray import RayEngine

    with RayEngine(address, workers=workers, threads=threads or 1) as engine:
        yield engine
