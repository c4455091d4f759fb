"""Launch lines and settings of a cell on Slurm, word for word."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.needs import Need
from jobs.config.site import Site
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step import launch
from jobs.slurm.job.task import JobTask
from tests.builders import config

GOLDEN = Path(__file__).parent.parent / "golden"
IMAGE = "/images/cpu.sif"
ODD = '/scratch/o\'neil & "sons" $HOME'
PLAIN: dict[str, Any] = {"ranks_per_node": 4, "cpus_per_rank": 3, "signal_s": 100}
#: site, image
CASES: dict[str, tuple[Site, str]] = {
    "launch_pmix": (Site(**PLAIN), IMAGE),
    "launch_gloo": (Site(**PLAIN, mpi="gloo", interface="ib0"), IMAGE),
    "launch_gpu": (Site(**PLAIN, gpus="gpus-per-task", gpu_type="a100", gpu_support="nv",
                        interface="eth0", binds=("/data", "/opt/x:/opt/y:ro"), scratch="/local",
                        srun=("--cpu-bind=cores", "--overlap"), container_arguments=("--no-home",),
                        environment={"NCCL_DEBUG": "WARN", "OMPI_MCA_pml": "ucx"}),
                   "/images/gpu.sif"),
}  # fmt: skip


def line(
    site: Site, image: str = "none", folder: str = "/scratch/ada", resume: bool = False,
    *, gpus: int = 8, framework: str = "horovod", variables: Mapping[str, str] = {},
) -> tuple[list[str], dict[str, str]]:  # fmt: skip
    cell = Path(folder) / "results" / "smoke" / "a-cell"
    task = JobTask(
        cell=str(cell), asked_at=datetime(2026, 1, 1, tzinfo=UTC), site=site, nodes=gpus // 4,
        ranks_per_node=4, image=image, image_digest=None, root="/home/ada/horoscale", data="/data",
        store="/data/prepared", stall_s=300, minutes=60,
        needs=tuple(Need(what="a folder", path=path)
                    for path in (f"{folder}/results/smoke", "/data", "/data/prepared")),
    )  # fmt: skip
    allocation = Allocation("7_5", 3, 1_800_000_000.0, site)
    task = task.on_node(variables)
    return launch(task, config(gpus=gpus, framework=framework), cell, 2, allocation, resume)


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/venv/bin/python3")


@pytest.mark.parametrize("case", CASES)
def test_launch_lines_are_word_for_word_what_they_were(case: str) -> None:
    argv, settings = line(*CASES[case])
    text = "\n".join(["env", *(f"{name}={value}" for name, value in settings.items()), *argv, ""])
    file = GOLDEN / f"{case}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"


def test_what_a_site_without_containers_changes() -> None:
    words, settings = line(Site(**PLAIN), IMAGE)
    bare, own = line(Site(**PLAIN, mpi="pmix_v4"), "none")
    start, python = words.index("apptainer"), words.index("python3")
    words[words.index("--mpi=pmix")] = "--mpi=pmix_v4"
    assert bare == [*words[:start], "/opt/venv/bin/python3", *words[python + 1 :]]
    inside = {"OMPI_MCA_btl_vader_single_copy_mechanism", "OMPI_MCA_mca_base_param_files"}
    assert own == {key: text for key, text in settings.items() if key not in inside}


def test_what_a_resumed_cell_an_odd_folder_and_rocm_change() -> None:
    """And nothing else: words are never parsed again, so that blanks and quotes need no care."""
    words, settings = line(Site(**PLAIN), IMAGE)
    assert line(Site(**PLAIN), IMAGE, resume=True) == ([*words, "--resume"], settings)
    odd = line(Site(**PLAIN, mpi="gloo"), f"{ODD}/my image.sif", ODD)
    argv, settings = line(Site(**PLAIN, mpi="gloo"), "/scratch/ada/my image.sif")
    assert odd[0] == [word.replace("/scratch/ada", ODD) for word in argv]
    assert odd[1] == {key: text.replace("/scratch/ada", ODD) for key, text in settings.items()}
    rocm = Site(**PLAIN, gpus="gres", gpu_support="rocm", runtime="singularity")
    argv, settings = line(rocm, IMAGE)
    assert argv[argv.index("singularity") :][:3] == ["singularity", "exec", "--rocm"]
    assert not {"OMPI_MCA_pml", "OMPI_MCA_btl"} & settings.keys(), "GPUs may have better ones"
    argv[argv.index("singularity")] = "apptainer"
    assert [word for word in argv if word != "--rocm"] == words


@pytest.mark.parametrize(
    ("asked", "variables"),
    [
        ({"gpus": "gpus-per-task"}, {}),
        ({"sbatch": {"gpus-per-task": 1}}, {}),
        ({"sbatch": {"tres-per-task": "gres:gpu:1"}}, {}),
        ({"sbatch": {"ntasks-per-gpu": 1}}, {}),
        ({"srun": ("--gpus-per-task=1",)}, {}),
        ({"srun": ("--overlap", "--gpus-per-t", "1")}, {}),
        ({"srun": ("--tres-per-task", "gres/gpu=1")}, {}),
        ({"environment": {"SLURM_GPUS_PER_TASK": "1"}}, {}),
        ({}, {"SLURM_GPUS_PER_TASK": "a100:1"}),  # of a set-up line or a plug-in of sbatch
        ({}, {"SLURM_TRES_PER_TASK": "cpu=3,gres/gpu=1"}),
    ],
)
def test_ranks_see_all_gpus_of_their_node(asked: dict[str, Any], variables: dict[str, str]) -> None:
    """NCCL fails between ranks that see one GPU each: "invalid device ordinal"."""
    argv, _ = line(Site(**PLAIN, **asked), variables=variables)
    assert argv.count("--gpu-bind=none") == 1


@pytest.mark.parametrize(
    ("asked", "variables"),
    [
        ({"gpus": "gres"}, {}),
        ({"gpus": "gpus-per-node"}, {"SLURM_TRES_PER_TASK": "cpu=3"}),  # since Slurm 24.05
        ({"srun": ("--tres-per-task=cpu:3", "--gpus=8"), "sbatch": {"gpus-per-task": False}}, {}),
    ],
)
def test_other_requests_leave_the_binding_to_the_site(
    asked: dict[str, Any], variables: dict[str, str]
) -> None:
    argv, _ = line(Site(**PLAIN, **asked), variables=variables)
    assert "--gpu-bind=none" not in argv


def test_srun_would_replace_percent_signs() -> None:
    argv, _ = line(Site(**PLAIN), folder="/a%b")
    assert "--output=/a%%b/results/smoke/a-cell/logs/rank-%t.log" in argv


@pytest.mark.parametrize(
    ("framework", "tasks", "cores"), [("mirrored", 1, 12), ("multi_worker_mirrored", 4, 3)]
)
def test_ranks_of_one_process_are_one_task_with_all_their_cores_and_gpus(
    framework: str, tasks: int, cores: int
) -> None:
    site = Site(**PLAIN, gpus="gpus-per-task", gpu_type="a100")
    argv, _ = line(site, gpus=4, framework=framework)
    wanted = ["--nodes=1", f"--ntasks={tasks}", f"--ntasks-per-node={tasks}"]
    wanted += [f"--cpus-per-task={cores}", f"--gpus-per-task=a100:{4 // tasks}"]
    assert set(wanted) <= set(argv)
