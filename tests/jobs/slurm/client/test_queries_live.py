"""The same questions asked of the practice cluster (`make cluster`), whose Slurm is real."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.run import clean_environment
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query
from jobs.slurm.submissions import ArrayNote, RunNote, adopt, comment_of
from jobs.slurm.watch.cancel import cancel, jobs_of_sweep
from jobs.slurm.watch.endings import status_of

CONF = Path("/run/horoscale-practice/slurm.conf")
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(not CONF.exists(), reason="no practice cluster runs: make cluster"),
]
WAIT_S = 60.0


def _user() -> int:
    """Root submits as the practice cluster's user, anybody else as himself."""
    return pwd.getpwnam("practice").pw_uid if os.geteuid() == 0 else os.getuid()


@pytest.fixture
def sbatch():
    """Submit small jobs under one name that is nobody else's; all are ended afterwards."""
    name = f"horoscale-test-{time.monotonic_ns():x}"
    person = pwd.getpwuid(_user())
    prefix = (
        ["setpriv", f"--reuid={person.pw_uid}", f"--regid={person.pw_gid}", "--init-groups"]
        if os.geteuid() == 0
        else []
    )

    def submit(script: str, *options: str) -> str:
        argv = ["sbatch", "--parsable", f"--job-name={name}", "--output=/dev/null", "--time=2",
                "--chdir=/", *options, f"--wrap={script}"]  # fmt: skip
        environment = clean_environment(os.environ, str(CONF))
        done = subprocess.run(
            [*prefix, *argv], env=environment, capture_output=True, text=True, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    submit.name = name  # type: ignore[attr-defined]
    yield submit
    cancel({job.array for job in jobs(name).values()}, str(CONF))


def jobs(name: str) -> dict[str, JobState]:
    found = query(str(CONF), user=_user(), patience_s=WAIT_S)
    return {job: state for job, state in found.items() if state.name == name}


def until(name: str, true: Callable[[dict[str, JobState]], bool]) -> dict[str, JobState]:
    deadline = time.monotonic() + WAIT_S
    while not true(found := jobs(name)):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


def test_an_array_from_the_queue_to_its_cancellation(sbatch) -> None:
    note = RunNote(
        run="r1", site="practice", job_name=sbatch.name, submitted_at=datetime.now(UTC),
        arrays=(ArrayNote(units=(("a",), ("b",), ("c",)), nodes=1, ranks_per_node=1, minutes=2),),
    )  # fmt: skip
    array = sbatch("sleep 100", "--array=0-2%1", f"--comment={comment_of('r1', 0)}")
    found = until(sbatch.name, lambda q: any(j.state == "RUNNING" for j in q.values()))
    assert sorted(found) == [f"{array}_{index}" for index in range(3)]
    waiting = [job for job in found.values() if job.waits]
    assert len(waiting) == 2 and all("array_parallel" in in_words(job) for job in waiting)
    running = next(job for job in found.values() if job.state == "RUNNING")
    assert running.nodes.startswith("node") and running.start and not running.reason
    adopted = adopt(note, found)
    assert adopted.arrays[0].job_id == array
    assert jobs_of_sweep([adopted], [], found) == {array: 3}
    assert cancel([array], str(CONF)).code == 0
    found = until(sbatch.name, lambda q: all(j.ended for j in q.values()))
    endings = History(str(CONF)).endings(found)
    assert {status_of(ending)[0] for ending in endings.values()} == {"cancelled"}
    assert set(endings) == set(found)
    assert cancel([array], str(CONF)).code == 0  # once more is no error


def test_ends_of_batch_scripts(sbatch) -> None:
    code, killed, good = sbatch("exit 3"), sbatch("kill -9 $$"), sbatch("true")
    found = until(sbatch.name, lambda q: len(q) == 3 and all(j.ended for j in q.values()))
    assert found[code].state == "FAILED" and found[good].state == "COMPLETED"
    endings = History(str(CONF)).endings([code, killed, good])
    assert status_of(endings[code])[0] == "failed" and endings[code].code == 3
    assert status_of(endings[killed])[0] == "lost" and "SIGKILL" in status_of(endings[killed])[1]
    assert status_of(endings[good])[0] == "lost"


def test_a_job_that_nobody_knows() -> None:
    assert History(str(CONF)).endings([], ["67000000"]) == {}
