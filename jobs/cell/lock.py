"""Who may work on a sweep or run a cell, by their locks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.cell.missing_record import ATTEMPT_NAME, begun_in
from train.errors import ConfigError, remedy
from train.record.lock import MayRun, hold, holder

SWEEP_LOCK = ".lock"


@contextlib.contextmanager
def hold_cell(
    cell: Path, *, job: str | None = None, ended: Callable[[str], bool] | None = None
) -> Iterator[bool]:
    """Hold a cell, to run or to settle it; False when another holds it.

    Whoever held it before must have ended, and so must the job of an attempt without a record: by
    Slurm's word, whatever the lock shows, or where Slurm is not asked, by the attempt's signature.
    Arguments as of :func:`train.record.lock.hold`.

    Raises:
        MayRun: the cell may still be run by another.
        OSError: its files cannot be read, written or locked.
    """
    with hold(cell, job=job, ended=ended) as ours:
        begun = begun_in(cell) if ours else None
        other = begun.job if begun and begun.job != job else None
        if ours and other and not (ended(other) if ended else ours.last):
            raise MayRun(cell / "logs" / ATTEMPT_NAME, f"job {other}")
        yield ours is not None


@contextlib.contextmanager
def only_sweep(folder: Path) -> Iterator[None]:
    """Two sweeps on the same results would run cells twice; the second is refused.

    Raises:
        ConfigError: another one holds the lock, or may hold it on another machine, or the folder
            cannot be written or locked.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SWEEP_LOCK).open("a").close()
    except OSError as error:
        raise ConfigError(
            f"cannot write to the results folder {folder}: {error.strerror}: "
            f"{remedy(error) or 'move away what is there'}, or name another folder with RESULTS=DIR"
        ) from error
    with contextlib.ExitStack() as stack:
        try:
            ours = stack.enter_context(hold(folder, name=SWEEP_LOCK, results=folder.parent))
        except MayRun as error:
            raise ConfigError(f"another make sweep may still work on {folder}: {error}") from error
        except OSError as error:
            raise ConfigError(f"cannot lock the folder {folder}: {error.strerror}") from error
        if not ours:
            raise ConfigError(
                f"another make sweep works on {folder} ({holder(folder, SWEEP_LOCK) or 'unknown'}):"
                " wait for it, stop it, or name another folder with RESULTS=DIR"
            )
        yield
