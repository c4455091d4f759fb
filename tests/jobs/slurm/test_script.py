"""The batch script, word for word, and the copy of the code that it runs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.container import check_path
from jobs.config.site import NodeLayout, Site, load_site
from jobs.slurm.client.squeue import JobState
from jobs.slurm.script import CODE_NAME, SETUP_FAILED, SETUP_MARK, freeze, script_text
from jobs.slurm.watch.endings import status_of
from tests.sweeps import ROOT as CHECKOUT
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
    array_parallel=8,
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


CASES: dict[str, tuple[Site, tuple[int, int], int, int, Path, dict[str, Any]]] = {
    "dgx_array": (load_site("dgx").site, (2, 8), 20, 240, FOLDER, {}),
    "practice": (PRACTICE, (4, 2), 5, 60, FOLDER,
                 {"dependency": "afterok:12", "comment": "horoscale:r1:0"}),
    "gpus_per_task": (PER_TASK, (2, 3), 1, 60, FOLDER, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_scripts_are_word_for_word_what_they_were(case, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/venv/bin/python3")
    site, layout, elements, minutes, folder, more = CASES[case]
    text = script_text(
        site, NodeLayout(*layout), folder, minutes=minutes, elements=elements, parallel=8,
        **{"name": "horoscale-smoke-1a2b3c4d", "root": ROOT, **more},
    )  # fmt: skip
    file = GOLDEN / f"{case}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"


#: Stand-ins of module systems, and what they print when a module is not there.
LMOD = """module() {
    local name=$2
    case $name in
        good*) ;;
        latest | newest) name=real ;; # one module
        behind) [[ $LOADEDMODULES == *good* ]] && name=other || name= ;;
        *) name= ;;
    esac
    [ "$name" ] || { echo "Lmod: unknown: $2" >&2; return 1; }
    [[ ":$LOADEDMODULES:" == *":$name/"* ]] || LOADEDMODULES="$LOADEDMODULES:$name/1.0"
}"""
MODULES_3 = LMOD.replace("return 1", "return 0")  # seen with 3.2.10


def run_batch(folder: Path, site: Site, system: str) -> subprocess.CompletedProcess[str]:
    """A job's batch script with this module system, and echo for a Python."""
    (folder / "tasks.json").touch()
    text = script_text(
        site, NodeLayout(1, 1), folder, minutes=9, elements=1, parallel=1, name="n", root=folder
    )
    script = f"{system}\n" + text.replace(
        f"exec {shlex.quote(sys.executable)}", "pwd; exec echo began"
    )
    (folder / "script").write_text(script)
    told = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "n1"}
    return subprocess.run(["bash", str(folder / "script")], env=told, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


@pytest.mark.parametrize("system", [LMOD, MODULES_3], ids=["lmod", "modules 3"])
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"modules": ("good", "it's bad")}, "module load 'it'\"'\"'s bad'"),
        ({"modules": ("good/1.0", "goo", "bad")}, "module load goo"),
        *(({"setup": ("true", line, "true")}, line) for line in (
            ". /nowhere/env.sh", "-x", "cd /nowhere && true", "exit 0",
            "set -e; false", ": ${NOWHERE:?is not set}", "set -u; echo $NOWHERE", "if true; then",
            'echo "', "false  # seen", "false;", "trap 'exit 0' EXIT; false", "line=of; false",
            "source /nowhere; export A=1", "A=$(nosuch); export A", "set -o pipefail; false | true",
            "trap - ERR; false",
        )),
    ],
)  # fmt: skip
def test_a_line_of_the_site_that_fails_ends_the_job(
    tmp_path: Path, system: str, asked: dict[str, Any], line: str
) -> None:
    """Seen: ranks ran without it, or ended with `execve(): apptainer: No such file`."""
    done = run_batch(tmp_path, Site(ranks_per_node=1, **asked), system)
    assert done.returncode == SETUP_FAILED and "began" not in done.stdout, done.stdout
    assert f"{SETUP_MARK}{line} failed on n1 (exit code " in done.stdout
    log = tmp_path / "log"
    log.write_text(done.stdout)
    ending = JobState("7", "FAILED", nodes="n[1-2]", code=SETUP_FAILED)
    status, why = status_of("7", ending, log)
    assert status == "failed" and why.startswith(f"job 7 (on n[1-2]): {line} failed on n1 (exit ")
    assert "site file" in why and "|| true" in why
    if "it's" in line:
        assert ": Lmod: unknown: it's bad. Correct" in why


