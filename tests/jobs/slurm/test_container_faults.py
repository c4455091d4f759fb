"""Faults at the seam between Slurm and the container, for real; and that all launchers agree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.slurm.sweeping import CONTAINED, LONG, Sweeping, in_folder
from tests.practice import IMAGE, Practice
from tests.sweeps import ROOT
from train.record.run import RunRecord, read_record

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("sif"),
]
SHORT = {**LONG, "epochs": 3}


@pytest.fixture
def sweeping(cluster: Practice, shared_folder: Path) -> Iterator[Sweeping]:
    with in_folder(cluster, shared_folder, site=CONTAINED, sweep=SHORT) as made:
        yield made


@pytest.fixture
def image_of_node2(sweeping: Sweeping) -> Iterator[Path]:
    """A file that node2 alone sees in place of the image."""
    false = sweeping.folder / "false.sif"
    false.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + b"\0" * 4096)
    false.chmod(0o755)
    practice = sweeping.practice
    done = practice.inside("node2", "mount", "--bind", str(false), str(IMAGE))
    assert done.returncode == 0, done.stderr
    yield false
    practice.inside("node2", "umount", str(IMAGE))


def test_a_corrupt_image_on_one_node(sweeping: Sweeping, image_of_node2: Path) -> None:
    fault = sweeping.disturbed("image corrupt on one node", epochs=0, preflight=True)
    what = fault.ends(1, "cancelled").error.what
    assert "preflight" in what and "node2" in what
    assert not (sweeping.cell / "logs" / "rank-0.log").exists()
    sweeping.practice.inside("node2", "umount", str(IMAGE))
    sweeping.succeeds(sweeping.start())


def test_a_container_that_drops_the_environment_of_pmix(sweeping: Sweeping) -> None:
    """Never N worlds of one."""
    sweeping.write(container_arguments=["--cleanenv"])
    record = sweeping.disturbed("container drops the PMIx environment", epochs=0).ends(1, "failed")
    assert "--cleanenv" in record.error.what + record.error.what_to_do
    assert not record.epochs


def losses(record: RunRecord) -> list[tuple[float | None, float | None]]:
    return [(epoch.train_loss, epoch.validation_loss) for epoch in record.epochs]


def test_pmix_gloo_and_the_local_launcher_give_the_same_curve(sweeping: Sweeping) -> None:
    curves = {}
    for mpi in ("pmix", "gloo"):
        sweeping.write(mpi=mpi)
        options = ["--no-preflight"] if mpi == "gloo" else []
        sweeping.succeeds(sweeping.start("--force", *options))
        record = sweeping.record()
        assert record.world.controller == {"pmix": "mpi", "gloo": "gloo"}[mpi]
        assert record.world.nodes == 2
        assert record.provenance.image_digest
        curves[mpi] = losses(record)
    local = sweeping.folder / "local"
    argv = [sys.executable, "-m", "jobs", "sweep", str(sweeping.folder / "long.yaml")]
    argv += ["--site", "local", "--results", str(local)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    record = read_record(next(local.glob("long/digits-*/record.json")))
    curves["local"] = losses(record)
    worst = max(
        abs(a - b)
        for one in curves.values() for x, y in zip(one, curves["pmix"], strict=True)
        for a, b in zip(x, y, strict=True) if a is not None and b is not None
    )  # fmt: skip
    print(f"\nlargest difference of a loss between PMIx, Gloo and local: {worst:.2g}")
    assert worst < 1e-5
