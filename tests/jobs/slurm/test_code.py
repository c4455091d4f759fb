"""The code of a submission: what waits runs it, whatever becomes of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import submitit

from jobs.slurm.job.supervisor import run_unit
from jobs.slurm.script import CODE_NAME, freeze
from tests.jobs.slurm.fakes import Job, cells, fake_slurm, script_srun, unit
from tests.sweeps import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for part in ("jobs", "train"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / part, ignore=skip)
    return folder


def test_equal_code_is_copied_once_and_other_code_beside_it(checkout: Path, tmp_path: Path) -> None:
    first = freeze(checkout, tmp_path)
    assert freeze(checkout, tmp_path) == first
    (checkout / "train" / "errors.py").open("a").write("# another version\n")
    second = freeze(checkout, tmp_path)
    assert second != first
    assert "another version" not in (first / "train" / "errors.py").read_text()
    assert sorted(path.name for path in (tmp_path / CODE_NAME).iterdir()) == sorted(
        [first.name, second.name]
    )


def test_a_copy_cannot_be_changed_by_accident_and_compiles_nothing(
    checkout: Path, tmp_path: Path
) -> None:
    frozen = freeze(checkout, tmp_path)
    files = list(frozen.rglob("*.py"))
    assert all(file.stat().st_mode & 0o222 == 0 for file in files)
    assert all(list(file.parent.glob(f"__pycache__/{file.stem}.*.pyc")) for file in files)


def test_a_waiting_job_runs_the_code_of_its_submission(checkout: Path, tmp_path: Path) -> None:
    """Seen: a git pull while elements waited mixed two versions in one sweep."""
    frozen = freeze(checkout, tmp_path)
    for file in checkout.rglob("*.py"):
        file.write_text("raise SystemExit('the checkout moved on')\n")
    code = (
        "import jobs.slurm.job.__main__ as j, train.record.run as r; print(r.__file__, j.__file__)"
    )
    environment = {"PYTHONPATH": str(frozen), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], cwd=frozen, env=environment, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(name.startswith(str(frozen)) for name in done.stdout.split())


def test_the_record_has_the_commit_of_the_submission(tmp_path: Path) -> None:
    """Ranks are told it: a copy knows no commit, and the checkout around it may have another."""
    fake = fake_slurm(tmp_path / "bin")
    script_srun(
        fake, "(CELL / 'commit').write_text(os.environ['HOROSCALE_GIT_COMMIT']); good()", cells(1)
    )
    task = unit(tmp_path, cells(1), git_commit="0123456789", git_dirty=False, root=str(tmp_path))
    Job(fake, task).run()
    assert (Path(task.cells[0]) / "commit").read_text() == "0123456789"
    json.loads(task.model_dump_json())


def test_a_pickle_that_an_earlier_version_left_in_the_queue_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names run_unit, and holds a task with the keys of then."""
    fake = fake_slurm(tmp_path / "bin")
    fake.put("sbatch", "echo Submitted batch job 101")
    script_srun(fake, "good()", cells(1))
    task = unit(tmp_path, cells(1)).model_dump(mode="json")
    del task["site"]["poll_s"]
    monkeypatch.setenv("PATH", fake.path)
    executor = submitit.SlurmExecutor(folder=tmp_path / "old")
    executor.update_parameters(use_srun=False)
    executor.submit(run_unit, task)
    told = {"SLURM_JOB_ID": "101", "SUBMITIT_EXECUTOR": "slurm", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "submitit.core._submit", str(tmp_path / "old")], check=False,
        env={**os.environ, **told}, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert (Path(task["cells"][0]) / "record.json").exists(), done.stdout + done.stderr
    assert done.returncode == 0
