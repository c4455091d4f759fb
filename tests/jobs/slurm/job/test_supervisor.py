"""The supervisor of a Slurm job with a scripted srun: real processes, every kind of end."""

from __future__ import annotations

import fcntl
import hashlib
import json
import signal
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.container import find_image
from jobs.cell.missing_record import Begun, announce
from jobs.cell.state import ARCHIVE_NAME
from jobs.cell.stop import Reason, Stop
from jobs.slurm.job import supervisor as module
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.requeue import CellEnd
from jobs.slurm.job.supervisor import LEFT, Supervisor
from tests.builders import record
from tests.jobs.cell.test_container import sif
from tests.jobs.slurm.fakes import (
    FakeSlurm,
    Job,
    attempts,
    cells,
    script_srun,
    task_of,
)
from tests.sweeps import wait_until
from tests.unreadable import is_untouched, stale, unreadable
from train.distributed.awake import Awake
from train.record.lock import LOCK_NAME, hold
from train.record.run import RunError, read_record

(ONE,) = cells(1)
STOPPED = Reason("cancelled", "a test")


def requeues(fake: FakeSlurm) -> list[list[str]]:
    return [call for call in fake.calls("scontrol") if "requeue" in call]


def test_a_cell_that_failed_is_not_run_again_by_itself(tmp_path: Path, fake: FakeSlurm) -> None:
    script_srun(fake, 'say("srun: error: task 0 launch failed: x"); sys.exit(1)')
    task = task_of(tmp_path, ONE)
    code, said = Job(fake, task).run()
    assert code == 1 and "Traceback" not in said
    failed = read_record(Path(task.cell) / "record.json")
    assert failed.status == "failed" and len(failed.attempts) == 1
    assert failed.error is not None and failed.error.where == "srun", "Slurm's words are asked"
    assert len(fake.calls("srun")) == 1 and requeues(fake) == []
    assert not list(tmp_path.glob("results/*/logs/attempt.json"))


def test_a_forced_cells_record_is_put_aside_once(tmp_path: Path, fake: FakeSlurm) -> None:
    """When Slurm requeues the job, the new record is good, and of this job."""
    task = task_of(tmp_path, ONE)
    cell = Path(task.cell)
    text = record(ONE).model_dump_json()  # of 2026-01-02
    (cell / "record.json").write_text(text)
    script_srun(fake, "good()", [ONE])
    for restarts in (0, 1):
        job = Job(fake, task.model_copy(update={"forced": True}), restarts=restarts)
        assert job.run()[0] == 0
    assert len(fake.calls("srun")) == 1
    (aside,) = (cell / ARCHIVE_NAME).iterdir()
    assert (aside / "record.json").read_text() == text
    assert read_record(cell / "record.json").ended_at > task.asked_at


def test_a_start_whose_supervisor_was_killed_counts_as_lost(tmp_path, fake) -> None:
    task = task_of(tmp_path, ONE)
    cell = Path(task.cell)
    (cell / "logs").mkdir()
    began = datetime.now(UTC) - timedelta(minutes=5)
    announce(cell, Begun(number=1, started_at=began, pid=1, job="7_5"))
    script_srun(fake, "(CELL / 'attempt').write_text(str(ATTEMPT)); sys.exit(0)", [ONE])
    Job(fake, task, restarts=1).run()
    assert (cell / "attempt").read_text() == "2"
    assert [one["status"] for one in attempts(cell)] == ["lost", "failed"]


STOPS_WHEN_ASKED = """
live(lambda: (LOGS / "stop").exists())
epoch(3 * ATTEMPT); unfinished(3)
say("srun: error: n1: tasks 0-1: Exited with exit code 85"); sys.exit(85)"""


def warned(job: Job, fake: FakeSlurm, times: int = 1) -> tuple[int, str]:
    with job.start() as process:
        wait_until(lambda: list(Path(job.task.cell).glob("logs/rank-0.beat")), "ranks")
        for _ in range(times):
            process.send_signal(signal.SIGUSR2)
        wait_until(lambda: requeues(fake), "a requeue")
        process.send_signal(signal.SIGTERM)  # Slurm ends a job that it requeues
        out, _ = process.communicate(timeout=240)
        return process.returncode, out


