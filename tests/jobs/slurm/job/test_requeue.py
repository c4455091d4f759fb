"""Whether a job asks Slurm to run it again."""

from __future__ import annotations

import io
import sys

import pytest

from jobs.cell.stop import Stop, stopped_by_signals
from jobs.config.site import Site
from jobs.slurm.job import requeue as module
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.requeue import MOST_RESTARTS, CellEnd, requeue
from tests.builders import BEGAN, record
from tests.jobs.slurm.fakes import FakeSlurm, cells
from train.record.run import Attempt, RunError

AGAIN = ["scontrol", "requeue", "7_5"]
FOR_GOOD = ["scontrol", "update", "JobId=7_5", "Requeue=0"]
SITE = Site(ranks_per_node=2)
(ONE,) = cells(1)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEUE_S", 0)
    monkeypatch.setattr(module, "NOTICE_S", 0)


def asked(
    fake: FakeSlurm, end: CellEnd, site: Site = SITE, *, restarts: int = 0,
    warned: bool = False, stop: Stop | None = None,
) -> list[list[str]]:  # fmt: skip
    """What a job asks of scontrol at its end."""
    allocation = Allocation("7_5", restarts, 2e9, site, "node[3-4]")
    requeue(allocation, end, stop or Stop(), Stop(at=1.0 if warned else None))
    return fake.calls("scontrol")


def lost(times: int, where: str = "node node4") -> CellEnd:
    attempts = tuple(
        Attempt(number=n + 1, resumed_from_epoch=0, started_at=BEGAN, ended_at=BEGAN, status="lost")
        for n in range(times)
    )
    error = RunError(what="w", where=where, what_to_do="y")
    return CellEnd("lost", 0, record(ONE, status="lost", error=error, attempts=attempts))


DONE = CellEnd("completed", 9)


@pytest.mark.parametrize(
    ("end", "options", "wanted"),
    [
        (CellEnd("timeout", 3), {}, [AGAIN]),
        (CellEnd("preempted", 1), {"warned": True}, [AGAIN]),
        (CellEnd("failed", 3), {}, []),
        (CellEnd("timeout", 0), {}, []),  # else one whose epoch is longer than a job, for ever
        (CellEnd("timeout", 3), {"site": Site(ranks_per_node=2, requeue=False)}, []),
        (CellEnd("timeout", 3), {"restarts": MOST_RESTARTS}, [FOR_GOOD]),
        # Slurm 24.05 and later would start these again (seen on the practice cluster of Debian 13)
        (DONE, {"warned": True}, [FOR_GOOD]),
        (DONE, {"restarts": 1}, [FOR_GOOD]),
        (DONE, {}, []),
        (lost(4), {}, []),
        (lost(1), {}, [AGAIN]),  # and the last nodes are not given away
    ],
)
def test_when_a_job_is_run_again(fake, end, options, wanted) -> None:
    fake.put("sinfo", "echo node4 mixed")
    assert asked(fake, end, **options) == wanted


def test_a_node_that_failed_is_waited_for_until_slurm_knows_it(fake, monkeypatch, capsys) -> None:
    """Else it gives the same node to the same job again."""
    monkeypatch.setattr(module, "NOTICE_S", 1)
    fake.put("sinfo", "echo 'node3|mixed'; echo 'node4|down*'")
    assert asked(fake, lost(3)) == [AGAIN]
    assert "Slurm does not reach node4" in capsys.readouterr().out


def test_ranks_that_slurm_could_not_launch_are_no_node_to_wait_for(fake: FakeSlurm) -> None:
    assert asked(fake, lost(1, "srun")) == [AGAIN]
    assert fake.calls("sinfo") == []


def test_a_requeue_that_is_refused_is_told(fake, capsys) -> None:
    (fake.folder / "requeue-says").write_text("Requested operation is presently disabled")
    assert asked(fake, CellEnd("timeout", 3)) == [AGAIN]
    told = "cannot be requeued (Requested operation is presently disabled)"
    assert told in capsys.readouterr().out


def test_a_requeue_that_ends_its_own_scontrol_is_no_refusal(
    fake: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen on the practice cluster: Slurm's SIGTERM reaches scontrol before its answer does."""
    fake.put("scontrol", "kill -TERM $PPID; kill -TERM $$; sleep 9")
    with stopped_by_signals() as stop:
        assert asked(fake, CellEnd("timeout", 3), stop=stop) == [AGAIN]
    assert "ended while it asked to be requeued (a signal" in capsys.readouterr().out


def test_a_log_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in the results, whose disk may be full or away: the job is requeued all the same."""

    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    module.log("lost a node")
