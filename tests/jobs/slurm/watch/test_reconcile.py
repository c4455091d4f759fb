"""Where cells stand on Slurm, and which get a record because their job is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.missing_record import Begun, announce, begun_in
from jobs.cell.state import BROKEN, MAY_RUN, NEW, OTHERS, UNREADABLE, CellState, recorded
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import PREFLIGHT
from jobs.slurm.script import TASKS_NAME
from jobs.slurm.submissions import Submitted
from jobs.slurm.watch.endings import FORGOTTEN_S, RUNAWAY_S, SETTLE_S, SETTLE_WELL_S
from jobs.slurm.watch.reconcile import left_no_record, reconcile
from tests.builders import config, record
from tests.jobs.slurm.fakes import PROBLEM, Told, in_queue, report_preflight
from tests.opened import opened
from tests.unreadable import is_untouched, stale, unreadable
from train.record.lock import hold
from train.record.run import read_record

ONE, TWO = config(seed=0), config(seed=1)
ASKED = datetime.now(UTC) - timedelta(hours=2)


def ended(job: str, state: str) -> JobState:
    return JobState(job, state, nodes="n1", code=0)


def submitted(folder: Path, job: str = "7", preflight: str | None = None) -> Submitted:
    return Submitted(job, folder / "log", ASKED, preflight, "r", "0", ONE.cell_id())


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for one in (ONE, TWO):
        (tmp_path / "t" / one.cell_id() / "logs").mkdir(parents=True)
    return tmp_path / "t"


def look(sweep: Path, history: History, queue=None, told=None, quiet_s=3600) -> CellState:
    """``quiet_s``: how old the cells' files are. A job that may be alive gives its cell no record,
    nor does one of another cell."""
    told = {ONE.cell_id(): submitted(sweep)} if told is None else told
    for file in sweep.rglob("*"):
        os.utime(file, (time.time() - quiet_s,) * 2)
    before = set(sweep.glob("*/record.json"))
    (cell, _) = reconcile([ONE, TWO], sweep, told, queue or {}, history, {})
    new = set(sweep.glob("*/record.json")) - before
    assert not new or (new == {cell.folder / "record.json"} and not cell.alive)
    return cell


def status(sweep: Path) -> str:
    return read_record(sweep / ONE.cell_id() / "record.json").status


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "REQUEUED", "NEW_WORD"])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_a_job_that_lives_is_never_settled(sweep, state, listed, begun) -> None:
    """Also when an earlier start of it left its mark, as before a requeue, and when no list shows
    it. Seen: a renamed job was taken for lost, and its cells ran twice."""
    if begun:
        announce(sweep / ONE.cell_id(), Begun(number=1, started_at=ASKED, pid=1, job="7"))
    job = in_queue({"7": state})
    history = Told() if listed else Told(*job.values())
    cell = look(sweep, history, job if listed else {}, quiet_s=1e6)
    assert cell.alive and cell.slurm == state
    assert not listed or history.asked in ([], [set()]), "nothing to ask"


@pytest.mark.parametrize("begun", [True, False])
def test_a_job_that_is_gone_tells_the_status(sweep: Path, begun: bool) -> None:
    if begun:
        announce(sweep / ONE.cell_id(), Begun(number=1, started_at=ASKED, pid=1, job="7"))
    cell = look(sweep, Told(ended("7", "TIMEOUT")))
    assert not cell.alive
    assert status(sweep) == cell.status == "timeout"


@pytest.mark.parametrize(
    ("start", "ran", "nodes"),
    [(datetime.now(UTC), "0:00", ""), (None, "0:02", "n1"), (datetime.now(UTC), "INVALID", "n1")],
    ids=["now", "unreadable start", "unreadable time"],
)
def test_a_job_that_was_cancelled_before_it_began_is_over_at_once(sweep, start, ran, nodes) -> None:
    """Unless somebody requeued it since. So is one whose times cannot be read."""
    queue = {"7": JobState("7", "CANCELLED", "", start, ran, nodes)}
    assert look(sweep, Told(JobState("7", "RUNNING")), queue, quiet_s=0).alive
    assert look(sweep, Told(), queue, quiet_s=0).status == status(sweep) == "cancelled"


@pytest.mark.parametrize(
    ("end", "enough_s"),
    [("COMPLETED", SETTLE_WELL_S), (None, FORGOTTEN_S), ("FAILED", SETTLE_S),
     ("NODE_FAIL", SETTLE_S)],
)  # fmt: skip
@pytest.mark.parametrize("listed", [True, False])
def test_how_long_what_a_job_left_is_waited_for(sweep, end, enough_s, listed) -> None:
    """The supervisor's record may still be hidden by a cache; after a good end it is there."""
    history = Told(*([ended("7", end)] if end else []))
    queue = in_queue({"7": end}, over_s=enough_s / 2) if end and listed else {}
    cell = look(sweep, history, queue, quiet_s=enough_s / 2)
    assert cell.alive and cell.state == "ending"
    queue = in_queue({"7": end}, over_s=enough_s) if queue else {}
    cell = look(sweep, history, queue, quiet_s=enough_s + 1)
    assert not cell.alive
    assert status(sweep) in ("lost", "failed")


