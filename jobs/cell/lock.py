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

from train.config.frozen import Frozen
from train.errors import ConfigError, remedy
from train.record import mount as mounts

LOCK_NAME, SWEEP_LOCK = ".running", ".lock"
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

    def has_ended(self, here: Holder, results: Path) -> bool:
        """Whether this one is provably gone, seen by ``here``, who has got its lock."""
        if self.host == here.host or (self.boot and self.boot == here.boot):
            return True  # its kernel has released it: by its end, or by a reboot
        return bool(self.machine) and here.machine in _sharing_locks(self.machine, results)


class _Proof(Frozen, extra="ignore"):
    """What a preflight's report says of locks."""

    locks: tuple[tuple[str, str], ...] = ()


def _sharing_locks(machine: str, results: Path) -> set[str]:
    """Machines that share locks with this one, as preflights showed pair by pair: who sees a lock
    asks where its holder stands. Other machines may do so, too: then nothing was shown."""
    pairs: list[tuple[str, str]] = []
    for file in results.glob(PROOFS):
        with contextlib.suppress(OSError, ValueError):
            pairs += _Proof.model_validate_json(file.read_bytes()).locks
    found = {machine}
    while more := {one for pair in pairs if not found.isdisjoint(pair) for one in pair} - found:
        found |= more
    return found


def signed(text: str) -> Holder | None:
    """The holder by its signature, also an earlier version's; None where it is none."""
    match = _SIGNATURE.fullmatch(text.strip())
    return Holder(int(match[2]), match[3], match[4], match[5], match[1]) if match else None


@contextlib.contextmanager
def only_sweep(folder: Path) -> Iterator[None]:
    """Two sweeps on the same results would run cells twice; the second is refused.

    Raises:
        ConfigError: another one holds the lock, or may hold it on another machine, or the folder
            cannot be written or locked.
    """
    file = folder / SWEEP_LOCK
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context(file.open("a+", encoding="utf-8", errors="replace"))
        except OSError as error:
            raise ConfigError(
                f"cannot write to the results folder {folder}: {error.strerror}: "
                f"{remedy(error) or 'move away what is there'}, or name another folder with "
                "RESULTS=DIR"
            ) from error
        try:
            ours = _taken(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise ConfigError(f"cannot lock the folder {folder}: {error.strerror}") from error
        handle.seek(0)
        other, here = signed(handle.read()), _ourselves(handle)
        if not ours:
            raise ConfigError(
                f"another make sweep works on {folder} ({other or 'unknown'}): "
                "wait for it, stop it, or name another folder with RESULTS=DIR"
            )
        if other and not other.has_ended(here, folder.parent):
            raise ConfigError(
                f"a make sweep may still work on {folder} on another machine, whose lock no "
                f"preflight has shown to be seen here: {file} is signed by {other}; once that has "
                f"ended, remove it: rm {shlex.quote(str(file))}"
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


def is_running(cell: Path, name: str = LOCK_NAME) -> bool:
    """Whether somebody holds the cell now."""
    try:
        with (cell / name).open(encoding="utf-8") as handle:
            return not _taken(handle, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def holder(cell: Path, name: str = LOCK_NAME) -> Holder | None:
    """Who holds the cell; None when nobody does, or who does cannot be read."""
    with contextlib.suppress(OSError):
        if is_running(cell, name):
            return signed((cell / name).read_text(encoding="utf-8", errors="replace"))
    return None


def seen_here(folder: Path, name: str) -> list[tuple[str, str]]:
    """Whose lock this machine sees there, and itself, as preflights name machines; nothing where it
    sees its own, or none."""
    other = holder(folder, name)
    if other is None or other.boot == mounts.boot_id():
        return []
    pair = other.machine, mounts.machine_at(folder / name)
    return [pair] if all(pair) else []


def is_abandoned(cell: Path) -> bool:
    """Whether whoever held the cell last is provably gone, and has not signed off."""
    lock = cell / LOCK_NAME
    with contextlib.suppress(OSError), lock.open(encoding="utf-8", errors="replace") as handle:
        last = signed(handle.read())
        free = _taken(handle, fcntl.LOCK_SH)
        return free and last is not None and last.has_ended(_ourselves(handle), cell.parent.parent)
    return False


def _ourselves(handle: TextIO, job: str | None = None) -> Holder:
    mount = mounts.device_of(handle.fileno())
    return Holder(os.getpid(), os.uname().nodename, mounts.boot_id(), mount, job)


def _taken(handle: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        words = f"{error.strerror}: flock fails on {mounts.mount_in_words(handle.fileno())}: "
        raise OSError(error.errno, words + mounts.LOCKS_REMEDY, handle.name) from error
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
