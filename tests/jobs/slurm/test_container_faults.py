"""Faults at the seam between Slurm and the container, for real; and that all launchers agree."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.provenance import mixtures
from tests.analysis.builders import runs_frame
from tests.jobs.slurm.sweeping import CONTAINED, IMAGE, LONG, ROOT, Sweeping, in_folder
from tests.practice import Practice
from tests.sweeps import wait_until
from train.record.run import RunRecord, read_record

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not IMAGE.exists(), reason=f"no image {IMAGE}: make image"),
]
SHORT = {**LONG, "epochs": 3}


@pytest.fixture
def sweeping(cluster: Practice, shared_folder: Path) -> Iterator[Sweeping]:
    cluster.heal()
    made = in_folder(cluster, shared_folder, site=CONTAINED, sweep=SHORT)
    try:
        yield made
    finally:
        made.close()
        cluster.heal()


def row(fault: str, status: str, began: float) -> None:
    print(f"\nFAULT | {fault} | {status} | {time.monotonic() - began:.0f} s")


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


def test_a_corrupt_image_on_one_node_holds_the_sweep(
    sweeping: Sweeping, image_of_node2: Path
) -> None:
    began = time.monotonic()
    code, out = sweeping.run()
    row("image corrupt on one node (preflight)", "held: cancelled", began)
    assert code == 1, out
    record = sweeping.record()
    assert record.status == "cancelled"
    assert record.error is not None
    assert "preflight" in record.error.what
    assert "node2" in record.error.what, record.error.what
    assert not (sweeping.cell / "logs" / "rank-0.log").exists()
    sweeping.practice.inside("node2", "umount", str(IMAGE))
    code, out = sweeping.run()
    assert code == 0, out + sweeping.said()


def test_a_corrupt_image_met_by_a_cell_names_the_node(
    sweeping: Sweeping, image_of_node2: Path
) -> None:
    began = time.monotonic()
    code, out = sweeping.run("--no-preflight")
    record = sweeping.record()
    row("image corrupt on one node (no preflight)", record.status, began)
    assert (code, record.status) == (1, "failed"), out
    assert record.error is not None
    assert "node2" in record.error.where, record.error


def test_a_container_that_drops_the_environment_of_pmix(sweeping: Sweeping) -> None:
    """Never N worlds of one."""
    sweeping.write(container_arguments=["--cleanenv"])
    began = time.monotonic()
    code, out = sweeping.run("--no-preflight")
    record = sweeping.record()
    row("container drops the PMIx environment", record.status, began)
    assert (code, record.status) == (1, "failed"), out
    assert record.error is not None
    assert "--cleanenv" in record.error.what + record.error.what_to_do
    assert not record.epochs


def test_preflight_sees_a_dropped_environment(sweeping: Sweeping) -> None:
    sweeping.write(container_arguments=["--cleanenv"])
    began = time.monotonic()
    code, out = sweeping.run()
    row("container drops the PMIx environment (preflight)", "held: cancelled", began)
    assert code == 1, out
    record = sweeping.record()
    assert record.error is not None
    assert "preflight" in record.error.what


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
    code, out = sweeping.end(process)
    assert code == 0, out + sweeping.said()
    found = [read_record(file) for file in sweeping.results.glob("long/digits-*/record.json")]
    first, second = sorted(found, key=lambda record: record.started_at)
    assert [r.provenance.image_digest for r in (first, second) if r.provenance] == digests
    (warning,) = (text for text in mixtures(runs_frame([first, second])) if "images" in text)
    assert "ran from 2 images" in warning and second.cell_id in warning


def losses(record: RunRecord) -> list[tuple[float | None, float | None]]:
    return [(epoch.train_loss, epoch.validation_loss) for epoch in record.epochs]


def test_pmix_gloo_and_the_local_launcher_give_the_same_curve(sweeping: Sweeping) -> None:
    curves = {}
    for mpi in ("pmix", "gloo"):
        sweeping.write(mpi=mpi)
        code, out = sweeping.run("--force", *(["--no-preflight"] if mpi == "gloo" else []))
        assert code == 0, out + sweeping.said()
        record = sweeping.record()
        assert record.world is not None
        assert record.world.controller == {"pmix": "mpi", "gloo": "gloo"}[mpi]
        assert record.world.nodes == 2
        assert record.provenance is not None
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
    code, out = sweeping.run()
    assert code == 0, out + sweeping.said()
    record = sweeping.record()
    assert record.world is not None
    assert sorted(record.world.hostnames) == ["node1", "node2", "node3", "node4"]
    sent = {link.host: link.sent_bytes for link in record.traffic if link.interface == "eth0"}
    assert sorted(sent) == ["node1", "node2", "node3", "node4"]
    weights = json.loads((sweeping.cell / "config.json").read_text())
    assert weights["gpus"] == 4
    # a ring all-reduce sends 2 (n-1)/n of the gradient per step; the small CNN has some 100,000
    # weights, and there are 3 epochs of some steps: megabytes, not the kilobytes of control
    steps = sum(epoch.steps for epoch in record.epochs)
    assert min(sent.values()) > steps * 100_000
