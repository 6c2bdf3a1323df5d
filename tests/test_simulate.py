"""The cost model of docs/scaling.md: its page, its constants, and cases with a known answer."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import growth
import simulate

ROOT = Path(__file__).resolve().parent.parent
TABLE = simulate.Table.read()
SUN = TABLE.workloads[0]
EVERYTHING, FIT = TABLE.trainings["all"], TABLE.trainings["fit"]


def test_the_tables_of_the_page_are_those_of_the_model():
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert simulate.filled_page(page, TABLE) == page


def test_every_constant_is_that_of_its_record_but_for_rounding():
    records = json.loads((ROOT / "results" / "bench" / "constants.json").read_text())
    measured = {record["name"]: record["value"] for record in records}
    assert measured.keys() == TABLE.notes["measured"].keys()
    for name, note in TABLE.notes["measured"].items():
        assert note["value"] == pytest.approx(measured[name], rel=0.05)
        assert note["what"]
        assert note["where"]


def test_a_page_without_a_place_for_a_table_is_refused():
    with pytest.raises(SystemExit, match="no single place for the table extraction"):
        simulate.filled_page("# Scaling", TABLE)


def test_extraction_divides_until_the_calling_process_is_the_bottleneck():
    work = dataclasses.replace(SUN, photos=10**8)
    one, eight, many = (simulate.extraction(work, TABLE.cluster(nodes), TABLE.constants) for nodes in (1, 8, 4096))
    assert one.seconds / eight.seconds == pytest.approx(8, rel=0.1)
    assert (one.bottleneck, many.bottleneck) == ("network forward", "calling process")
    least = work.photos * TABLE.constants.report_seconds
    assert least < many.seconds < 2 * least


def test_slow_disks_are_the_bottleneck_of_extraction():
    slow = dataclasses.replace(TABLE.cluster(8), disk=1e7)
    stage = simulate.extraction(SUN, slow, TABLE.constants)
    assert stage.bottleneck == "disks"
    assert stage.seconds >= SUN.photos * (SUN.photo_bytes + TABLE.constants.bag_bytes) / 8e7


def free() -> simulate.Constants:
    """Constants of a machine on which nothing takes time."""
    names = {field.name: field.name for field in dataclasses.fields(simulate.Constants)}
    values = {name: math.inf if name.endswith("rate") or name == "flops" else 0.0 for name in names}
    return simulate.Constants(**values | {"descriptors": 219, "bag_bytes": 5.6e5})


@pytest.mark.parametrize("nodes", [1, 8])
def test_a_step_sends_prototypes_to_every_node_and_receives_a_gradient_from_every_worker(nodes):
    cluster = dataclasses.replace(TABLE.cluster(nodes, workers=4), disk=math.inf)
    how = dataclasses.replace(EVERYTHING, passes=1)
    steps, size = SUN.photos * 219 / 1000, 4 * 3970 * 1282
    stage = simulate.training(SUN, cluster, free(), how)
    assert stage.seconds == pytest.approx(steps * size * (5 * (nodes - 1)) / cluster.network)


def test_an_all_reduce_sends_twice_a_gradient_however_many_nodes_there_are():
    how = dataclasses.replace(EVERYTHING, passes=1)
    for nodes in (2, 512):
        cluster = dataclasses.replace(TABLE.cluster(nodes), disk=math.inf, largest_batch=1000)
        stage = simulate.training(SUN, cluster, free(), how, ring=True)
        once = SUN.photos * 219 / 1000 * 4 * 3970 * 1282 / cluster.network
        assert stage.seconds == pytest.approx(2 * (nodes - 1) / nodes * once)


def test_descriptors_that_do_not_fit_into_memory_are_read_in_every_pass():
    for photos, times in ((1000, 1), (100_000, 3)):
        work, cluster = dataclasses.replace(SUN, photos=photos), TABLE.cluster(1, workers=1)
        stage = simulate.training(work, dataclasses.replace(cluster, disk=1e8), free(), EVERYTHING)
        assert stage.apart["reading bags"] == pytest.approx(times * photos * max(5.6e5, 219 * 2560) / 1e8)
        assert stage.memory["calling node"] < 2e9


def test_the_search_for_copies_grows_with_the_square_of_the_photos():
    work = dataclasses.replace(SUN, photos=2 * SUN.photos)
    one, two = (simulate.calling_process(which, TABLE.cluster(1), TABLE.constants, FIT) for which in (SUN, work))
    assert two.apart["looking for copies"] == pytest.approx(4 * one.apart["looking for copies"])
    assert two.memory["calling node"] == pytest.approx(2 * one.memory["calling node"])


def test_times_and_sizes_are_written_with_two_digits():
    assert [simulate.span(seconds) for seconds in (0.25, 42.4, 5000, 1e6, 1e9)] == [
        "0.25 s",
        "42 s",
        "1.4 h",
        "12 days",
        "32 years",
    ]
    assert [simulate.volume(count) for count in (5e5, 2.5e9, 1e14)] == ["0.5 MB", "2.5 GB", "100 TB"]


def test_the_exponent_of_growth_is_found_beside_a_constant_start():
    sizes = np.array([1e4, 3e4, 1e5, 3e5, 1e6])
    start, factor, exponent = growth.fitted(sizes, 2 + 1e-5 * sizes**1.1)
    assert (start, factor, exponent) == pytest.approx((2, 1e-5, 1.1), rel=1e-3)
    assert growth.fitted(sizes, 1e-5 * sizes)[2] == pytest.approx(1, abs=1e-3)
