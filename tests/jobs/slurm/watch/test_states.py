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
from jobs.slurm.watch.reconcile import by_files, gone, queued
from tests.builders import config, epoch, record

ONE = config(epochs=5)
NAME = ONE.cell_id()
#: The record that tests.builders makes ends at 03:04:15.
ENDED = datetime(2026, 1, 2, 3, 4, 15, tzinfo=UTC)
BEFORE, AFTER = ENDED - timedelta(minutes=5), ENDED + timedelta(minutes=5)
#: Cells that were submitted before and after that record.
JOB = Submitted("7_0", Path("/x/7_0_0_log.out"), BEFORE, cells=(NAME,))
LATER = replace(JOB, at=AFTER)


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / NAME
    (folder / "logs").mkdir(parents=True)
    return folder


def local(at: datetime) -> str:
    return at.astimezone().replace(tzinfo=None).isoformat()


def in_queue(
    cell: Path, state: str, job: Submitted = JOB, *, reason: str = "",
    start: datetime | None = BEFORE,
) -> CellState:  # fmt: skip
    told = None if start is None else local(start)
    found = JobState("7_0", state, reason, told, "1:05", "node1", "x")
    return queued(recorded(ONE, cell), job, found)


def unanswered(cell: Path, job: Submitted | None = JOB) -> CellState:
    return by_files(recorded(ONE, cell), job)


def begin(cell: Path, *, of: str | None = "7_0") -> None:
    announce(cell, Begun(number=1, started_at=BEFORE, pid=1, job=of))


def put(cell: Path, status: str) -> None:
    (cell / "record.json").write_text(record(ONE, status=status).model_dump_json())
    (cell / "checkpoint.npz").touch()


def epochs(cell: Path, count: int) -> None:
    text = "\n".join(epoch(number + 1, ONE).model_dump_json() for number in range(count))
    (cell / "epochs.jsonl").write_text(text + "\n")


def test_a_cell_that_was_never_submitted(cell: Path) -> None:
    found = unanswered(cell, None)
    assert (found.state, found.why, found.job, found.log) == ("not submitted", "", None, None)


def test_a_cell_that_waits_says_why_and_until_when(cell: Path) -> None:
    found = in_queue(cell, "PENDING", reason="Priority", start=AFTER)
    assert (found.state, found.why) == ("waiting", "other jobs come first")
    assert found.expected_start == local(AFTER) and found.seconds() is None
    assert found.job == "7_0" and found.log == JOB.log and found.alive


def test_a_cell_that_runs_shows_its_numbers(cell: Path) -> None:
    begin(cell)
    epochs(cell, 2)
    (cell / "logs" / "rank-0.beat").write_text('{"phase": "train", "idle_s": 0.1}')
    found = in_queue(cell, "RUNNING")
    last = found.last_epoch()
    assert found.state == "running" and last is not None and last.epoch == 2
    assert (found.phase(), found.nodes, found.began_at) == ("train", "node1", BEFORE)


def test_a_job_that_has_begun_and_no_rank_yet(cell: Path) -> None:
    epochs(cell, 2)  # of an earlier attempt
    found = in_queue(cell, "RUNNING")
    assert found.state == "starting" and found.last_epoch() is None
    assert found.seconds() == pytest.approx(65, abs=5)


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_bad_record_of_this_start_wins_over_a_queue_that_is_behind(
    cell: Path, state: str
) -> None:
    put(cell, "failed")
    found = in_queue(cell, state)
    assert (found.state, found.why) == ("failed", "w") and found.cause and found.alive
    shared = in_queue(cell, state, replace(JOB, cells=(NAME, "other")))
    assert shared.state == "failed"


def test_a_requeued_cell_waits_and_says_where_it_goes_on(cell: Path) -> None:
    put(cell, "preempted")
    epochs(cell, 3)
    found = in_queue(cell, "PENDING", reason="BeginTime", start=AFTER)
    assert found.state == "waiting" and found.why.startswith("goes on after epoch 3; ")


def test_a_requeued_cell_whose_second_start_has_not_said_anything(cell: Path) -> None:
    """The record is of the start before."""
    put(cell, "preempted")
    assert in_queue(cell, "RUNNING", start=ENDED + timedelta(seconds=30)).state == "starting"


def test_a_forced_cells_old_record_does_not_count_while_its_job_lives(cell: Path) -> None:
    put(cell, "completed")
    assert in_queue(cell, "PENDING", LATER, start=None).state == "waiting"
    begin(cell)
    assert in_queue(cell, "RUNNING", LATER).state == "running"


def test_packed_cells_take_turns(cell: Path) -> None:
    found = in_queue(cell, "RUNNING", replace(JOB, cells=(NAME, "other")))
    assert (found.state, found.why) == ("waiting", "its job runs other cells first")


def test_without_an_answer_of_slurm_the_files_tell(cell: Path) -> None:
    assert unanswered(cell).state == "unknown"
    begin(cell)
    epochs(cell, 1)
    found = unanswered(cell)
    assert (found.state, found.why, found.job) == ("running", "as its files say", "7_0")
    (cell / "logs" / "attempt.json").unlink()
    put(cell, "completed")
    assert unanswered(cell).state == "completed"
    assert unanswered(cell, LATER).state == "unknown", "it is run by force"


def test_a_second_start_is_not_hidden_by_the_record_of_the_first(cell: Path) -> None:
    put(cell, "preempted")
    begin(cell)
    assert in_queue(cell, "RUNNING", start=AFTER).state == "running"
    assert unanswered(cell).state == "running"


def test_a_life_sign_of_an_earlier_job_is_not_this_ones(cell: Path) -> None:
    begin(cell, of="3_0")
    assert in_queue(cell, "RUNNING").state == "starting"


def test_odd_states_are_told(cell: Path) -> None:
    begin(cell)
    assert in_queue(cell, "SUSPENDED").why.startswith("suspended")
    assert in_queue(cell, "EXPEDITING").why == "Slurm says: EXPEDITING"
    (cell / "logs" / "attempt.json").unlink()
    assert in_queue(cell, "STAGE_OUT").state == "ending"


def test_looking_changes_nothing(cell: Path) -> None:
    begin(cell)
    put(cell, "preempted")
    before = {file: file.read_bytes() for file in cell.rglob("*") if file.is_file()}
    gone(unanswered(cell), JOB)
    in_queue(cell, "RUNNING")
    assert before == {file: file.read_bytes() for file in cell.rglob("*") if file.is_file()}
