"""Where cells stand on Slurm, and which get a record because their job is gone."""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.lock import hold
from jobs.cell.missing_record import Begun, announce, begun_in
from jobs.cell.state import OTHERS, UNREADABLE
from jobs.slurm.arrays import Array
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import PreflightReport, Problem
from jobs.slurm.reconcile import (
    FORGOTTEN_S,
    RUNAWAY_S,
    SETTLE_S,
    SETTLE_WELL_S,
    held_by,
    status_of,
    take,
)
from jobs.slurm.status import survey_places
from jobs.slurm.submissions import RunNote, Submitted, submitted_cells
from tests.builders import config, record
from tests.unreadable import is_untouched, unreadable
from train.config.run import RunConfig
from train.record.run import RunError, read_record

ONE, TWO = config(seed=0), config(seed=1)
ASKED = datetime.now(UTC) - timedelta(hours=2)


class Told(History):
    """A history that knows these endings, and counts what it was asked."""

    def __init__(self, *endings: JobState) -> None:
        super().__init__()
        self.known = {ending.job: ending for ending in endings}
        self.asked: list[set[str]] = []

    def endings(self, over, gone=()) -> dict[str, JobState]:
        jobs = {*over, *gone}
        self.asked.append(jobs)
        return {job: self.known[job] for job in jobs if job in self.known}


def ended(job: str, state: str) -> JobState:
    return JobState(job, state, nodes="n1", code=0)


def submitted(folder: Path, job: str = "7", preflight: str | None = None) -> Submitted:
    return Submitted(job, folder / "log", ASKED, preflight, "r", "0", (ONE.cell_id(),))


def in_queue(job: str, state: str) -> dict[str, JobState]:
    return {job: JobState(job, state, "", None, "0:05", "n1", "name")}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    folder = tmp_path / "sweep"
    for one in (ONE, TWO):
        (folder / one.cell_id() / "logs").mkdir(parents=True)
    return folder


def look(
    sweep: Path,
    history: History,
    queue=None,
    over_s=lambda _: math.inf,
    told=None,
    quiet_s=3600,
    age=True,
):
    """``quiet_s``: how old the cells' files are."""
    told = {ONE.cell_id(): submitted(sweep)} if told is None else told
    for file in sweep.rglob("*") if age else ():
        os.utime(file, (time.time() - quiet_s,) * 2)
    (place, _) = take([ONE, TWO], sweep, told, queue or {}, history, over_s)
    return place


def status(sweep: Path, one: RunConfig = ONE) -> str:
    return read_record(sweep / one.cell_id() / "record.json").status


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "REQUEUED", "NEW_WORD"])
def test_a_job_that_lives_is_never_settled(sweep: Path, state: str) -> None:
    """Also when an earlier start of it left its mark, as before a requeue."""
    announce(sweep / ONE.cell_id(), Begun(number=1, started_at=ASKED, pid=1, job="7"))
    history = Told()
    place = look(sweep, history, in_queue("7", state))
    assert place.alive and not place.settling
    assert not (sweep / ONE.cell_id() / "record.json").exists()
    assert history.asked in ([], [set()]), "nothing to ask"


@pytest.mark.parametrize(
    ("state", "wanted"),
    [("NODE_FAIL", "lost"), ("CANCELLED", "cancelled"), ("TIMEOUT", "timeout"),
     ("PREEMPTED", "preempted"), ("COMPLETED", "lost"), ("OUT_OF_MEMORY", "failed")],
)  # fmt: skip
@pytest.mark.parametrize("begun", [True, False])
def test_a_job_that_is_gone_tells_the_status(
    sweep: Path, state: str, wanted: str, begun: bool
) -> None:
    if begun:
        announce(sweep / ONE.cell_id(), Begun(number=1, started_at=ASKED, pid=1, job="7"))
    place = look(sweep, Told(ended("7", state)))
    assert not place.alive
    assert status(sweep) == place.standing.status == wanted
    assert not (sweep / TWO.cell_id() / "record.json").exists(), "never submitted"


