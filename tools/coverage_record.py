"""Write the figures of a run under coverage as records, as the benchmarks do, and beside them how they were made.

    python tools/coverage_record.py build/coverage build/coverage/record.json

The folder holds `report.json` of coverage.py, and the lists of tests that pytest wrote (`tests*.xml`).
"""

from __future__ import annotations

import json
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

GOAL = 92.0  # per cent; the same stands in pyproject.toml, where coverage.py checks it


def figures(totals: dict[str, Any], tests: dict[str, int]) -> list[dict[str, Any]]:
    """Return one record per figure, from the totals of coverage.py and numbers of tests.

    >>> totals = {"num_statements": 30, "covered_lines": 27, "num_branches": 10, "covered_branches": 9}
    >>> for one in figures(totals, {"passed": 5, "skipped": 1, "failed": 0}):
    ...     print(one["name"], one["value"], one["unit"], one["goal"])
    branch coverage of src/patchvote (lines and branches) 90.0 % 92.0
    branches taken 90.0 % 92.0
    lines executed 90.0 % None
    branches 10 branches None
    lines 30 lines None
    tests passed 5 tests None
    tests skipped 1 tests None
    tests failed 0 tests 0
    """
    lines, branches = totals["num_statements"], totals["num_branches"]
    executed, taken = totals["covered_lines"], totals["covered_branches"]
    both = _per_cent(executed + taken, lines + branches)
    return [
        _record("branch coverage of src/patchvote (lines and branches)", both, "%", GOAL),
        _record("branches taken", _per_cent(taken, branches), "%", GOAL),
        _record("lines executed", _per_cent(executed, lines), "%"),
        _record("branches", branches, "branches"),
        _record("lines", lines, "lines"),
        _record("tests passed", tests["passed"], "tests"),
        _record("tests skipped", tests["skipped"], "tests"),
        _record("tests failed", tests["failed"], "tests", 0),
    ]


def count_tests(files: list[Path]) -> dict[str, int]:
    """Return how many tests passed, were skipped and failed, from pytest's lists in the format of JUnit.

    A test that stands in several lists, since it was run again, counts as in the last one. Tests that are expected to
    fail count as skipped.
    """
    results: dict[tuple[str, str], str] = {}
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            marks = {mark.tag for mark in case}
            result = "failed" if marks & {"failure", "error"} else "skipped" if "skipped" in marks else "passed"
            results[case.attrib["classname"], case.attrib["name"]] = result
    return {result: list(results.values()).count(result) for result in ("passed", "skipped", "failed")}


def _record(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal, "peer": None}


def _per_cent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2)


def main(folder: Path, target: Path) -> None:
    """Read what stands in the folder, print its figures, and write the records."""
    totals = json.loads((folder / "report.json").read_text())["totals"]
    files = sorted(folder.glob("tests*.xml"), key=lambda file: file.stat().st_mtime)
    records = figures(totals, count_tests(files))
    for one in records:
        goal = "" if one["goal"] is None else f" (goal {one['goal']:g})"
        print(f"{one['name']}: {one['value']} {one['unit']}{goal}")
    target.write_text(json.dumps(records, indent=1) + "\n")
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from experiments.made_with import here

    made = {"command": "make coverage", "date": time.strftime("%Y-%m-%d"), **here()}
    target.with_suffix(".made_with.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
