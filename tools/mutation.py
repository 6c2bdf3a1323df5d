"""Mutation testing: change the code in small ways, and print the changes that no test notices.

    python tools/mutation.py --sample 150 --json mutants.json    # without --sample, all mutants of each module

mutmut makes the changes, one per mutant, in the modules that pyproject.toml names; it leaves out decorated functions,
such as properties, and constants of modules. Its own runner starts pytest for each mutant, which takes seconds. Here
tests are collected once, and each mutant is a fork in which those that call the changed function run, the fastest
first, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis.internal.conjecture import engine
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"  # a copy of the code and its tests, in which the modules hold all their mutants
_LIMIT = 60  # seconds of the processor per mutant; some never end
_LONGEST = 1.0  # seconds of the processor; tests that take longer are left out, since a survivor runs all others


class Loop:
    """Runs the collected tests once per mutant, instead of once."""

    def __init__(self, mutants: list[str]) -> None:
        self.mutants, self.verdicts = mutants, dict.fromkeys(mutants, "not run")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find the tests that call each function, then run them against each of its mutants."""
        tests = {test.nodeid: test for test in session.items}
        status, found = forked(lambda: callers(session.items), limit=3600)
        if status:
            raise SystemExit("the tests have to pass before the code is changed")
        gc.freeze()  # or each fork would copy what the collector touches
        for number, mutant in enumerate(self.mutants, start=1):
            own = [tests[name] for name in json.loads(found).get(mutant.partition("__mutmut_")[0], [])]
            status, _ = forked(lambda mutant=mutant, own=own: noticed(mutant, own), _LIMIT)
            self.verdicts[mutant] = {0: "survived", 1: "killed"}.get(status, "killed by a limit")
            print(f"{number:,} of {len(self.mutants):,}: {mutant} {self.verdicts[mutant]}", flush=True)
        return True


def fails(test: pytest.Item) -> bool:
    """Run one test."""
    return any(report.failed for report in runtestprotocol(test, log=False))


def callers(tests: list[pytest.Item]) -> str:
    """Return the names of the tests that call each function, the fastest first, as JSON."""
    set_mutant_under_test("stats")
    found = defaultdict(list)
    for test in tests:
        started = time.process_time()
        if fails(test):
            raise RuntimeError(f"{test.nodeid} fails")
        spent = time.process_time() - started
        for function in state()._stats:
            found[function] += [(spent, test.nodeid)] if spent < _LONGEST else []
        state()._stats.clear()
    return json.dumps({function: [name for _, name in sorted(known)] for function, known in found.items()})


def noticed(mutant: str, tests: list[pytest.Item]) -> str:
    """Leave with the status 1 if a test fails because of a mutant."""
    set_mutant_under_test(mutant)
    if any(map(fails, tests)):
        os._exit(1)
    return ""


def forked(work: Callable[[], str], limit: int) -> tuple[int, str]:
    """Return the exit status and the result of work that is done in a fork, with a temporary folder of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result = Path(folder, "result")
        if not (child := os.fork()):
            os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
            signal.alarm(10 * limit)  # for those that wait without an end
            try:
                result.write_text(work())
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, result.read_text() if status == 0 else ""


def difference(code: str, mutant: str) -> str:
    """Return what a mutant changes."""
    name, _, number = mutant.rpartition(".")[2].rpartition("__mutmut_")
    nodes = {node.name: node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)}
    texts = [ast.unparse(nodes[f"{name}__mutmut_{which}"]).splitlines()[1:] for which in ("orig", number)]
    return "\n".join(difflib.unified_diff(*texts, mutant, "", lineterm="", n=0))


def main() -> None:
    """Make mutants, run the tests against them, and print the survivors and the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=10**6, metavar="N", help="mutants per module, drawn at random")
    parser.add_argument("--only", default="", metavar="PART", help="only mutants with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one record per module to FILE")
    given = parser.parse_args()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutation"]
    shutil.rmtree(WORK, ignore_errors=True)
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, WORK / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", WORK)
    codes, mutants, made = {}, [], Counter()
    for module in settings["modules"]:
        path = WORK / "src" / f"{module.replace('.', '/')}.py"
        mutated = mutate_file_contents(str(path), path.read_text(encoding="utf-8"))
        path.write_text(mutated.code, encoding="utf-8")
        names = [f"{module}.{name}" for name in mutated.mutant_names if given.only in f"{module}.{name}"]
        codes[module], made[module] = mutated.code, len(mutated.mutant_names)
        mutants += random.Random(0).sample(names, min(given.sample, len(names)))
    file = given.json and given.json.resolve()
    os.chdir(WORK)
    sys.path[:0] = [str(WORK / "src"), str(WORK / "tests")]
    engine.MAX_SHRINKS = 0  # one failing example is enough
    loop = Loop(mutants)
    pytest.main(["-q", "-s", "--assert=plain", "--tb=native", "-p", "no:cacheprovider", *settings["tests"]], [loop])
    if "not run" in loop.verdicts.values():  # pytest was interrupted, or a test fails without any change
        raise SystemExit("not all mutants were run, so there is no share: see above")
    survivors = [mutant for mutant, verdict in loop.verdicts.items() if not verdict.startswith("killed")]
    for mutant in survivors:
        print(difference(codes[mutant.partition(".x")[0]], mutant))
    records = []
    for module in ["", *settings["modules"]]:
        of = f"{module}.x" if module else ""
        run, lost = (sum(name.startswith(of) for name in names) for names in (mutants, survivors))
        name = f"mutants killed in {module or 'all modules'}, {run:,} of {made[module] if module else made.total():,}"
        share = 100 * (1 - lost / max(run, 1))
        print(f"{name}: {share:.1f} %")
        records.append({"name": name, "value": share, "unit": "%", "goal": None if module else 85, "peer": None})
    if file:
        file.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