def test_a_job_that_slurm_forgot(sweep: Path) -> None:
    assert look(sweep, Told()).standing.status == "lost"
    error = read_record(sweep / ONE.cell_id() / "record.json").error
    assert error is not None and "Slurm no longer knows job 7" in error.what


@pytest.mark.parametrize(
    ("end", "enough_s"),
    [("COMPLETED", SETTLE_WELL_S), (None, FORGOTTEN_S), ("FAILED", SETTLE_S),
     ("NODE_FAIL", SETTLE_S)],
)  # fmt: skip
@pytest.mark.parametrize("listed", [True, False])
def test_how_long_what_a_job_left_is_waited_for(
    sweep: Path, end: str | None, enough_s: float, listed: bool
) -> None:
    """The supervisor's record may still be hidden by a cache; after a good end it is there."""
    history = Told(*([ended("7", end)] if end else []))
    queue = in_queue("7", end) if end and listed else {}
    place = look(sweep, history, queue, lambda _: enough_s - 1, quiet_s=enough_s - 1)
    assert place.alive and place.settling
    assert not (sweep / ONE.cell_id() / "record.json").exists()
    place = look(sweep, history, queue, lambda _: enough_s, quiet_s=enough_s + 1)
    assert not place.alive
    assert status(sweep) in ("lost", "failed")


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED", "A_NEW_WORD"])
def test_a_job_that_no_list_shows_and_the_controller_knows_is_alive(
    sweep: Path, state: str
) -> None:
    """Seen: a renamed job was taken for lost, and its cells ran twice."""
    told = JobState("7", state, "Priority", nodes="n1")
    place = look(sweep, Told(told), quiet_s=1e6)
    assert place.alive and place.job is not None and place.job.state == state
    assert not (sweep / ONE.cell_id() / "record.json").exists()


def test_accounts_against_the_controller(sweep: Path) -> None:
    """The controller does not know the job, and sacct takes it for running: they may be late."""
    told = Told(JobState("7", "RUNNING", nodes="n1", source="sacct"))
    place = look(sweep, told, quiet_s=RUNAWAY_S - 60)
    assert place.alive and not (sweep / ONE.cell_id() / "record.json").exists()
    old = Submitted("7", sweep / "log", ASKED - timedelta(days=2), cells=(ONE.cell_id(),))
    assert not look(sweep, told, quiet_s=RUNAWAY_S + 60, told={ONE.cell_id(): old}).alive
    assert status(sweep) == "lost"


@pytest.mark.parametrize("mate", ["logs/rank-0.beat", "epochs.jsonl"])
def test_another_cell_of_a_forgotten_job_that_still_writes(sweep: Path, mate: str) -> None:
    cells = (ONE.cell_id(), TWO.cell_id())
    told = {ONE.cell_id(): Submitted("7", sweep / "log", ASKED, cells=cells)}
    for one in cells:
        (sweep / one / mate).write_text("alive")
    look(sweep, Told(), told=told, quiet_s=0)
    assert not (sweep / ONE.cell_id() / "record.json").exists()


def test_a_job_on_another_cluster_or_of_another_user_is_left_alone(sweep: Path) -> None:
    class Here(Told):
        def cluster(self) -> str:
            return "b"

    mine = Submitted("7", sweep / "log", ASKED, cells=(ONE.cell_id(),), cluster="a")
    place = look(sweep, Here(), told={ONE.cell_id(): mine}, quiet_s=1e6)
    assert place.alive and "on cluster a, and this shell asks cluster b" in place.elsewhere
    theirs = Submitted("7", sweep / "log", ASKED, cells=(ONE.cell_id(),), user=os.getuid() + 1)
    place = look(sweep, Told(), told={ONE.cell_id(): theirs}, quiet_s=1e6)
    assert place.alive and "of whose jobs others may see nothing" in place.elsewhere
    assert not (sweep / ONE.cell_id() / "record.json").exists()


