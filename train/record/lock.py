"""Who runs a cell: a lock in its folder, held and signed for as long as that."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from train.record import mount as mounts

LOCK_NAME = ".running"
_SIGNATURE = re.compile(
    r"(?:job (\S+), )?process (\d+) on ([^,]+)(?:, boot ([^,]+))?(?:, ([^,]+))?"
)


@dataclass(frozen=True)
class Holder:
    """Who signed a lock, and what shows to another machine later whether that has ended."""

    process: int
    host: str
    boot: str | None = None  # of its kernel, which releases a lock with its holder
    mount: str | None = None  # device of the lock's file system, as that kernel numbers it
    job: str | None = None  # of Slurm

    def __str__(self) -> str:
        """For a person."""
        return (f"job {self.job}, " if self.job else "") + f"process {self.process} on {self.host}"

    @property
    def signature(self) -> str:
        boot = f", boot {self.boot}" if self.boot else ""
        return f"{self}{boot}" + (f", {self.mount}" if self.mount else "")

    @property
    def machine(self) -> str:
        return mounts.machine_named(self.boot, self.mount)


def signed(text: str) -> Holder | None:
    """The holder by its signature, also an earlier version's."""
    match = _SIGNATURE.fullmatch(text.strip())
    return Holder(int(match[2]), match[3], match[4], match[5], match[1]) if match else None


@contextlib.contextmanager
def hold(cell: Path, *, job: str | None = None) -> Iterator[bool]:
    """Hold the cell's lock; False when another has it.

    ``job``: of Slurm, in which the holder runs.

    Raises:
        OSError: no such folder, or it cannot be written.
    """
    with (cell / LOCK_NAME).open("a+", encoding="utf-8") as handle:
        if not taken(handle, fcntl.LOCK_EX):
            yield False
            return
        with signing(handle, ourselves(handle, job)):
            yield True


def holder(cell: Path, name: str = LOCK_NAME) -> Holder | None:
    """Who holds the cell; None when nobody does, or who does cannot be read."""
    with contextlib.suppress(OSError):
        if is_running(cell, name):
            return signed((cell / name).read_text(encoding="utf-8", errors="replace"))
    return None


def is_running(cell: Path, name: str = LOCK_NAME) -> bool:
    """Whether somebody holds the cell now."""
    try:
        with (cell / name).open(encoding="utf-8") as handle:
            return not taken(handle, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def ourselves(handle: TextIO, job: str | None = None) -> Holder:
    mount = mounts.device_of(handle.fileno())
    return Holder(os.getpid(), os.uname().nodename, mounts.boot_id(), mount, job)


def taken(handle: TextIO, kind: int) -> bool:
    """Whether this process got the lock, of the ``kind`` LOCK_EX or LOCK_SH.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        words = f"{error.strerror}: flock fails on {mounts.mount_in_words(handle.fileno())}: "
        raise OSError(error.errno, words + mounts.LOCKS_REMEDY, handle.name) from error
    return True


@contextlib.contextmanager
def signing(handle: TextIO, holder: Holder) -> Iterator[None]:
    """For as long as the lock is held."""
    _write(handle, holder.signature)
    try:
        yield
    finally:
        _write(handle, "")


def _write(handle: TextIO, text: str) -> None:
    with contextlib.suppress(OSError):  # a courtesy to readers: the lock itself needs no room
        handle.truncate(0)
        handle.write(text)
        handle.flush()
