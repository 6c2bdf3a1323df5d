"""Fits, additions, forgetting and answers in processes that are killed."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from helpers.quick_network import loaded, quick

# Processes are forks of one that has imported all, so that most of the time of each is its work.
PROCESSES = multiprocessing.get_context("forkserver")
ROOMS = ("classifier", "models.fit", "models.add", "bags.described")
PROCESSES.set_forkserver_preload([*(f"patchvote.{room}" for room in ROOMS), "PIL.PngImagePlugin"])


def run(what: str, folder: Path) -> list[str]:
    """Do what a command does, in a folder with photos, a model and a cache; return the answers of `predict`."""
    path, cache = folder / "m.patchvote", folder / "cache"
    if what == "fit":
        quick(cache=cache).fit(folder / "all").save(path)
    elif what == "add":
        loaded(path, cache).add(folder / "more").save(path)
    elif what == "forget":
        loaded(path, cache).forget("grey/0[0-3]*").save(path)
    else:
        return [f"{one.label} {one.probability}" for one in loaded(path, cache).answers(folder / "all")]
    return []


def begin(what: str, folder: Path, begun) -> None:
    begun.send(None)
    run(what, folder)
    begun.send(None)


def killed(what: str, folder: Path, after: float) -> float:
    """Start it in another process, and kill that after some seconds; return how long it ran."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=begin, args=(what, folder, theirs))
    process.start()
    assert ours.poll(60)
    ours.recv()
    start = time.perf_counter()
    ours.poll(after)
    took = time.perf_counter() - start
    process.kill()
    process.join()
    return took
