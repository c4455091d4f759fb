"""Let an unprivileged user see the interpreter and the checkout where root keeps them to itself.

Root's own Python often lies under /root, which nobody else may enter. Nodes, and the login shell
of the practice user, have mounts of their own: there, such a folder is an empty one that holds just
what is needed, at the same path. Nothing changes for the machine itself.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from .place import ROOT

ENTER = stat.S_IXOTH


def needed() -> tuple[Path, ...]:
    """What jobs need of this machine besides its system folders: Python and this checkout."""
    return tuple(dict.fromkeys(Path(p).resolve() for p in (sys.base_prefix, sys.prefix, ROOT)))


def closed_folder(path: Path) -> Path | None:
    """The first folder on the way to ``path`` that others may not enter."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & ENTER:
            return folder
    return None


def view_commands(paths: Iterable[Path], stage: Path) -> list[list[str]]:
    """Mounts, for a space of its own, that make ``paths`` reachable for everybody.

    ``stage``: an empty folder, visible to nobody else, over which the paths are carried.
    """
    groups: dict[Path, list[Path]] = {}
    for path in paths:
        if (closed := closed_folder(path)) is not None:
            groups.setdefault(closed, []).append(path)
    commands: list[list[str]] = []
    for number, (closed, members) in enumerate(groups.items()):
        mode = "mode=0711,size=1m"
        for index, path in enumerate(members):
            held = str(stage / f"{number}-{index}")
            commands += [["mkdir", "-p", held], ["mount", "--rbind", str(path), held]]
        commands.append(["mount", "-t", "tmpfs", "-o", mode, "view", str(closed)])
        for index, path in enumerate(members):
            held = str(stage / f"{number}-{index}")
            commands += [
                ["mkdir", "-p", "-m", "0755", str(path)],
                ["mount", "--move", held, str(path)],
            ]
    return commands
