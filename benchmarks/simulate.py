"""What extraction and training would take on 1 to 512 nodes: a cost model, from constants that were measured here.

Everything beyond two workers is a prediction. The model adds up what the code does: extraction hands out tasks, workers
write their own shards, and the calling process takes a report per photo; in every step of sNBNL the calling process
sends the prototypes to every node, receives a gradient from every worker, and adds them up one after the other. All
numbers that it counts with are in `constants.toml`. It writes the tables of docs/scaling.md.

    python benchmarks/simulate.py --page docs/scaling.md
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any, Self

from common import Record, options, record, write

TABLE = Path(__file__).with_name("constants.toml")
NODES = (1, 8, 64, 512)
FEATURES = 1280
PHOTOS_PER_TASK = 64
BUDGET = 1.5e9  # bytes of descriptors that a worker keeps (`memory` of SNBNL)
HELD_OUT = 0.2  # share of the photos on which `fit` tries settings
YEAR = 31_557_600  # seconds
CHANGES: dict[str, dict[str, float]] = {
    "as below": {},
    "network of 100 Gbit/s": {"network": 10},
    "network of 1 Gbit/s": {"network": 0.1},
    "disks of 100 MB/s": {"disk": 0.2},
    "64 cores per node": {"cores": 4},
}


# --- what the model counts with ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Constants:
    """Constants that were measured; `constants.toml` says what each is, and where it was measured."""

    photo_seconds: float
    descriptors: float
    bag_bytes: float
    find_seconds: float
    report_seconds: float
    open_seconds: float
    photo_memory: float
    job_bytes: float
    flops: float
    gather_seconds: float
    draw_seconds: float
    stream_seconds: float
    sum_rate: float
    update_rate: float
    read_rate: float
    thin_rate: float
    start_seconds: float
    latency_seconds: float
    call_seconds: float
    put_rate: float
    reply_rate: float


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes of a cluster, and the workers on each; what a node has is assumed.

    An all-reduce would allow a minibatch of `largest_batch`, however many nodes there are.
    """

    nodes: int
    cores: float
    memory: float
    network: float
    disk: float
    space: float
    price: float
    largest_batch: float = 1e9
    workers: int = 0  # per node; by default one per core

    @property
    def per_node(self) -> int:
        """Workers per node."""
        return self.workers or int(self.cores)

    def money(self, seconds: float) -> float:
        """Price of all nodes for some time."""
        return self.nodes * self.price * seconds / 3600


@dataclasses.dataclass(frozen=True)
class Workload:
    """Photos and their classes."""

    title: str
    photos: int
    classes: int
    photo_bytes: float


@dataclasses.dataclass(frozen=True)
class Training:
    """A training of sNBNL: what it learns from, and how; `descriptors` are those per photo, 0 for all."""

    title: str
    descriptors: int
    prototypes: int
    batch: int
    passes: int
    features: int = FEATURES


@dataclasses.dataclass(frozen=True)
class Table:
    """The content of `constants.toml`."""

    constants: Constants
    node: dict[str, Any]
    workloads: list[Workload]
    trainings: dict[str, Training]
    notes: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, path: Path = TABLE) -> Self:
        """Read the table."""
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(
            Constants(**{name: note["value"] for name, note in table["measured"].items()}),
            {name: note["value"] for name, note in table["assumed"].items()},
            [Workload(**workload) for workload in table["workloads"].values()],
            {name: Training(**training) for name, training in table["trainings"].items()},
            {"measured": table["measured"], "assumed": table["assumed"]},
        )

    def cluster(self, nodes: int, workers: int = 0) -> Cluster:
        """Return a cluster of so many nodes."""
        return Cluster(nodes=nodes, workers=workers, **self.node)


