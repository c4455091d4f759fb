"""Processors of ranks: whole cores near their GPUs, on machines that are folders of files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.cell.launch import core_groups
from jobs.config.sweep import Sweep
from jobs.local import sweep
from tests.builders import config
from train.distributed.launch import Launch
from train.distributed.machine import cores as planning
from train.distributed.machine.cores import near_gpus, plan_processors
from train.distributed.machine.quota import Quota

#: So many processors are no mask in these tests, which is then a job's own.
MACHINE = 1000


@pytest.fixture
def fake_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a machine: as Linux numbers them, the second thread of core i is ``cores`` + i.
    ``gpus``: processors near each."""

    def make(cores: int, threads: int, gpus: Iterable[str] = ()) -> None:
        files, addresses = {}, []
        for number in range(cores * threads):
            own = ",".join(str(number % cores + cores * thread) for thread in range(threads))
            files[f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"] = own
        for bus, near in enumerate(gpus):
            addresses.append(f"0000:{bus:02x}:00.0")
            files[f"bus/pci/devices/{addresses[-1]}/local_cpulist"] = near
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setattr("train.distributed.machine.cores.gpu_addresses", lambda: addresses)

    monkeypatch.setattr("train.distributed.machine.cores.SYS", tmp_path)
    monkeypatch.setattr("train.distributed.machine.cores.gpu_addresses", list)
    return make


def spans(*parts: tuple[int, int]) -> set[int]:
    return set(chain(*(range(first, last + 1) for first, last in parts)))


def planned(
    mask: Collection[int], ranks: int, asked: int = 0, *, node: int = 0,
    machine: int = MACHINE, quotas: tuple[Quota, ...] = (),
) -> list[set[int]]:  # fmt: skip
    launch = Launch("srun", 0, ranks, 0, ranks, node=node, cores_asked=asked)
    found, left = plan_processors(mask, launch, machine, quotas, near_gpus(launch))
    assert {*chain(*found), *left} == set(mask) and not {*left} & {*chain(*found)}
    return [set(group) for group in found]


@pytest.mark.parametrize("asked", [0, 16])
def test_two_sockets_with_hyper_threads_and_eight_gpus(fake_sysfs, asked) -> None:
    """Seen: rank 4 of 8 got 64 to 79, the other threads of rank 0's cores."""
    sockets = (spans((0, 31), (64, 95)), spans((32, 63), (96, 127)))
    names = ("0-31,64-95", "32-63,96-127")
    cores = [spans((8 * n, 8 * n + 7), (64 + 8 * n, 71 + 8 * n)) for n in range(8)]
    for gpus in ([], [names[bus // 4] for bus in range(8)]):
        fake_sysfs(64, 2, gpus)
        assert planned(range(128), 8, asked) == cores
    fake_sysfs(64, 2, [names[1 - bus % 2] for bus in range(8)])
    found = planned(range(128), 8, asked)
    assert sorted(map(min, found)) == [min(group) for group in cores]
    assert all(group <= sockets[1 - rank % 2] for rank, group in enumerate(found))


@pytest.mark.parametrize("files", [False, True])
def test_without_hyper_threads_or_files_they_are_taken_by_number(fake_sysfs, files) -> None:
    if files:
        fake_sysfs(16, 1)
    assert planned(range(16), 3) == [spans((5 * n, 5 * n + 4)) for n in range(3)]
    assert planned(range(2), 2, machine=2) == [{0}, {1}]
    assert planned(range(2), 1, machine=2) == [{0, 1}]


@pytest.mark.parametrize(("ranks", "nodes_each"), [(8, 1), (4, 2)])
def test_epyc_with_four_numa_nodes_per_socket(fake_sysfs, ranks: int, nodes_each: int) -> None:
    """The GPUs are near nodes 3, 1, 7 and 5, one or two each: the second one of a pair gets the
    processors of another node of its socket."""
    numa = [spans((16 * n, 16 * n + 15), (128 + 16 * n, 143 + 16 * n)) for n in range(8)]
    near = [n for n in (3, 1, 7, 5) for _ in range(ranks // 4)]
    fake_sysfs(
        128, 2, [f"{16 * n}-{16 * n + 15},{128 + 16 * n}-{143 + 16 * n}" for n in near]
    )  # fmt: skip
    for rank, group in enumerate(planned(range(256), ranks)):
        nodes = [n for n in range(8) if group & numa[n]]
        assert group == set().union(*(numa[n] for n in nodes)) and len(nodes) == nodes_each
        assert {n // 4 for n in nodes} == {near[rank] // 4}
        assert near[rank] in nodes or rank % 2


def test_a_local_sweep_gives_its_ranks_whole_cores(fake_sysfs, tmp_path, monkeypatch) -> None:
    fake_sysfs(4, 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for ranks, quotas, expected in (
        (4, (), ((0, 4), (1, 5), (2, 6), (3, 7))),
        (1, (Quota("a", 3.5),), ((0, 1, 2),)),
        (2, (Quota("a", 4),), ((0, 1), (2, 3))),
    ):
        monkeypatch.setattr(sweep, "quotas_here", lambda quotas=quotas: quotas)
        wanted = Sweep("two", "two", tmp_path, (config(gpus=ranks),), (), None)
        machine = sweep.machine_for(wanted, tmp_path, tmp_path, tmp_path)
        assert core_groups(ranks, machine.per_rank, machine.cores) == expected
        assert {*machine.cores, *machine.more_cores} == set(range(8))


def test_masks_with_holes(fake_sysfs) -> None:
    """A job's part of a node: cores 1, 5 and 6 whole, one thread each of 0, 2 and 4."""
    fake_sysfs(8, 2, ["4-7,12-15", "0-3,8-11"])
    mask = {0, 1, 9, 10, 12, 5, 13, 6, 14}
    assert planned(mask, 2, 3) == [{5, 13, 6}, {1, 9, 0}]
    assert planned(mask, 3, 2) == [{1, 9}, {5, 13}, {6, 14}], "one GPU less than ranks: by number"


def test_few_processors_each_are_of_different_cores(fake_sysfs) -> None:
    fake_sysfs(4, 2)
    assert planned(range(8), 4, 1) == [{0}, {1}, {2}, {3}]
    assert planned(range(8), 2, 3) == [{0, 4, 1}, {2, 6, 3}]
    assert planned(range(8), 3) == [{0, 4}, {1, 5}, {2, 6}], "rather a core idle than halves"


def test_a_mask_that_is_the_ranks_own_is_kept(fake_sysfs) -> None:
    """A site that binds tasks: the mask holds the processors of this rank only."""
    fake_sysfs(8, 2, ["4-7,12-15", "0-3,8-11"])
    assert planned({4, 5, 12}, 2, 3)[1] == {4, 5, 12}


def test_nodes_that_are_one_machine_and_more_ranks_than_processors(fake_sysfs) -> None:
    cores = [planned({0, 1}, 1, 1, node=node, machine=2) for node in range(4)]
    assert cores == [[{0}], [{1}], [{0}], [{1}]]
    assert planned({0, 1}, 4, 1, machine=2) == [{0}, {1}, {0}, {1}]


def test_no_more_processors_of_a_shared_mask_than_the_quota_gives(fake_sysfs) -> None:
    assert planned(range(16), 2, quotas=(Quota("a", 4.5),)) == [{0, 1}, {8, 9}]
    fake_sysfs(8, 2)
    assert planned(range(16), 2, quotas=(Quota("a", 6.5),)) == [{0, 1, 2}, {4, 5, 6}]
    launch = Launch("none", 0, 1, 0, 1)
    assert plan_processors(range(16), launch, 16, (Quota("a", 4),)) == (
        [(0, 1, 2, 3)], [4, 5, 6, 7, *range(8, 16)],
    ), "spare ones are of other cores first"  # fmt: skip


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(1, 8), st.integers(0, 8),
       st.integers(0, 3), st.booleans())  # fmt: skip
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
def test_shares_are_disjoint_and_equal(fake_sysfs, mask, ranks, asked, node, bound) -> None:
    if not (planning.SYS / "devices").exists():
        fake_sysfs(32, 2, ["0-15,32-47", "16-31,48-63"] * 4)
    groups = planned(mask, ranks, asked, node=node, machine=MACHINE if bound else len(mask))
    own = bound and len(mask) < ranks * asked
    assert len({len(group) for group in groups}) == 1
    if len(mask) >= ranks and not own:
        assert sum(map(len, groups)) == len(set().union(*groups))
    if 0 < ranks * asked <= len(mask):
        assert len(groups[0]) == asked