def test_the_same_id_is_another_jobs_now(sweep: Path) -> None:
    """After a controller lost its state, or on another cluster: what it does says nothing."""
    other = JobState("7", "COMPLETED", "", None, "0:05", "n1", "n", comment="horoscale:r2:0")
    place = look(sweep, Told(), {"7": other}, quiet_s=60)
    assert place.settling, "Slurm does not know our job any more: its files decide"


def test_a_job_of_which_slurm_cannot_be_asked_settles_nothing(sweep: Path) -> None:
    class Away(History):
        def endings(self, over, gone=()) -> dict[str, JobState]:
            raise SlurmError("scontrol", "no answer", passing=True)

    with pytest.raises(SlurmError):
        look(sweep, Away())
    assert not (sweep / ONE.cell_id() / "record.json").exists()


def test_a_supervisor_that_holds_the_cell_writes_its_own_record(sweep: Path) -> None:
    """It outlives its job in squeue by a moment; flock excludes other processes and handles."""
    inside, done = threading.Event(), threading.Event()

    def supervisor() -> None:
        with hold(sweep / ONE.cell_id()):
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=supervisor)
    thread.start()
    try:
        assert inside.wait(10)
        place = look(sweep, Told(ended("7", "COMPLETED")))
        assert place.settling and place.alive
        assert not (sweep / ONE.cell_id() / "record.json").exists()
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(("other", "wanted"), [("RUNNING", None), ("NODE_FAIL", "lost")])
def test_a_cell_that_its_last_job_left_to_an_earlier_one(sweep: Path, other: str, wanted) -> None:
    """Job 7 found job 6 at work, and ended at once: what becomes of the cell is job 6's end."""
    announce(sweep / ONE.cell_id(), Begun(number=1, started_at=ASKED, pid=1, job="6"))
    place = look(sweep, Told(ended("7", "FAILED"), ended("6", other)))
    assert place.alive == (wanted is None)
    if wanted:
        assert status(sweep) == wanted
        error = read_record(sweep / ONE.cell_id() / "record.json").error
        assert error is not None and "job 6" in error.what
    else:
        assert begun_in(sweep / ONE.cell_id()) is not None


def test_an_answer_by_id_that_is_another_jobs(sweep: Path) -> None:
    told = replace(ended("7", "FAILED"), comment="horoscale:other:0")
    place = look(sweep, Told(told), quiet_s=60)
    assert place.settling and not (sweep / ONE.cell_id() / "record.json").exists()


def test_epochs_that_cannot_be_read_now_are_not_left_out_of_a_record(sweep: Path) -> None:
    unreadable(sweep / ONE.cell_id() / "epochs.jsonl")
    place = look(sweep, Told(ended("7", "NODE_FAIL")), in_queue("7", "NODE_FAIL"), age=False)
    assert not place.alive and place.standing.status == UNREADABLE
    assert not (sweep / ONE.cell_id() / "record.json").exists()


@pytest.mark.parametrize("kind", ["completed", "failed"])
def test_a_record_of_the_job_itself_stays(sweep: Path, kind: str) -> None:
    now = datetime.now(UTC)
    error = None if kind == "completed" else RunError(what="w", where="x", what_to_do="y")
    text = record(ONE, status=kind, ended_at=now, error=error).model_dump_json()
    (sweep / ONE.cell_id() / "record.json").write_text(text)
    history = Told(ended("7", "FAILED"))
    assert look(sweep, history).standing.status == kind
    assert (sweep / ONE.cell_id() / "record.json").read_text() == text
    assert history.asked in ([], [set()])


