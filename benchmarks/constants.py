"""The constants of the cost model in `simulate.py`, measured on one core of this machine.

Work of one process is measured in processor time, so that other work on the machine counts little; what Ray adds is
measured by the clock. Of several repeats, the least disturbed counts. The values in `constants.toml` were measured so.

    python benchmarks/constants.py --photos scene15/ --json constants.json
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
from PIL import Image
from ray import cloudpickle

from common import Record, options, record, synthetic_bags, write
from patchvote import Extractor, Photo, Recipe, Store, fill, find_photos
from patchvote.bags.entries import Entry
from patchvote.bags.shard_writing import ShardWriter
from patchvote.bags.storing import Stored
from patchvote.bags.thinning import thinned
from patchvote.engines.ray import RayEngine
from patchvote.engines.ray_team import RayTeam
from patchvote.utils.machine import resident_memory
from patchvote.voters.prototypes.minibatches import TrainingData
from patchvote.voters.prototypes.parted import GradientJob, Standard, _PartedData
from patchvote.voters.prototypes.stoml3 import Stoml3
from stores import SIZE, make_store

FEATURES = 1280
Clock = Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is measured: photos that are extracted, files that are counted, prototypes, bytes that travel."""

    photos: int = 60
    files: int = 20_000
    width: int = 3970
    batch: int = 1000
    sent: int = 20 << 20
    repeats: int = 5


def best(work: Callable[[], Any], repeats: int, clock: Clock = time.process_time) -> float:
    """Return the least time that some work takes; the first call, which warms up, does not count."""
    work()
    seconds = []
    for _ in range(repeats):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


# --- extraction -------------------------------------------------------------------------------------------------------


def extraction(photos: Sequence[Photo], folder: Path, repeats: int) -> dict[str, float]:
    """Measure what a photo costs a core from file to shard, and the sizes of its bag."""
    extractor, seconds = Extractor(jobs=1), []
    extractor(photos[:1])
    for number in range(repeats):
        start = time.process_time()
        fill(folder / f"bags-{number}", list(photos), extractor)
        seconds.append(time.process_time() - start)
    summary = Store.open(folder / "bags-0").summary()
    return {
        "photo_seconds": min(seconds) / len(photos),
        "bag_bytes": summary["bytes"] / len(photos),
        "descriptors": summary["descriptors"] / len(photos),
    }


class Telling:
    """Reports photos as stored, and does nothing else."""

    name, per_task = "tell", 64

    def start(self) -> Callable[[Sequence[Photo]], list[Stored]]:
        """Return the function that reports."""
        return lambda photos: [Stored(one, Entry(one.name, one.label, f"{one.name:>064}"), 1) for one in photos]


