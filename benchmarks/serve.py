"""The server under load, beside the bare network: throughput, latency, and what overload does to it.

This process drives a server in a second one, on 127.0.0.1 alone, with a bounded number of requests. Throughput is
compared with the forward pass of the network in ONNX Runtime on the same photos, already decoded and in the server's
batches, in turns, so that other load on the machine affects both equally. Then four times as many photos arrive per
second as it can answer: it must stay up, refuse with 429, keep its memory, and answer afterwards as before.

    python benchmarks/serve.py --photos scene15/ --json serve.json
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from common import Record, options, record, write
from extract import Recording, bare_forward
from patchvote import Extractor, ImageClassifier, Photo, Recipe, find_photos
from patchvote.networks import load
from patchvote.utils.machine import cores

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CLIENTS = 16  # requests at once, of one photo each: enough that the network never waits
OVERLOAD = 4.0  # times the rate that the server can bear


class Address:
    """Where the server listens, and how to ask it."""

    def __init__(self, address: str) -> None:
        self.port = int(urlsplit(address).port or 0)

    async def connected(self) -> Connection:
        """Open a connection."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, connection: Connection, head: str, body: bytes = b"") -> tuple[int, bytes, float]:
        """Send one request; return status, body and seconds."""
        start = time.perf_counter()
        reader, writer = connection
        fields = f"{head}Host: 127.0.0.1:{self.port}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(fields.encode() + body)
        await writer.drain()
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(answer.partition(b"content-length:")[2].split()[0])
        content = await reader.readexactly(size)
        return int(answer.split()[1]), content, time.perf_counter() - start

    async def predict(self, connection: Connection, photo: bytes) -> tuple[int, bytes, float]:
        """Ask about one photo."""
        mark = "benchmark"
        part = 'Content-Disposition: form-data; name="files"; filename="a.jpg"'
        body = f"--{mark}\r\n{part}\r\n\r\n".encode() + photo + f"\r\n--{mark}--\r\n".encode()
        head = f"POST /v1/predict HTTP/1.1\r\nContent-Type: multipart/form-data; boundary={mark}\r\n"
        return await self.ask(connection, head, body)

    async def figure(self, name: str) -> float:
        """Return one of the server's own figures."""
        connection = await self.connected()
        try:
            _, content, _ = await self.ask(connection, "GET /metrics HTTP/1.1\r\n")
        finally:
            connection[1].close()
        lines = content.decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    async def memory(self) -> float:
        """Return the megabytes that the server has in memory."""
        return await self.figure("patchvote_memory_bytes") / 1e6

    def processor_seconds(self) -> float:
        """Return the processor time that the server has used."""
        return asyncio.run(self.figure("patchvote_cpu_seconds"))


@contextmanager
def running(model: Path, data: Path, queue: int) -> Iterator[Address]:
    """Start a server in which so many photos may wait, and end it."""
    command = [sys.executable, "-m", "patchvote", "serve", str(model), "--port", "0", "--data", str(data)]
    command += ["--queue", str(queue)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        yield Address(server.stdout.readline().split()[-1])
    finally:
        server.terminate()
        server.wait(20)


async def closed_loop(server: Address, photos: list[bytes], clients: int) -> tuple[float, list[float]]:
    """Let clients ask one photo after the other; return the seconds of all, and those of each request."""
    queue, seconds = list(photos), []

    async def client() -> None:
        connection = await server.connected()
        while queue:
            status, content, took = await server.predict(connection, queue.pop())
            if status != 200:
                raise RuntimeError(f"{status}: {content[:200]!r}")
            seconds.append(took)
        connection[1].close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - start, seconds


def recorded(photos: list[bytes]) -> list[np.ndarray]:
    """Return the tensors that the network is given for photos, in its own batches."""
    recording = Recording(Recipe())
    Extractor(Recipe(), backbone=recording, jobs=1)(photos)
    return recording.tensors


def _processor_seconds(backbone: Any, tensors: list[np.ndarray]) -> float:
    """Return the processor time of the network alone, which does not depend on other load as its duration does."""
    start = time.process_time()
    for tensor in tensors:
        backbone.describe(tensor)
    return time.process_time() - start


def measure_throughput(server: Address, photos: list[bytes], rounds: int) -> tuple[list[Record], float]:
    """Measure photos per second of the server and of the bare network, in turns; return the server's rate, too."""
    tensors, jobs = recorded(photos), cores()
    sessions = {"all cores per call": load(Recipe().network, threads=jobs), "one core per call": load(Recipe().network)}
    bare, ours, latencies, driving = dict.fromkeys(sessions, 0.0), 0.0, [], 0.0
    bare_forward(sessions, tensors[:4], jobs)  # warm up
    asyncio.run(closed_loop(server, photos[:CLIENTS], CLIENTS))
    alone = _processor_seconds(sessions["one core per call"], tensors)
    before = server.processor_seconds()
    for _ in range(rounds):
        for name, took in bare_forward(sessions, tensors, jobs).items():
            bare[name] += took
        driven = time.process_time()
        took, seconds = asyncio.run(closed_loop(server, photos, CLIENTS))
        driving += time.process_time() - driven
        ours += took
        latencies += seconds
    used = (server.processor_seconds() - before) / rounds
    fastest = min(bare, key=lambda name: bare[name])
    count = rounds * len(photos)
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    return [
        record("photos per second of the server", count / ours, "photos/s"),
        record("photos per second of the bare network", count / bare[fastest], "photos/s", peer=fastest),
        record("throughput of the server over that of the bare network", bare[fastest] / ours, "times", 0.8, fastest),
        record("processor time of the bare network over that of the server", alone / used, "times", 0.8),
        record("processor time of the server per photo", 1000 * used / len(photos), "ms"),
        record("processor time of the bare network per photo", 1000 * alone / len(photos), "ms"),
        record("processor time of this driver per photo, on the same cores", 1000 * driving / count, "ms"),
        record(f"p50 of a request, {CLIENTS} at once", 1000 * p50, "ms"),
        record(f"p99 of a request, {CLIENTS} at once", 1000 * p99, "ms"),
    ], count / ours


def measure_alone(server: Address, photos: list[bytes]) -> list[Record]:
    """Measure the time of requests that come one after the other."""
    _, seconds = asyncio.run(closed_loop(server, photos, 1))
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    return [
        record("p50 of a request, one at a time", 1000 * p50, "ms"),
        record("p99 of a request, one at a time", 1000 * p99, "ms"),
    ]


async def overload(server: Address, photos: list[bytes], rate: float, seconds: float) -> dict[str, list[float]]:
    """Let photos arrive at a rate, whether or not earlier ones were answered; return seconds by status, and memory."""
    results: dict[str, list[float]] = {"memory": []}

    async def one(photo: bytes) -> None:
        try:
            connection = await server.connected()
            status, _, took = await server.predict(connection, photo)
            connection[1].close()
        except (OSError, EOFError):  # the connection was refused or broken
            status, took = 0, 0.0
        results.setdefault(str(status), []).append(took)

    tasks, start = [], time.perf_counter()
    for index in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, start + index / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(one(photos[index % len(photos)])))
        if index % max(1, int(rate)) == 0:
            results["memory"].append(await server.memory())
    await asyncio.gather(*tasks)
    results["memory"].append(await server.memory())
    return results


