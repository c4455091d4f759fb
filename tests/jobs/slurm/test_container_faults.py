"""Faults at the seam between Slurm and the container, for real; and that all launchers agree."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.provenance import mixtures
from containers.practice.place import NODES
from tests.analysis.builders import runs_frame
from tests.jobs.slurm.sweeping import CONTAINED, IMAGE, LONG, ROOT, Sweeping, in_folder
from tests.practice import Practice
from tests.sweeps import wait_until
from train.record.run import RunRecord, read_record

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not IMAGE.exists(), reason=f"no image {IMAGE}: make image"),
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


@pytest.mark.parametrize(("preflight", "status"), [(False, "failed"), (True, "cancelled")])
def test_a_corrupt_image_on_one_node(
    sweeping: Sweeping, image_of_node2: Path, preflight: bool, status: str
) -> None:
    name = f"image corrupt on one node (preflight: {preflight})"
    error = sweeping.disturbed(name, epochs=0, preflight=preflight).ends(1, status).error
    assert "node2" in (error.what if preflight else error.where), error
    if preflight:
        assert "preflight" in error.what
        assert not (sweeping.cell / "logs" / "rank-0.log").exists()
        sweeping.practice.inside("node2", "umount", str(IMAGE))
        sweeping.succeeds(sweeping.start())


@pytest.mark.parametrize(
    ("preflight", "status", "named"),
    [(False, "failed", "--cleanenv"), (True, "cancelled", "preflight")],
)
def test_a_container_that_drops_the_environment_of_pmix(
    sweeping: Sweeping, preflight: bool, status: str, named: str
) -> None:
    """Never N worlds of one."""
    sweeping.write(container_arguments=["--cleanenv"])
    name = f"container drops the PMIx environment (preflight: {preflight})"
    record = sweeping.disturbed(name, epochs=0, preflight=preflight).ends(1, status)
    assert named in record.error.what + record.error.what_to_do
    assert not record.epochs


def test_an_image_replaced_while_a_cell_waits(sweeping: Sweeping) -> None:
    """Of two cells, one after another on all nodes, the second starts after the replacement."""
    image, new = (sweeping.folder / name for name in ("own.sif", "new.sif"))
    shutil.copy(IMAGE, image)
    shutil.copy(IMAGE, new)
    with new.open("ab") as file:
        file.write(b"another build")  # behind what the header counts, so that it runs all the same
    shutil.copystat(image, new)  # as cp -p leaves it: no newer than the first
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (image, new)]
    sweeping.sweep = {**SHORT, "gpus": 4, "matrix": {"seeds": 2}}
    sweeping.write(image=str(image), array_parallel=1)
    process = sweeping.start("--no-preflight")
    wait_until(lambda: list(sweeping.results.glob("long/*/logs/start.json")), "ranks", 300)
    new.replace(image)
    sweeping.succeeds(process)
    first, second = sorted(sweeping.records(), key=lambda record: record.started_at)
    assert [record.provenance.image_digest for record in (first, second)] == digests
    (warning,) = (text for text, _ in mixtures(runs_frame([first, second])) if "images" in text)
    assert "ran from 2 images" in warning and second.cell_id in warning


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


def test_gradients_cross_the_links_of_four_nodes(sweeping: Sweeping) -> None:
    sweeping.sweep = {**SHORT, "gpus": 4}
    sweeping.write()
    sweeping.succeeds(sweeping.start())
    record = sweeping.record()
    assert sorted(record.world.hostnames) == list(NODES)
    sent = {link.host: link.sent_bytes for link in record.traffic if link.interface == "eth0"}
    assert sorted(sent) == list(NODES)
    # a ring all-reduce sends 2 (n-1)/n of the gradient per step; the small CNN has some 100,000
    # weights, and there are 3 epochs of some steps: megabytes, not the kilobytes of control
    steps = sum(epoch.steps for epoch in record.epochs)
    assert min(sent.values()) > steps * 100_000