class Told:
    """An engine whose workers report every photo at once, so that only the bookkeeping of this process remains."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def run(self, job: Any, items: Sequence[Any]) -> Any:
        """Run the other job."""
        return self.engine.run(Telling(), items)


def bookkeeping(engine: Any, folder: Path, count: int, clock: Clock = time.process_time) -> dict[str, float]:
    """Measure what the calling process does per photo: finding it, taking reports of workers, opening the store."""
    photos = folder / "files" / "a"
    photos.mkdir(parents=True)
    for index in range(count):
        (photos / f"{index:08d}.jpg").touch()
    extractor = Extractor(jobs=1)
    fill(folder / "warm", find_photos(folder / "files")[:200], extractor, engine=Told(engine))
    gc.collect()
    before, start = resident_memory(), clock()
    found = find_photos(folder / "files")
    finding = clock() - start
    start = clock()
    filled = fill(folder / "told", found, extractor, engine=Told(engine))
    telling = clock() - start
    gc.collect()
    memory = max(0, resident_memory() - before)
    assert filled.extracted == count
    writer = ShardWriter(folder / "many", Recipe(), "0" * 16, 2, "float16", shard_bytes=100 * 4)
    (folder / "many").mkdir()
    bag = synthetic_bags(1, 1, 1, 2)[0].astype(np.float16)
    for index in range(count):
        writer.add(Entry(f"{index:08d}.jpg", "a", f"{index:064d}"), bag)
    writer.close()
    opening = best(lambda: Store.open(folder / "many").only(Store.open(folder / "many").names), 2, clock) / 2
    store = Store.open(folder / "many")
    return {
        "find_seconds": finding / count,
        "report_seconds": telling / count,
        "open_seconds": opening / count,
        "photo_memory": memory / count,
        "job_bytes": len(pickle.dumps(GradientJob(store.path, store.entries, 1))) / count,
    }


# --- training ---------------------------------------------------------------------------------------------------------


def steps(store: Store, sizes: Sizes, features: int, clock: Clock = time.process_time) -> dict[str, float]:
    """Measure the parts of a step: gathering, products, sums and updates, all on one core."""
    rng = np.random.default_rng(0)
    dim, count = features + 2, sizes.batch
    weights = rng.standard_normal((1, sizes.width, dim)).astype(np.float32) * np.float32(0.01)
    x = rng.standard_normal((count, dim)).astype(np.float32)
    labels, share = rng.integers(0, sizes.width, count), np.full(count, 1 / count, np.float32)
    product = best(lambda: Stoml3(weights, 2.0, 0.0).gradient(x, labels, share), sizes.repeats, clock)
    standard = Standard(np.zeros(dim, np.float32), np.ones(dim, np.float32), True, 1.0)
    part = GradientJob(store.path, store.entries, int(store.sizes.sum())).start()
    images = rng.permutation(len(store))  # of a large store, the descriptors of a minibatch are all of different photos
    own = (images, rng.integers(0, int(store.sizes.min()), len(images)), images % 2, share[: len(images)])
    few = weights[:, :2].copy()
    gather = best(lambda: part((few, 2.0, standard), own), 2 * sizes.repeats, clock)
    one, other = np.zeros_like(weights), np.ones_like(weights)
    adding = best(lambda: np.add(one, other, out=one), sizes.repeats, clock)
    learner = Stoml3(weights, 2.0, 1e-4, 0.3)
    learner.begin_mean()
    learner.gradient = lambda *_: (0.0, other)  # type: ignore[method-assign]
    update = best(lambda: learner.step(x, labels, share), sizes.repeats, clock)
    return {
        "flops": 4 * count * sizes.width * dim / product,
        "gather_seconds": gather / len(images),
        "sum_rate": weights.nbytes / adding,
        "update_rate": weights.nbytes / update,
    }


def reading(store: Store, repeats: int, clock: Clock = time.process_time) -> dict[str, float]:
    """Measure reading bags from the page cache: one at a time as workers do, and thinned as `fit` does."""
    images = range(min(len(store), 50))
    one = best(lambda: [store.load([image], store.dtype) for image in images], repeats, clock) / len(images)
    part = store.only(store.names[: len(images)])
    means = np.empty((len(part), part.dim), np.float32)
    thin = best(lambda: thinned(part, 0, means), repeats, clock) / len(images)
    bytes_per_photo = float(store.sizes.mean()) * store.dim * 2
    return {"read_rate": bytes_per_photo / one, "thin_rate": bytes_per_photo / thin}


def drawing(store: Store, size: int, clock: Clock = time.process_time) -> dict[str, float]:
    """Measure what the minibatches of a pass cost per descriptor: drawn for workers, and gathered in one process."""
    numbers = np.arange(len(store)) % 2
    data = TrainingData(store, numbers, np.ones(len(store)), 1 << 60)
    mean, scale = np.zeros(data.dim), np.ones(data.dim)

    def one_pass(source: TrainingData) -> int:
        return sum(len(x) for x, _, _ in source.minibatches(np.random.default_rng(0), size, mean, scale))

    drawn, gathered = (best(lambda: one_pass(one), 3, clock) for one in (_PartedData.of(data), data))  # noqa: B023
    return {"draw_seconds": drawn / data.descriptors, "stream_seconds": gathered / data.descriptors}


class Echo:
    """Answers with as many bytes as it is asked for."""

    name = "echo"

    def start(self) -> Callable[[Any, int], Any]:
        """Return the function that answers."""
        return lambda shared, count: np.zeros(count, np.uint8)


def exchange(sizes: Sizes, members: int = 4) -> dict[str, float]:
    """Measure by the clock what workers add to a step: a call, one more worker, bytes to one and bytes from one."""

    def asked(team: RayTeam, count: int) -> float:
        return best(lambda: team.ask(None, [count] * team.size), 4 * sizes.repeats, time.perf_counter)

    large = np.ones(sizes.sent, np.uint8)
    put = best(lambda: ray.put(large), 4 * sizes.repeats, time.perf_counter)
    begin = time.perf_counter()
    # No core is reserved, so that there may be more workers than cores.
    with contextlib.closing(RayTeam(Echo(), 1, threads=0)) as team:
        team.ask(None, [0])
        started = time.perf_counter() - begin
        latency, back = asked(team, 0), asked(team, sizes.sent)
    with contextlib.closing(RayTeam(Echo(), members, threads=0)) as team:
        together = asked(team, 0)
    return {
        "start_seconds": started,
        "latency_seconds": latency,
        "call_seconds": max(together - latency, 0.0) / (members - 1),
        "put_rate": sizes.sent / put,
        "reply_rate": sizes.sent / max(back - latency, 1e-9),
    }


def by_value() -> None:
    """Have workers get the jobs of this module by value: they cannot import it."""
    if __name__ != "__main__":
        cloudpickle.register_pickle_by_value(sys.modules[__name__])


# --- all --------------------------------------------------------------------------------------------------------------

UNITS = {"seconds": "s", "rate": "byte/s", "bytes": "byte", "memory": "byte", "flops": "1/s"}


def synthetic_photos(folder: Path, count: int) -> list[Photo]:
    """Write photos of noise, for a run without others."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(count):
        Image.fromarray(rng.integers(0, 255, (240, 320, 3)).astype(np.uint8)).save(folder / f"{index}.jpg")
    return list(find_photos(folder))


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, help="folder of photos (default: noise)")
    args = parser.parse_args()
    sizes = Sizes(4, 500, 150, 200, 1 << 20, 2) if args.quick else Sizes()
    features = 64 if args.quick else FEATURES
    values: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, RayEngine(workers=1) as engine:
        by_value()
        folder = Path(name)
        photos = find_photos(args.photos) if args.photos else synthetic_photos(folder / "noise", sizes.photos)
        chosen = [photos[index] for index in np.linspace(0, len(photos) - 1, sizes.photos).astype(int)]
        values |= extraction(chosen, folder, min(sizes.repeats, 3))
        values |= bookkeeping(engine, folder, sizes.files)
        store = make_store(folder / "store", 100 * SIZE, 2, features)
        values |= steps(store, sizes, features) | reading(store, sizes.repeats) | drawing(store, sizes.batch)
        values |= exchange(sizes)
    records: list[Record] = []
    for key, value in values.items():
        records.append(record(key, value, UNITS.get(key.rpartition("_")[2], "")))
    write(records, args.json)


if __name__ == "__main__":
    main()
