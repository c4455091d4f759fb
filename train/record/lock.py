"""Who runs a cell: a lock in its folder, held and signed for as long as that.

On some mounts locks end at the machine (NFS with nolock or local_lock=, Lustre with localflock).
There a lock that was got proves nothing: whoever signed it before must have ended, provably.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TextIO

from train.config.frozen import Frozen
from train.errors import Unreadable
from train.record import mount as mounts

LOCK_NAME = ".running"
#: Reports of preflights, in the folder of results: ``locks`` says which machine saw whose lock.
PROOFS = "preflight/*/report.json"
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


class MayRun(Unreadable):
    """A lock was got, and yet whoever signed it may still be at work."""

    def __init__(self, file: Path, who: Holder) -> None:
        self.who = who
        super().__init__(errno.EWOULDBLOCK, str(who), str(file))

    def __str__(self) -> str:
        return (
            f"{self.filename} is signed by {self.strerror}; it may still run on another machine, "
            "whose lock no preflight has shown to be seen here; once that has ended, remove it: "
            f"rm {shlex.quote(self.filename)}"
        )


@contextlib.contextmanager
def hold(
    folder: Path,
    *,
    name: str = LOCK_NAME,
    job: str | None = None,
    ended: Callable[[str], bool | None] | None = None,
    results: Path | None = None,
    by_hand: bool = False,
) -> Iterator[bool]:
    """Hold the lock in a cell's folder, or another one; False when another has it.

    Args:
        job: of Slurm, in which the holder runs; an earlier start of it has ended.
        ended: whether Slurm says so of another job; None: it is not asked.
        results: with the reports of preflights; None: two folders above.
        by_hand: a person says that whoever signed it has ended.

    Raises:
        MayRun: it was got, and whoever signed it last may still run; the signature stays.
        OSError: no such folder, or it cannot be written or locked.
    """
    with (folder / name).open("a+", encoding="utf-8", errors="replace") as handle:
        if not taken(handle, fcntl.LOCK_EX):
            yield False
            return
        handle.seek(0)
        last, here = signed(handle.read()), ourselves(handle.fileno(), job)
        over = last is None or by_hand or has_ended(last, here, results or folder.parent.parent)
        if last and last.job and not over:
            over = last.job == job or (ended is not None and bool(ended(last.job)))
        if last and not over:
            raise MayRun(folder / name, last)
        _write(handle, here.signature)
        try:
            yield True
        finally:
            _write(handle, "")


def has_ended(other: Holder, here: Holder, results: Path) -> bool:
    """Whether ``other`` is provably gone, seen by ``here``, who has got its lock."""
    # its kernel has released the lock, or the machine was started again
    if other.host == here.host or (other.boot and other.boot == here.boot):
        return True
    return bool(other.machine) and here.machine in _sharing_locks(other.machine, results)


class _Proof(Frozen, extra="ignore"):
    locks: tuple[tuple[str, str], ...] = ()


def _sharing_locks(machine: str, results: Path) -> set[str]:
    """Machines that share locks with this one, as preflights showed pair by pair: who sees a lock
    asks where its holder stands. Other machines may do so, too: then nothing was shown."""
    pairs: list[tuple[str, str]] = []
    for name in glob(PROOFS, root_dir=results):  # noqa: PTH207  (which passes over bad folders)
        with contextlib.suppress(OSError, ValueError):
            pairs += _Proof.model_validate_json((results / name).read_bytes()).locks
    sharing = {machine}
    while more := {one for pair in pairs if not sharing.isdisjoint(pair) for one in pair} - sharing:
        sharing |= more
    return sharing


def holder(cell: Path, name: str = LOCK_NAME) -> Holder | None:
    """Who holds the cell; None when nobody does, or who does cannot be read."""
    with contextlib.suppress(OSError):
        held, last = read_lock(cell, name)
        return last if held else None
    return None


def read_lock(cell: Path, name: str = LOCK_NAME) -> tuple[bool, Holder | None]:
    """Whether somebody holds the cell now; and whose signature its lock has. Raises OSError."""
    try:
        with (cell / name).open(encoding="utf-8", errors="replace") as handle:
            return not taken(handle, fcntl.LOCK_SH), signed(handle.read())
    except FileNotFoundError:
        return False, None


def seen_here(folder: Path, name: str) -> list[tuple[str, str]]:
    """Whose lock this machine sees there, and itself, as preflights name machines; nothing where it
    sees its own, or none."""
    other = holder(folder, name)
    if other is None or other.boot == mounts.boot_id():
        return []
    pair = other.machine, mounts.machine_at(folder / name)
    return [pair] if all(pair) else []


def is_free(cell: Path) -> bool:
    """Whether nobody holds the cell now, and whoever did has signed off; raises OSError."""
    return read_lock(cell) == (False, None)


def is_abandoned(cell: Path) -> bool:
    """Whether whoever held the cell last is provably gone, and has not signed off."""
    with contextlib.suppress(OSError):
        held, last = read_lock(cell)
        if last and not held:
            return has_ended(last, ourselves(cell / LOCK_NAME), cell.parent.parent)
    return False


def ourselves(lock: int | Path, job: str | None = None) -> Holder:
    mount = mounts.device_of(lock)
    return Holder(os.getpid(), os.uname().nodename, mounts.boot_id(), mount, job)


def taken(handle: TextIO, kind: int) -> bool:
    """Whether this process got the lock, of the ``kind`` LOCK_EX or LOCK_SH. Raises OSError if the
    file system has none."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        words = f"{error.strerror}: flock fails on {mounts.mount_in_words(handle.fileno())}: "
        raise OSError(error.errno, words + mounts.LOCKS_REMEDY, handle.name) from error
    return True


def _write(handle: TextIO, text: str) -> None:
    with contextlib.suppress(OSError):  # where there is no room, no rank is started either
        handle.truncate(0)
        handle.write(text)
        handle.flush()
