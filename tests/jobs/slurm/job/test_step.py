"""Launch lines and settings of a cell on Slurm, word for word."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.container import Container, container_argv
from jobs.config.site import Site
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.job import supervisor as supervise
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step import escaped, rank_base, step_argv
from jobs.slurm.job.supervisor import launch
from jobs.slurm.job.task import JobTask
from tests.builders import config

GOLDEN = Path(__file__).parent.parent / "golden"
ODD = '/scratch/o\'neil & "sons" $HOME'
PLAIN: dict[str, Any] = {"ranks_per_node": 4, "cpus_per_rank": 3, "signal_s": 100}
#: site, image, folder, resumed
CASES: dict[str, tuple[Site, str, str, bool]] = {
    "launch_pmix": (Site(**PLAIN), "/images/cpu.sif", "/scratch/ada", False),
    "launch_resumed": (Site(**PLAIN), "/images/cpu.sif", "/scratch/ada", True),
    "launch_gloo": (Site(**PLAIN, mpi="gloo", interface="ib0"), "/images/cpu.sif", "/scratch/ada",
                    False),
    "launch_bare": (Site(**PLAIN, mpi="pmix_v4"), "none", "/scratch/ada", False),
    "launch_gpu": (Site(**PLAIN, gpus="gpus-per-task", gpu_type="a100", gpu_support="nv",
                        interface="eth0", binds=("/data", "/opt/x:/opt/y:ro"), scratch="/local",
                        srun=("--cpu-bind=cores", "--overlap"), container_arguments=("--no-home",),
                        environment={"NCCL_DEBUG": "WARN", "OMPI_MCA_pml": "ucx"}),
                   "/images/gpu.sif", "/scratch/ada", False),
    "launch_rocm": (Site(**PLAIN, gpus="gres", gpu_support="rocm", runtime="singularity"),
                    "/images/rocm", "/scratch/ada", False),
    "launch_odd_folder": (Site(**PLAIN, mpi="gloo"), f"{ODD}/my image.sif", ODD, False),
}  # fmt: skip


def line(
    site: Site, image: str, folder: str, resume: bool, **changes: Any
) -> tuple[list[str], dict[str, str]]:
    cell = Path(folder) / "results" / "smoke" / "a-cell"
    values: dict[str, Any] = {
        "cells": (str(cell),), "asked_at": datetime(2026, 1, 1, tzinfo=UTC), "site": site,
        "nodes": 2, "ranks_per_node": 4, "image": image, "image_digest": None,
        "root": "/home/ada/horoscale", "data": "/data", "store": "/data/prepared",
        "stall_s": 300, "minutes": 60, "block": "r-0/0",
    }  # fmt: skip
    task = JobTask(**(values | changes))
    allocation = Allocation("7_5", "n1", 3, 1_800_000_000.0, None, site.signal_s)
    return launch(task, config(gpus=8), cell, 2, allocation, resume)


def text_of(case: str) -> str:
    argv, settings = line(*CASES[case])
    words = ["env", *(f"{name}={value}" for name, value in settings.items()), *argv]
    return "\n".join(words) + "\n"


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise.sys, "executable", "/opt/venv/bin/python3")


@pytest.mark.parametrize("case", CASES)
def test_launch_lines_are_word_for_word_what_they_were(case: str) -> None:
    file = GOLDEN / f"{case}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text_of(case))
    assert text_of(case) == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"


def test_a_path_is_one_token_whatever_is_in_it() -> None:
    argv, settings = line(*CASES["launch_odd_folder"])
    cell = f"{ODD}/results/smoke/a-cell"
    assert f"{cell}/config.json" in argv
    assert f"--output={cell}/logs/rank-%t.log" in argv
    assert argv[argv.index("python3") - 1] == f"{ODD}/my image.sif"
    assert settings["HOROSCALE_RENDEZVOUS"].startswith(f"{cell}/logs/rendezvous-")


def test_srun_would_replace_percent_signs() -> None:
    assert escaped(Path("/a%b/%t")) == "/a%%b/%%t"


def test_every_start_meets_elsewhere() -> None:
    """An address that an earlier start left behind must never be found."""
    (_, first) = line(*CASES["launch_gloo"])
    site, image, folder, resume = CASES["launch_gloo"]
    cell = Path(folder) / "c"
    task_allocation = [Allocation("7_5", "n1", n, 1.8e9, None) for n in (0, 1)]
    assert len({first["HOROSCALE_RENDEZVOUS"], *(
        launch(_task(site, cell), config(gpus=8), cell, n, one, resume)[1]["HOROSCALE_RENDEZVOUS"]
        for one in task_allocation for n in (1, 2)
    )}) == 5  # fmt: skip
    assert image


def _task(site: Site, cell: Path) -> JobTask:
    return JobTask(
        cells=(str(cell),), asked_at=datetime(2026, 1, 1, tzinfo=UTC), site=site, nodes=2,
        ranks_per_node=4, image="none", image_digest=None, root="/r", data="/d", store="/s",
        stall_s=1, minutes=1, block="b",
    )  # fmt: skip


def test_what_the_site_says_wins() -> None:
    _, settings = line(*CASES["launch_gpu"])
    assert settings["OMPI_MCA_pml"] == "ucx"
    assert settings["TMPDIR"] == "/local"


def test_mpi_settings_only_under_mpi() -> None:
    _, gloo = line(*CASES["launch_gloo"])
    assert not [name for name in gloo if name.startswith(("OMPI_", "PMIX_"))]
    assert "HOROVOD_CONTROLLER" not in gloo
    _, pmix = line(*CASES["launch_pmix"])
    assert pmix["HOROVOD_CONTROLLER"] == "mpi"
    assert "HOROSCALE_RENDEZVOUS" not in pmix


def test_a_bind_is_given_once() -> None:
    container = Container("/i.sif", "apptainer", "none", ("/a", "/b", "/a"), ())
    assert container_argv(container).count("/a") == 1


def test_the_world_is_asked_for_in_numbers() -> None:
    container = Container("none", "apptainer", "none", (), ())
    argv = step_argv(Site(ranks_per_node=2), NodeLayout(3, 2), container, ["true"], Path("/l"))
    assert {"--nodes=3", "--ntasks=6", "--ntasks-per-node=2", "--kill-on-bad-exit=1"} <= set(argv)


def test_ranks_of_one_process_are_one_task_with_all_their_cores_and_gpus() -> None:
    site = Site(ranks_per_node=4, cpus_per_rank=3, gpus="gpus-per-task", gpu_type="a100")
    container = Container("none", "apptainer", "none", (), ())
    argv = step_argv(site, NodeLayout(1, 4), container, ["true"], Path("/l"), together=4)
    for word in (
        "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpus-per-task=12",
        "--gpus-per-task=a100:4",
    ):  # fmt: skip
        assert word in argv


def test_a_mirrored_cell_is_one_task() -> None:
    allocation = Allocation("7_5", "n1", 3, 1_800_000_000.0, None, 100)
    task = JobTask(
        cells=("/r/cell",), asked_at=datetime(2026, 1, 1, tzinfo=UTC), site=Site(**PLAIN), nodes=1,
        ranks_per_node=4, image="none", image_digest=None, root="/h", data="/d", store="/d/p",
        stall_s=300, minutes=60, block="r-0/0",
    )  # fmt: skip
    for framework, tasks, cores in (("mirrored", 1, 12), ("multi_worker_mirrored", 4, 3)):
        cell = config(gpus=4, framework=framework)
        argv, _ = launch(task, cell, Path("/r/cell"), 1, allocation, False)
        assert f"--ntasks={tasks}" in argv and f"--cpus-per-task={cores}" in argv


def test_rank_base_drops_launchers_and_keeps_the_job() -> None:
    base = {"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_CONF": "/c", "LD_LIBRARY_PATH": "/l",
            "CUDA_VISIBLE_DEVICES": "0", "HOROVOD_FUSION_THRESHOLD": "1"}  # fmt: skip
    stray = {"HOROVOD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "1", "PMIX_RANK": "0", "PMI_RANK": "0",
             "PYTHONHOME": "/x", "SLURM_CPU_BIND": "q", "SBATCH_EXPORT": "NONE",
             "SUBMITIT_EXECUTOR": "slurm", "SINGULARITY_CLEANENV": "1"}  # fmt: skip
    assert rank_base(base | stray) == base
