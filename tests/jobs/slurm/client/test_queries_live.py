"""The same questions asked of the practice cluster (`make cluster`), whose Slurm is real."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from jobs.slurm.cancel import cancel, jobs_of_sweep
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query
from jobs.slurm.submissions import ArrayNote, RunNote, adopt, comment_of
from tests.practice import USER, Practice

pytestmark = pytest.mark.slurm
WAIT_S = 60.0


@dataclass
class Queue:
    """Small jobs of the practice cluster's user, under one name that is nobody else's."""

    practice: Practice
    conf: str
    name: str

    def sbatch(self, script: str, *options: str) -> str:
        argv = ["sbatch", "--parsable", f"--job-name={self.name}", "--output=/dev/null", "--time=2"]
        return self.practice.out(*argv, "--chdir=/", *options, f"--wrap={script}").strip()

    def until(self, done: Callable[[dict[str, JobState]], bool]) -> dict[str, JobState]:
        deadline = time.monotonic() + WAIT_S
        while True:
            jobs = query(self.conf, patience_s=WAIT_S)
            jobs = {job: state for job, state in jobs.items() if state.name == self.name}
            if done(jobs):
                return jobs
            assert time.monotonic() < deadline, jobs
            time.sleep(0.5)


@pytest.fixture
def queue(cluster: Practice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr(os, "getuid", lambda: pwd.getpwnam(USER).pw_uid)
    name = f"horoscale-test-{time.monotonic_ns():x}"
    yield Queue(cluster, str(cluster.place.slurm_conf), name)
    cluster.run(["scancel", f"--name={name}"])


def test_an_array_from_the_queue_to_its_cancellation(queue: Queue) -> None:
    note = RunNote(
        run="r1", site="practice", job_name=queue.name, submitted_at=datetime.now(UTC),
        arrays=(ArrayNote(units=(("a",), ("b",), ("c",)), nodes=1, ranks_per_node=1, minutes=2),),
    )  # fmt: skip
    array = queue.sbatch("sleep 100", "--array=0-2%1", f"--comment={comment_of('r1', 0)}")
    jobs = queue.until(lambda jobs: any(j.state == "RUNNING" for j in jobs.values()))
    assert sorted(jobs) == [f"{array}_{index}" for index in range(3)]
    waiting = [job for job in jobs.values() if job.waits]
    assert len(waiting) == 2 and all("array_parallel" in in_words(job) for job in waiting)
    running = next(job for job in jobs.values() if job.state == "RUNNING")
    assert running.nodes.startswith("node") and running.start and not running.reason
    adopted = adopt(note, jobs)
    assert adopted.arrays[0].job_id == array
    assert jobs_of_sweep([adopted], [], jobs) == {array: 3}
    assert cancel([array], queue.conf).code == 0
    jobs = queue.until(lambda jobs: all(j.ended for j in jobs.values()))
    endings = History(queue.conf).endings(jobs)
    assert {job: ending.state for job, ending in endings.items()} == dict.fromkeys(
        jobs, "CANCELLED"
    )
    assert cancel([array], queue.conf).code == 0  # once more is no error


def test_ends_of_batch_scripts(queue: Queue) -> None:
    """The exit codes are squeue's where the cluster keeps no accounts."""
    code, killed, good = queue.sbatch("exit 3"), queue.sbatch("kill -9 $$"), queue.sbatch("true")
    queue.until(lambda jobs: len(jobs) == 3 and all(j.ended for j in jobs.values()))
    endings = History(queue.conf).endings([code, killed, good])
    assert (endings[code].state, endings[code].code) == ("FAILED", 3)
    assert (endings[killed].state, endings[killed].signal) == ("FAILED", 9)
    assert endings[good].state == "COMPLETED"
    assert History(queue.conf).endings([], ["67000000"]) == {}
