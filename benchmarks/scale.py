"""Training from a store far larger than memory: peak memory, and step rate beside that of bags in memory.

A synthetic store is made (10 million descriptors of 1,280 features in float16 take 26 GB), and removed afterwards. One
pass of 15 x 10 prototypes reads it; a part that fits is trained in memory in the same run. NBNN keeps 2 million of its
descriptors in a file and answers photos, in a process of its own. Then a problem of the size of SUN-397, and how time
and memory grow with descriptors and with classes.

    python benchmarks/scale.py --folder DISK --json scale.json
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from common import Record, options, record, synthetic_bags, timed, write
from patchvote import NBNN, SNBNL, Recipe, Store
from patchvote.bags.shards import Entry, ShardWriter
from patchvote.utils.machine import forget_peak_memory, give_back_memory, peak_memory
from patchvote.voters.ml3 import Stoml3

SIZE = 254  # descriptors per photo, as the default recipe has them for square photos
POOL = 200  # different bags in a store; the others are copies of them under other names


def make_store(folder: Path, descriptors: int, classes: int, features: int) -> Store:
    """Write a store of synthetic bags, in float16 as extraction does; photos of a class are spread over it."""
    per_class = max(1, POOL // classes)
    bags, _ = synthetic_bags(classes, per_class, SIZE, features)
    halves = bags.astype(np.float16)
    folder.mkdir()
    shard = 25 * SIZE * features * 2  # bytes: with 1,280 features those of real shards
    writer = ShardWriter(folder, Recipe(), "0" * 16, features, shard_bytes=shard)
    for index in range(max(classes, descriptors // SIZE)):
        label, copy = index % classes, index // classes % per_class
        writer.add(Entry(f"{index:08d}.jpg", f"{label:04d}", f"{index:064d}"), halves[label * per_class + copy])
    writer.close()
    return Store.open(folder)


class Steps:
    """Seconds from the beginning of the first step to the end of the last, and the descriptors in between."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last, self.descriptors, self.count = 0.0, 0, 0

    @property
    def rate(self) -> float:
        """Descriptors per second."""
        return self.descriptors / (self.last - (self.first or 0.0))


@contextmanager
def watched() -> Iterator[Steps]:
    """Observe all steps within the block."""
    steps, original = Steps(), Stoml3.step

    def step(self: Stoml3, x: Any, *more: Any) -> float:
        steps.first = time.perf_counter() if steps.first is None else steps.first
        loss = original(self, x, *more)
        steps.last, steps.descriptors, steps.count = time.perf_counter(), steps.descriptors + len(x), steps.count + 1
        return loss

    with mock.patch.object(Stoml3, "step", step):
        yield steps


def one_pass(source: Any, labels: Any = None, *, memory: float = 1500, **settings: Any) -> tuple[Steps, float, float]:
    """Train one pass; return its steps, the seconds of the fit, and the peak memory of the process in gigabytes."""
    give_back_memory()
    forget_peak_memory()
    voter = SNBNL(max_iter=1, **settings).set_options(memory=memory)
    with watched() as steps:
        seconds, _ = timed(lambda: voter.fit(source, labels))
    return steps, seconds, peak_memory() / 1e9


def bare_products(width: int, batch: int, features: int, repeats: int = 5) -> float:
    """Return the median seconds of the two matrix products of a step, and nothing else."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((width, features), np.float32)
    x = rng.standard_normal((batch, features), np.float32)
    products, gradient = np.empty((width, batch), np.float32), np.empty((width, features), np.float32)

    def work() -> None:
        np.matmul(weights, x.T, out=products)
        np.matmul(products, x, out=gradient)

    work()
    return float(np.median([timed(work)[0] for _ in range(repeats)]))


def large_store(folder: Path, descriptors: int, features: int) -> list[Record]:
    """One pass of 15 x 10 prototypes over the whole store, and over a part of it in memory."""
    store = make_store(folder, descriptors, 15, features)
    before = rates_in_memory(store)
    steps, seconds, peak = one_pass(store)
    in_memory = max(before + rates_in_memory(store))  # the fastest, since other work on the machine only slows it down
    name = f"{int(store.sizes.sum()):,} descriptors, 15 x 10 prototypes"
    return [
        record(f"peak memory, {name}", peak, "GB", 2),
        record(f"step rate, {name}", steps.rate / in_memory, "of that in memory", 0.6, "bags in memory"),
        record(f"descriptors per second, {name}", steps.rate, "1/s"),
        record(f"time before the first step, {name}", seconds - (steps.last - (steps.first or 0)), "s"),
        *growth_with_descriptors(store),
    ]


def rates_in_memory(store: Store, repeats: int = 3) -> list[float]:
    """Return the step rates of passes over a part of a store, loaded into memory beforehand."""
    part = store.load(np.arange(min(len(store), 1000)), np.float16)
    return [one_pass(*part)[0].rate for _ in range(repeats)]


def growth_with_descriptors(store: Store) -> list[Record]:
    """Time and memory of fits on more and more photos of a store, and the fitted exponents."""
    total = int(store.sizes.sum())
    counts = [count for count in (10**4, 10**5, 10**6, 10**7) if count < 1.01 * total]
    counts = counts if len(counts) > 1 else [total // 10, total]
    results, records = [], []
    for count in counts:
        _, seconds, peak = one_pass(store.only(store.names[: max(15, count // SIZE)]))
        results.append((seconds, peak))
        records.append(record(f"time of one pass, {count:,} descriptors", seconds, "s"))
        records.append(record(f"peak memory of one pass, {count:,} descriptors", peak, "GB", 2))
    return records + exponents("descriptors", counts, results)


def exponents(name: str, counts: list[int], results: list[tuple[float, float]]) -> list[Record]:
    """Fit ``value ~ count^exponent`` to times and peaks."""
    if len(counts) < 2:
        return []
    slopes = np.polyfit(np.log(counts), np.log(np.maximum(results, 1e-9)), 1)[0]
    return [
        record(f"exponent of time by {name}", float(slopes[0]), ""),
        record(f"exponent of peak memory by {name}", float(slopes[1]), ""),
    ]


def bank_on_disk(folder: Path, descriptors: int, memory: float, photos: int = 2) -> list[Record]:
    """Answer photos with NBNN over a part of a store, in a process of its own whose peak memory is the whole of it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        count, fitting, answering, peak, rate = process.submit(answers, folder, descriptors, memory, photos).result()
    name = f"NBNN over {count:,} descriptors"
    return [
        record(f"peak memory, {name}", peak, "GB", 2),
        record(f"time to fit, {name}", fitting, "s"),
        record(f"time to answer {photos} photos, {name}", answering, "s"),
        record(f"search rate, {name}", rate, "of that in memory", None, "a bank in memory"),
    ]