def test_accounts_against_the_controller(sweep: Path) -> None:
    """The controller does not know the job, and sacct takes it for running: they may be late."""
    told = Told(JobState("7", "RUNNING", nodes="n1", source="sacct"))
    cell = look(sweep, told, quiet_s=RUNAWAY_S - 60)
    assert cell.alive
    old = Submitted("7", sweep / "log", ASKED - timedelta(days=2), cell=ONE.cell_id())
    assert not look(sweep, told, quiet_s=RUNAWAY_S + 60, told={ONE.cell_id(): old}).alive
    assert status(sweep) == "lost"


@pytest.mark.parametrize("file", ["logs/rank-0.beat", "epochs.jsonl"])
def test_a_cell_of_a_forgotten_job_that_still_writes(sweep: Path, file: str) -> None:
    (sweep / ONE.cell_id() / file).write_text("alive")
    assert look(sweep, Told(), quiet_s=0).alive


@pytest.mark.parametrize(
    ("where", "here", "why"),
    [({"cluster": "a"}, "b", "on cluster a, and this shell asks cluster b"),
     ({"cluster": "a"}, None, "on cluster a, and this shell asks cluster (unnamed)"),
     ({"user": os.getuid() + 1}, "a", "of whose jobs others may see nothing")],
)  # fmt: skip
def test_a_job_that_slurm_here_cannot_know_is_left_alone(sweep, where, here, why) -> None:
    history = Told()
    history.cluster = lambda: here
    job = replace(submitted(sweep), **where)
    cell = look(sweep, history, told={ONE.cell_id(): job}, quiet_s=1e6)
    assert cell.alive and why in cell.elsewhere
    assert f"rm {sweep}/.slurm/{job.run}.json" in cell.elsewhere


def test_the_same_id_is_another_jobs_now(sweep: Path) -> None:
    """After a controller lost its state, or on another cluster: what it does says nothing."""
    other = JobState("7", "COMPLETED", "", None, "0:05", "n1", "n", comment="horoscale:r2:0")
    for answers in (Told(), Told(other)):
        for queue in ({"7": other}, {}):
            cell = look(sweep, answers, queue, quiet_s=60)
            assert cell.alive and cell.state == "ending", (
                "our job is not known any more: its files decide"
            )


def test_a_supervisor_that_holds_the_cell_writes_its_own_record(sweep: Path) -> None:
    """It outlives its job in squeue by a moment."""
    with hold(sweep / ONE.cell_id()):
        cell = look(sweep, Told(ended("7", "COMPLETED")))
    assert cell.alive and cell.state == "ending"


@pytest.mark.parametrize(("other", "wanted"), [("RUNNING", None), ("NODE_FAIL", "lost")])
def test_a_cell_that_its_last_job_left_to_an_earlier_one(sweep: Path, other: str, wanted) -> None:
    """Job 7 found job 6 at work, and ended at once: what becomes of the cell is job 6's end."""
    announce(sweep / ONE.cell_id(), Begun(number=1, started_at=ASKED, pid=1, job="6"))
    cell = look(sweep, Told(ended("7", "FAILED"), ended("6", other)))
    assert cell.alive == (wanted is None)
    if wanted:
        assert status(sweep) == wanted
        error = read_record(sweep / ONE.cell_id() / "record.json").error
        assert error is not None and "job 6" in error.what
    else:
        assert begun_in(sweep / ONE.cell_id()) is not None


