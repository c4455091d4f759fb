"""Whether the supervisor that started this process is gone."""

from __future__ import annotations

import os
from pathlib import Path


def is_orphan(supervisor: int) -> bool:
    """Whether the process ``supervisor`` is no ancestor of this one any more: the children of a
    dead process are given to another. It need not be the parent: a container's starter stands
    between the two. What cannot be read is taken for alive.
    """
    pid = os.getppid()
    while pid not in (0, 1, supervisor):
        try:
            # the name, in brackets, may hold anything
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            pid = int(fields[1])
        except (OSError, ValueError, IndexError):
            return os.getppid() == 1
    return pid != supervisor
