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
from jobs.slurm.reconcile import status_of
from jobs.slurm.submissions import ArrayNote, RunNote, adopt, comment_of
from tests.practice import USER, Practice

pytestmark = pytest.mark.slurm
WAIT_S = 60.0


@dataclass(frozen=True)
class Jobs:
    """Small jobs under one name that is nobody else's."""

    cluster: Practice
    name: str

    @property
    def conf(self) -> str:
        return str(self.cluster.place.slurm_conf)

    def submit(self, script: str, *options: str) -> str:
        command = ["sbatch", "--parsable", f"--job-name={self.name}", "--output=/dev/null",
                   "--time=2", "--chdir=/", *options, f"--wrap={script}"]  # fmt: skip
        return self.cluster.out(*command).strip()

    def listed(self) -> dict[str, JobState]:
        found = query(self.conf, patience_s=WAIT_S)
        return {job: state for job, state in found.items() if state.name == self.name}

    def until(self, true: Callable[[dict[str, JobState]], bool]) -> dict[str, JobState]:
        deadline = time.monotonic() + WAIT_S
        while not true(found := self.listed()):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)
        return found


@pytest.fixture
def jobs(cluster: Practice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """Root asks as the cluster's user, whose jobs they are; all of them are ended afterwards."""
    monkeypatch.setattr(os, "getuid", lambda: pwd.getpwnam(USER).pw_uid)
    made = Jobs(cluster, f"horoscale-test-{time.monotonic_ns():x}")
    yield made
    cancel({job.array for job in made.listed().values()}, made.conf)


def test_an_array_from_the_queue_to_its_cancellation(jobs: Jobs) -> None:
    note = RunNote(
        run="r1", site="practice", job_name=jobs.name, submitted_at=datetime.now(UTC),
        arrays=(ArrayNote(units=(("a",), ("b",), ("c",)), nodes=1, ranks_per_node=1, minutes=2),),
    )  # fmt: skip
    array = jobs.submit("sleep 100", "--array=0-2%1", f"--comment={comment_of('r1', 0)}")
    found = jobs.until(lambda q: any(j.state == "RUNNING" for j in q.values()))
    assert sorted(found) == [f"{array}_{index}" for index in range(3)]
    waiting = [job for job in found.values() if job.waits]
    assert len(waiting) == 2 and all("array_parallel" in in_words(job) for job in waiting)
    running = next(job for job in found.values() if job.state == "RUNNING")
    assert running.nodes.startswith("node") and running.start and not running.reason
    adopted = adopt(note, found)
    assert adopted.arrays[0].job_id == array
    assert jobs_of_sweep([adopted], [], found) == {array: 3}
    assert cancel([array], jobs.conf).code == 0
    found = jobs.until(lambda q: all(j.ended for j in q.values()))
    endings = History(jobs.conf).endings(found)
    assert {status_of(ending)[0] for ending in endings.values()} == {"cancelled"}
    assert set(endings) == set(found)
    assert cancel([array], jobs.conf).code == 0  # once more is no error


def test_ends_of_batch_scripts(jobs: Jobs) -> None:
    code, killed, good = map(jobs.submit, ("exit 3", "kill -9 $$", "true"))
    found = jobs.until(lambda q: len(q) == 3 and all(j.ended for j in q.values()))
    assert found[code].state == "FAILED" and found[good].state == "COMPLETED"
    endings = History(jobs.conf).endings([code, killed, good])
    assert status_of(endings[code])[0] == "failed" and endings[code].code == 3
    assert status_of(endings[killed])[0] == "lost" and "SIGKILL" in status_of(endings[killed])[1]
    assert status_of(endings[good])[0] == "lost"


def test_a_job_that_nobody_knows(jobs: Jobs) -> None:
    assert History(jobs.conf).endings([], ["67000000"]) == {}
