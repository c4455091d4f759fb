"""The images that were really built here: what they say of themselves, hold, weigh and compute."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "containers" / "images"
LIMIT_BYTES = {"cpu": 450_000_000}
TWO_RANKS = """
import horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
assert hvd.size() == 2 and hvd.mpi_enabled(), (hvd.size(), hvd.mpi_enabled())
total = float(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum))
print(f"sum {total}\\n", end="")  # in one piece: both ranks write to one pipe
"""
pytestmark = pytest.mark.slurm


def runtime() -> str:
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        pytest.skip("neither apptainer nor singularity is on PATH")
    return program


@pytest.fixture
def as_builder(monkeypatch):
    """Runs a command as an unprivileged user, as images are used; returns what it printed."""
    monkeypatch.syspath_prepend(str(ROOT / "containers"))
    import unprivileged

    def run(*command: str, timeout_s: float = 300) -> str:
        argv = list(command)
        if os.geteuid() == 0:
            argv = unprivileged.as_user(argv, unprivileged.ensure_user())
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout_s, cwd="/", check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout + done.stderr

    return run


@pytest.fixture(params=("cpu", "gpu"))
def built(request) -> Path:
    image = FOLDER / f"{request.param}.sif"
    if not image.is_file():
        pytest.skip(f"{image.name} is not built here: make image IMAGE={request.param}")
    return image


@pytest.fixture
def cpu() -> Path:
    image = FOLDER / "cpu.sif"
    if not image.is_file():
        pytest.skip("cpu.sif is not built here: make image")
    return image


def test_it_weighs_what_it_may(built) -> None:
    assert built.stat().st_size <= LIMIT_BYTES.get(built.stem, 10**11)


def test_the_checksum_beside_it_is_right(built) -> None:
    check = ["sha256sum", "--check", f"{built.name}.sha256"]
    done = subprocess.run(check, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.stdout == f"{built.name}: OK\n", done.stderr


def test_its_labels_say_what_it_was_made_from(built, as_builder, monkeypatch) -> None:
    import image_plan

    parts = image_plan.read_parts(built.stem, os.uname().machine)
    told = json.loads(as_builder(runtime(), "inspect", "--json", str(built)))
    labels = told["data"]["attributes"]["labels"]
    assert re.fullmatch(
        r"[0-9a-f]{40}(-dirty)?|unknown", labels["org.opencontainers.image.revision"]
    )
    assert labels["horoscale.lock"] == image_plan.lock_hash(parts)
    for name, version in {"tensorflow": "2.15.1", "horovod": "0.28.1", "python": "3.11"}.items():
        assert labels[f"horoscale.version.{name}"].startswith(version)
    assert labels["horoscale.version.openmpi"].startswith("4.1")
    assert labels["horoscale.version.pmix"].startswith("4.2")


def test_its_own_test_passes(built, as_builder) -> None:
    said = as_builder(runtime(), "test", str(built))
    assert "TensorFlow 2.15.1 Horovod 0.28.1 with" in said
    if built.stem == "gpu":
        assert "[X] NCCL" in said


def test_its_horovod_does_not_wait_for_the_kernels_ticks(built, as_builder) -> None:
    script = "import horovod; print(horovod.__patches__)"
    assert "yield" in as_builder(runtime(), "exec", str(built), "python3", "-c", script)


def test_every_library_and_symbol_of_horovod_resolves(built, as_builder) -> None:
    """Without a GPU, too: TensorFlow brings CUDA's entry points and opens the driver when used."""
    script = "ldd -r /usr/local/lib/python3.11/dist-packages/horovod/tensorflow/*.so"
    found = as_builder(runtime(), "exec", str(built), "sh", "-c", script)
    assert "libmpi.so" in found
    assert "libnccl.so.2 => /usr/local/lib" in found or built.stem == "cpu"
    assert "=> not found" not in found and "undefined symbol" not in found


def test_it_holds_no_compiler_no_pip_and_no_build_s_traces(built, as_builder) -> None:
    script = (
        "for p in gcc g++ cc nvcc pip pip3 make cmake; do command -v $p; done; "
        "ls -A /mnt /etc/apt/apt.conf.d | grep -i proxy; cat /etc/apt/sources.list; true"
    )
    found = as_builder(runtime(), "exec", "--no-mount", "tmp", str(built), "sh", "-c", script)
    assert [line for line in found.splitlines() if line.startswith("/")] == []
    assert "deb " not in found


def test_it_runs_the_checkout_s_code(cpu, as_builder) -> None:
    said = as_builder(
        runtime(), "exec", "--bind", str(ROOT), str(cpu),
        "env", f"PYTHONPATH={ROOT}", "python3", "-m", "train", "--help",
    )  # fmt: skip
    assert "usage" in said


def test_two_ranks_meet_by_mpi_inside_it(cpu, as_builder) -> None:
    said = as_builder(
        runtime(), "exec", str(cpu), "mpirun", "-np", "2", "--oversubscribe",
        "--mca", "pml", "ob1", "--mca", "btl", "^openib",
        "--mca", "btl_vader_single_copy_mechanism", "none", "python3", "-c", TWO_RANKS,
    )  # fmt: skip
    assert said.count("sum 3.0") == 2


def test_the_home_s_own_packages_stay_out(cpu, as_builder) -> None:
    script = "import site, sys; print(site.ENABLE_USER_SITE, [p for p in sys.path if 'home' in p])"
    assert "False []" in as_builder(runtime(), "exec", str(cpu), "python3", "-c", script)
