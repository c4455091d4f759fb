"""Who works on a sweep and who runs a cell: locks in their folders, held for as long as that."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from train.errors import ConfigError

LOCK_NAME = ".running"
POLL_S = 0.1


@contextlib.contextmanager
def only_sweep(folder: Path) -> Iterator[None]:
    """Two sweeps on the same results would run cells twice; the second is refused.

    Raises:
        ConfigError: another one holds the lock, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"cannot write to the results folder {folder}: {error.strerror}. Fix its permissions, "
            "or name another with RESULTS=DIR"
        ) from error
    with handle:
        try:
            ours = _taken(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise ConfigError(
                f"the file system of {folder} has no file locks ({error.strerror}); expected "
                "flock to work there: name a folder on another file system with RESULTS=DIR"
            ) from error
        if not ours:
            handle.seek(0)
            raise ConfigError(
                f"another make sweep works on {folder} ({handle.read().strip() or 'unknown'}): "
                "wait for it, stop it, or name another folder with RESULTS=DIR"
            )
        _refuse_another_host(handle, folder)
        _sign(handle, _ourselves())
        try:
            yield
        finally:
            _sign(handle, "")


def _refuse_another_host(handle: TextIO, folder: Path) -> None:
    """The lock is ours, yet another machine signed it and did not sign off: locks may not reach
    from one machine to the other there.

    Raises:
        ConfigError: so it is.
    """
    handle.seek(0)
    found = re.fullmatch(r"process \d+ on (.+)", handle.read().strip())
    if found and found[1] != os.uname().nodename:
        raise ConfigError(
            f"{folder / '.lock'} says that a make sweep runs on another machine ({found[0]}), and "
            "its lock is not seen here. If it has ended, remove that file; else wait for it"
        )


@contextlib.contextmanager
def hold(
    cell: Path,
    give_up: Callable[[], object] = lambda: True,
    *,
    text: str = "",
    poll_s: float = POLL_S,
) -> Iterator[bool]:
    """Hold the cell's lock; False when another has it and ``give_up`` says not to wait for it.

    Raises:
        OSError: no such folder, or it cannot be written.
    """
    with (cell / LOCK_NAME).open("a+", encoding="utf-8") as handle:
        while not _taken(handle, fcntl.LOCK_EX):
            if give_up():
                yield False
                return
            time.sleep(poll_s)
        _sign(handle, f"{text}, {_ourselves()}" if text else _ourselves())
        try:
            yield True
        finally:
            _sign(handle, "")


def is_running(cell: Path) -> bool:
    """Whether some supervisor holds the cell now."""
    try:
        with (cell / LOCK_NAME).open("r", encoding="utf-8") as handle:
            return not _taken(handle, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def holder(cell: Path) -> str:
    """Who holds the cell, for a person: ``process N on HOST``; '' when nobody does."""
    if not is_running(cell):
        return ""
    with contextlib.suppress(OSError):
        return (cell / LOCK_NAME).read_text(encoding="utf-8", errors="replace")
    return ""


def holding_job(cell: Path) -> str | None:
    """The Slurm job that holds the cell, where it is one."""
    found = re.match(r"job (\S+), ", holder(cell))
    return found[1] if found else None


def ask_to_end(cell: Path) -> None:
    """Send SIGTERM to the cell's supervisor, if it is on this machine and has the file open."""
    found = re.fullmatch(r"process (\d+) on (.+)", holder(cell))
    if not found or found[2] != os.uname().nodename:
        return
    with contextlib.suppress(OSError):
        handles = Path("/proc", found[1], "fd").iterdir()
        if any(handle.resolve() == (cell / LOCK_NAME).resolve() for handle in handles):
            os.kill(int(found[1]), signal.SIGTERM)


def _ourselves() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"


def _taken(handle: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(handle: TextIO, text: str) -> None:
    with contextlib.suppress(OSError):  # a courtesy to readers: the lock itself needs no room
        handle.truncate(0)
        handle.write(text)
        handle.flush()
