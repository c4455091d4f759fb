"""What a process believes about the world it was started into, and which cores it takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cell.launch import (
    core_groups,
    rank_argv,
    rank_environment,
)
from train.distributed.launch import Launch, own_cores, read_launch, tasks_per_node
from train.environment import TABLE, environment_of
from train.errors import ConfigError

CELL = Path("/r/it's a cell")


def own_environment(rank: int) -> dict[str, str]:
    root = Path("/repo")
    return rank_environment(CELL, ((0,), (1,)), rank, attempt=2, supervisor=42, root=root)


def test_a_rank_reads_what_the_supervisor_wrote() -> None:
    launch = read_launch(own_environment(1))
    assert launch == Launch(
        "horoscale", 1, 2, 1, 2, cores=(1,),
        rendezvous=Path("/r/it's a cell/logs/rendezvous-2-42"), supervisor=42,
    )  # fmt: skip


def test_launch_line_is_a_token_list() -> None:
    argv = rank_argv(CELL, data="/d", store="/s", attempt=3, stall_s=300.0, resume=True)
    assert argv == [
        "-m", "train", "/r/it's a cell/config.json", "--data", "/d", "--store", "/s",
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
    base = {"HOROVOD_CYCLE_TIME": "2", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": ""}
    stray = {"HOROVOD_RANK": "3", "PMIX_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    assert environment_of("ranks", base | stray) == base | TABLE["ranks"].sets


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


@pytest.mark.parametrize(
    ("ranks", "per_rank", "free", "processes", "expected"),
    [
        (2, 1, 2, 2, ((0,), (1,))),
        (2, 1, 2, 1, ((0, 1),)),
        (4, 2, 8, 2, ((0, 1, 2, 3), (4, 5, 6, 7))),
        (4, 1, 2, 1, ((0, 1),)),
        (4, 1, 3, 2, ((0, 1), (2, 0))),
    ],
)
def test_a_process_has_the_cores_of_all_its_ranks(
    ranks: int, per_rank: int, free: int, processes: int, expected
) -> None:
    """Each once, where ranks share them."""
    groups = core_groups(ranks, per_rank, range(free), processes)
    assert groups == expected
    settings = rank_environment(CELL, groups, 0, attempt=1, supervisor=7, root=Path("/root"))
    assert settings["HOROSCALE_SIZE"] == settings["HOROSCALE_LOCAL_SIZE"] == str(processes)
    assert settings["HOROSCALE_CORES"] == ",".join(map(str, expected[0]))


def test_the_real_mask_is_usable() -> None:
    launch = read_launch({})
    assert set(own_cores(os.sched_getaffinity(0), launch)) == os.sched_getaffinity(0)


# as Slurm 22.05 set them for the last task of `srun --mpi=pmix -N2 -n3 --cpus-per-task=1`
STEP = {
    "PMIX_RANK": "2", "SLURM_CPUS_ON_NODE": "1", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "7",
    "SLURM_JOB_CPUS_PER_NODE": "2,1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
    "SLURM_NTASKS": "3", "SLURM_PROCID": "2", "SLURM_STEPID": "0", "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_TASKS_PER_NODE": "2,1",
}  # fmt: skip


def test_a_task_of_srun() -> None:
    assert read_launch(STEP) == Launch(
        "srun", 2, 3, 0, 1, cores=None, rendezvous=None, supervisor=None, node=1, nodes=2,
        cores_asked=1, wired=True,
    )  # fmt: skip
    first = read_launch(STEP | {"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0"})
    assert (first.rank, first.local_rank, first.local_size, first.node) == (1, 1, 2, 0)


def test_srun_with_a_meeting_point_and_without_pmix() -> None:
    told = {name: value for name, value in STEP.items() if name != "PMIX_RANK"}
    found = read_launch(told | {"HOROSCALE_RENDEZVOUS": "/shared/meet"})
    assert found.rendezvous == Path("/shared/meet") and not found.wired


def test_a_batch_script_and_a_shell_of_salloc_are_no_world() -> None:
    """They have the job's variables, SLURM_PROCID among them, and no step's."""
    job = {name: value for name, value in STEP.items() if not name.startswith("SLURM_STEP")}
    found = read_launch(job)
    assert (found.launcher, found.size) == ("none", 1)


@pytest.mark.parametrize(
    ("ours", "launcher"),
    [
        ({"HOROSCALE_RANK": "0", "HOROSCALE_SIZE": "2", "HOROSCALE_LOCAL_RANK": "0",
          "HOROSCALE_LOCAL_SIZE": "1", "HOROSCALE_NODE": "0", "HOROSCALE_NODES": "2"}, "horoscale"),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0",
          "HOROVOD_LOCAL_SIZE": "1", "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "2"},
         "horovodrun"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
          "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "mpirun"),
    ],
)  # fmt: skip
def test_a_launcher_inside_a_step_comes_first(ours: dict[str, str], launcher: str) -> None:
    found = read_launch(STEP | ours)
    assert (found.launcher, found.size, found.node, found.nodes) == (launcher, 2, 0, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", (1,)), ("2(x3),1", (2, 2, 2, 1)), ("2,1", (2, 1)), ("8(x2)", (8, 8))],
)
def test_tasks_per_node(text: str, expected: tuple[int, ...]) -> None:
    assert tasks_per_node(text) == expected


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 20)), min_size=1))
def test_tasks_per_node_of_any_layout(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{n}(x{times})" if times > 1 else str(n) for n, times in runs)
    assert tasks_per_node(text) == tuple(n for n, times in runs for _ in range(times))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x"}, "expected the form"),
        ({"SLURM_STEP_TASKS_PER_NODE": ""}, "expected the form"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2,2"}, "do not go together"),
        ({"SLURM_NODEID": "2"}, "do not go together"),
        ({"SLURM_NODEID": "-1"}, "do not go together"),
        ({"SLURM_LOCALID": "x"}, "SLURM_LOCALID is 'x'"),
        ({"SLURM_PROCID": "3"}, "rank 3 of a world of 3"),
    ],
)
def test_a_step_that_contradicts_itself_is_an_error(changes: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_launch(STEP | changes)


def test_a_supervisor_elsewhere_keeps_the_record() -> None:
    """Its process number means nothing here, and the flag outlives a dropped environment."""
    nothing = read_launch({}, supervised=True)
    assert nothing.supervised and (nothing.launcher, nothing.size) == ("none", 1)
    assert read_launch(STEP, supervised=True).supervised and not read_launch(STEP).supervised
    local = own_environment(1)
    assert read_launch(local).supervised and read_launch(local).supervisor == 42
    assert read_launch(local, supervised=True).supervisor is None


def step(node: int, local: int, local_size: int, asked: int | None, nodes: int = 2) -> Launch:
    rank, size = node * local_size + local, nodes * local_size
    return Launch(
        "srun", rank, size, local, local_size, None, None, None, node=node, nodes=nodes,
        cores_asked=asked,
    )  # fmt: skip


def test_a_mask_that_is_the_ranks_own_is_not_shared_again() -> None:
    """A site that binds tasks to cores: the mask holds those of this rank only."""
    assert own_cores({4, 5, 6, 7}, step(0, 1, 2, 4), machine=16) == (4, 5, 6, 7)


def test_ranks_of_an_unbound_node_take_what_was_asked_for_and_no_more() -> None:
    groups = [own_cores(set(range(16)), step(0, local, 2, 4), machine=16) for local in range(2)]
    assert groups == [(0, 1, 2, 3), (4, 5, 6, 7)]
    # by cgroup, the job's cores
    assert own_cores(set(range(8, 16)), step(0, 1, 2, 4), machine=64) == (12, 13, 14, 15)


def test_nodes_that_are_one_machine_take_different_cores() -> None:
    cores = [own_cores({0, 1}, step(node, 0, 1, 1, nodes=4), machine=2) for node in range(4)]
    assert cores == [(0,), (1,), (0,), (1,)]


def test_more_ranks_than_cores_of_the_machine_share_single_ones() -> None:
    found = [own_cores({0, 1}, step(0, local, 4, 1, nodes=1), machine=2) for local in range(4)]
    assert found == [(0,), (1,), (0,), (1,)]


@given(
    st.sets(st.integers(0, 63), min_size=1), st.integers(1, 8), st.integers(1, 8),
    st.integers(0, 3),
)  # fmt: skip
def test_cores_asked_for_are_disjoint_on_a_node(
    mask: set[int], local_size: int, asked: int, node: int
) -> None:
    groups = [own_cores(mask, step(node, r, local_size, asked, 4), 64) for r in range(local_size)]
    assert all(group and set(group) <= mask for group in groups)
    if len(mask) >= local_size * asked:
        assert all(len(group) == asked for group in groups)
        assert sum(map(len, groups)) == len(set().union(*groups))