@pytest.mark.parametrize("system", [LMOD, MODULES_3], ids=["lmod", "modules 3"])
def test_lines_of_the_site_that_are_well(tmp_path: Path, system: str) -> None:
    """They change the supervisor's own shell."""
    (tmp_path / "env.sh").write_text("false\nC=3\n")
    lines = (f". {tmp_path}/env.sh", "export A=1;", "declare -x B=2  # both", "false || true",
             "sleep 0 &", "f() { false; true; }; f", "set -eu", "", "# a comment",
             "if [ -d /nowhere ]; then exit 3; fi", "echo $A $B", "cd /")  # fmt: skip
    site = Site(ranks_per_node=1, modules=("good", "good/1"), setup=lines)
    done = run_batch(tmp_path, site, system)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[:2] == ["1 2", str(tmp_path)], "the frozen code is not run"
    assert "began -u -m jobs.slurm.job" in done.stdout


@pytest.mark.parametrize("system", [LMOD, MODULES_3], ids=["lmod", "modules 3"])
@pytest.mark.parametrize(
    "modules",
    [("latest",), ("latest", "newest"), ("good", "behind")],
    ids=["an alias", "of a module that is loaded", "of a module that needs another"],
)
def test_a_module_may_have_another_name_than_the_one_asked_for(tmp_path, system, modules) -> None:
    """Seen: `module load gcc/latest` loads gcc/12.2.0, and no other name is listed."""
    done = run_batch(tmp_path, Site(ranks_per_node=1, modules=modules), system)
    assert done.returncode == 0 and "began" in done.stdout, done.stdout


def test_a_site_without_gpus_asks_for_none() -> None:
    site, layout = load_site("cpu").site, NodeLayout(1, 2)
    text = script_text(site, layout, FOLDER, minutes=9, elements=3, parallel=1, name="n", root=ROOT)
    assert "gpu" not in text and "gres" not in text and "--exclusive" not in text


def test_an_option_that_is_not_given_leaves_the_sites() -> None:
    site = Site(ranks_per_node=1, sbatch={"nodelist": "n1"})
    shared = {"minutes": 9, "elements": 1, "parallel": 1, "name": "n", "root": ROOT}
    text = script_text(site, NodeLayout(1, 1), FOLDER, **shared, nodelist=None)
    assert "#SBATCH --nodelist=n1\n" in text


def test_paths_of_any_form_arrive_whole() -> None:
    """The quoting undone as a shell does it."""
    root = Path('/it\'s a "root"')
    odd, plain = (
        script_text(
            PRACTICE,
            NodeLayout(1, 1),
            folder,
            minutes=60,
            elements=2,
            parallel=8,
            name="n",
            root=code,
        )
        for folder, code in ((HOSTILE, root), (FOLDER, ROOT))
    )
    wanted = plain.replace(str(FOLDER), "FOLDER").replace(str(ROOT), "ROOT")
    assert [shlex.split(line) for line in odd.splitlines()] == [
        [word.replace("FOLDER", str(HOSTILE)).replace("ROOT", str(root)) for word in words]
        for words in map(shlex.split, wanted.splitlines())
    ]


@pytest.mark.parametrize("sign", ["\\", "%", ",", ":", "^", "\n", "\t", "\x7f", "\u2028"])
def test_signs_that_a_path_must_not_have(sign: str) -> None:
    with pytest.raises(ConfigError, match=r"^the results folder has .* in its path"):
        check_path(Path(f"/scratch/a{sign}b"), "the results folder")
    check_path(HOSTILE, "the results folder")
    check_path(Path('/a b/it\'s/"x"/(1)/*?[]{}~!=+@|<>'), "the results folder")


def test_a_waiting_job_runs_the_code_of_its_submission(tmp_path: Path) -> None:
    """Seen: a git pull while elements waited mixed two versions in one sweep. Equal code is copied
    once; a copy cannot be changed by accident, and compiles nothing."""
    checkout = tmp_path / "checkout"
    for part in ("jobs", "train"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / part, checkout / part, ignore=skip)
    frozen = freeze(checkout, tmp_path)
    assert freeze(checkout, tmp_path) == frozen
    for file in checkout.rglob("*.py"):
        file.write_text("raise SystemExit('the checkout moved on')\n")
    other = freeze(checkout, tmp_path)
    assert sorted((tmp_path / CODE_NAME).iterdir()) == sorted([frozen, other])
    for file in frozen.rglob("*.py"):
        assert file.stat().st_mode & 0o222 == 0
        assert list(file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))
    code = (
        "import jobs.slurm.job.__main__ as j, train.record.run as r; print(r.__file__, j.__file__)"
    )
    environment = {"PYTHONPATH": str(frozen), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], cwd=frozen, env=environment, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(name.startswith(str(frozen)) for name in done.stdout.split())
