"""One start of one cell, watched to its end, whatever end that is: exactly one record remains.

Whoever started the ranks, on this machine or as a Slurm step, they are attended in the same way.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from jobs.cell.failure import End, Verdict, cause_of
from jobs.cell.heartbeat import Watch
from jobs.cell.missing_record import Begun, announce, over, reserve, settle
from jobs.cell.ranks import RankSet, end_leftovers
from jobs.cell.stop import Reason
from train.config.plan import most_epochs
from train.config.run import RunConfig
from train.distributed.awake import Awake
from train.errors import RecordError
from train.record.atomic import leftovers
from train.record.cell_folder import (
    CHECKPOINT_NAME,
    START_NAME,
    earlier_attempts,
    forget_earlier,
    rank_file,
)
from train.record.run import GOOD, RECORD_NAME, RunRecord, read_record
from train.record.summary import read_own_summary

PROBE_BYTES = 64 * 1024


def attend(
    cell: Path,
    config: RunConfig,
    ranks: RankSet,
    *,
    begin: Callable[[int], None],
    stop: Callable[[], Reason | None],
    resume: bool,
    stall_s: float,
    awake: Awake,
    knows: Callable[[], Verdict | None] = lambda: None,
    explain: Callable[[Reason | None], Reason | None] = lambda stopped: stopped,
    job: str | None = None,
) -> RunRecord:
    """Run one start to its end; returns its record. Only for the holder of the cell's lock.

    Of a completed cell without alarms one log stays, and of any other all files.

    Args:
        begin: starts the ranks of the attempt with this number.
        stop: asked at every poll: is there a reason to end them?
        awake: kept by the caller.
        knows: what only the launcher can tell of an end.
        explain: why it was really stopped, asked when the ranks have ended: a signal alone does
            not say.
        job: of Slurm.

    Raises:
        OSError: not even the record can be written.
    """
    begun = Begun(
        number=len(earlier_attempts(cell, config)) + 1, started_at=datetime.now(UTC),
        pid=os.getpid(), job=job,
    )  # fmt: skip
    stopped: Reason | None = None
    trouble: Exception | None = None
    try:
        _clear(cell, config.processes, resume=resume)
        reserve(cell, most_epochs(config))
        announce(cell, begun)
        begin(begun.number)
        watch = Watch(cell, config.processes, stall_s, awake)
        stopped = ranks.watch(lambda: stop() or watch.hang())
    except Exception as caught:  # noqa: BLE001  (even a fault of our own must leave a record)
        trouble = caught
    finally:
        ranks.end()
        end_leftovers(cell)
    good = False
    with contextlib.suppress(RecordError):
        good = read_own_summary(cell, config).status in GOOD
    if good:
        over(cell)
    else:
        # also where no rank is known to have ended badly: srun, too, writes its words there
        end = End(cell, ranks, explain(stopped), trouble, _refusal(cell), knows)
        status, error = cause_of(end)
        # an error of training: only a start from the beginning is sure to be free of it
        trained = error.rank is not None and (cell / "logs" / START_NAME).exists()
        if status == "failed" and trained:
            with contextlib.suppress(OSError):
                (cell / CHECKPOINT_NAME).unlink(missing_ok=True)
        settle(cell, config, status, error, begun.started_at)
    record = read_record(cell / RECORD_NAME)
    if record.status == "completed" and not record.alarms:
        _keep_one_log(cell)
    return record


def _clear(cell: Path, size: int, *, resume: bool) -> None:
    """Remove what an earlier start left that would be mistaken for this one's, or takes up room."""
    logs = cell / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    forget_earlier(cell, resume=resume)
    stale = [*logs.glob("rank-*.beat"), *logs.glob("rendezvous-*"), *leftovers(logs)]
    if not resume:
        stale += [rank_file(cell, rank, "log") for rank in range(size)]
    for file in stale:
        file.unlink(missing_ok=True)


def _keep_one_log(cell: Path) -> None:
    """Rank 0's: the record holds what the other files say. A file that stays does no harm."""
    with contextlib.suppress(OSError):
        for file in {*(cell / "logs").glob("*")} - {rank_file(cell, 0, "log")}:
            file.unlink()


def _refusal(cell: Path) -> OSError | None:
    """What the file system says to a write now: a rank that may not write cannot say why either."""
    try:
        with tempfile.TemporaryFile(dir=cell) as probe:
            probe.write(os.urandom(PROBE_BYTES))
    except OSError as error:
        error.filename = str(cell)
        return error
    return None
