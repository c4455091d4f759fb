"""Faults, for real, on the practice cluster: what the record says, and that nothing is lost.

Those that end with a requeue are in test_array_faults.py.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from containers.practice.place import NODES
from tests.jobs.slurm.sweeping import LONG, Sweeping, statuses

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]


def test_a_killed_rank(sweeping: Sweeping) -> None:
    fault = sweeping.disturbed("rank killed (-9) mid-epoch")
    node = sweeping.signal_rank(1, "KILL")
    error = fault.ends(1, "failed").error
    assert error.rank == 1
    assert "SIGKILL" in error.what
    assert node in error.where
    assert statuses(sweeping.completes_again()) == ["failed", "completed"]


def test_a_hanging_rank(sweeping: Sweeping) -> None:
    sweeping.sweep = {**LONG, "epochs": 2000}
    # longer than the first step, traced, takes
    fault = sweeping.disturbed("rank hangs (stall limit 60 s)", "--stall-s", "60")
    sweeping.signal_rank(1, "STOP")
    assert fault.ends(1, "failed").error.what.startswith("a hang: rank 1")


def test_a_suspended_job_goes_on(sweeping: Sweeping) -> None:
    """Supervisor and ranks, for longer than either takes for a hang."""
    name = "job suspended for 80 s, then resumed (stall limit 60 s)"
    fault = sweeping.disturbed(name, "--stall-s", "60", epochs=2)
    conf = f"SLURM_CONF={sweeping.practice.place.slurm_conf}"
    for word, wait_s in (("suspend", 80), ("resume", 0)):
        asked = ["env", conf, "scontrol", word, sweeping.job()]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        time.sleep(wait_s)
    record = fault.ends(0, "completed")
    assert len(record.attempts) == 1
    # a slurmd stops its ranks some seconds after the word, and a busy machine looks suspended, too
    longest = max(record.epochs, key=lambda epoch: epoch.suspended_s)
    assert 65 < longest.suspended_s < 150 and longest.train_s < 65


def test_cancel(sweeping: Sweeping) -> None:
    """By make, which calls scancel."""
    sweeping.sweep = {**LONG, "epochs": 2000}
    fault = sweeping.disturbed("make cancel")
    assert "1 jobs were told to end" in sweeping.succeeds(sweeping.start(command="cancel"))
    what = fault.ends(1, "cancelled").error.what
    assert "scancel" in what or "got SIGTERM" in what  # where Slurm answers late
    logs = sweeping.start("--cell", "naive", command="logs")
    assert what in sweeping.succeeds(logs)


def test_a_node_that_loses_power(sweeping: Sweeping) -> None:
    fault = sweeping.disturbed("node of rank 1 lost power; the job goes on elsewhere by itself")
    node = sweeping.node_of(1)
    sweeping.practice.stop_node(node, power=True)
    record = fault.ends(0, "completed")
    # a requeued job may be given the node once more before Slurm knows that it is dead
    assert set(statuses(record)[:-1]) == {"lost"}
    assert record.attempts[-1].resumed_from_epoch >= 3
    assert node not in record.world.hostnames


def test_slurmd_stopped_under_a_running_job(sweeping: Sweeping) -> None:
    """Only the daemon ends: ranks go on, until Slurm takes the node for dead and requeues."""
    fault = sweeping.disturbed("slurmd stopped under a running job", epochs=2)
    sweeping.practice.stop_node(sweeping.node_of(1))
    fault.ends(0, "completed")


def test_a_killed_supervisor(sweeping: Sweeping) -> None:
    fault = sweeping.disturbed("supervisor killed (-9)")
    kill = ("pkill", "-KILL", "-f", "jobs.slurm.[j]ob ")
    assert sweeping.practice.inside(sweeping.node_of(0), *kill).returncode == 0
    assert f"job {sweeping.job()}" in fault.ends(1, "lost").error.what
    assert sweeping.completes_again().attempts[-1].resumed_from_epoch >= 3


def test_a_job_that_slurm_ends_at_its_time_limit(sweeping: Sweeping) -> None:
    sweeping.sweep = {**LONG, "epochs": 60}  # what is left must fit into a minute
    sweeping.write(time_min=3, signal_s=5)
    fault = sweeping.disturbed("time limit reached in the middle of an epoch")
    sweeping.signal_rank(1, "STOP")  # its watchdog would end it after 300 s only
    fault.ends(1, "timeout")
    assert sweeping.completes_again().attempts[-1].resumed_from_epoch >= 3


def test_too_little_memory_is_named(sweeping: Sweeping) -> None:
    sweeping.write(mem_per_rank_gb=0.25)
    error = sweeping.disturbed("out of memory (0.25 GB per rank)", epochs=0).ends(1, "failed").error
    assert "memory" in error.what, sweeping.said()
    assert "mem_per_rank_gb" in error.what_to_do


def test_controller_restarted_while_jobs_run(sweeping: Sweeping) -> None:
    fault = sweeping.disturbed("slurmctld restarted while jobs run")
    sweeping.practice.restart_controller()
    assert len(fault.ends(0, "completed").attempts) == 1


@pytest.fixture
def small_disk(sweeping: Sweeping) -> Iterator[Path]:
    """A file system of a few MB for the results, mounted here and in every node."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4 on this machine: install the package e2fsprogs")
    image = sweeping.folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    device = subprocess.run(
        ["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True
    ).stdout.strip()
    mount = ["mount", device, str(sweeping.results)]
    try:
        subprocess.run(mount, check=True)
        for node in NODES:
            assert sweeping.practice.inside(node, *mount).returncode == 0
        subprocess.run(["chown", "practice:practice", str(sweeping.results)], check=True)
        yield sweeping.results
    finally:
        sweeping.close()
        sweeping.practice.heal()
        for node in NODES:
            sweeping.practice.inside(node, "umount", str(sweeping.results))
        subprocess.run(["umount", str(sweeping.results)], check=False)
        subprocess.run(["losetup", "--detach", device], check=False)


def test_a_full_results_disk(sweeping: Sweeping, small_disk: Path) -> None:
    fault = sweeping.disturbed("results disk full")
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    assert "No space left" in fault.ends(1, "failed").error.what
    filler.unlink()
    sweeping.completes_again()


def test_packed_cells_share_their_nodes(sweeping: Sweeping) -> None:
    """Several techniques run one after another in one allocation, in a drawn order."""
    techniques = ["naive", "batch_norm", "lr_scaling"]
    base = {key: value for key, value in LONG.items() if key != "technique"}
    sweeping.sweep = {**base, "epochs": 3, "matrix": {"technique": techniques}}
    out = sweeping.succeeds(sweeping.start("--no-preflight", "--pack", "3"))
    assert "in 1 sbatch calls" in out
    records = sweeping.records()
    assert sorted(record.config.technique.name for record in records) == sorted(techniques)
    assert len({record.provenance.environment["HOROSCALE_BLOCK"] for record in records}) == 1
    assert len({record.world.hostnames for record in records}) == 1
