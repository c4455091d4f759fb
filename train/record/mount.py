"""By which machine a file is seen, and on which file system. The standard library is enough."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from train.errors import text_of

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/mountinfo")
#: Where flock fails, or its locks end at the machine.
LOCKS_REMEDY = (
    "mount it so that locks reach all machines (NFS without nolock and local_lock=, Lustre with "
    "flock), or name a folder on another file system with RESULTS=DIR"
)


def boot_id() -> str | None:
    """Of this kernel, which releases a lock with its holder."""
    return text_of(BOOT_ID) or None


def device_of(file: int | Path) -> str:
    """MAJOR:MINOR of the mount as this kernel numbers it; raises OSError without such a file."""
    device = (os.fstat(file) if isinstance(file, int) else file.stat()).st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def machine_named(boot: str | None, device: str | None) -> str:
    """A machine as preflights name it: its kernel, and a file's mount; '' if one is not known."""
    return f"{boot} {device}" if boot and device else ""


def machine_at(file: int | Path) -> str:
    """This machine, by the file's mount."""
    return machine_named(boot_id(), device_of(file))


def file_system(device: str) -> tuple[str, str]:
    """Type and source of the mounted device, by proc_pid_mountinfo(5); empty where it is not in the
    table."""
    for line in text_of(MOUNTS).splitlines():
        mount, _, system = line.partition(" - ")
        if mount.split()[2:3] == [device]:
            kind, source, *_ = system.split()
            return kind, source
    return "", ""


def local_file_system(folder: Path) -> str | None:
    """Type of the folder's file system where no other machine can see it; None where one may: a
    disk of this machine may be served to others."""
    with contextlib.suppress(OSError):
        kind, _ = file_system(device_of(folder))
        return kind if kind in ("tmpfs", "ramfs", "overlay") else None
    return None


def mount_in_words(file: int | Path) -> str:
    """Name and type of the file's mount, for a message."""
    try:
        kind, source = file_system(device_of(file))
    except OSError as error:
        return f"a mount that cannot be read ({error.strerror})"
    return f"{source} ({kind})" if kind else "a mount that /proc/self/mountinfo lacks"