def test_a_warning_stops_at_an_epochs_end_and_the_requeued_job_goes_on(tmp_path, fake) -> None:
    """The warning often comes twice."""
    script_srun(fake, STOPS_WHEN_ASKED, [ONE])
    job = Job(fake, task_of(tmp_path, ONE), minutes_left=0.07)
    code, said = warned(job, fake, times=2)
    assert code == 1
    cell = Path(job.task.cell)
    found = read_record(cell / "record.json")
    assert found.status == "timeout"
    assert found.error is not None and "stopped after epoch 3 of 9" in found.error.what
    assert [len(call) for call in requeues(fake)] == [3]
    assert requeues(fake)[0][-1] == "7_5", "the element alone: a bare id may stand for the array"
    assert "requeued" in said
    script_srun(fake, "(CELL / 'resumed').write_text(str(RESUME)); good()", [ONE])
    assert Job(fake, job.task, restarts=1).run()[0] == 0
    assert (cell / "resumed").read_text() == "True" and not (cell / "logs" / "stop").exists()


def test_epochs_of_an_older_result_do_not_hide_progress(tmp_path: Path, fake: FakeSlurm) -> None:
    """A forced cell had 9 epochs, the new start did one: that is progress."""
    task = task_of(tmp_path, ONE)
    cell = Path(task.cell)
    old = record(ONE)
    (cell / "record.json").write_text(old.model_dump_json())
    (cell / "epochs.jsonl").write_text(
        "".join(epoch.model_dump_json() + "\n" for epoch in old.epochs)
    )
    task = task.model_copy(update={"forced": True})
    script_srun(fake, STOPS_WHEN_ASKED, [ONE])
    warned(Job(fake, task, minutes_left=0.07), fake)
    assert len(requeues(fake)) == 1


def test_epochs_of_an_earlier_attempt_are_no_progress_of_this_one(
    tmp_path: Path, fake: FakeSlurm
) -> None:
    """Else a cell whose epoch is longer than the job is requeued a hundred times."""
    task = task_of(tmp_path, ONE)
    cell = Path(task.cell)
    old = record(ONE, status="timeout", error=RunError(what="w", where="x", what_to_do="y"))
    (cell / "record.json").write_text(old.model_dump_json())
    lines = (epoch.model_dump_json() + "\n" for epoch in old.epochs[:3])
    (cell / "epochs.jsonl").write_text("".join(lines))
    (cell / "checkpoint.npz").write_text("as if")
    no_epoch = STOPS_WHEN_ASKED.replace("epoch(3 * ATTEMPT); ", "")
    script_srun(fake, no_epoch, [ONE])
    with Job(fake, task, minutes_left=0.07).start() as process:
        wait_until(lambda: list(cell.glob("logs/rank-0.beat")), "ranks")
        process.send_signal(signal.SIGUSR2)
        said, _ = process.communicate(timeout=240)
    found = read_record(cell / "record.json")
    assert [one.status for one in found.attempts] == ["timeout", "timeout"]
    assert len(found.epochs) == 3 and requeues(fake) == []
    assert "not one epoch was done in this job's time" in said


def test_a_job_that_is_ended(tmp_path: Path, fake: FakeSlurm) -> None:
    """SIGTERM, which often comes twice: one record."""
    script_srun(fake, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nlive()", [ONE])
    fake.put("scontrol", "echo JobState=COMPLETING PreemptTime=2026")
    job = Job(fake, task_of(tmp_path, ONE))
    with job.start() as process:
        wait_until(lambda: list(Path(job.task.cell).glob("logs/rank-0.beat")), "ranks")
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=240)
    assert process.returncode in (1, -signal.SIGTERM), "the second may come when all is written"
    cell = Path(job.task.cell)
    assert [one["status"] for one in attempts(cell)] == ["preempted"]
    assert len(fake.calls("srun")) == 1
    assert requeues(fake) == []