def measure_overload(server: Address, photos: list[bytes], rate: float, seconds: float) -> list[Record]:
    """Measure what four times the bearable load does, and whether the answers afterwards are those of before."""

    async def answers() -> list[object]:
        connection = await server.connected()
        return [json.loads((await server.predict(connection, photo))[1])["answers"] for photo in photos[:12]]

    before = asyncio.run(answers())
    # The first overload fills buffers and pools; memory is compared from there.
    asyncio.run(overload(server, photos, OVERLOAD * rate, seconds / 2))
    settled = asyncio.run(server.memory())
    results = asyncio.run(overload(server, photos, OVERLOAD * rate, seconds))
    memory = results.pop("memory")
    count = sum(map(len, results.values()))
    refused, answered = results.get("429", []), results.get("200", [])
    others = count - len(refused) - len(answered)
    after = asyncio.run(answers())
    return [
        record("requests at four times the load", count, "requests"),
        record("of these answered", 100 * len(answered) / count, "%"),
        record("of these refused with 429", 100 * len(refused) / count, "%"),
        record("of these neither answered nor refused with 429", others, "requests", 0),
        record("p99 of a refusal", 1000 * float(np.quantile(refused, 0.99)) if refused else 0.0, "ms"),
        record("p99 of an answer under overload", 1000 * float(np.quantile(answered, 0.99)), "ms"),
        record("memory after an overload", settled, "MB"),
        record("largest memory in the next overload over that", max(memory) / settled, "times", 1.15),
        record("answers afterwards that are those of before", float(after == before), "yes or no", 1),
    ]


def contents(folder: Path, count: int) -> tuple[list[Photo], list[bytes]]:
    """Return photos to learn from, and the contents of others to ask about."""
    photos = find_photos(folder)
    order = np.random.default_rng(0).permutation(len(photos))
    by_class: dict[str, list[Photo]] = {}
    for index in order.tolist():
        by_class.setdefault(str(photos[index].label), []).append(photos[index])
    train = [photo for own in by_class.values() for photo in own[:4]]
    rest = [photo for own in by_class.values() for photo in own[4:]]
    with ThreadPoolExecutor(2) as pool:
        return train, list(pool.map(lambda photo: Path(str(photo.source)).read_bytes(), rest[:count]))


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder with one folder per class")
    args = parser.parse_args()
    train, photos = contents(args.photos, 48 if args.quick else 200)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ImageClassifier(cache=folder / "cache").fit(train).save(folder / "m.patchvote")
        with running(folder / "m.patchvote", folder / "data", 16 if args.quick else 64) as server:
            records, rate = measure_throughput(server, photos, 2 if args.quick else 4)
            records += measure_alone(server, photos[: 8 if args.quick else 50])
            records += measure_overload(server, photos, rate, 3.0 if args.quick else 20.0)
    write(records, args.json)


if __name__ == "__main__":
    main()
