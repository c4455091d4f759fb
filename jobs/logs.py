"""What is known of a cell's last attempt: its record, and the ends of its logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.slurm.job.step_ranks import SRUN_LOG
from jobs.table import of_all
from train.config.plan import epochs_to_train
from train.errors import ConfigError, Unreadable
from train.record.cell_folder import read_failures, tail_of
from train.record.run import RECORD_NAME, NoRecord, RecordError, RunRecord, read_record

#: Lines of each log, and cells that a message names.
MAX_LINES, MAX_NAMED = 20, 12


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
    found = [cell for cell in cells if cell.startswith(asked)]
    found = found or [cell for cell in cells if asked in cell]
    if not found:
        raise ConfigError(f"no cell has {asked!r} in its name; there are {_named(cells)}")
    if len(found) > 1:
        raise ConfigError(
            f"{len(found)} cells have {asked!r} in their names, expected a part that only one has: "
            f"{_named(found)}"
        )
    return found[0]


def _named(cells: Sequence[str]) -> str:
    more = f" and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
    return ", ".join(cells[:MAX_NAMED]) + more


def show(cell: Path, supervisor: Path | None) -> Iterator[str]:
    """Line by line, the first cause first. ``supervisor``: its log, of a cell on a cluster."""
    yield f"folder: {cell}"
    try:
        yield from _of_record(read_record(cell / RECORD_NAME))
    except NoRecord:
        yield "record: none yet: it has not ended"
    except (RecordError, Unreadable) as error:
        yield f"record: {error}"
    if supervisor is not None and not supervisor.exists():
        yield f"supervisor: {supervisor} (not there yet: its job has not begun)"
    elif supervisor is not None:
        yield from _end_of("supervisor", supervisor)
    yield from _end_of("srun", cell / "logs" / SRUN_LOG)
    ranks = _ranks(cell)
    for rank in ranks:
        yield from _end_of(f"rank {rank}", cell / "logs" / f"rank-{rank}.log")
    if not ranks:
        yield "ranks: none has written a log yet"


def _of_record(record: RunRecord) -> Iterator[str]:
    job = record.provenance.slurm_job_id if record.provenance else None
    where = f" in Slurm job {job}" if job else ""
    planned = epochs_to_train(record.config, record.data.train_images if record.data else None)
    attempt = f"attempt {len(record.attempts)}, {of_all(len(record.epochs), planned)} epochs"
    yield f"record: {record.status} at {record.ended_at:%Y-%m-%d %H:%M:%S %Z}{where} ({attempt})"
    if record.error is not None:
        yield f"  what:  {record.error.what}"
        yield f"  where: {record.error.where}"
        yield f"  to do: {record.error.what_to_do}"


def _ranks(cell: Path) -> list[int]:
    """Those that have a log: the one that failed first by its own doing, then other failures,
    then the rest."""
    files = [re.fullmatch(r"rank-(\d+)\.log", file.name) for file in (cell / "logs").glob("*")]
    numbers = sorted(int(file[1]) for file in files if file)
    # stable sorts: an own error before one that only says that a peer is gone, earliest first
    failures = sorted(read_failures(cell), key=lambda failure: failure.consequence)
    first = [failure.error.rank for failure in failures if failure.error.rank in numbers]
    return [rank for rank in dict.fromkeys([*first, *numbers]) if rank is not None]


def _end_of(whose: str, log: Path) -> Iterator[str]:
    if log.exists():
        tail = tail_of(log)[-MAX_LINES:]
        yield f"{whose}: {log}" + ("" if tail else " (empty)")
        yield from (f"  | {text}" for text in tail)
