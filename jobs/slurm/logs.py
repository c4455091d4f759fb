"""`make logs CELL=`: where a cell's logs are, why it ended, and the ends of its logs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.cause import tail_of
from jobs.display import of_all
from jobs.slurm.notes import log_name
from jobs.slurm.ranks import SRUN_LOG
from jobs.submit import FOLDER_NAME as SUBMITIT
from train.config.plan import epochs_to_train
from train.errors import ConfigError, Unreadable
from train.record.cell_folder import read_failures
from train.record.run import RECORD_NAME, NoRecord, RecordError, RunRecord, read_record

MAX_NAMED = 12


def find_cell(asked: str, cells: Sequence[str]) -> str:
    """The one cell that is meant: its id, else the only one that begins with ``asked``, else the
    only one that has it anywhere.

    Raises:
        ConfigError: none, or several: the text names them.
    """
    if asked in cells:
        return asked
    if not asked:
        raise ConfigError(f"no cell was named, expected CELL=...: {_named(cells)}")
    for found in (
        [cell for cell in cells if cell.startswith(asked)],
        [cell for cell in cells if asked in cell],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(
                f"{len(found)} cells have {asked!r} in their names, expected a part that only one "
                f"has: {_named(found)}"
            )
    raise ConfigError(f"no cell has {asked!r} in its name; there are {_named(cells)}")


def show(cell: Path, log: Path | None = None, *, lines: int = 20) -> Iterator[str]:
    """What is known of a cell's last start, line by line, the first cause first.

    ``log``: of the supervisor of its last job; None: found by the job that its record names.
    ``lines``: of each log.
    """
    yield f"folder: {cell}"
    record = None
    try:
        record = read_record(cell / RECORD_NAME)
    except NoRecord:
        yield "record: none yet: it has not ended"
    except (RecordError, Unreadable) as error:
        yield f"record: {error}"
    if record is not None:
        yield from _of_record(record)
    log = log or _log_of(cell, record)
    if log is not None:
        yield from _log("supervisor", log, lines)
    yield from _log("srun", cell / "logs" / SRUN_LOG, lines)
    ranks = _ranks(cell)
    for rank in ranks:
        yield from _log(f"rank {rank}", cell / "logs" / f"rank-{rank}.log", lines)
    if not ranks:
        yield "ranks: none has written a log yet"


def _of_record(record: RunRecord) -> Iterator[str]:
    provenance = record.provenance
    job = provenance.slurm_job_id if provenance else None
    where = f" in Slurm job {job}" if job else ""
    planned = epochs_to_train(record.config, record.data.train_images if record.data else None)
    done = f"{of_all(len(record.epochs), planned)} epochs"
    start = f"start {len(record.attempts)}, {done}"
    yield f"record: {record.status} at {record.ended_at:%Y-%m-%d %H:%M:%S %Z}{where} ({start})"
    if record.error is not None:
        yield f"  what:  {record.error.what}"
        yield f"  where: {record.error.where}"
        yield f"  to do: {record.error.what_to_do}"


def _ranks(cell: Path) -> list[int]:
    """Those that have a log: the one that failed first by its own doing, then other failures,
    then the rest."""
    numbers = []
    with contextlib.suppress(OSError):
        for file in (cell / "logs").iterdir():
            if found := re.fullmatch(r"rank-(\d+)\.log", file.name):
                numbers.append(int(found[1]))
    # stable sorts: an own error before one that only says that a peer is gone, earliest first
    failures = sorted(read_failures(cell), key=lambda failure: failure.consequence)
    first = [failure.error.rank for failure in failures if failure.error.rank in numbers]
    order = [rank for rank in dict.fromkeys(first) if rank is not None]
    return [*order, *(rank for rank in sorted(numbers) if rank not in order)]


def _log(whose: str, file: Path, lines: int) -> Iterator[str]:
    if not file.exists():
        if whose == "supervisor":
            yield f"{whose}: {file} (not there yet: its job has not begun)"
        return
    tail = tail_of(file)[-lines:]
    yield f"{whose}: {file}" + ("" if tail else " (empty)")
    yield from (f"  | {text}" for text in tail)


def _log_of(cell: Path, record: RunRecord | None) -> Path | None:
    """The supervisor's log by the job's id in the record: there is one folder for each array."""
    job = record.provenance.slurm_job_id if record and record.provenance else None
    if not job or not re.fullmatch(r"\d+(_\d+)?", job):
        return None
    found = sorted((cell.parent / SUBMITIT).glob(f"*/{log_name(job)}"))
    return found[-1] if found else None


def _named(cells: Sequence[str]) -> str:
    shown = ", ".join(cells[:MAX_NAMED])
    more = f" and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
    return f"{shown}{more}" if cells else "none"