def ended_now(status: str) -> str:
    return record(ONE, status=status, ended_at=datetime.now(UTC)).model_dump_json()


@pytest.mark.parametrize(
    ("text", "status"),
    [(ended_now("completed"), "completed"), (ended_now("failed"), "failed"), ("{half", BROKEN),
     # of another config, and older than the job
     (record(TWO).model_dump_json(), OTHERS),
     (record(TWO, status="failed").model_dump_json(), OTHERS)],
    ids=["good", "failed", "half", "another good", "another failed"],
)  # fmt: skip
def test_a_record_that_is_there_stays(sweep: Path, text: str, status: str) -> None:
    (sweep / ONE.cell_id() / "record.json").write_text(text)
    history = Told(ended("7", "FAILED"))
    assert look(sweep, history).status == status
    assert (sweep / ONE.cell_id() / "record.json").read_text() == text
    assert history.asked in ([], [set()])


def test_a_cell_with_a_good_record_of_its_job_is_not_waited_for(sweep: Path) -> None:
    """Seen: after a restart the controller took 6 jobs for running that had ended minutes ago."""
    for ended_at, alive in ((datetime.now(UTC), False), (ASKED - timedelta(days=1), True)):
        text = record(ONE, ended_at=ended_at).model_dump_json()
        (sweep / ONE.cell_id() / "record.json").write_text(text)
        queue = in_queue({"7": "RUNNING"})
        assert look(sweep, Told(), queue).alive == alive, "that of a forced cell"


def test_an_older_failure_is_not_the_end_of_this_job(sweep: Path) -> None:
    """It was submitted again, and that job died without a word: a second attempt."""
    old = record(ONE, status="failed")  # of 2026-01-02
    (sweep / ONE.cell_id() / "record.json").write_text(old.model_dump_json())
    look(sweep, Told(ended("7", "NODE_FAIL")))
    found = read_record(sweep / ONE.cell_id() / "record.json")
    assert [one.status for one in found.attempts] == ["failed", "lost"]


@pytest.mark.parametrize("later", [True, False])
def test_a_record_of_a_node_whose_clock_is_behind_is_kept(sweep: Path, later: bool) -> None:
    """By the clock of the file server it is younger than what was submitted."""
    job, file = submitted(sweep), sweep / ONE.cell_id() / "record.json"
    file.write_text(
        record(ONE, status="failed", ended_at=job.at - timedelta(minutes=4)).model_dump_json()
    )
    (sweep / TASKS_NAME).write_text("{}")
    os.utime(sweep / TASKS_NAME, (time.time() - 3600,) * 2)
    os.utime(file, (time.time() - 3600 + (60 if later else -60),) * 2)
    cell = recorded(ONE, file.parent)
    assert left_no_record(cell, job) != later


@pytest.mark.parametrize(
    "report", ["bad", "good", "alive", "CANCELLED", "COMPLETED", "RUNNING", "FAILED"]
)
def test_what_the_preflight_found_is_why_a_cell_was_held(sweep: Path, report: str) -> None:
    """A good one, whether its report is still there or not, and one that still runs, whatever the
    list shows, held nobody: the cell's own job was cancelled. Where it left no report, since an
    administrator cancelled it, say, Slurm cancels what depends on it, and says nothing of why: its
    log may."""
    told = {ONE.cell_id(): submitted(sweep, preflight="101")}
    folder, log = sweep.parent / PREFLIGHT / "r", sweep / ".submitit/r-preflight/101_0_log.out"
    for parent in (folder, log.parent):
        parent.mkdir(parents=True)
    log.write_text("exec: /opt/python: not found\n")
    if report in ("bad", "good"):
        report_preflight(folder, *[PROBLEM] * (report == "bad"))
    queue = in_queue({"101": "RUNNING"}) if report == "alive" else {}
    history = Told(ended("7", "CANCELLED"), JobState("101", report, nodes="n1", code=127))
    look(sweep, history, queue, told=told)
    found = read_record(sweep / ONE.cell_id() / "record.json")
    assert found.status == "cancelled" and found.error is not None
    held = "not started, as its preflight did not pass: job 101"
    words = {
        "bad": [f"{held}, {PROBLEM}"],
        "CANCELLED": [f"{held} (on n1): it was cancelled", str(log)],
        "FAILED": [f"{held} (on n1): its", "no Python", str(log)],
    }
    own = ["no rank was started: job 7 (on n1): it was cancelled"]
    assert all(word in found.error.what for word in words.get(report, own))


