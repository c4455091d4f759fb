"""How and when a job ended, by what Slurm says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.config.site import Site
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import PreflightTask
from jobs.slurm.script import SETUP_FAILED
from jobs.slurm.watch import endings as module
from jobs.slurm.watch.endings import status_of, wait_for


@pytest.mark.parametrize(
    ("state", "code", "signal", "status", "words"),
    [("CANCELLED", None, None, "cancelled", "cancelled"),
     ("TIMEOUT", None, None, "timeout", "time limit"),
     ("DEADLINE", None, None, "timeout", "deadline"),
     ("PREEMPTED", None, None, "preempted", "higher priority"),
     ("NODE_FAIL", None, None, "lost", "write sbatch: {exclude: 'node1'} in"),
     ("BOOT_FAIL", None, None, "lost", "did not come up"),
     ("COMPLETED", 0, None, "lost", "left no record"),
     ("OUT_OF_MEMORY", None, None, "failed", "memory"),
     ("FAILED", None, None, "lost", "Slurm says FAILED"),
     ("FAILED", 3, None, "failed", "its batch script ended with exit code 3"),
     ("FAILED", 0, 9, "lost", "its supervisor was ended by SIGKILL"),
     # seen: results on a node's own /tmp read "ended by signal 53"
     ("FAILED", 0, 53, "failed", "does not see the results folder"),
     ("FAILED", 66, None, "failed", "does not see the results folder"),
     ("FAILED", 127, None, "failed", "found no Python"),
     ("FAILED", 126, None, "failed", "may not run the Python")],
)  # fmt: skip
def test_every_end_has_a_status_and_a_sentence(state, code, signal, status, words) -> None:
    job = JobState("7_1", state, "NonZeroExitCode", nodes="node1", code=code, signal=signal)
    found, text = status_of("7_1", job)
    assert found == status and text.startswith("job 7_1 (on node1): ") and words in text
    assert "signal 53" not in text


def test_a_failed_line_is_told_with_what_it_printed_in_this_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "[supervisor] requeued\n[ERROR] no disk\n\n see /x\n[batch] mount failed on n1\n"
    )
    ending = JobState("7", "FAILED", code=SETUP_FAILED)
    assert status_of("7", ending, log)[1].startswith(
        "job 7: mount failed on n1: [ERROR] no disk / see"
    )
    for unseen in (None, tmp_path / "none"):
        assert "a line of the site file failed" in status_of("7", ending, unseen)[1]


def test_a_preflight_out_of_time_names_the_key_of_its_limit(tmp_path: Path) -> None:
    """Slow modules: or setup:; seen: that it left no report."""
    folder = tmp_path / "t" / ".submitit" / "r-preflight"
    folder.mkdir(parents=True)
    (folder / "7_0_log.out").touch()
    site = Site(ranks_per_node=1, preflight_s=30)
    task = PreflightTask(
        site=site, nodes=1, ranks_per_node=1, image="none", root="/", folder="/f"
    ).model_dump(mode="json")
    (folder / "tasks.json").write_text(json.dumps({"program": "preflight", "tasks": [task]}))
    found = status_of("7", JobState("7", "TIMEOUT"), folder / "7_0_log.out")
    assert found[0] == "timeout" and "its time limit, 3 min: raise preflight_s (30 s)" in found[1]
    (folder / "tasks.json").write_text(json.dumps({"program": "cells", "tasks": [task]}))
    assert "preflight" not in status_of("7", JobState("7", "TIMEOUT"), folder / "log")[1]


def test_a_job_that_one_look_lacks_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that was restarted knows its jobs in part only, for a moment."""
    runs, ends = {"7": JobState("7", "RUNNING")}, {"7": JobState("7", "COMPLETED")}
    looks = iter([runs, {}, runs, {}, {}, ends])
    monkeypatch.setattr(module, "query", lambda **_: next(looks))
    monkeypatch.setattr("time.sleep", lambda _: None)
    wait_for("7", Site(ranks_per_node=1), "preflight")
    assert len(list(looks)) == 1, "two looks in a row lack it"
    looks = iter([ends])
    wait_for("7", Site(ranks_per_node=1), "preflight")
