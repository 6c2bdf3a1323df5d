"""What a job that learns reports to its server when it fails, and when it ends by itself."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("fastapi")

PROGRAM = """
from patchvote.errors import PatchvoteError
from patchvote.web import learning

def learn(task, tell):
    {}

learning.learn = learn
learning.main()
"""
TASK = {"photos": "photos", "run": "run", "bags": "bags", "labelled": [], "unlabelled": []}


def start(work: str) -> subprocess.Popen[str]:
    """Start a job that does this instead of learning, and send it its task."""
    command = [sys.executable, "-c", PROGRAM.format(work)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    job = subprocess.Popen(command, text=True, **pipes)
    job.stdin.write(json.dumps(TASK) + "\n")
    job.stdin.flush()
    return job


@pytest.mark.parametrize(
    ("work", "end", "message"),
    [
        ("raise PatchvoteError('there are no photos.')", "failed", "there are no photos."),
        ("raise MemoryError", "failed", "there is not enough memory to learn from so many photos."),
        ("open('/nowhere/secret')", "failed", f"a file could not be read or written: {os.strerror(errno.ENOENT)}."),
        ("raise KeyError('secret')", "fault", "KeyError at <string>:6"),
    ],
)
def test_a_job_that_fails_says_why_in_one_line_without_paths_or_values(work, end, message):
    with start(work) as job:
        lines = job.stdout.read().splitlines()
        assert [json.loads(line) for line in lines] == [{"end": end, "message": message}]


def test_what_libraries_print_does_not_mix_with_the_lines_of_progress():
    with start("print('hello'); tell('fit', 1, 2)") as job:
        lines = [json.loads(line) for line in job.stdout.read().splitlines()]
        assert lines == [{"stage": "fit", "done": 1, "total": 2}, {"end": "done"}]
        assert "hello" in job.stderr.read()


def test_a_job_ends_with_its_server():
    with start("tell('fit', 0, 1); import time; time.sleep(600)") as job:
        assert json.loads(job.stdout.readline())["stage"] == "fit"
        job.stdin.close()  # as the system does when the server ends
        assert job.wait(60) == 1


def test_a_job_ends_when_nobody_reads_its_progress():
    with start("import time; [tell(f'{n}', 0, time.sleep(0.01) or 1) for n in range(60_000)]") as job:
        assert json.loads(job.stdout.readline())["stage"] == "0"
        job.stdout.close()
        assert job.wait(60) == 1
