"""Exit codes of jobs on the practice cluster (`make cluster`), whose Slurm is real."""

from __future__ import annotations

import os
import pwd
import time

import pytest

from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import query
from tests.practice import USER, Practice

pytestmark = pytest.mark.slurm


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