def test_a_supervisor_killed_after_its_good_record_leaves_a_finished_cell(sweep: Path) -> None:
    folder = sweep / ONE.cell_id()
    (folder / "record.json").write_text(record(ONE).model_dump_json())
    announce(folder, Begun(number=1, started_at=ASKED, pid=1, job="7"))
    assert look(sweep, Told(ended("7", "FAILED"))).done
    assert begun_in(folder) is None
    assert not look(sweep, Told()).alive


@pytest.fixture
def looks(sweep: Path) -> Callable[..., tuple[list[str], CellState]]:
    """The files that a look opens, and what it shows; it remembers what earlier looks read."""
    seen: dict[str, tuple[object, CellState]] = {}

    def again(
        state: str | None, history: History | None = None, reason: str = ""
    ) -> tuple[list[str], CellState]:
        told = {ONE.cell_id(): submitted(sweep)}
        queue = {"7": JobState("7", state, reason, ASKED, "2:00:00", "n1")} if state else {}
        with opened(sweep) as files:
            (cell,) = reconcile([ONE], sweep, told, queue, history or Told(), seen)
        return files, cell

    return again


def test_a_cell_whose_job_waits_or_runs_is_read_when_something_changes(sweep, looks) -> None:
    """Seen: four files of each queued cell in each minute, for days. While its
    files do not change, the job tells where a cell stands."""
    folder = sweep / ONE.cell_id()
    files, cell = looks("PENDING")
    assert set(files) == {"record.json", "attempt.json", "config.json"} and cell.state == "waiting"
    assert looks("PENDING") == ([], cell)
    files, cell = looks("RUNNING")
    assert files and cell.state == "starting"
    assert looks("RUNNING")[0] == []
    announce(folder, Begun(number=1, started_at=ASKED, pid=1, job="7"))
    files, cell = looks("RUNNING")
    assert files and cell.state == "running"
    (folder / "epochs.jsonl").write_text("beats and epochs change nothing here")
    assert looks("RUNNING") == ([], cell)
    preempted = record(ONE, status="preempted", ended_at=datetime.now(UTC))
    (folder / "record.json").write_text(preempted.model_dump_json())
    (folder / "logs" / "attempt.json").unlink()
    files, cell = looks("PENDING")
    assert files and cell.state == "waiting" and cell.status == "preempted"
    assert looks("COMPLETED")[0] and looks("COMPLETED")[0], "what it left may be seen late"
    assert looks(None)[0] and looks(None)[0], "nothing is known of it"


def test_a_start_between_two_looks_at_a_waiting_job_is_seen(sweep: Path, looks) -> None:
    """Slurm lets a job that was requeued wait for two minutes, and gives that reason."""
    assert looks("PENDING", reason="Priority")[1].status == NEW
    assert looks("PENDING", reason="Resources")[0] == []
    preempted = record(ONE, status="preempted", ended_at=datetime.now(UTC))
    (sweep / ONE.cell_id() / "record.json").write_text(preempted.model_dump_json())
    assert looks("PENDING", reason="BeginTime")[1].status == "preempted"


def test_a_record_that_a_running_job_has_left_is_seen(sweep: Path, looks) -> None:
    """A controller that was restarted may take it for running."""
    assert looks("RUNNING")[1].alive and looks("RUNNING")[1].alive
    good = record(ONE, ended_at=datetime.now(UTC)).model_dump_json()
    (sweep / ONE.cell_id() / "record.json").write_text(good)
    assert not looks("RUNNING")[1].alive


