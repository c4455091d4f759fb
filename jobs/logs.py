"""What is known of a cell's last attempt: its record, and the ends of its logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.slurm.job.step_ranks import SRUN_LOG
from jobs.table import of_all
from train.config.plan import epochs_to_train
from train.errors import ConfigError, NoRecord, RecordError, Unreadable
from train.record.cell_folder import read_failures, tail_of
from train.record.run import RECORD_NAME, RunRecord, read_record

#: Lines of each log, and cells that a message names.
MAX_LINES, MAX_NAMED = 20, 12


def find_cell(asked: str, cells: Sequence[str]) -> str:
    """The one cell that is meant: the only one that begins with ``asked``, else the only one that
    has it anywhere.

    Raises:
        ConfigError: none, or several: the text names them.
    """
    found = [cell for cell in cells if cell.startswith(asked)]
    found = found or [cell for cell in cells if asked in cell]
    if len(found) != 1:
        named = found or cells
        more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
        raise ConfigError(
            f"CELL={asked} is part of {len(found)} cells' names, expected a part of "
            f"one: {', '.join(named[:MAX_NAMED])}{more}"
        )
    return found[0]


def show(cell: Path, supervisor: Path | None) -> Iterator[str]:
    """Line by line, the first cause first. ``supervisor``: its log, of a cell on a cluster."""
    yield f"folder: {cell}"
    try:
        yield from _of_record(read_record(cell / RECORD_NAME))
    except NoRecord:
        yield "record: none yet: it has not ended"
    except (RecordError, Unreadable) as error:
        yield f"record: {error}"
    ranks = [(log.stem.replace("-", " "), log) for log in _logs_of_ranks(cell)]
    for whose, log in [("supervisor", supervisor), ("srun", cell / "logs" / SRUN_LOG), *ranks]:
        if log is not None:
            yield from _end_of(whose, log)
    if not ranks:
        yield "ranks: none has written a log yet"


def _end_of(whose: str, log: Path) -> Iterator[str]:
    tail, remark = tail_of(log)[-MAX_LINES:], ""
    try:
        log.open("rb").close()
        remark = "" if tail else " (empty)"
    except FileNotFoundError:
        if whose != "supervisor":
            return
        remark = " (not there yet: its job has not begun)"
    except OSError as error:  # another user's
        remark = f" (cannot be read: {error.strerror})"
    yield f"{whose}: {log}{remark}"
    yield from (f"  | {text}" for text in tail)


def _of_record(record: RunRecord) -> Iterator[str]:
    job = record.provenance.slurm_job_id if record.provenance else None
    where = f" in Slurm job {job}" if job else ""
    epochs = of_all(len(record.epochs), epochs_to_train(record.config))
    attempt = f"attempt {len(record.attempts)}, {epochs} epochs"
    yield f"record: {record.status} at {record.ended_at:%Y-%m-%d %H:%M:%S %Z}{where} ({attempt})"
    if record.error is not None:
        yield f"  what:  {record.error.what}"
        yield f"  where: {record.error.where}"
        yield f"  to do: {record.error.what_to_do}"


def _logs_of_ranks(cell: Path) -> list[Path]:
    """First that of the rank that failed first by its own doing, then those of other failures,
    then the rest."""
    # stable sorts: an own error before one that only says that a peer is gone, earliest first
    failures = sorted(read_failures(cell), key=lambda failure: failure.consequence)
    places = {f"rank-{failure.error.rank}.log": at for at, failure in enumerate(failures)}
    logs = (cell / "logs").glob("rank-*.log")
    by_number = sorted(logs, key=lambda log: (len(log.name), log.name))
    return sorted(by_number, key=lambda log: places.get(log.name, len(places)))
