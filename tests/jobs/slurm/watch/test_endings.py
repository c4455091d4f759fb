"""When a job ended, as squeue shows it. How it ended: see ../client/test_sacct.py."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from jobs.slurm.client.squeue import JobState
from jobs.slurm.watch.endings import over_for_s, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:00", 0), ("1:05", 65), ("2:03:04", 7384), ("1-02:03:04", 93784), ("INVALID", None)],
)
def test_elapsed_times(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("start", "elapsed", "seconds"),
    [(5, "0:02", 3.0), (86400, "1-00:00:00", 0.0), (None, "0:02", float("inf")),
     (5, "INVALID", float("inf")), ("tomorrow", "0:02", float("inf"))],
)  # fmt: skip
def test_how_long_a_job_is_over(start: int | str | None, elapsed: str, seconds: float) -> None:
    """``start``: so many seconds ago."""
    if isinstance(start, int):
        start = (datetime.now() - timedelta(seconds=start)).isoformat()
    job = JobState("7", "FAILED", "", start, elapsed, "", "name")
    assert over_for_s(job) == pytest.approx(seconds, abs=1)