@pytest.mark.parametrize("replaced", [False, True])
def test_an_image_replaced_while_the_job_waited_is_the_one_in_the_record(
    tmp_path: Path, fake: FakeSlurm, replaced: bool
) -> None:
    path = sif(tmp_path / "own.sif")
    image = find_image(str(path), tmp_path)
    if replaced:
        sif(tmp_path / "new.sif", data=2000).rename(path)
    body = "(CELL / 'env').write_text(os.environ['HOROSCALE_IMAGE_DIGEST']); good()"
    script_srun(fake, body, [ONE])
    task = task_of(tmp_path, ONE, image=image.path, image_digest=image.digest,
                   image_mark=image.mark)  # fmt: skip
    code, out = Job(fake, task).run()
    assert code == 0, out
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (Path(task.cell) / "env").read_text() == digest
    assert ("was replaced while the job waited" in out) == replaced


def test_ranks_get_no_settings_of_the_submitting_shell(tmp_path, fake, monkeypatch) -> None:
    """A copy of the code knows no commit: it gets the one that was submitted, whatever checkout is
    around it."""
    monkeypatch.setenv("HOROSCALE_RANK", "stray")
    script_srun(fake, "(CELL / 'env').write_text(json.dumps(dict(os.environ))); good()", [ONE])
    task = task_of(tmp_path, ONE, git_commit="c0ffee", git_dirty=True)
    Job(fake, task).run()
    seen = json.loads((Path(task.cell) / "env").read_text())
    assert not {"HOROSCALE_RANK", "HOROSCALE_IMAGE_DIGEST"} & seen.keys(), "there is no image"
    assert seen["HOROSCALE_GIT_COMMIT"] == "c0ffee"
    assert seen["SLURM_JOB_ID"] == "12", "ranks and srun need their job"


@pytest.mark.parametrize(
    ("locked", "state", "words"),
    [
        (
            False,
            "RUNNING",
            "by job 4, process 7 on node9; it may",
        ),  # where locks do not reach from node to node
        (True, "RUNNING", "job 4 runs it"),
        (False, "EXPEDITING", "by job 4, process 7 on node9; it may"),  # a state of a later Slurm
        (True, "COMPLETED", "is locked by job 4"),
    ],
)
def test_a_cell_that_another_job_has_is_left_alone(
    tmp_path: Path,
    fake: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    locked: bool,
    state: str,
    words: str,
) -> None:
    monkeypatch.setattr(module, "LOCK_PATIENCE_S", 0.2)
    monkeypatch.setattr(module, "TRY_AGAIN_S", 0.1)
    task = task_of(tmp_path, ONE)
    folder = Path(task.cell)
    (folder / "logs").mkdir()
    announce(folder, Begun(number=1, started_at=datetime.now(UTC), pid=1, job="4"))
    (folder / LOCK_NAME).write_text("job 4, process 7 on node9, boot 1, 0:45")
    fake.queue({"4": state}, "n")
    job = Allocation("7_5", 0, 2e9, task.site)
    supervisor = Supervisor(task, job, Stop(), Stop(), Awake())
    with hold(folder, job="4", by_hand=True) if locked else nullcontext():
        assert supervisor.run().status == LEFT, "whatever becomes of the cell is that job's"
    assert words in capsys.readouterr().out
    assert not (folder / "record.json").exists()


