"""One look: in which order it asks, and when a job that left nothing is given up."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.cell.missing_record import Begun, announce
from jobs.slurm import status as module
from jobs.slurm.arrays import Array
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.reconcile import SETTLE_S
from jobs.slurm.status import look, over_for_s
from jobs.slurm.submissions import RunNote, comment_of, write_note
from tests.builders import config

ONE, NAME = config(), "horoscale-t-0"
NOW = datetime(2026, 1, 2, 3, 4, 5)


def note(job: str | None) -> RunNote:
    array = Array(job_id=job, units=((ONE.cell_id(),),), nodes=1, ranks_per_node=1, minutes=5)
    return RunNote(run="r", site="s", job_name=NAME, submitted_at=datetime.now(UTC),
                   arrays=(array,))  # fmt: skip


def job(state: str, **changes) -> JobState:
    return JobState("7", state, "", None, "0:05", "n1", NAME, **changes)


class Known(History):
    """A history that was told beforehand."""

    def endings(self, over, gone=()) -> dict[str, JobState]:
        end = JobState("7", "NODE_FAIL", nodes="n1", source="sacct")
        return {"7": end} if "7" in {*over, *gone} else {}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    (tmp_path / ONE.cell_id() / "logs").mkdir(parents=True)
    return tmp_path


def answered(monkeypatch: pytest.MonkeyPatch, *found: JobState, then=lambda: None) -> None:
    def query(*_: object, **__: object) -> dict[str, JobState]:
        then()
        return {job.job: job for job in found}

    monkeypatch.setattr(module, "query", query)


def test_what_is_submitted_while_we_look_is_not_lost(sweep: Path, monkeypatch) -> None:
    """Another shell's sbatch runs right after squeue had been asked."""
    answered(monkeypatch, then=lambda: write_note(sweep, note("7")))
    (found,) = look([ONE], sweep, Known()).states
    assert found.state == "not submitted"
    assert not (sweep / ONE.cell_id() / "record.json").exists()


def test_a_killed_supervisors_cell_gets_what_slurm_says(sweep: Path, monkeypatch) -> None:
    write_note(sweep, note("7"))
    begun = Begun(number=1, started_at=datetime.now(UTC), pid=1, job="7")
    announce(sweep / ONE.cell_id(), begun)
    answered(monkeypatch, job("NODE_FAIL"))
    (found,) = look([ONE], sweep, Known()).states
    assert found.state == "lost" and "a node that it ran on failed (on n1)" in found.why


def test_a_job_that_ended_just_now_is_given_time(sweep: Path, monkeypatch) -> None:
    write_note(sweep, note("7"))
    answered(monkeypatch, job("NODE_FAIL"))
    monkeypatch.setattr(module, "over_for_s", lambda *_: SETTLE_S - 1)
    (found,) = look([ONE], sweep, Known()).states
    assert found.state == "ending"
    monkeypatch.setattr(module, "over_for_s", lambda *_: SETTLE_S + 1)
    (found,) = look([ONE], sweep, Known()).states
    assert found.state == "lost"


def test_a_job_whose_id_nobody_wrote_down_is_found(sweep: Path, monkeypatch) -> None:
    write_note(sweep, note(None))
    answered(monkeypatch, job("RUNNING", comment=comment_of("r", 0)))
    found = look([ONE], sweep, Known())
    assert found.states[0].state == "starting" and found.states[0].job == "7"


def test_a_broken_note_is_a_remark(sweep: Path, monkeypatch) -> None:
    file = write_note(sweep, note("7"))
    file.write_text("{")
    answered(monkeypatch)
    assert str(file) in look([ONE], sweep, Known()).remarks[0]


@pytest.mark.parametrize(
    ("start", "elapsed", "seconds"),
    [
        ("2026-01-02T03:04:00", "0:02", 3.0),
        ("2026-01-01T03:04:05", "1-00:00:00", 0.0),
        (None, "0:02", float("inf")),
        ("2026-01-02T03:04:00", "INVALID", float("inf")),
        ("tomorrow", "0:02", float("inf")),
    ],
)
def test_how_long_a_job_is_over(start: str | None, elapsed: str, seconds: float) -> None:
    state = JobState("7", "FAILED", "", start, elapsed, "", NAME)
    assert over_for_s(state, NOW) == seconds
