"""The practice cluster for tests: reused where it runs, else started, and only then taken down."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
for folder in (str(ROOT), str(ROOT / "containers")):
    if folder not in sys.path:
        sys.path.append(folder)

import users  # noqa: E402  (from containers, which is no package)
from locks import SetupError  # noqa: E402
from runner import only_one  # noqa: E402

from containers.practice import cluster as real  # noqa: E402
from containers.practice import daemons, needs, spaces  # noqa: E402
from containers.practice.command import prepare  # noqa: E402
from containers.practice.network import nodes_named  # noqa: E402
from containers.practice.place import Place, place_of  # noqa: E402

USER = users.PRACTICE_USER
IMAGE = ROOT / "containers" / "images" / "cpu.sif"


@dataclass(frozen=True)
class Practice:
    """A running cluster, and a user's and a saboteur's hands on it."""

    place: Place

    def environment(self) -> dict[str, str]:
        return daemons.slurm_environment(self.place)

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command as the unprivileged user, Slurm meaning this cluster."""
        told = [f"{name}={value}" for name, value in self.environment().items()]
        return users.as_user(["env", *told, *command], USER)

    def run(
        self, command: Sequence[str], *, cwd: Path | str = "/", timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the unprivileged user on the login node (this machine)."""
        return subprocess.run(
            self.argv(command), cwd=cwd, capture_output=True, text=True, timeout=timeout_s,
            check=False, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def out(self, *command: str, timeout_s: float = 120) -> str:
        done = self.run(command, timeout_s=timeout_s)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def sbatch(self, folder: Path, script: str, *options: str) -> str:
        """Submit a script whose output goes to FOLDER/<job>.out; returns the job's id."""
        file = folder / f"script-{time.monotonic_ns()}.sh"
        file.write_text(f"#!/bin/bash\n{script}\n")
        told = ["--parsable", f"--output={folder}/%j.out", "--open-mode=append", *options]
        return self.out("sbatch", *told, str(file)).strip()

    def job(self, number: str) -> dict[str, str]:
        """What the controller knows of a job."""
        text = self.out("scontrol", "--oneliner", "show", "job", number)
        return dict(field.split("=", 1) for field in text.split() if "=" in field)

    def wait_for(self, number: str, *states: str, timeout_s: float = 900) -> dict[str, str]:
        """Wait until a job is in one of these states."""
        deadline = time.monotonic() + timeout_s
        while (job := self.job(number))["JobState"] not in states:
            assert time.monotonic() < deadline, f"job {number} is {job['JobState']}, not {states}"
            time.sleep(0.3)
        return job

    def inside(self, space: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as root inside a node (or the controller)."""
        argv = spaces.enter_argv(spaces.keeper(self.place, space), command)
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)

    def stop_node(self, node: str, *, power: bool = False) -> None:
        real.stop_node(self.place, node, power=power)

    def start_node(self, node: str) -> None:
        real.start_node(self.place, node)

    def limit(self, node: str, rate: str, **how: str) -> None:
        """Slow links (containers.practice.limits); ``node`` may be ``all``."""
        real.limit(self.place, nodes_named(node), rate, **how)

    def stop_controller(self) -> None:
        real.stop_controller(self.place)

    def start_controller(self) -> None:
        real.start_controller(self.place)

    def heal(self) -> None:
        """Start again what was stopped, end all jobs of the test user, and wait for idle nodes."""
        real.start_controller(self.place)
        for node in real.NODES:
            real.start_node(self.place, node)
        self.run(["scancel", f"--user={USER}"])
        daemons.wait_until_idle(self.place)


def skip_where_it_cannot_run() -> None:
    if found := needs.troubles() + needs.missing_packages():
        pytest.skip(f"no practice cluster on this machine: {'; '.join(found)}")


def started(place: Place) -> Iterator[Practice]:
    """A cluster in this place: the one that runs, or our own, which ends with the tests."""
    skip_where_it_cannot_run()
    with only_one(place.lock):
        health = real.health(place)
        ours = not health.exists
        if ours:
            prepare()
            real.up(place)
        elif not health.good:
            pytest.fail(f"{place.folder} holds half a cluster ({health.missing}): make cluster")
    try:
        yield Practice(place)
    finally:
        if ours:
            with only_one(place.lock):
                real.down(place)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Practice]:
    """The cluster that `make cluster` starts (or HOROSCALE_PRACTICE names)."""
    try:
        place = place_of(os.environ)
    except SetupError as error:
        pytest.fail(str(error))
    yield from started(place)


@pytest.fixture(scope="session")
def sif() -> Path:
    """The image of `make image`. Tests that need it come last, and wait for a build that runs."""
    with only_one(IMAGE.with_name(".lock")):
        if not IMAGE.exists() or shutil.which("apptainer") is None:
            pytest.skip(f"no {IMAGE} or no apptainer on PATH: make image")
    return IMAGE


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users and nodes can enter: tmp_path is closed, the nodes' /tmp private."""
    folder = Path(tempfile.mkdtemp(prefix="horoscale-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def practice_user() -> str | None:
    """The test user, whom root makes where it is missing; tests that need it are slow ones."""
    return users.ensure_user() if os.geteuid() == 0 else None


@pytest.fixture
def shared_folder(open_folder: Path, practice_user: str | None) -> Path:
    """The same, of the test user."""
    if practice_user:
        shutil.chown(open_folder, practice_user, practice_user)
    return open_folder
