"""The images that were really built here: what they say of themselves, hold and weigh.

How ranks train in them is tested in tests/jobs/slurm/test_container_faults.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import apptainer
import image
import pytest
import users
from build import plan

from tests.sweeps import ran

LIMIT_BYTES = {"cpu": 450_000_000, "gpu": 10**11}
pytestmark = pytest.mark.slurm
Apptainer = Callable[..., str]


@pytest.fixture(params=("cpu", "gpu"))
def built(request, sif: Path) -> Path:
    found = image.FOLDER / f"{request.param}.sif"
    if not found.is_file():
        pytest.skip(f"{found.name} is not built here: make image IMAGE={request.param}")
    return found


@pytest.fixture
def runtime() -> Apptainer:
    """Run apptainer as an unprivileged user, as images are used; returns what it printed."""
    program = apptainer.find()
    if program is None:
        pytest.skip("neither apptainer nor singularity is on PATH")

    def run(*words: str) -> str:
        argv = [str(program), *words]
        if os.geteuid() == 0:
            argv = users.as_user(argv, users.ensure_user())
        done = ran(argv, timeout=300, cwd="/")
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout + done.stderr

    return run


@pytest.fixture
def inside(built: Path, runtime: Apptainer) -> Apptainer:
    """Run a command in the image."""
    return lambda *command: runtime("exec", "--no-mount", "tmp", str(built), *command)


def test_it_weighs_what_it_may(built: Path) -> None:
    assert built.stat().st_size <= LIMIT_BYTES[built.stem]


def test_its_labels_say_what_it_was_made_from(built: Path, runtime: Apptainer) -> None:
    inspected = json.loads(runtime("inspect", "--json", str(built)))
    labels = inspected["data"]["attributes"]["labels"]
    revision = labels["org.opencontainers.image.revision"]
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|unknown", revision)
    parts = plan.read_parts(built.stem, os.uname().machine)
    assert labels["horoscale.lock"] == plan.lock_hash(parts)
    versions = {"tensorflow": "2.15.1", "horovod": "0.28.1", "python": "3.11",
                "openmpi": "4.1", "pmix": "4.2"}  # fmt: skip
    for name, version in versions.items():
        assert labels[f"horoscale.version.{name}"].startswith(version)


def test_its_own_test_passes(built: Path, runtime: Apptainer) -> None:
    output = runtime("test", str(built))
    assert "TensorFlow 2.15.1 Horovod 0.28.1 with" in output
    assert "[X] NCCL" in output or built.stem == "cpu"


def test_its_horovod_does_not_wait_for_the_kernels_ticks(inside: Apptainer) -> None:
    assert "yield" in inside("python3", "-c", "import horovod; print(horovod.__patches__)")


def test_every_symbol_of_horovod_resolves(built: Path, inside: Apptainer) -> None:
    """Without a GPU, too: TensorFlow brings CUDA's entry points and opens the driver when used."""
    script = "ldd -r /usr/local/lib/python3.11/dist-packages/horovod/tensorflow/*.so"
    output = inside("sh", "-c", script)
    assert "libnccl.so.2 => /usr/local/lib" in output or built.stem == "cpu"
    assert "undefined symbol" not in output


def test_it_holds_no_compiler_no_pip_and_no_build_s_traces(inside: Apptainer) -> None:
    script = (
        "for p in gcc g++ cc nvcc pip pip3 make cmake; do command -v $p; done; "
        "ls -A /mnt /etc/apt/apt.conf.d | grep -i proxy; cat /etc/apt/sources.list; true"
    )
    output = inside("sh", "-c", script)
    assert [line for line in output.splitlines() if line.startswith("/")] == []
    assert "deb " not in output


def test_the_home_s_own_packages_stay_out(inside: Apptainer) -> None:
    script = "import site, sys; print(site.ENABLE_USER_SITE, [p for p in sys.path if 'home' in p])"
    assert "False []" in inside("python3", "-c", script)