@dataclasses.dataclass(frozen=True)
class Stage:
    """Seconds of the parts of a stage: of those that overlap only the longest counts, the others add up.

    Parameters
    ----------
    apart : dict
        Seconds of parts that follow one another.
    together : dict
        Seconds of parts that run at the same time.
    memory : dict
        Bytes of memory, by where they are needed.
    """

    apart: dict[str, float]
    together: dict[str, float] = dataclasses.field(default_factory=dict)
    memory: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds of the whole stage."""
        return sum(self.apart.values()) + max(self.together.values(), default=0.0)

    @property
    def bottleneck(self) -> str:
        """Part that takes longest."""
        parts = self.apart | self.together
        return max(parts, key=lambda name: parts[name])


# --- the model --------------------------------------------------------------------------------------------------------


def extraction(work: Workload, cluster: Cluster, c: Constants) -> Stage:
    """Extract all photos: workers read, compute and write at once; the calling process takes a report per photo."""
    workers = cluster.nodes * cluster.per_node
    return Stage(
        {
            "start": c.start_seconds,
            "finding photos": work.photos * c.find_seconds,
            "last tasks": min(PHOTOS_PER_TASK, work.photos / (2 * workers)) * c.photo_seconds / 2,
            "opening the store": work.photos * c.open_seconds,
        },
        {
            "network forward": work.photos * c.photo_seconds / workers,
            "disks": work.photos * (work.photo_bytes + c.bag_bytes) / (cluster.nodes * cluster.disk),
            "calling process": work.photos * c.report_seconds,
        },
        {"calling node": work.photos * c.photo_memory},
    )


def training(work: Workload, cluster: Cluster, c: Constants, how: Training, *, ring: bool = False) -> Stage:
    """Train sNBNL on workers, as the code does; with `ring`, as an all-reduce between the nodes would.

    With `ring`, there is one worker per node, which makes the step itself after gradients were added up around the
    ring. A minibatch is then `how.batch` per node, up to the largest.
    """
    cluster = dataclasses.replace(cluster, workers=1) if ring else cluster
    workers, per_photo = cluster.nodes * cluster.per_node, how.descriptors or c.descriptors
    batch = min(how.batch * cluster.nodes, cluster.largest_batch) if ring else how.batch
    steps = max(1.0, work.photos * per_photo / batch) * how.passes
    width = work.classes * how.prototypes
    size = 4.0 * width * (how.features + 2)  # bytes of the prototypes, and of a gradient
    parts = {name: steps * took for name, took in _step(cluster, c, batch, width, how.features + 2, ring).items()}
    share = work.photos * per_photo / workers * 2 * how.features  # bytes of descriptors per worker
    kept = share if how.descriptors else min(share, BUDGET)
    # A worker whose photos do not fit reads them again in every pass; all of a bag is read, whatever is kept of it.
    times, bag = how.passes if share > kept else 1, max(c.bag_bytes, 2 * per_photo * how.features)
    reading = work.photos * bag * max(1 / (c.read_rate * workers), 1 / (cluster.disk * cluster.nodes))
    job = work.photos * c.job_bytes  # sent to every worker when it starts
    start = workers * job / c.put_rate + (workers - cluster.per_node) * job / cluster.network
    node = cluster.per_node * (kept + 2 * size + 4 * batch / workers * width + job) + size
    return Stage(
        {
            "start": c.start_seconds + start,
            "opening the store": work.photos * c.open_seconds,
            "reading bags": times * reading,
            **parts,
        },
        memory={"calling node": node + (0 if ring else workers * size)},
    )


def _step(cluster: Cluster, c: Constants, batch: float, width: int, dim: int, ring: bool) -> dict[str, float]:
    """Return the seconds of the parts of one step."""
    nodes, here, size = cluster.nodes, cluster.per_node, 4.0 * width * dim
    workers = nodes * here
    step = {
        "drawing": batch * c.draw_seconds,
        "gathering": batch / workers * c.gather_seconds,
        "products": 4 * batch * width * dim / (c.flops * nodes * max(here, cluster.cores)),
        "update": size / c.update_rate,
    }
    if ring:
        around = 2 * (nodes - 1) / nodes * size  # bytes that pass every node
        return step | {"calls": c.latency_seconds, "all-reduce": around / cluster.network + around / c.sum_rate}
    return step | {
        "calls": c.latency_seconds + (workers - 1) * c.call_seconds,
        "prototypes to the nodes": size / c.put_rate + (nodes - 1) * size / cluster.network,
        "gradients to the calling process": size / c.reply_rate + (workers - here) * size / cluster.network,
        "adding up": workers * size / c.sum_rate,
    }


def alone(work: Workload, cluster: Cluster, c: Constants, how: Training) -> Stage:
    """Train sNBNL in one process without an engine.

    It reads the next block of a store while it learns from the last; what `fit` learns from is in memory by then.
    """
    per_photo, width = how.descriptors or c.descriptors, work.classes * how.prototypes
    total, size = work.photos * per_photo * how.passes, 4.0 * width * (how.features + 2)
    steps = {
        "gathering": total * c.stream_seconds,
        "products": 4 * total * width * (how.features + 2) / (c.flops * cluster.cores),
        "update": total / how.batch * size / c.update_rate,
    }
    reading, memory = 0.0, work.photos * per_photo * 4.0 * how.features
    if not how.descriptors:
        times = 1 if memory / 2 <= BUDGET else how.passes
        reading, memory = times * work.photos * c.bag_bytes * max(1 / c.read_rate, 1 / cluster.disk), BUDGET
    longest = max(steps, key=lambda name: steps[name])
    return Stage(
        {"opening the store": work.photos * c.open_seconds},
        {longest: sum(steps.values()), "reading bags": reading},
        {"calling node": memory},
    )


def best_training(work: Workload, cluster: Cluster, c: Constants, how: Training) -> Stage:
    """Train as the code does, with one worker per core or one per node, whichever is faster."""
    choices = [dataclasses.replace(cluster, workers=count) for count in (1, int(cluster.cores))]
    return min((training(work, choice, c, how) for choice in choices), key=lambda stage: stage.seconds)


def calling_process(work: Workload, cluster: Cluster, c: Constants, how: Training) -> Stage:
    """Do what `fit` does in the calling process: read bags, look for copies, choose settings on held-out photos."""
    speed, width = c.flops * cluster.cores, work.classes * (how.prototypes + 1)  # two candidates
    products = 4 * (1 - HELD_OUT) * work.photos * how.descriptors * how.passes
    votes = 2 * HELD_OUT * work.photos * c.descriptors
    thin = work.photos * how.descriptors * 4.0 * how.features
    means = 2 * work.photos * 4.0 * how.features
    return Stage(
        {
            "reading bags": work.photos * c.bag_bytes * max(1 / c.thin_rate, 1 / cluster.disk),
            "looking for copies": work.photos**2 * how.features / speed,
            "choosing settings": (products + votes) * width * (how.features + 2) / speed,
        },
        memory={"calling node": thin + means + HELD_OUT * work.photos * c.bag_bytes},
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def span(seconds: float) -> str:
    """Return a time in the unit in which it is read best, with two digits.

    Examples
    --------
    >>> span(42.4), span(5000), span(1e6), span(1e9)
    ('42 s', '1.4 h', '12 days', '32 years')
    """
    for unit, length, most in (("s", 1, 100), ("min", 60, 60), ("h", 3600, 48), ("days", 86400, 730)):
        if seconds < most * length:
            return f"{digits(seconds / length)} {unit}"
    return f"{digits(seconds / YEAR)} years"


def volume(count: float) -> str:
    """Return bytes in the unit in which they are read best."""
    units = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
    unit, size = next((unit, size) for unit, size in units if count >= size or unit == "MB")
    return f"{digits(count / size)} {unit}"


def digits(value: float) -> str:
    """Return a number with two significant digits, and no fewer before the point than it has."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def rows(title: list[str], lines: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [title, ["---"] * len(title), *lines])


