"""Quotas and limits of memory: found in both kinds of control groups, also above the own one."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.distributed.machine.quota import Quota, free_memory, quotas_here, usable_cores
from train.distributed.world import share_cores

V2 = "41 31 0:38 {shown} /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "32 31 0:29 {shown} /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"


def tree(root: Path, own: str, mount: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    (root / "proc/self/mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}\n")
    with (root / "proc/self/mountinfo").open("ab") as file:  # a disk with a name in Latin-1
        file.write(b"60 22 8:9 / /media/Universit\xe4t rw - vfat /dev/sdb rw\n")
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("own", "mount", "files", "expected"),
    [
        ("0::/a/b", V2.format(shown="/"), {"a/b/cpu.max": "150000 100000"}, [1.5]),
        ("0::/a/b", V2.format(shown="/"), {"a/b/cpu.max": "max 100000", "a/cpu.max": "2000 1000"},
         [2]),  # of a group above
        ("0::/a/b", V2.format(shown="/"), {"a/b/cpu.max": "4000 1000", "a/cpu.max": "8000 4000"},
         [4, 2]),
        # a container of Docker: its group is mounted as the root, whatever it is called
        ("0::/docker/7f", V2.format(shown="/docker/7f"), {"cpu.max": "100000 100000"}, [1]),
        ("0::/", V2.format(shown="/"), {"cpu.max": "100000 100000"}, [1]),
        ("0::/a/b", V2.format(shown="/a"), {"b/cpu.max": "3000 1000"}, [3]),
        ("0::/a/b", V2.format(shown="/").replace(" - cgroup2 cgroup2", " - cgroup2 "),
         {"a/b/cpu.max": "3000 1000"}, [3]),  # mounted from a source without a name
        ("4:memory:/x\n3:cpu,cpuacct:/a\n0::/", V1.format(shown="/"),
         {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"}, [0.5]),
        ("3:cpu,cpuacct:/a/b", V1.format(shown="/"),
         {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000",
          "cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, [3]),
        ("3:cpuset:/a", V1.format(shown="/"), {}, []),
        ("0::/a", V2.format(shown="/"), {"a/cpu.max": "what is this"}, []),
    ],
)  # fmt: skip
def test_quotas_are_found(tmp_path: Path, own: str, mount: str, files, expected) -> None:
    assert [found.cores for found in quotas_here(tree(tmp_path, own, mount, files))] == expected


def test_without_control_groups_there_is_none(tmp_path: Path) -> None:
    assert quotas_here(tmp_path) == ()


MEMORY_V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


@pytest.mark.parametrize(
    ("own", "mount", "files", "free"),
    [
        # a container that has read 800 bytes of files more than once, with their folders
        ("0::/", V2.format(shown="/"),
         {"memory.max": "1000", "memory.current": "950", "memory.stat":
          "file 800\ninactive_file 200\nactive_file 500\nslab_reclaimable 30"}, 780),
        ("4:memory:/", MEMORY_V1,
         {f"memory/memory.{name}": text for name, text in (
             ("limit_in_bytes", "1000"), ("usage_in_bytes", "950"),
             ("stat", "active_file 1\ntotal_inactive_file 200\ntotal_active_file 500"))}, 750),
        # the limit is that of the job, above the group of this process; files in memory count
        ("0::/job/task", V2.format(shown="/"),
         {"job/task/memory.max": "max", "job/task/memory.current": "1",
          "job/task/memory.stat": "anon 1\ninactive_file 0", "job/memory.max": "9000",
          "job/memory.current": "8000", "job/memory.stat": "anon 1\ninactive_file 500"}, 1500),
        ("4:memory:/job", MEMORY_V1,
         {f"memory/job/memory.{name}": text for name, text in (
             ("limit_in_bytes", "5000"), ("usage_in_bytes", "6000"),
             ("stat", "inactive_file 1\ntotal_inactive_file 600"))}, 0),
        ("0::/", V2.format(shown="/"), {"memory.stat": "inactive_file 0"}, 4096),
    ],
)  # fmt: skip
def test_memory_is_what_the_tightest_limit_leaves(tmp_path: Path, own, mount, files, free) -> None:
    root = tree(tmp_path, own, mount, files)
    (root / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  4 kB\n")
    assert free_memory(root) == min(free, 4096)
    (root / "proc/meminfo").unlink()
    assert free_memory(root) == (None if len(files) == 1 else free)


@pytest.mark.parametrize(("quota", "usable"), [(0.5, 1), (1.5, 1), (2, 2), (64, 8)])
def test_the_smaller_of_mask_and_quota_can_be_used(quota: float, usable: int) -> None:
    assert usable_cores(8, (Quota("a", 100), Quota("b", quota))) == usable


@pytest.mark.parametrize(
    ("quotas", "shared"),
    [
        ([(Quota("job", 2),)] * 2, False),
        ([(Quota("job", 1.5),)] * 2, True),  # two ranks with a core each
        ([(Quota("task 0", 1),), (Quota("task 1", 1),)], False),  # each its own
        ([(Quota("task 0", 1), Quota("job", 1)), (Quota("task 1", 1), Quota("job", 1))], True),
        ([(Quota("task 0", 0.5),), ()], True),
    ],
)
def test_ranks_under_a_quota_that_is_too_small_are_oversubscribed(quotas, shared) -> None:
    assert share_cores(["n"] * 2, [(0,), (1,)], quotas) is shared
    assert share_cores(["n"] * 2, [(0, 1), (1, 2)], [()] * 2), "a core of both"
    assert not share_cores(["n", "m"], [(0,), (0,)], [(Quota("same name", 1),)] * 2)