def test_a_cell_with_a_good_record_of_its_job_is_not_waited_for(sweep: Path) -> None:
    """Seen: after a restart the controller took 6 jobs for running that had ended minutes ago."""
    for ended_at, alive in ((datetime.now(UTC), False), (ASKED - timedelta(days=1), True)):
        text = record(ONE, ended_at=ended_at).model_dump_json()
        (sweep / ONE.cell_id() / "record.json").write_text(text)
        assert look(sweep, Told(), in_queue("7", "RUNNING")).alive == alive, "that of a forced cell"


def test_an_older_failure_is_not_the_end_of_this_job(sweep: Path) -> None:
    """It was submitted again, and that job died without a word: a second attempt."""
    old = record(ONE, status="failed")  # of 2026-01-02
    (sweep / ONE.cell_id() / "record.json").write_text(old.model_dump_json())
    look(sweep, Told(ended("7", "NODE_FAIL")))
    found = read_record(sweep / ONE.cell_id() / "record.json")
    assert [one.status for one in found.attempts] == ["failed", "lost"]


def test_a_record_that_cannot_be_read_is_left_alone(sweep: Path) -> None:
    (sweep / ONE.cell_id() / "record.json").write_text("{half")
    assert look(sweep, Told()).standing.status == "broken record"
    assert (sweep / ONE.cell_id() / "record.json").read_text() == "{half"


@pytest.mark.parametrize("kind", ["completed", "failed"])
def test_the_record_of_another_config_is_not_this_jobs_and_stays(sweep: Path, kind: str) -> None:
    cell = sweep / ONE.cell_id()
    text = record(TWO, status=kind).model_dump_json()  # older than the job
    (cell / "record.json").write_text(text)
    place = look(sweep, Told(ended("7", "FAILED")))
    assert place.standing.status == OTHERS and not place.standing.done
    assert (cell / "record.json").read_text() == text


def test_settled_once(sweep: Path) -> None:
    look(sweep, Told(ended("7", "NODE_FAIL")))
    before = (sweep / ONE.cell_id() / "record.json").read_bytes()
    again = Told()
    look(sweep, again)
    assert (sweep / ONE.cell_id() / "record.json").read_bytes() == before
    assert again.asked in ([], [set()])


def report(sweep: Path, *problems: Problem) -> None:
    folder = sweep.parent / "preflight" / "r"
    folder.mkdir(parents=True)
    told = PreflightReport(key="k", job="6", at=ASKED, seconds=1, nodes=("n1",), versions={},
                           problems=problems)  # fmt: skip
    (folder / "report.json").write_text(told.model_dump_json())


def test_what_the_preflight_found_is_why_a_cell_was_held(sweep: Path) -> None:
    report(sweep, Problem(node="n3", check="interface", found="no ib0", expected="ib0", fix="fix"))
    told = {ONE.cell_id(): submitted(sweep, preflight="6")}
    look(sweep, Told(ended("7", "CANCELLED")), told=told)
    found = read_record(sweep / ONE.cell_id() / "record.json")
    assert found.status == "cancelled"
    assert found.error is not None
    assert "the preflight, job 6, failed: n3: interface: found no ib0" in found.error.what


def test_a_good_preflight_holds_nothing(sweep: Path) -> None:
    report(sweep)
    assert held_by(sweep, "6") is None
    assert held_by(sweep, "5") is None
    assert held_by(sweep, None) is None


def test_the_last_job_of_a_cell_counts(tmp_path: Path) -> None:
    def note(run: str, job: str | None, *units: tuple[str, ...]) -> RunNote:
        array = Array(job_id=job, units=units, nodes=1, ranks_per_node=1, minutes=1)
        return RunNote(run=run, site="s", job_name="n", submitted_at=ASKED, arrays=(array,))

    found = submitted_cells(
        tmp_path,
        [note("a", "5", ("x",), ("y", "z")), note("b", "9", ("y",)), note("c", None, ("x",))],
    )
    assert {cell: told.job for cell, told in found.items()} == {"x": "5_0", "y": "9", "z": "5_1"}
    assert found["z"].log == tmp_path / ".submitit" / "a-0" / "5_1_0_log.out"


