"""What each cell does now, joined from its record, its folder and the queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.missing_record import Begun, announce
from jobs.cell.state import Standing, recorded
from jobs.slurm.arrays import Array
from jobs.slurm.client.squeue import JobState
from jobs.slurm.reconcile import Place
from jobs.slurm.status import (
    GONE,
    CellState,
    as_json,
    counts,
    read_life,
    seconds_of,
    survey_places,
    survey_slurm,
)
from jobs.slurm.submissions import RunNote, Submitted
from tests.builders import config, epoch, record

ONE = config(epochs=5)
NAME = ONE.cell_id()
#: The record that tests.builders makes ends at 03:04:15.
ENDED = datetime(2026, 1, 2, 3, 4, 15, tzinfo=UTC)
BEFORE, AFTER = ENDED - timedelta(minutes=5), ENDED + timedelta(minutes=5)
LOG = Path("/x/7_0_0_log.out")


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / NAME
    (folder / "logs").mkdir(parents=True)
    return folder


def local(at: datetime) -> str:
    return at.astimezone().replace(tzinfo=None).isoformat()


def job(state: str, *, reason: str = "", start: datetime | None = BEFORE) -> JobState:
    told = None if start is None else local(start)
    return JobState("7_0", state, reason, told, "1:05", "node1", "x")


def begin(cell: Path, *, of: str | None = "7_0") -> None:
    announce(cell, Begun(number=1, started_at=BEFORE, pid=1, job=of))


def put(cell: Path, status: str) -> None:
    (cell / "record.json").write_text(record(ONE, status=status).model_dump_json())


def epochs(cell: Path, count: int) -> None:
    text = "\n".join(epoch(number + 1, ONE).model_dump_json() for number in range(count))
    (cell / "epochs.jsonl").write_text(text + "\n")


def look(
    cell: Path, queue: JobState | None, *, at: datetime | None = BEFORE, mates: int = 1,
    answered: bool = True, settling: bool = False,
) -> CellState:  # fmt: skip
    """``at``: when the cell was submitted; None: never."""
    standing = recorded(ONE, cell)
    array = Array(job_id="7", units=((NAME, *"bcdefgh"[: mates - 1]), ("z",)), nodes=1,
                      ranks_per_node=1, minutes=5)  # fmt: skip
    note = RunNote(run="r", site="s", job_name="x", submitted_at=BEFORE, arrays=(array,))
    submitted = {} if at is None else {NAME: Submitted("7_0", LOG, at)}
    jobs: Mapping[str, JobState] = {} if queue is None else {"7_0": queue}
    (found,) = survey_slurm(
        [(standing, read_life(standing))], submitted, [note], jobs if answered else None,
        settling={NAME: GONE} if settling else {}, now=AFTER,
    )  # fmt: skip
    return found


def test_a_cell_that_was_never_submitted(cell: Path) -> None:
    found = look(cell, None, at=None)
    assert (found.state, found.job, found.log, found.epoch) == ("not submitted", None, None, 0)


def test_a_cell_that_waits_says_why_and_until_when(cell: Path) -> None:
    found = look(cell, job("PENDING", reason="Priority", start=AFTER))
    assert (found.state, found.why) == ("waiting", "other jobs come first")
    assert found.expected_start == local(AFTER) and found.seconds is None
    assert found.job == "7_0" and found.log == str(LOG)


def test_a_cell_that_runs_shows_its_numbers(cell: Path) -> None:
    begin(cell)
    epochs(cell, 2)
    (cell / "logs" / "rank-0.beat").write_text('{"phase": "train", "idle_s": 0.1}')
    found = look(cell, job("RUNNING"))
    assert (found.state, found.epoch, found.epochs) == ("running", 2, 5)
    assert (found.train_loss, found.validation_accuracy, found.images_per_s) == (0.5, 0.75, 128.0)
    assert (found.phase, found.nodes, found.seconds) == ("train", "node1", 600.0)


def test_a_job_that_has_begun_and_no_rank_yet(cell: Path) -> None:
    found = look(cell, job("RUNNING"))
    assert (found.state, found.seconds) == ("starting", 65.0)


@pytest.mark.parametrize("status", ["completed", "diverged"])
@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "PENDING"])
def test_a_good_record_wins_over_a_queue_that_is_behind(
    cell: Path, status: str, state: str
) -> None:
    put(cell, status)
    assert look(cell, job(state)).state == status


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_bad_record_of_this_start_wins_too(cell: Path, state: str) -> None:
    put(cell, "failed")
    found = look(cell, job(state))
    assert (found.state, found.why) == ("failed", "w")


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"])
def test_seconds_after_the_end_the_record_is_what_counts(cell: Path, state: str) -> None:
    put(cell, "cancelled")
    assert look(cell, job(state)).state == "cancelled"
    assert look(cell, None).state == "cancelled"


def test_a_requeued_cell_waits_and_says_where_it_goes_on(cell: Path) -> None:
    put(cell, "preempted")
    epochs(cell, 3)
    found = look(cell, job("PENDING", reason="BeginTime", start=AFTER))
    assert found.state == "waiting" and found.why.startswith("goes on after epoch 3; ")


def test_a_requeued_cell_whose_second_start_has_not_said_anything(cell: Path) -> None:
    """The record is of the start before."""
    put(cell, "preempted")
    assert look(cell, job("RUNNING", start=ENDED + timedelta(seconds=30))).state == "starting"


def test_a_forced_cells_old_record_does_not_count_while_its_job_lives(cell: Path) -> None:
    put(cell, "completed")
    assert look(cell, job("PENDING", start=None), at=AFTER).state == "waiting"
    begin(cell)
    assert look(cell, job("RUNNING"), at=AFTER).state == "running"


def test_packed_cells_take_turns(cell: Path) -> None:
    found = look(cell, job("RUNNING"), mates=3)
    assert (found.state, found.why) == ("waiting", "its job runs other cells first")
    put(cell, "failed")
    assert look(cell, job("RUNNING"), mates=3).state == "failed"


def test_a_job_that_left_no_record(cell: Path) -> None:
    assert look(cell, None).state == "not submitted"  # cancelled before it began
    begin(cell)
    assert look(cell, None).state == "ending"
    assert look(cell, job("FAILED")).state == "ending"
    found = look(cell, None, settling=True)
    assert found.state == "ending" and "waited for" in found.why


def test_without_an_answer_of_slurm_the_files_tell(cell: Path) -> None:
    assert look(cell, None, answered=False).state == "unknown"
    begin(cell)
    epochs(cell, 1)
    found = look(cell, None, answered=False)
    assert (found.state, found.why, found.epoch) == ("running", "as its files say", 1)
    (cell / "logs" / "attempt.json").unlink()
    put(cell, "completed")
    assert look(cell, None, answered=False).state == "completed"
    assert look(cell, None, answered=False, at=AFTER).state == "unknown"  # forced


def test_a_second_start_is_not_hidden_by_the_record_of_the_first(cell: Path) -> None:
    put(cell, "preempted")
    begin(cell)
    assert look(cell, job("RUNNING", start=AFTER)).state == "running"
    assert look(cell, None, answered=False).state == "running"


def test_a_life_sign_of_an_earlier_job_is_not_this_ones(cell: Path) -> None:
    begin(cell, of="3_0")
    assert look(cell, job("RUNNING")).state == "starting"


def test_odd_states_are_told(cell: Path) -> None:
    begin(cell)
    assert look(cell, job("SUSPENDED")).why.startswith("suspended")
    assert look(cell, job("EXPEDITING")).why == "Slurm says: EXPEDITING"


def test_places_give_the_same(cell: Path) -> None:
    begin(cell)
    place = Place(recorded(ONE, cell), job("RUNNING"), Submitted("7_0", LOG, BEFORE))
    (found,) = survey_places([place], [])
    assert replace(found, seconds=0) == replace(look(cell, job("RUNNING")), seconds=0)
    (gone,) = survey_places([replace(place, job=None, settling=True)], [])
    assert gone.state == "ending"


def test_for_programs(cell: Path) -> None:
    begin(cell)
    states = [look(cell, job("RUNNING"))]
    told = json.loads(json.dumps(as_json("t", states, AFTER, None)))
    assert told["slurm_answered"] is True and told["counts"] == {"running": 1}
    assert told["cells"][0]["cell"] == NAME and told["cells"][0]["train_loss"] is None
    told = as_json("t", states, AFTER, "Socket timed out")
    assert (told["slurm_answered"], told["trouble"]) == (False, "Socket timed out")


def test_looking_changes_nothing(cell: Path) -> None:
    begin(cell)
    put(cell, "preempted")
    before = {file: file.read_bytes() for file in cell.rglob("*") if file.is_file()}
    look(cell, None)
    assert before == {file: file.read_bytes() for file in cell.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:00", 0), ("1:05", 65), ("2:03:04", 7384), ("1-02:03:04", 93784), ("INVALID", None)],
)
def test_elapsed_times(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_counts(cell: Path) -> None:
    state = look(cell, None, at=None)
    assert counts([state, replace(state, state="running")]) == {"not submitted": 1, "running": 1}


def test_standing_is_only_read(cell: Path) -> None:
    """A broken record is a state of its own."""
    (cell / "record.json").write_text("{")
    found = look(cell, None)
    assert isinstance(recorded(ONE, cell), Standing) and found.state == "broken record"
