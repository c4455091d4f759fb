"""Who works on a sweep and who runs a cell: locks in their folders, held for as long as that."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from train.errors import ConfigError, remedy

LOCK_NAME = ".running"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/mountinfo")
_SIGNATURE = re.compile(
    r"(?:job (\S+), )?process (\d+) on ([^,]+)(?:, boot ([^,]+))?(?:, ([^,]+))?"
)


@dataclass(frozen=True)
class Holder:
    """Who signed a lock, and what shows to another machine later whether that has ended."""

    process: int
    host: str
    boot: str | None = None  # of its kernel, which releases a lock with its holder
    reach: str | None = None  # type of the lock's file system, where its locks reach all machines
    job: str | None = None  # of Slurm

    def __str__(self) -> str:
        """For a person."""
        return (f"job {self.job}, " if self.job else "") + f"process {self.process} on {self.host}"

    @property
    def signature(self) -> str:
        boot = f", boot {self.boot}" if self.boot else ""
        return f"{self}{boot}" + (f", {self.reach}" if self.reach else "")

    def has_ended(self, here: Holder) -> bool:
        """Whether this one is provably gone, seen by ``here``, who has got its lock."""
        if self.host == here.host or (self.boot and self.boot == here.boot):
            return True  # its kernel has released it: by its end, or by a reboot
        return self.reach is not None and self.reach == here.reach


def signed(text: str) -> Holder | None:
    """The holder by its signature, also an earlier version's; None where it is none."""
    match = _SIGNATURE.fullmatch(text.strip())
    return Holder(int(match[2]), match[3], match[4], match[5], match[1]) if match else None


def _file_system(device: int) -> tuple[str, set[str]]:
    """Type and options of this device's file system, by proc_pid_mountinfo(5); an empty type where
    it is not there."""
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            mount, _, system = line.partition(" - ")
            if mount.split()[2:3] == [f"{os.major(device)}:{os.minor(device)}"]:
                kind, _, options = system.split()
                return kind, set(options.split(","))
    return "", set()


def reach_of(device: int) -> str | None:
    """Type of the device's file system, where a flock there is seen by all machines that mount it;
    None where it is not, or nobody can say."""
    kind, options = _file_system(device)
    kind = "nfs" if kind == "nfs4" else kind  # one server, one table of locks
    reaches = {
        "nfs": not options & {"nolock", "local_lock=flock", "local_lock=all"},
        "lustre": "flock" in options and "localflock" not in options,
        "gpfs": True,
        "ceph": True,
    }
    return kind if reaches.get(kind) else None


def local_file_system(folder: Path) -> str | None:
    """Type of the folder's file system where no other machine can see it; None where one may: a
    disk of this machine may be served to others."""
    with contextlib.suppress(OSError):
        kind, _ = _file_system(folder.stat().st_dev)
        return kind if kind in ("tmpfs", "ramfs", "overlay") else None
    return None


@contextlib.contextmanager
def only_sweep(folder: Path) -> Iterator[None]:
    """Two sweeps on the same results would run cells twice; the second is refused.

    Raises:
        ConfigError: another one holds the lock, or may hold it on another machine, or the folder
            cannot be written or locked.
    """
    file = folder / ".lock"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context(file.open("a+", encoding="utf-8", errors="replace"))
            ours = _taken(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise ConfigError(
                f"cannot write to the results folder {folder} and lock it: {error.strerror}: "
                f"{remedy(error) or 'move away what is there'}, or name another folder, on a file "
                "system where flock works, with RESULTS=DIR"
            ) from error
        handle.seek(0)
        other, here = signed(handle.read()), _ourselves(handle)
        if not ours:
            raise ConfigError(
                f"another make sweep works on {folder} ({other or 'unknown'}): "
                "wait for it, stop it, or name another folder with RESULTS=DIR"
            )
        if other and not other.has_ended(here):
            raise ConfigError(
                f"a make sweep may still work on {folder} on another machine, whose lock would not "
                f"be seen here: {file} is signed by {other}; once that has ended, remove it: "
                f"rm {shlex.quote(str(file))}"
            )
        stack.enter_context(_signed(handle, here))
        yield


@contextlib.contextmanager
def hold(cell: Path, *, job: str | None = None) -> Iterator[bool]:
    """Hold the cell's lock; False when another has it.

    ``job``: of Slurm, in which the holder runs.

    Raises:
        OSError: no such folder, or it cannot be written.
    """
    with (cell / LOCK_NAME).open("a+", encoding="utf-8") as handle:
        if not _taken(handle, fcntl.LOCK_EX):
            yield False
            return
        with _signed(handle, _ourselves(handle, job)):
            yield True


def is_running(cell: Path) -> bool:
    """Whether somebody holds the cell now."""
    try:
        with (cell / LOCK_NAME).open(encoding="utf-8") as handle:
            return not _taken(handle, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def holder(cell: Path) -> Holder | None:
    """Who holds the cell; None when nobody does, or who does cannot be read."""
    with contextlib.suppress(OSError):
        if is_running(cell):
            return signed((cell / LOCK_NAME).read_text(encoding="utf-8", errors="replace"))
    return None


def is_abandoned(cell: Path) -> bool:
    """Whether whoever held the cell last is provably gone, and has not signed off."""
    lock = cell / LOCK_NAME
    with contextlib.suppress(OSError), lock.open(encoding="utf-8", errors="replace") as handle:
        last = signed(handle.read())
        free = _taken(handle, fcntl.LOCK_SH)
        return free and last is not None and last.has_ended(_ourselves(handle))
    return False


def _ourselves(handle: TextIO, job: str | None = None) -> Holder:
    boot, reach = None, reach_of(os.fstat(handle.fileno()).st_dev)
    with contextlib.suppress(OSError):
        boot = BOOT_ID.read_text().strip() or None
    return Holder(os.getpid(), os.uname().nodename, boot, reach, job)


def _taken(handle: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _signed(handle: TextIO, holder: Holder) -> Iterator[None]:
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