def answers(folder: Path, descriptors: int, memory: float, photos: int) -> tuple[int, float, float, float, float]:
    """Return descriptors of the bank, seconds to fit and to answer, peak memory in gigabytes, and the search rate.

    The rate is in comparisons per second, relative to a bank in memory that is searched by brute force as well.
    """
    store = Store.open(folder)
    asked = store.only(store.names[-photos:])
    store = store.only(store.names[: max(15, descriptors // SIZE)])
    fitting, voter = timed(lambda: NBNN().set_options(memory=memory).fit(store))
    if not voter.scorer().on_disk:
        raise SystemExit("the bank is in memory: take more descriptors, or less memory.")
    answering, _ = timed(lambda: voter.predict(asked))
    peak, count = peak_memory() / 1e9, len(voter.values_)
    small = store.only(store.names[: max(15, min(len(store), 100))])
    voter = NBNN().fit(small)
    vars(voter.scorer())["_rotation"] = None  # without which it is searched by brute force
    voter.predict(asked.only(asked.names[:1]))  # indexes the bank
    in_memory, _ = timed(lambda: voter.predict(asked))
    return count, fitting, answering, peak, count / answering / (len(voter.values_) / in_memory)


def many_classes(folder: Path, descriptors: int, features: int, batch: int) -> list[Record]:
    """Train on a problem of the size of SUN-397, beside the bare products of its steps."""
    store = make_store(folder, descriptors, 397, features)
    bare = bare_products(3970, batch, features + 2)
    steps, _, peak = one_pass(store, batch_size=batch)
    rate = bare * steps.count / (steps.last - (steps.first or 0))
    name = f"{int(store.sizes.sum()):,} descriptors, 397 x 10 prototypes"
    return [
        record(f"peak memory, {name}", peak, "GB", 3),
        record(f"step rate, {name}", rate, "of the bare products", 0.75, "np.matmul"),
    ]


def growth_with_classes(features: int, batch: int, steps: int) -> list[Record]:
    """Time and memory of steps with 10 to 1,000 classes of 10 prototypes, and the fitted exponents."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, features), np.float32)
    results, records, counts = [], [], [10, 32, 100, 316, 1000]
    for classes in counts:
        give_back_memory()
        forget_peak_memory()
        learner = Stoml3((rng.standard_normal((10, classes, features)) * 0.01).astype(np.float32), 2.0, 1e-4, 0.3)
        labels = rng.integers(0, classes, batch)
        learner.step(x, labels)
        seconds = float(np.median([timed(lambda: learner.step(x, labels))[0] for _ in range(steps)]))  # noqa: B023
        results.append((seconds, peak_memory() / 1e9))
        bare = bare_products(10 * classes, batch, features, steps)
        records.append(record(f"time of a step, {classes:,} classes", seconds, "s"))
        records.append(record(f"speed of a step, {classes:,} classes", bare / seconds, "of the bare products"))
        records.append(record(f"peak memory of a step, {classes:,} classes", results[-1][1], "GB"))
    return records + exponents("classes", counts, results)


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--descriptors", type=int, help="descriptors of the large store (default: 10 million)")
    parser.add_argument("--bank", type=int, help="descriptors of the bank of NBNN (default: 2 million)")
    parser.add_argument("--sun", type=int, help="descriptors of the store with 397 classes (default: 1.6 million)")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="folder on a disk with room for the stores")
    parser.add_argument("--keep", action="store_true", help="do not remove the stores")
    args = parser.parse_args()
    features, batch, repeats = (64, 500, 3) if args.quick else (1280, 2500, 5)
    descriptors = args.descriptors or (20_000 if args.quick else 10_000_000)
    bank, memory = args.bank or (20_000 if args.quick else 2_000_000), 80 if args.quick else 1500
    sun = args.sun or (100_000 if args.quick else 1_600_000)
    folder = Path(tempfile.mkdtemp(dir=args.folder, prefix="scale-"))
    try:
        records = large_store(folder / "large", descriptors, features)
        records += bank_on_disk(folder / "large", bank, memory)
        records += many_classes(folder / "classes", sun, features, batch)
    finally:
        if not args.keep:
            shutil.rmtree(folder)
    records += growth_with_classes(features + 2, batch, repeats)
    write(records, args.json)


if __name__ == "__main__":
    main()
