"""Choose an engine by its name on the command line."""

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
    name: EngineName, address: str | None = None, workers: int | None = None, threads: int | None = None
) -> Iterator[Engine | None]:
    """Yield the engine of this name, and release its workers at the end; None for this process.

    Parameters
    ----------
    name : EngineName
        Name of the engine.
    address : str, optional
        Address of a running Ray cluster; by default the one that `RAY_ADDRESS` names, or a new one on this machine.
    workers : int, optional
        Number of workers; by default as many as the cluster has cores for.
    threads : int, optional
        Threads per worker; 1 by default.

    Raises
    ------
    PatchvoteError
        The engine is not installed, or cannot be reached.
    """
    if name is EngineName.local:
        yield None
        return
    if importlib.util.find_spec("ray") is None:
        raise PatchvoteError("--engine ray needs Ray, which is not installed: pip install 'patchvote[ray]'.")
    from .ray import RayEngine

    with RayEngine(address, workers=workers, threads=threads or 1) as engine:
        yield engine
