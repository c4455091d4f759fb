"""Who works on a sweep, and whether whoever held a lock has ended."""

from __future__ import annotations

import contextlib
import fcntl
import shlex
from collections.abc import Iterator
from pathlib import Path

from train.config.frozen import Frozen
from train.errors import ConfigError, remedy
from train.record import mount as mounts
from train.record.lock import LOCK_NAME, Holder, holder, ourselves, signed, signing, taken

SWEEP_LOCK = ".lock"
#: Reports of preflights, in the folder of results: ``locks`` says which machine saw whose lock.
PROOFS = "preflight/*/report.json"


def has_ended(other: Holder, here: Holder, results: Path) -> bool:
    """Whether ``other`` is provably gone, seen by ``here``, who has got its lock."""
    if other.host == here.host or (other.boot and other.boot == here.boot):
        return True  # its kernel has released it: by its end, or by a reboot
    return bool(other.machine) and here.machine in _sharing_locks(other.machine, results)


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
            ours = taken(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise ConfigError(f"cannot lock the folder {folder}: {error.strerror}") from error
        handle.seek(0)
        other, here = signed(handle.read()), ourselves(handle)
        if not ours:
            raise ConfigError(
                f"another make sweep works on {folder} ({other or 'unknown'}): "
                "wait for it, stop it, or name another folder with RESULTS=DIR"
            )
        if other and not has_ended(other, here, folder.parent):
            raise ConfigError(
                f"a make sweep may still work on {folder} on another machine, whose lock no "
                f"preflight has shown to be seen here: {file} is signed by {other}; once that has "
                f"ended, remove it: rm {shlex.quote(str(file))}"
            )
        stack.enter_context(signing(handle, here))
        yield


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
        free = taken(handle, fcntl.LOCK_SH)
        return free and last is not None and has_ended(last, ourselves(handle), cell.parent.parent)
    return False