def within(need: float, limit: float) -> str:
    """Return bytes that are needed, and whether there are as many."""
    return volume(need) + ("" if need <= limit else ", more than it has")


def price(cluster: Cluster, seconds: float) -> str:
    """Return the price, unless nobody would wait."""
    return f"{cluster.money(seconds):,.2f}" if seconds < YEAR else "-"


def extraction_table(table: Table) -> str:
    """Return the table of time, rate, disk, memory and price of extraction."""
    lines = []
    for work in table.workloads:
        for nodes in NODES:
            cluster = table.cluster(nodes)
            stage = extraction(work, cluster, table.constants)
            disk = within(work.photos * table.constants.bag_bytes / nodes, cluster.space)
            memory = within(stage.memory["calling node"], cluster.memory)
            rate = f"{digits(work.photos / stage.seconds)}/s"
            cells = [span(stage.seconds), rate, disk, memory, price(cluster, stage.seconds), stage.bottleneck]
            lines.append([work.title, str(nodes), *cells])
    head = ["photos", "nodes", "time", "rate", "bags per node", "memory of the calling process", "price"]
    return rows([*head, "what takes longest"], lines)


def training_table(table: Table, how: Training) -> str:
    """Return the table of time, memory and price of a training: as it is written, and with an all-reduce."""
    lines = []
    for work in table.workloads:
        one, stage = table.cluster(1), alone(work, table.cluster(1), table.constants, how)
        memory = within(stage.memory["calling node"], one.memory)
        cells = [span(stage.seconds), memory, price(one, stage.seconds), stage.bottleneck]
        lines.append([work.title, "1, no engine", *cells, "", ""])
        for nodes in NODES:
            cluster = table.cluster(nodes)
            star = best_training(work, cluster, table.constants, how)
            ring = training(work, cluster, table.constants, how, ring=True)
            memory = within(star.memory["calling node"], cluster.memory)
            cells = [span(star.seconds), memory, price(cluster, star.seconds), star.bottleneck]
            lines.append([work.title, str(nodes), *cells, span(ring.seconds), ring.bottleneck])
    head = ["photos", "nodes", "time", "memory of the calling node", "price", "what takes longest"]
    return rows([*head, "with an all-reduce", "what takes longest then"], lines)


