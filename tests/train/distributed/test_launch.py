"""What a process believes about the world it was started into."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cell.launch import core_groups, rank_environment
from train.distributed.launch import Launch, read_launch
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
        supervised=True,
    )  # fmt: skip


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
        "srun", 2, 3, 0, 1, node=1, nodes=2, cores_asked=1, wired=True
    )
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
    found = read_launch(STEP | ours | {"HOROSCALE_RENDEZVOUS": "/shared/meet"})
    assert (found.launcher, found.size, found.node, found.nodes) == (launcher, 2, 0, 2)
    assert replace(found, rendezvous=None) == read_launch(ours), "without Slurm, too"


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 20)), min_size=1))
def test_tasks_per_node_of_any_layout(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{n}(x{times})" if times > 1 else str(n) for n, times in runs)
    tasks = [n for n, times in runs for _ in range(times)]
    of_first = {"SLURM_PROCID": "0", "SLURM_NODEID": str(len(tasks) - 1)}
    of_all = {"SLURM_STEP_NUM_TASKS": str(sum(tasks)), "SLURM_STEP_TASKS_PER_NODE": text}
    launch = read_launch(STEP | of_first | of_all)
    assert (launch.nodes, launch.local_size) == (len(tasks), tasks[-1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x"}, "do not go together"),
        ({"SLURM_STEP_TASKS_PER_NODE": ""}, "do not go together"),
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
