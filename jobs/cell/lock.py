"""Who may work on a sweep, by its lock."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from train.errors import ConfigError, remedy
from train.record.lock import MayRun, hold, holder

SWEEP_LOCK = ".lock"


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
        in_the_way = error.errno in (errno.ENOTDIR, errno.EEXIST)
        todo = "move away what is there" if in_the_way else remedy(error)
        raise ConfigError(
            f"cannot write to the results folder {folder}: {error.strerror}: "
            f"{todo}{', or ' if todo else ''}name another folder with RESULTS=DIR"
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
