"""The batch script as text, word for word."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.container import check_path
from jobs.config.site import Site, load_site
from jobs.slurm.arrays import Array, ArrayTask, NodeLayout
from jobs.slurm.script import job_name, script_text
from train.errors import ConfigError

GOLDEN = Path(__file__).with_name("golden")
ROOT = Path("/home/ada/horoscale")
FOLDER = Path("/scratch/ada/results/smoke/.submitit/run")
HOSTILE = Path('/scratch/o\'neil & "sons"/$HOME `x` #1; é/.submitit/run')
PRACTICE = Site(
    ranks_per_node=2,
    partition="practice",
    gpus="gres",
    gpu_type="pretend",
    mem_per_rank_gb=0.75,
    time_min=10,
    array_parallel=4,
    requeue=False,
    signal_s=30,
    wckey="study",
    reservation="box",
    modules=("apptainer/1.3", "it's"),
    setup=("ulimit -l unlimited",),
    sbatch={"mail-type": "FAIL", "nice": 100, "spread-job": True, "oversubscribe": False},
    slurm_conf="/run/practice/slurm.conf",
)
PER_TASK = Site(ranks_per_node=4, gpus="gpus-per-task", gpu_type="a100", account="a", qos="q",
                constraint="ib&a100")  # fmt: skip


def array(nodes: int, ranks: int, units: int = 1, minutes: int = 60, parallel: int = 8) -> Array:
    shape = NodeLayout(nodes, ranks)
    cells = tuple(ArrayTask((f"cell-{i}",), shape, minutes) for i in range(units))
    return Array(shape, cells, minutes, min(parallel, units))


CASES: dict[str, tuple[Site, Array, Path, dict[str, Any]]] = {
    "dgx_array": (load_site("dgx").site, array(2, 8, units=20, minutes=240), FOLDER, {}),
    "dgx_one": (load_site("dgx").site, array(1, 4, minutes=240), FOLDER, {}),
    "cpu_array": (load_site("cpu").site, array(1, 2, units=3, minutes=120), FOLDER, {}),
    "practice": (PRACTICE, array(4, 2, units=5), FOLDER,
                 {"dependency": "afterok:12", "comment": "horoscale:r1:0"}),
    "hostile_folder": (PRACTICE, array(1, 1, units=2), HOSTILE, {"root": Path("/it's a \"root\"")}),
    "gpus_per_task": (PER_TASK, array(2, 3), FOLDER, {}),
}  # fmt: skip


def text_of(case: str) -> str:
    site, jobs, folder, more = CASES[case]
    settings = {"name": "horoscale-smoke-1a2b3c4d", "root": ROOT, **more}
    return script_text(site, jobs, folder, python="/opt/venv/bin/python3", **settings)


@pytest.mark.parametrize("case", CASES)
def test_scripts_are_word_for_word_what_they_were(case: str) -> None:
    file = GOLDEN / f"{case}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text_of(case))
    assert text_of(case) == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"


def options(text: str) -> dict[str, str | None]:
    lines = [shlex.split(line)[1] for line in text.splitlines() if line.startswith("#SBATCH ")]
    pairs = [line.removeprefix("--").partition("=") for line in lines]
    assert len({key for key, _, _ in pairs}) == len(pairs), "an option is given twice"
    return {key: value if sign else None for key, sign, value in pairs}


@pytest.mark.parametrize("case", CASES)
def test_options_and_shell_mean_what_was_asked(case: str) -> None:
    """The quoting undone as a shell does it: every value arrives whole."""
    _, jobs, folder, _ = CASES[case]
    found = options(text_of(case))
    assert found["output"] == str(
        folder / ("%A_%a_0_log.out" if "array" in found else "%j_0_log.out")
    )
    assert found["nodes"] == str(jobs.shape.nodes)
    assert found["ntasks-per-node"] == str(jobs.shape.ranks_per_node)
    last = text_of(case).rstrip().splitlines()[-1]
    assert shlex.split(last)[:2] == ["exec", "/opt/venv/bin/python3"]
    assert shlex.split(last)[-3:] == ["-m", "jobs.slurm.job", str(folder / "tasks.json")]


def test_what_is_not_set_is_not_asked_for() -> None:
    text = script_text(Site(ranks_per_node=1), array(1, 1), FOLDER, name="n", root=ROOT)
    assert set(options(text)) == {
        "chdir", "cpus-per-task", "job-name", "nodes", "ntasks-per-node", "open-mode", "output",
        "requeue", "signal", "time",
    }  # fmt: skip


def test_the_signal_goes_to_the_supervisor_alone() -> None:
    found = options(text_of("practice"))
    assert found["signal"] == "B:USR2@30"
    assert "srun" not in text_of("practice")


def test_names_of_jobs_tell_sweep_folders_apart(tmp_path: Path) -> None:
    folder = tmp_path / "smoke"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder)
    name = job_name("smoke", folder)
    assert name == job_name("smoke", link)
    assert name.startswith("horoscale-smoke-")
    assert len(name) == len("horoscale-smoke-") + 8
    assert name != job_name("smoke", tmp_path / "other" / "smoke")
    assert job_name("a", Path("/results/a")) == "horoscale-a-17554ef4"


@pytest.mark.parametrize("sign", ["\\", "%", ",", ":", "^", "\n", "\t", "\x7f", "\u2028"])
def test_signs_that_a_path_must_not_have(sign: str) -> None:
    with pytest.raises(ConfigError, match=r"^the results folder has .* in its path"):
        check_path(Path(f"/scratch/a{sign}b"), "the results folder")


@pytest.mark.parametrize("path", [HOSTILE, ROOT, Path('/a b/it\'s/"x"/(1)/*?[]{}~!=+@|<>')])
def test_paths_that_are_fine(path: Path) -> None:
    check_path(path, "the results folder")
