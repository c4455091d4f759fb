"""Three minutes of chaos (python -m tests.chaos): every kind of fault at least once; and that its
checks can be red."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import ENDS_WITH_US
from tests.chaos.evidence import Records, known_jobs, lost, noted, orphans, starts_in, twice
from tests.practice import ROOT, skip_where_it_cannot_run

#: Of the faults; another one shows other meetings of them.
SEED = os.environ.get("CHAOS_SEED", "9")


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_nothing_is_lost_run_twice_or_orphaned() -> None:
    skip_where_it_cannot_run()
    done = subprocess.run(
        [*ENDS_WITH_US, sys.executable, "-m", "tests.chaos", "--nodes=16", "--cells=70",
         "--faults=12", f"--seed={SEED}", "--minutes=30"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "not struck: []" in done.stdout


def test_two_starts_at_once_and_one_after_the_good_record_are_seen() -> None:
    told = ("start c 1 5_0 5.0@node1:9 10.0\nalive c 1 5_0 5.0@node1:9 12.0\n"
            "start c 2 6 6.0@node2:9 11.0\nend c 2 6 6.0@node2:9 13.0 completed\n"
            "start c 3 7 7.0@node2:8 14.0\n")  # fmt: skip
    found = twice(starts_in(told))
    assert [line.split(": ")[1] for line in found] == ["at once", "after its good record"]


def test_lost_records_are_seen(tmp_path: Path) -> None:
    record = tmp_path / "c" / "record.json"
    record.parent.mkdir()
    (tmp_path / "c" / "config.json").touch()
    records = Records(tmp_path)
    for status in ("completed", "lost"):
        new = tmp_path / "new"
        new.write_text(json.dumps({"status": status}))
        new.replace(record)
        records.look()
    record.unlink()
    records.look()
    assert len(lost(tmp_path, records, 1)) == 3, "changed, vanished, not there at the end"


def test_orphans_are_seen(tmp_path: Path) -> None:
    (tmp_path / ".slurm").mkdir()
    (tmp_path / ".slurm" / "a.json").write_text(
        '{"arrays": [{"job_id": "5", "cells": ["c", "d"]}, {"job_id": null, "cells": ["e"]}]}'
    )
    line = "JobId={} UserId={}(1001) Name=n JobState=COMPLETED ArrayJobId={} ArrayTaskId={}\n"
    told = line.format(6, "practice", 5, 1) + line.format(9, "practice", 9, 0)
    told += line.format(10, "root", 0, 4294967294)
    jobs = known_jobs(told, [["11", "RUNNING", "node1", "n", "11"]], "practice")
    assert set(jobs) == {"5_1", "9_0", "11"}
    assert [line.split(":")[0] for line in orphans(jobs, noted(tmp_path))] == ["job 9_0", "job 11"]