def test_a_preflight_that_left_no_report_is_named_with_its_log(sweep: Path) -> None:
    """Slurm then cancels what depends on it, and says nothing of why."""
    log = sweep / ".submitit" / "r-preflight" / "6_0_log.out"
    log.parent.mkdir(parents=True)
    log.write_text("exec: /opt/python: not found\n")
    history = Told(ended("7", "CANCELLED"), JobState("6", "FAILED", nodes="n1", code=127))
    told = {ONE.cell_id(): submitted(sweep, preflight="6")}
    look(sweep, history, told=told)
    found = read_record(sweep / ONE.cell_id() / "record.json")
    assert found.status == "cancelled"
    assert found.error is not None
    assert "the preflight ended without a report" in found.error.what
    assert "no Python on the node (exit code 127)" in found.error.what
    assert str(log) in found.error.what


def test_a_preflight_that_still_runs_holds_nobody(sweep: Path) -> None:
    """The cell's own job was cancelled by hand."""
    history = Told(ended("7", "CANCELLED"))
    told = {ONE.cell_id(): submitted(sweep, preflight="6")}
    look(sweep, history, in_queue("6", "RUNNING"), told=told)
    found = read_record(sweep / ONE.cell_id() / "record.json")
    assert found.error is not None
    assert "preflight" not in found.error.what


def test_a_supervisor_killed_after_its_good_record_leaves_a_finished_cell(sweep: Path) -> None:
    cell = sweep / ONE.cell_id()
    (cell / "record.json").write_text(record(ONE).model_dump_json())
    announce(cell, Begun(number=1, started_at=ASKED, pid=1, job="7"))
    assert look(sweep, Told(ended("7", "FAILED"))).standing.done
    assert begun_in(cell) is None
    assert not look(sweep, Told()).settling


@pytest.mark.parametrize("name", ["record.json", "config.json", "logs/attempt.json"])
def test_a_cell_that_cannot_be_read_gets_no_record(sweep: Path, name: str) -> None:
    """Its job is gone, and yet nobody knows what that left."""
    cell = sweep / ONE.cell_id()
    file = unreadable(cell / name)
    place = look(sweep, Told(ended("7", "NODE_FAIL")))
    assert place.standing.status == UNREADABLE and not place.alive
    assert is_untouched(cell, file)
    (state, _) = survey_places([place, place], [])
    assert state.state == UNREADABLE and str(file) in state.why


@pytest.mark.parametrize(
    ("state", "status"),
    [("CANCELLED", "cancelled"), ("TIMEOUT", "timeout"), ("DEADLINE", "timeout"),
     ("PREEMPTED", "preempted"), ("NODE_FAIL", "lost"), ("BOOT_FAIL", "lost"),
     ("COMPLETED", "lost"), ("REVOKED", "lost"), ("OUT_OF_MEMORY", "failed"), ("FAILED", "lost")],
)  # fmt: skip
def test_every_end_has_a_status_and_a_sentence(state: str, status: str) -> None:
    found, text = status_of(JobState("7_1", state))
    assert found == status and text


@pytest.mark.parametrize(
    ("code", "signal", "status", "words"),
    [(3, None, "failed", "its batch script ended with exit code 3 (on node1)"),
     (0, 9, "lost", "its supervisor was ended by SIGKILL (on node1)"),
     (0, 53, "failed", "does not see the results folder"),
     (66, None, "failed", "does not see the results folder"),
     (127, None, "failed", "found no Python"), (126, None, "failed", "may not run the Python")],
)  # fmt: skip
def test_ends_of_batch_scripts(code: int, signal: int | None, status: str, words: str) -> None:
    """Seen: results on a node's own /tmp read "ended by signal 53"."""
    state = JobState("7_1", "FAILED", "NonZeroExitCode", nodes="node1", code=code, signal=signal)
    found, text = status_of(state)
    assert found == status and words in text and "signal 53" not in text