def test_a_cell_that_could_not_be_read_is_read_again(sweep: Path, looks) -> None:
    file = unreadable(sweep / ONE.cell_id() / "logs" / "attempt.json")
    assert looks("RUNNING")[1].status == UNREADABLE and looks("RUNNING")[0]
    file.unlink()
    assert looks("RUNNING")[1].status == NEW


@pytest.mark.parametrize(
    "name", ["record.json", "config.json", "logs/attempt.json", "epochs.jsonl"]
)
def test_a_cell_that_cannot_be_read_gets_no_record(sweep: Path, name: str) -> None:
    """Its job is gone, and yet nobody knows what that left."""
    file = unreadable(sweep / ONE.cell_id() / name)
    cell = look(sweep, Told(ended("7", "NODE_FAIL")))
    assert cell.state == UNREADABLE and not cell.alive and str(file) in cell.why
    assert is_untouched(cell.folder, file)


NODE = "process 7 on node9, boot 1, 0:45"


@pytest.mark.parametrize(
    ("signer", "begun", "state", "settled"),
    [
        (f"job 7, {NODE}", "7", "NODE_FAIL", True),
        (f"job 7, {NODE}", None, "NODE_FAIL", True),
        (f"job 6, {NODE}", None, "NODE_FAIL", True),  # forgotten
        (f"job 5, {NODE}", None, "NODE_FAIL", False),  # alive
        # a local run elsewhere, whose lock is not seen here: job 7 found it at work, and left
        (NODE, "", "COMPLETED", False),
        (NODE, None, "COMPLETED", False),
        (f"process 7 on {os.uname().nodename}", "", "COMPLETED", True),
    ],
)
def test_the_end_of_a_job_settles_no_cell_that_another_may_run(
    sweep: Path, signer: str, begun: str | None, state: str, settled: bool
) -> None:
    folder = sweep / ONE.cell_id()
    (folder / ".running").write_text(signer)
    if begun is not None:
        announce(folder, Begun(number=1, started_at=ASKED, pid=1, job=begun or None))
    cell = look(sweep, Told(ended("7", state), JobState("5", "RUNNING")))
    assert not cell.alive and (cell.status == MAY_RUN) is not settled
    assert (folder / "record.json").exists() is settled
    assert settled or (str(folder / ".running") in cell.why and cell.left_alone)


@pytest.mark.parametrize("name", ["", "logs", ".running", "rank-0.beat"])
@pytest.mark.parametrize("end", [ended("7", "NODE_FAIL"), None, JobState("7", "RUNNING")])
def test_a_folder_that_cannot_be_used_leaves_its_cell_alone(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, name: str, end: JobState | None
) -> None:
    """Seen: the watcher stopped, and with it all others."""
    (sweep / ONE.cell_id() / "rank-0.beat").touch()
    told = {one.cell_id(): replace(submitted(sweep), cell=one.cell_id()) for one in (ONE, TWO)}
    told[TWO.cell_id()] = replace(told[TWO.cell_id()], job="8")
    for file in sweep.rglob("*"):
        os.utime(file, (time.time() - 3600,) * 2)
    stale(monkeypatch, sweep / ONE.cell_id() / name)
    history = Told(*([end] if end else []), ended("8", "NODE_FAIL"))
    one, two = reconcile([ONE, TWO], sweep, told, {}, history, {})
    assert two.status == "lost"
    living = end is not None and end.state == "RUNNING" and name not in ("", "logs")
    assert one.alive is living and (one.status == UNREADABLE) is not living
    assert not one.left_alone or "Stale file handle" in one.why


@pytest.mark.parametrize("begun", [True, False])
def test_a_supervisor_that_could_not_write_costs_no_checkpoint(sweep: Path, begun: bool) -> None:
    """It ended with exit code 1, before its ranks were started or after."""
    folder = sweep / ONE.cell_id()
    (folder / "record.json").write_text(record(ONE, status="timeout").model_dump_json())
    (folder / "checkpoint.npz").touch()
    if begun:
        announce(folder, Begun(number=2, started_at=ASKED, pid=1, job="7"))
    cell = look(sweep, Told(replace(ended("7", "FAILED"), code=1, signal=0)))
    assert cell.status == "failed" and cell.resume
