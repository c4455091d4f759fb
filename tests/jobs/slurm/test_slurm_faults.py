"""Faults, for real, on the practice cluster: what the record says, and that nothing is lost.

Those that end with a requeue are in test_array_faults.py.

Each fault prints a row of the fault table: fault, status, seconds until the record said so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containers.practice import daemons
from containers.practice.place import CONTROLLER
from tests.jobs.slurm.sweeping import LONG, ROOT, Sweeping, statuses
from tests.practice import Practice
from train.record.run import read_record

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]


def row(fault: str, sweeping: Sweeping, began: float) -> None:
    record = sweeping.record()
    took = time.monotonic() - began
    print(f"\nFAULT | {fault} | {' -> '.join(statuses(record))} | {took:.0f} s")


def disturbed(sweeping: Sweeping, *options: str, epochs: int = 3) -> Any:
    process = sweeping.start("--no-preflight", *options)
    sweeping.wait_for_epochs(epochs)
    return process


def test_a_killed_rank(sweeping: Sweeping) -> None:
    process = disturbed(sweeping)
    began = time.monotonic()
    node = sweeping.signal_rank(1, "KILL")
    code, out = sweeping.end(process)
    row("rank killed (-9) mid-epoch", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "failed"), out
    assert record.error is not None
    assert record.error.rank == 1
    assert "SIGKILL" in record.error.what
    assert node in record.error.where
    assert statuses(sweeping.completes_again()) == ["failed", "completed"]


def test_a_hanging_rank(sweeping: Sweeping) -> None:
    sweeping.sweep = {**LONG, "epochs": 2000}
    process = disturbed(sweeping, "--stall-s", "20")  # longer than the first step, traced, takes
    began = time.monotonic()
    sweeping.signal_rank(1, "STOP")
    code, out = sweeping.end(process)
    row("rank hangs (stall limit 20 s)", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "failed"), out
    assert record.error is not None
    assert record.error.what.startswith("a hang: rank 1")


def test_a_suspended_job_goes_on(sweeping: Sweeping) -> None:
    """Supervisor and ranks, for longer than either takes for a hang."""
    process = disturbed(sweeping, "--stall-s", "20", epochs=2)
    began = time.monotonic()
    conf = f"SLURM_CONF={sweeping.practice.place.slurm_conf}"
    for told, wait_s in (("suspend", 40), ("resume", 0)):
        asked = ["env", conf, "scontrol", told, sweeping.job()]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        time.sleep(wait_s)
    code, out = sweeping.end(process)
    row("job suspended for 40 s, then resumed (stall limit 20 s)", sweeping, began)
    record = sweeping.record()
    assert (code, statuses(record)) == (0, ["completed"]), out + sweeping.said()
    # a very busy machine may look suspended for some seconds in another epoch
    assert 35 < sum(epoch.suspended_s for epoch in record.epochs) < 60
    assert max(epoch.train_s for epoch in record.epochs) < 35


def test_scancel(sweeping: Sweeping) -> None:
    process = disturbed(sweeping)
    began = time.monotonic()
    sweeping.practice.out("scancel", sweeping.job())
    code, out = sweeping.end(process)
    row("scancel", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "cancelled"), out
    assert record.error is not None
    assert "scancel" in record.error.what
    again = sweeping.completes_again()
    assert again.attempts[-1].resumed_from_epoch >= 3


def test_cancel_command(sweeping: Sweeping) -> None:
    sweeping.sweep = {**LONG, "epochs": 2000}
    process = disturbed(sweeping)
    code, out = sweeping.run(command="cancel")
    assert code == 0, out
    assert "1 jobs were told to end" in out
    sweeping.end(process)
    assert sweeping.record().status == "cancelled"
    code, out = sweeping.run("--cell", "naive", command="logs")
    assert code == 0, out
    assert "scancel" in out


def test_a_node_that_loses_power(sweeping: Sweeping) -> None:
    process = disturbed(sweeping)
    node = sweeping.node_of(1)
    began = time.monotonic()
    sweeping.practice.stop_node(node, power=True)
    code, out = sweeping.end(process)
    row("node of rank 1 lost power; the job goes on elsewhere by itself", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (0, "completed"), out + sweeping.said()
    # a requeued job may be given the node once more before Slurm knows that it is dead
    assert set(statuses(record)[:-1]) == {"lost"}
    assert record.attempts[-1].resumed_from_epoch >= 3
    assert record.world is not None
    assert node not in record.world.hostnames


def test_slurmd_stopped_under_a_running_job(sweeping: Sweeping) -> None:
    """Only the daemon ends: ranks go on, until Slurm takes the node for dead and requeues."""
    process = disturbed(sweeping, epochs=2)
    began = time.monotonic()
    sweeping.practice.stop_node(sweeping.node_of(1))
    code, out = sweeping.end(process)
    row("slurmd stopped under a running job", sweeping, began)
    assert code == 0, out + sweeping.said()
    assert sweeping.record().status == "completed"


def test_a_killed_supervisor(sweeping: Sweeping) -> None:
    process = disturbed(sweeping)
    began = time.monotonic()
    node = sweeping.node_of(0)
    done = sweeping.practice.inside(node, "pkill", "-KILL", "-f", "jobs.slurm.[j]ob ")
    assert done.returncode == 0
    code, out = sweeping.end(process)
    row("supervisor killed (-9)", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "lost"), out
    assert record.error is not None
    assert f"job {sweeping.job()}" in record.error.what
    again = sweeping.completes_again()
    assert again.attempts[-1].resumed_from_epoch >= 3


def test_a_job_that_slurm_ends_at_its_time_limit(sweeping: Sweeping) -> None:
    sweeping.sweep = {**LONG, "epochs": 60}  # what is left must fit into a minute
    sweeping.write(time_min=1, signal_s=5)
    process = disturbed(sweeping)
    began = time.monotonic()
    sweeping.signal_rank(1, "STOP")  # its watchdog would end it after 300 s only
    code, out = sweeping.end(process, 300)
    row("time limit reached in the middle of an epoch", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "timeout"), out + sweeping.said()
    again = sweeping.completes_again()
    assert again.attempts[-1].resumed_from_epoch >= 3


def test_out_of_memory(sweeping: Sweeping) -> None:
    sweeping.write(mem_per_rank_gb=0.25)
    began = time.monotonic()
    code, out = sweeping.run("--no-preflight")
    row("out of memory (0.25 GB per rank)", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "failed"), out
    assert record.error is not None
    assert "memory" in record.error.what, sweeping.said()
    assert "mem_per_rank_gb" in record.error.what_to_do


def test_controller_restarted_while_jobs_run(sweeping: Sweeping) -> None:
    process = disturbed(sweeping)
    began = time.monotonic()
    sweeping.practice.restart_controller()
    code, out = sweeping.end(process)
    row("slurmctld restarted while jobs run", sweeping, began)
    assert code == 0, out
    assert statuses(sweeping.record()) == ["completed"]


def test_submission_while_the_controller_is_away(sweeping: Sweeping) -> None:
    sweeping.practice.stop_controller()
    began = time.monotonic()
    code, out = sweeping.run("--no-preflight")
    print(f"\nFAULT | submission during a controller outage | refused, exit {code} | "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    assert code == 3, out
    assert "Slurm" in out
    assert "Traceback" not in out
    sweeping.practice.start_controller()


def test_two_sweeps_at_once(sweeping: Sweeping) -> None:
    process = disturbed(sweeping)
    code, out = sweeping.run("--no-preflight")
    assert code == 2, out
    assert "another make sweep works on" in out
    assert sweeping.end(process)[0] == 0
    assert statuses(sweeping.record()) == ["completed"]


def test_leaving_and_coming_back(sweeping: Sweeping) -> None:
    """A login shell that dies takes nothing along; the next sweep submits nothing twice."""
    process = disturbed(sweeping)
    process.kill()
    code, out = sweeping.run("--no-preflight")
    assert code == 0, out
    assert "in the queue already" in out
    assert statuses(sweeping.record()) == ["completed"]


def test_a_gloo_interface_that_does_not_exist(sweeping: Sweeping) -> None:
    sweeping.write(interface="nosuch0")
    began = time.monotonic()
    code, out = sweeping.run("--no-preflight")
    row("Gloo interface that does not exist", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "failed"), out
    assert record.error is not None
    assert "nosuch0" in record.error.what
    assert "eth0" in record.error.what


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
    nodes = ("node1", "node2", "node3", "node4")
    try:
        subprocess.run(mount, check=True)
        for node in nodes:
            assert sweeping.practice.inside(node, *mount).returncode == 0
        subprocess.run(["chown", "practice:practice", str(sweeping.results)], check=True)
        yield sweeping.results
    finally:
        sweeping.close()
        sweeping.practice.heal()
        for node in nodes:
            sweeping.practice.inside(node, "umount", str(sweeping.results))
        subprocess.run(["umount", str(sweeping.results)], check=False)
        subprocess.run(["losetup", "--detach", device], check=False)


def test_a_full_results_disk(sweeping: Sweeping, small_disk: Path) -> None:
    process = disturbed(sweeping)
    began = time.monotonic()
    filler = small_disk / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(b"x" * 65536)
                file.flush()
    except OSError:
        pass
    code, out = sweeping.end(process)
    row("results disk full", sweeping, began)
    record = sweeping.record()
    assert (code, record.status) == (1, "failed"), out + sweeping.said()
    assert record.error is not None
    assert "No space left" in record.error.what
    filler.unlink()
    sweeping.completes_again()


def test_packed_cells_share_their_nodes(sweeping: Sweeping) -> None:
    """Several techniques run one after another in one allocation, in a drawn order."""
    techniques = ["naive", "batch_norm", "lr_scaling"]
    base = {key: value for key, value in LONG.items() if key != "technique"}
    sweeping.sweep = {**base, "epochs": 3, "matrix": {"technique": techniques}}
    code, out = sweeping.run("--no-preflight", "--pack", "3")
    assert code == 0, out + sweeping.said()
    assert "in 1 sbatch calls" in out
    records = [read_record(file) for file in sweeping.results.glob("long/digits-*/record.json")]
    assert sorted(record.config.technique.name for record in records) == sorted(techniques)
    blocks = {r.provenance.environment["HOROSCALE_BLOCK"] for r in records if r.provenance}
    assert len(blocks) == 1
    assert len({r.world.hostnames for r in records if r.world}) == 1


def test_munge_down_on_the_login_node_trains_nothing(cluster: Practice, tmp_path: Path) -> None:
    """SITE=auto where every program of Slurm fails: exit code 3, and no rank runs on this node."""
    place = cluster.place
    argv = [sys.executable, "-m", "jobs", "sweep", "smoke", "--results", str(tmp_path / "results")]
    environment = {**os.environ, "SLURM_CONF": str(place.slurm_conf)}
    assert daemons.stop(place, CONTROLLER, "munged", "munged")
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    finally:
        daemons.run_inside(place, CONTROLLER, daemons.munged_argv(place))
    assert done.returncode == 3, done.stderr
    assert "Munge encode failed" in done.stderr and "SITE=local" in done.stderr
    assert not (tmp_path / "results").exists()
