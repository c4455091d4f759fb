"""What a node sees of the file system: everything of the machine, but its own /tmp, /dev/shm, name.

Commands are run inside the space, whose mounts are its own.
"""

from __future__ import annotations

from pathlib import Path

from .place import ROOT, Place

SHARED_MEMORY = "1g"


def room_commands(place: Place, space: str, shared: tuple[Path, ...] = (ROOT,)) -> list[list[str]]:
    """Mounts of one space; ``shared``: folders that nodes must see even where they lie in /tmp."""
    temporary = place.temporary(space)
    back = [folder for folder in shared if Path("/tmp") in folder.parents]  # noqa: S108
    return [
        ["hostname", space],
        ["mount", "--bind", str(place.hosts), "/etc/hosts"],
        # the machine's /sys would show its own network interfaces under the names of the node's
        ["mount", "-t", "sysfs", "-o", "nosuid,nodev,noexec", "sysfs", "/sys"],
        *(
            command
            for folder in back
            for command in (
                ["mkdir", "-p", str(temporary / folder.relative_to("/tmp"))],  # noqa: S108
                ["mount", "--rbind", str(folder), str(temporary / folder.relative_to("/tmp"))],  # noqa: S108
            )
        ),
        ["mount", "--rbind", str(temporary), "/tmp"],  # noqa: S108
        ["mount", "-t", "tmpfs", "-o", f"mode=1777,size={SHARED_MEMORY}", "shm", "/dev/shm"],  # noqa: S108
    ]


def make_folders(place: Place, space: str) -> None:
    place.spool(space).mkdir(parents=True, exist_ok=True)
    temporary = place.temporary(space)
    temporary.mkdir(parents=True, exist_ok=True)
    temporary.chmod(0o1777)  # mkdir heeds the umask
