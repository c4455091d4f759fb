"""The record of a start whose ranks left none: given here, from its traces, by whoever finds it."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, Field, ValidationError

from train.config.frozen import Frozen
from train.config.run import RunConfig
from train.errors import NoRecord, RecordError, read_whole
from train.record.atomic import write_atomically
from train.record.builder import ended_record
from train.record.cell_folder import tail_of
from train.record.run import RECORD_NAME, OtherCell, RunError, Status, write_record
from train.record.summary import read_own_summary

#: There while a start runs, so also when its supervisor was killed.
ATTEMPT_NAME = "attempt.json"
#: Room kept on the disk so that the record of a run that filled it can still be written.
RESERVE_NAME = ".reserve"
RESERVE_BYTES = 256 * 1024
RESERVE_BYTES_PER_EPOCH = 2 * 1024


class Begun(Frozen, extra="ignore"):  # keys of other versions are no fault
    """attempt.json: the start that runs."""

    number: int = Field(ge=1)
    started_at: AwareDatetime
    pid: int  # of the supervisor
    job: str | None = None  # of Slurm, where it runs in one


def reserve(cell: Path, epochs: int) -> None:
    # random, because zeros take no room on a file system that compresses
    size = RESERVE_BYTES + RESERVE_BYTES_PER_EPOCH * epochs
    (cell / RESERVE_NAME).write_bytes(os.urandom(size))


def announce(cell: Path, begun: Begun) -> None:
    write_atomically(cell / "logs" / ATTEMPT_NAME, begun.model_dump_json())


def settle(
    cell: Path,
    config: RunConfig,
    status: Status,
    error: RunError,
    started_at: datetime,
    ended_at: datetime | None = None,
) -> None:
    """Write the record of the last start in the room that it reserved; kept are a good record, and
    one that nobody here could see (:func:`train.record.run.write_record`).

    Raises:
        OSError: not even the record can be written.
    """
    with contextlib.suppress(OSError):  # there may be room without it
        (cell / RESERVE_NAME).unlink(missing_ok=True)
    # names of files that are no UTF-8 reach us as lone surrogates, which no JSON can hold
    printable = {
        name: value.encode("utf-8", "backslashreplace").decode("utf-8")
        for name, value in error
        if isinstance(value, str)
    }
    record = ended_record(
        cell, config, status, error.model_copy(update=printable), started_at=started_at,
        ended_at=ended_at or datetime.now(UTC),
    )  # fmt: skip
    write_record(cell / RECORD_NAME, record)
    over(cell)


def over(cell: Path) -> None:
    """The start has its record, and that counts: files may stay where they cannot be removed."""
    for file in (cell / RESERVE_NAME, cell / "logs" / ATTEMPT_NAME):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def begun_in(cell: Path) -> Begun | None:
    """The start that runs, or whose supervisor was killed; None when there is none.

    Raises:
        Unreadable: its file cannot be read now.
    """
    content = read_whole(cell / "logs" / ATTEMPT_NAME)
    with contextlib.suppress(ValidationError):
        return None if content is None else Begun.model_validate_json(content)
    return None


def settle_lost(
    cell: Path,
    config: RunConfig,
    ending: str = "killed, or the machine went down",
    status: Status = "lost",
) -> bool:
    """Give a start whose supervisor was killed its record; True when there was one to give.

    Only for the holder of the cell's lock. A broken record, or one of another config, stays.
    ``ending``: what the scheduler says of that end, and ``status`` what it makes of the cell.

    Raises:
        Unreadable: a file that decides cannot be read now; nothing was changed.
    """
    begun = begun_in(cell)
    if begun is None:
        return False
    try:
        recorded = len(read_own_summary(cell, config).attempts)
    except NoRecord:
        recorded = 0
    except (RecordError, OtherCell):
        return False
    if recorded >= begun.number:
        over(cell)
        return True
    error = RunError(
        what=f"the supervisor of this start ended without a record ({ending}); its end is the "
        "last sign of life",
        where=f"process {begun.pid}" if begun.job is None else f"Slurm job {begun.job}",
        what_to_do="make sweep goes on from its last checkpoint, where there is one",
    )
    settle(cell, config, status, error, begun.started_at, _last_sign(cell, begun.started_at))
    return True


def settle_unstarted(
    cell: Path, config: RunConfig, log: Path, asked_at: datetime, why: str, status: Status
) -> None:
    """Give a start its record whose supervisor did not come as far as starting a rank.

    ``why``: in words; ``log``: of the supervisor.
    """
    readable = os.access(log, os.R_OK)
    error = RunError(
        what=why,
        where=str(log) if readable else "before its start",
        what_to_do=f"read {log}, then make sweep again" if readable else "make sweep again",
        log_tail=tail_of(log),
    )
    settle(cell, config, status, error, asked_at)


def _last_sign(cell: Path, started_at: datetime) -> datetime:
    """When the start last wrote anything, as its files say (hidden ones are not the ranks')."""
    times = [started_at]
    for file in (*cell.glob("[!.]*"), *(cell / "logs").glob("[!.]*")):
        with contextlib.suppress(OSError):
            times.append(datetime.fromtimestamp(file.stat().st_mtime, UTC))
    return min(max(times), datetime.now(UTC))
