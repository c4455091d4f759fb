"""What a process believes about the world it was started into, and which cores it takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.launch import CellTask, clean_environment, core_groups, rank_environment, train_argv
from train.config import ConfigError
from train.launch import Launch, own_cores, read_launch


def task(**changes: object) -> CellTask:
    values = {
        "cell": "/r/it's a cell", "data": "/d", "store": "/s", "python": "/p",
        "cores": ((0,), (1,)),
        "resume": False, "stall_s": 300.0, "limit_s": None, "visible_gpus": None,
    }  # fmt: skip
    return CellTask(**(values | changes))


def test_a_rank_reads_what_the_supervisor_wrote() -> None:
    environment = rank_environment(task(), 1, attempt=2, supervisor=42, root=Path("/repo"))
    launch = read_launch(environment)
    assert launch == Launch(
        "horoscale", 1, 2, 1, 2, cores=(1,),
        rendezvous=Path("/r/it's a cell/logs/rendezvous-2-42"), supervisor=42,
    )  # fmt: skip


def test_launch_line_is_a_token_list() -> None:
    assert train_argv(task(resume=True), 3) == [
        "/p", "-m", "train", "/r/it's a cell/config.json", "--data", "/d", "--store", "/s",
        "--attempt", "3", "--stall-s", "300", "--resume",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1",
          "HOROVOD_LOCAL_SIZE": "2"}, ("horovodrun", 1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4",
          "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, ("mpirun", 0, 4)),
        ({"PATH": "/bin"}, ("none", 0, 1)),
    ],
)  # fmt: skip
def test_other_launchers(environment: dict[str, str], expected: tuple[str, int, int]) -> None:
    launch = read_launch(environment)
    assert (launch.launcher, launch.rank, launch.size) == expected


def test_half_a_launcher_is_an_error() -> None:
    with pytest.raises(ConfigError, match="HOROVOD_SIZE is None"):
        read_launch({"HOROVOD_RANK": "0"})


def test_foreign_launchers_are_dropped_and_tuning_is_kept() -> None:
    found = clean_environment(
        {"HOROVOD_RANK": "3", "HOROVOD_CYCLE_TIME": "2", "PMIX_RANK": "1", "PATH": "/bin",
         "CUDA_VISIBLE_DEVICES": "", "OMPI_COMM_WORLD_SIZE": "2"}
    )  # fmt: skip
    assert found == {"HOROVOD_CYCLE_TIME": "2", "PATH": "/bin"}


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(1, 8))
def test_shares_of_a_mask_are_disjoint_and_equal(mask: set[int], size: int) -> None:
    groups = [
        own_cores(mask, Launch("horovodrun", r, size, r, size, None, None, None))
        for r in range(size)
    ]
    assert all(set(group) <= mask for group in groups)
    assert len({len(group) for group in groups}) == 1
    if len(mask) >= size:
        assert sum(map(len, groups)) == len(set().union(*groups))


@given(st.integers(1, 16), st.integers(1, 8), st.sets(st.integers(0, 63), min_size=1))
def test_core_groups(ranks: int, per_rank: int, cores: set[int]) -> None:
    free = sorted(cores)
    groups = core_groups(ranks, per_rank, free)
    assert len(groups) == ranks and all(group for group in groups)
    if ranks * per_rank <= len(free):
        assert all(len(group) == per_rank for group in groups)
        assert sum(map(len, groups)) == len(set().union(*map(set, groups)))


def test_the_real_mask_is_usable() -> None:
    launch = read_launch({})
    assert set(own_cores(os.sched_getaffinity(0), launch)) == os.sched_getaffinity(0)
