"""Faults, for real, on the practice cluster: what the record says, and that nothing is lost.

One of each kind with real ranks, of a single job or of one element among three: Slurm gives the
element that it starts last the array's id as SLURM_JOB_ID, and scontrol takes a bare id of an array
for all of its elements. Faults of the controller, of nodes, of the disk and of who watches meet a
whole sweep in tests/chaos; a rank that hangs is the same without Slurm (tests/test_end_to_end.py).
"""

from __future__ import annotations

import os
import pwd
import subprocess
import time

import pytest

from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import query
from tests.jobs.slurm.sweeping import Sweeping, statuses, three
from tests.practice import USER, Practice
from train.record.run import read_record

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]


def test_a_suspended_job_goes_on(sweeping: Sweeping) -> None:
    """Supervisor and ranks, for longer than either takes for a hang."""
    name = "job suspended for 80 s, then resumed (stall limit 60 s)"
    fault = sweeping.disturbed(name, "--stall-s", "60", epochs=2)
    conf = f"SLURM_CONF={sweeping.practice.place.slurm_conf}"
    for word, wait_s in (("suspend", 80), ("resume", 0)):
        asked = ["env", conf, "scontrol", word, sweeping.job()]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        time.sleep(wait_s)
    record = fault.ends(0, "completed")
    assert len(record.attempts) == 1
    # a slurmd stops its ranks some seconds after the word, and a busy machine looks suspended, too
    longest = max(record.epochs, key=lambda epoch: epoch.suspended_s)
    assert 65 < longest.suspended_s < 150 and longest.train_s < 65


def test_the_last_element_ends_and_its_siblings_keep_their_requeues(sweeping: Sweeping) -> None:
    """Seen: warned and completed, it switched the requeues of the whole array off; out of time, the
    others could not be requeued."""
    sweeping.sweep = three(8000, 8000, 10)
    sweeping.write(time_min=4, signal_s=60)  # warned a minute early: all three at once
    process = sweeping.start("--no-preflight")
    sweeping.wait_until(
        lambda: len(sweeping.cells) == 3
        and all((cell / "record.json").exists() for cell in sweeping.cells),
        "no records",
    )  # fmt: skip
    for index in (0, 1):
        element = sweeping.practice.job(f"{sweeping.job()}_{index}")
        assert element.get("Requeue") == "1", sweeping.said()
    for cell in sweeping.cells[:2]:
        done = len(read_record(cell / "record.json").epochs)
        sweeping.wait_until(
            lambda cell=cell, done=done: sweeping.epochs(cell) > done, "not gone on"
        )
    # make cancel may meet an element while it asks for its next requeue, which then ends, too
    assert "cannot be requeued" not in sweeping.said()
    sweeping.succeeds(sweeping.start(command="cancel"))
    sweeping.end(process)
    *others, last = sweeping.records()
    for record in others:
        assert statuses(record)[0] == "timeout", sweeping.said()
        assert [epoch.epoch for epoch in record.epochs] == list(range(1, len(record.epochs) + 1))
        assert record.attempts[1].resumed_from_epoch > 0
    assert last.status == "completed"


def test_preemption_of_three(sweeping: Sweeping) -> None:
    sweeping.sweep = three(200, 200, 200)
    process = sweeping.start("--no-preflight")
    sweeping.wait_until(
        lambda: len(sweeping.cells) == 3 and min(map(sweeping.epochs, sweeping.cells)) >= 2,
        "not all three run",
    )
    urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--ntasks=8"]
    sweeping.practice.out(*urgent, "--output=/dev/null", "--wrap=sleep 3")
    sweeping.succeeds(process)
    for record in sweeping.records():
        assert statuses(record)[0] == "preempted", sweeping.said()
        assert set(statuses(record)[1:-1]) <= {"lost"} and record.status == "completed"
        job = sweeping.practice.job(record.provenance.slurm_job_id)
        assert int(job["Restarts"]) == len(record.attempts) - 1, "it started with nothing to do"


def test_ends_of_batch_scripts(cluster: Practice, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are squeue's where the cluster keeps no accounts."""
    monkeypatch.setattr(os, "getuid", lambda: pwd.getpwnam(USER).pw_uid)
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--time=2", "--chdir=/"]
    scripts = ("exit 3", "kill -9 $$", "true")
    ids = [cluster.out(*argv, f"--wrap={script}").strip() for script in scripts]
    array = cluster.out(*argv, "--array=0-1", "--wrap=exit $SLURM_ARRAY_TASK_ID").strip()
    monkeypatch.setenv("SLURM_CONF", str(cluster.place.slurm_conf))
    deadline = time.monotonic() + 300
    while not all(job.ended for job in query(arrays=[*ids, array], patience_s=30).values()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    found = History().endings([*ids, f"{array}_0", f"{array}_1"])
    ends = {job: (state.state, state.code, state.signal) for job, state in found.items()}
    assert (ends[ids[0]], ends[ids[1]]) == (("FAILED", 3, None), ("FAILED", 0, 9))
    assert ends[f"{array}_1"] == ("FAILED", 1, None)
    assert found[ids[2]].state == found[f"{array}_0"].state == "COMPLETED"
    assert History().endings([], ["67000000"]) == {}
