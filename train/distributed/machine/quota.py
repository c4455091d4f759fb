"""What control groups leave to this process: time on cores, and memory.

A quota limits the time on cores, not which cores. A process that is limited to two cores' worth of
time still has all cores in its affinity mask, so that threads and ranks for all of them stand still
for most of each period. Slurm without ConstrainCores, Docker's --cpus and Kubernetes' limits set
such quotas, often on a group above.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from train.errors import text_of

#: 41 31 0:38 /shown /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
_MOUNT = re.compile(r"\S+ \S+ \S+ (\S+) (\S+) .*- (cgroup2?) .*?(\S+)")
#: In version 2 and version 1: files of the limit and of what is used; what the kernel takes back.
_MEMORY = (
    ("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes",
     ("total_inactive_file", "total_active_file")),
)  # fmt: skip


class Quota(NamedTuple):
    """cores: seconds on a core per second. group: equal for processes that share them (of one
    kernel)."""

    group: str
    cores: float


def quotas_here(root: Path = Path("/")) -> tuple[Quota, ...]:
    """All CPU quotas that this process is under, of its own group and of those above."""
    quotas: dict[str, Quota] = {}
    for folder in _folders("cpu", root):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            cores = _cores(folder)
            group = str(folder.stat().st_ino)
            if cores is not None:
                quotas.setdefault(group, Quota(group, cores))
    return tuple(quotas.values())


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still use: those of the machine, or what the tightest limit of
    its control groups leaves. What the kernel takes back counts as free, as files that were read.
    None if nothing says so."""
    free = []
    with contextlib.suppress(OSError, IndexError, ValueError):
        table = (root / "proc/meminfo").read_text(encoding="ascii")
        free.append(int(table.split("MemAvailable:")[1].split()[0]) * 1024)
    for folder, (limit, used, names) in product(_folders("memory", root), _MEMORY):
        with contextlib.suppress(OSError, ValueError):  # of the other version; "max": no limit
            lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
            pairs = (line.split() for line in lines)
            reclaimable = sum(int(size) for name, size in pairs if name in names)
            left = int((folder / limit).read_text()) - int((folder / used).read_text())
            free.append(max(0, left + reclaimable))
    return min(free, default=None)


def usable_cores(cores: int, quotas: tuple[Quota, ...]) -> int:
    """Of so many cores, as many as the tightest quota gives in full, but one at least."""
    return max(1, min([cores, *(int(quota.cores) for quota in quotas)]))


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """Own group and those above, in each hierarchy that can have this controller, as far as this
    mount of the file system shows them."""
    here, paths = root / "proc/self", dict[str, str]()
    for line in text_of(here / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    for mount in filter(None, map(_MOUNT.fullmatch, text_of(here / "mountinfo").splitlines())):
        shown, place, kind, options = mount.groups()
        if kind not in paths or (kind == "cgroup" and controller not in options.split(",")):
            continue
        top = root / place.lstrip("/")
        inside = Path("/", paths[kind])
        own = top / inside.relative_to(shown if inside.is_relative_to(shown) else "/")
        if not own.is_dir():  # the path is another namespace's: what is mounted is this one's
            own = top
        yield own
        yield from (above for above in own.parents if above == top or top in above.parents)


def _cores(folder: Path) -> float | None:
    """None: no limit."""
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    limits = text_of(folder / "cpu.max").split() or [text_of(folder / name) for name in names]
    quota, period = limits
    return None if quota == "max" or int(quota) < 0 else int(quota) / int(period)