def calling_table(table: Table) -> str:
    """Return the table of what `fit` does in the calling process, whatever the number of nodes."""
    lines = []
    for work in table.workloads:
        stage = calling_process(work, table.cluster(1), table.constants, table.trainings["fit"])
        memory = within(stage.memory["calling node"], table.node["memory"])
        lines.append([work.title, *(span(seconds) for seconds in stage.apart.values()), memory])
    return rows(["photos", "reading bags", "looking for copies", "choosing settings", "memory"], lines)


def changes_table(table: Table, nodes: int = 8) -> str:
    """Return the table of what other assumptions would change, for ImageNet."""
    work, how = table.workloads[1], table.trainings["all"]
    lines = []
    for words, change in CHANGES.items():
        cluster = dataclasses.replace(
            table.cluster(nodes), **{name: table.node[name] * by for name, by in change.items()}
        )
        c = table.constants
        stages = [extraction(work, cluster, c), best_training(work, cluster, c, how)]
        stages.append(training(work, cluster, c, how, ring=True))
        lines.append([words, *(f"{span(stage.seconds)} ({stage.bottleneck})" for stage in stages)])
    return rows(["assumption", "extraction", "training", "training with an all-reduce"], lines)


def notes_table(table: Table, kind: str) -> str:
    """Return the table of the constants or of the assumptions, with what they are."""
    head, keys = ["constant", "value", "what it is"], ["what"]
    if kind == "measured":
        head, keys = [*head, "measured on"], [*keys, "where"]
    lines = []
    for name, note in table.notes[kind].items():
        lines.append([f"`{name}`", f"{note['value']:.3g} {note['unit']}".strip(), *(note[key] for key in keys)])
    return rows(head, lines)


def tables(table: Table) -> dict[str, str]:
    """Return all tables of the page, by name."""
    return {
        "extraction": extraction_table(table),
        "training": training_table(table, table.trainings["all"]),
        "fit": training_table(table, table.trainings["fit"]),
        "calling": calling_table(table),
        "changes": changes_table(table),
        "measured": notes_table(table, "measured"),
        "assumed": notes_table(table, "assumed"),
    }


def filled_page(page: str, table: Table) -> str:
    """Return the page with its tables written anew, each between its two marks."""
    for name, text in tables(table).items():
        marks = f"<!-- table: {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise SystemExit(f"the page has no single place for the table {name}: {marks[0]} … {marks[1]}")
        page = pattern.sub(lambda _: f"{marks[0]}\n{text}\n{marks[1]}", page)  # noqa: B023 - called at once
    return page


def main() -> None:
    """Print the predictions, and write the tables of the page."""
    parser = options(__doc__)
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables of this page anew")
    args = parser.parse_args()
    table = Table.read()
    records: list[Record] = []
    for work in table.workloads:
        for nodes in NODES[:2] if args.quick else NODES:
            cluster, c = table.cluster(nodes), table.constants
            name = f"{work.title}, {nodes} nodes"
            records.append(record(f"extraction, {name}", extraction(work, cluster, c).seconds / 3600, "h"))
            for how in table.trainings.values():
                star = best_training(work, cluster, c, how)
                ring = training(work, cluster, c, how, ring=True)
                records.append(record(f"training, {how.title}, {name}", star.seconds / 3600, "h"))
                records.append(record(f"the same with an all-reduce, {name}", ring.seconds / 3600, "h"))
    if args.page is not None:
        args.page.write_text(filled_page(args.page.read_text(encoding="utf-8"), table), encoding="utf-8")
    write(records, args.json)


if __name__ == "__main__":
    main()