@pytest.mark.parametrize("begun", [False, True])
def test_a_cell_that_a_local_run_elsewhere_may_have_is_left_alone(
    tmp_path: Path,
    fake: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    begun: bool,
) -> None:
    """Its attempt carries no job, and on this node its lock can be got."""
    monkeypatch.setattr(module, "LOCK_PATIENCE_S", 0.2)
    monkeypatch.setattr(module, "TRY_AGAIN_S", 0.1)
    task = task_of(tmp_path, ONE)
    folder, signature = Path(task.cell), "process 7 on login2, boot 1, 0:45"
    (folder / "logs").mkdir()
    (folder / LOCK_NAME).write_text(signature)
    if begun:
        announce(folder, Begun(number=1, started_at=datetime.now(UTC), pid=7))
    job = Allocation("7_5", 0, 2e9, task.site)
    assert Supervisor(task, job, Stop(), Stop(), Awake()).run().status == LEFT
    said = capsys.readouterr().out
    assert "process 7 on login2" in said and f"rm {folder / LOCK_NAME}" in said
    assert not (folder / "record.json").exists() and fake.calls("srun") == []
    assert (folder / LOCK_NAME).read_text() == signature


def test_a_command_that_signs_for_a_moment_is_waited_for(
    tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """make sweep FORCE=1 puts records aside while the first jobs start."""
    task = task_of(tmp_path, ONE)
    file = Path(task.cell) / LOCK_NAME
    file.write_text("process 7 on login2, boot 1, 0:45")
    monkeypatch.setattr(Stop, "wait", lambda *_: file.write_text(""))
    monkeypatch.setattr(Supervisor, "_run", lambda _: CellEnd("completed"))
    job = Allocation("7_5", 0, 2e9, task.site)
    assert Supervisor(task, job, Stop(), Stop(), Awake()).run().status == "completed"


@pytest.mark.parametrize("state", [None, "COMPLETED", "PENDING"])
@pytest.mark.parametrize("signer", ["4", "7_5"])
def test_a_cell_whose_jobs_node_died_goes_on_without_a_person(
    tmp_path: Path, fake: FakeSlurm, signer: str, state: str | None
) -> None:
    """Slurm knows that job no more, or as ended or waiting, or it is this one, requeued."""
    task = task_of(tmp_path, ONE)
    folder = Path(task.cell)
    (folder / LOCK_NAME).write_text(f"job {signer}, process 7 on node9, boot 1, 0:45")
    fake.queue({"4": state} if state else {}, "n")
    script_srun(fake, "good()", [ONE])
    assert Job(fake, task, restarts=1).run()[0] == 0
    assert (folder / LOCK_NAME).read_text() == ""


def test_an_error_of_the_supervisors_own_files_ends_no_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: one ESTALE in a poll ended all ranks, as a failure whose checkpoint went."""
    warned = Stop()
    warned.told, warned.at = Reason("timeout", "warned"), time.time()
    task = task_of(tmp_path, ONE)
    job = Allocation("7_5", 0, time.time() - 1, task.site)
    supervisor = Supervisor(task, job, Stop(), warned, Awake())
    ask = Path(task.cell) / "stop"
    for calls in (("stat",), ("touch",)):
        with monkeypatch.context() as errors:
            stale(errors, ask, calls=calls)
            assert supervisor._tick(ask) is None
    assert not ask.exists()
    supervisor._tick(ask)
    assert ask.exists(), "the next poll tries again"
    supervisor.stop.told = STOPPED
    stale(monkeypatch, ask)
    assert supervisor._tick(ask) == STOPPED, "a stop is heard all the same"


def test_a_cell_whose_lock_fails_is_told_last_with_what_to_do(
    tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of the log is the reason that a record and make sweep show."""

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    task = task_of(tmp_path, ONE)
    job = Allocation("7_5", 0, 2e9, task.site)
    end = Supervisor(task, job, Stop(), Stop(), Awake()).run()
    assert end.status == "failed" and "flock fails on " in end.why and "RESULTS=DIR" in end.why
    assert fake.calls("srun") == [], "without its lock no cell runs"


def test_a_cell_that_cannot_be_read_is_left_alone_on_the_node(tmp_path, fake) -> None:
    task = task_of(tmp_path, ONE, forced=True)
    cell = Path(task.cell)
    file = unreadable(cell / "record.json")
    code, said = Job(fake, task).run()
    assert code == 1 and fake.calls("srun") == [] and "Traceback" not in said
    assert f"{cell.name}: unreadable record" in said and "Input/output error" in said
    assert is_untouched(cell, file)
