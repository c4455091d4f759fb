"""A sweep of 2,000 cells on a cluster of fakes: how often Slurm is called to submit and to watch.

Counts, not seconds: these depend on the machine.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import timedelta
from pathlib import Path

from jobs.slurm.submissions import write_note
from tests.jobs.slurm.desk import Desk

CELLS = 2000
SITE = "partition: practice\nranks_per_node: 1\ntime_min: 5\nimage: none\narray_limit: 1000\n"


def test_two_sbatch_submit_all_and_a_status_asks_once(tmp_path: Path, data_root: Path) -> None:
    """One squeue; then one more for all unexplained jobs, by their ids, and one sacct. When their
    files are ten minutes old they get their records, and nothing is asked any more."""
    desk = Desk(tmp_path, data_root, SITE, cells=CELLS)
    assert "submitted 2000 cells in 2 sbatch calls" in desk.submit()
    calls = Counter(call[0] for call in desk.fake.calls() if call[0] != "srun")
    assert calls == {"sbatch": 2, "scontrol": 1, "sinfo": 1, "squeue": 1}

    def status() -> tuple[list[str], dict[str, int]]:
        desk.fake.forget()
        done = desk.say("status", "--json")
        assert done.exit_code == 0, done.stderr
        return [call[0] for call in desk.fake.calls()], json.loads(done.stdout)["counts"]

    jobs = {f"j{101 + n // 1000}_{n % 1000}": "PENDING" for n in range(CELLS)}
    desk.queue(**jobs)
    assert status() == (["squeue"], {"waiting": CELLS})
    del jobs["j101_3"], jobs["j102_999"]
    desk.queue(**jobs)
    asked = ["squeue", "scontrol", "squeue", "sacct"]  # scontrol: which cluster answers
    assert status() == (asked, {"waiting": CELLS - 2, "ending": 2})
    for note, index in zip(desk.notes(), (3, 999), strict=True):
        old = note.submitted_at - timedelta(hours=1)
        write_note(desk.sweep, note.model_copy(update={"submitted_at": old}))
        for file in (desk.sweep / note.arrays[0].units[index][0]).rglob("*"):
            os.utime(file, (old.timestamp(),) * 2)
    assert status() == (asked, {"waiting": CELLS - 2, "lost": 2})
    assert status() == (["squeue"], {"waiting": CELLS - 2, "lost": 2})
