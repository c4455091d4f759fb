"""What each cell does now, joined from its record, its folder and the queue."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.missing_record import Begun, announce
from jobs.cell.state import CellState, recorded
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import Submitted
from jobs.slurm.watch.reconcile import by_files, queued
from tests.builders import config, epoch, record
from train.record.run import Status

ONE = config(epochs=5)
#: The record that tests.builders makes ends at 03:04:15.
ENDED = datetime(2026, 1, 2, 3, 4, 15, tzinfo=UTC)
BEFORE, AFTER = ENDED - timedelta(minutes=5), ENDED + timedelta(minutes=5)
#: Cells that were submitted before and after that record.
JOB = Submitted("7_0", Path("/x/7_0_0_log.out"), BEFORE, cell=ONE.cell_id())
LATER = replace(JOB, at=AFTER)


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / ONE.cell_id()
    (folder / "logs").mkdir(parents=True)
    return folder


def squeue(state: str, start: datetime | None = BEFORE, reason: str = "") -> JobState:
    return JobState("7_0", state, reason, start, "1:05", "node1", "x")


def leave(cell: Path, *, begun: str = "", ended: Status | None = None, epochs: int = 0) -> None:
    """Files of a cell. ``begun``: the job whose supervisor works on it; ``ended``: its record."""
    if begun:
        announce(cell, Begun(number=1, started_at=BEFORE, pid=1, job=begun))
    if ended:
        (cell / "record.json").write_text(record(ONE, status=ended).model_dump_json())
        (cell / "checkpoint.npz").touch()
    text = "".join(epoch(number + 1, ONE).model_dump_json() + "\n" for number in range(epochs))
    (cell / "epochs.jsonl").write_text(text)


BEGUN = {"begun": "7_0"}
FAILED, PREEMPTED, COMPLETED = ({"ended": end} for end in ("failed", "preempted", "completed"))


@pytest.mark.parametrize(
    ("files", "job", "listed", "state", "why"),
    [
        ({}, JOB, squeue("PENDING", AFTER, "Priority"), "waiting", "other jobs come first"),
        ({}, JOB, squeue("STAGE_OUT"), "ending", ""),
        (BEGUN, JOB, squeue("RUNNING"), "running", ""),
        (BEGUN, JOB, squeue("EXPEDITING"), "running", "Slurm says: EXPEDITING"),
        # an attempt of an earlier job is not this one's
        ({"begun": "3_0"}, JOB, squeue("RUNNING"), "starting", ""),
        # a bad record of this start wins over a queue that is behind
        (FAILED, JOB, squeue("RUNNING"), "failed", "w"),
        (FAILED, JOB, squeue("COMPLETING"), "failed", "w"),
        # requeued: the record is of the start before
        (PREEMPTED | {"epochs": 3}, JOB, squeue("PENDING", AFTER, "BeginTime"), "waiting",
         "goes on after epoch 3; "),
        (PREEMPTED, JOB, squeue("RUNNING", ENDED + timedelta(seconds=30)), "starting", ""),
        (PREEMPTED | BEGUN, JOB, squeue("RUNNING", AFTER), "running", ""),
        # run by force: its good record is to be put aside
        (COMPLETED, LATER, squeue("PENDING", None), "waiting", "Slurm gives no reason yet"),
        (COMPLETED | BEGUN, LATER, squeue("RUNNING"), "running", ""),
    ],
)  # fmt: skip
def test_cells_of_jobs_in_the_queue(cell, files, job, listed, state, why) -> None:
    leave(cell, **files)
    before = {file: file.read_bytes() for file in cell.rglob("*") if file.is_file()}
    found = queued(recorded(ONE, cell), job, listed)
    assert (found.state, found.job, found.log, found.alive) == (state, "7_0", JOB.log, True)
    assert found.why.startswith(why)
    assert bool(found.cause) == (state == "failed")
    after = {file: file.read_bytes() for file in cell.rglob("*") if file.is_file()}
    assert before == after, "looking changes nothing"


@pytest.mark.parametrize(
    ("files", "job", "state", "why"),
    [
        ({}, None, "not submitted", ""),
        ({}, JOB, "unknown", "it was submitted"),
        (BEGUN, JOB, "running", "as its files say"),
        (PREEMPTED | BEGUN, JOB, "running", "as its files say"),
        (COMPLETED, JOB, "completed", ""),
        (COMPLETED, LATER, "unknown", "it was submitted"),  # by force
    ],
)
def test_without_an_answer_of_slurm_the_files_tell(cell, files, job, state, why) -> None:
    leave(cell, **files)
    found = by_files(recorded(ONE, cell), job)
    assert (found.state, found.why, found.job) == (state, why, job and job.job)


def test_numbers_are_those_of_the_attempt_that_runs(cell: Path) -> None:
    leave(cell, epochs=2)

    def now(listed: JobState) -> CellState:
        return queued(recorded(ONE, cell), JOB, listed)

    waits = now(squeue("PENDING", AFTER))
    assert waits.expected_start == AFTER and waits.seconds() is None
    starts = now(squeue("RUNNING"))
    assert starts.last_epoch() is None, "these epochs are of an earlier attempt"
    assert starts.seconds() == pytest.approx(65, abs=5)
    leave(cell, **BEGUN, epochs=2)
    (cell / "logs" / "rank-0.beat").write_text('{"phase": "train", "idle_s": 0.1}')
    runs = now(squeue("RUNNING"))
    last = runs.last_epoch()
    assert last is not None and last.epoch == 2
    assert (runs.phase(), runs.nodes, runs.began_at) == ("train", "node1", BEFORE)
