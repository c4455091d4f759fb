"""The network of a sweep comes from an interconnect run of the same nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.page.network import gradient_bytes, network_beside
from analysis.page.report import build
from analysis.records.load import load_frames
from tests.analysis.builders import config, rank_steps, record, write_sweep
from tests.analysis.interconnect.runs import LINK, collectives, series
from train.interconnect.collectives.record import COLLECTIVES_NAME
from train.record.measurements import LinkTraffic
from train.record.run import RunRecord

GRADIENTS = 2_000_000


def ranks_on_nodes(ranks: int) -> RunRecord:
    """One on each node; every node sends 2 (k - 1) / k of the gradients in each step."""
    made = record(config(gpus=ranks), steps=tuple(
        rank_steps(rank, 1.0 + ranks / 100, 0.0, ranks / 100) for rank in range(ranks)
    ))  # fmt: skip
    steps = sum(epoch.steps for epoch in made.epochs)
    sent = int(2 * (ranks - 1) / ranks * GRADIENTS * steps)
    hosts = tuple(f"n{rank}" for rank in range(ranks))
    world = made.world.model_copy(update={"nodes": ranks, "hostnames": hosts})  # type: ignore[union-attr]
    traffic = tuple(
        LinkTraffic(host=host, interface=name, received_bytes=bytes_, sent_bytes=bytes_)
        for host in hosts for name, bytes_ in (("lo", 10), ("eth0", sent))
    )  # fmt: skip
    return made.model_copy(update={"world": world, "traffic": traffic})


def sweep(folder: Path, ranks: int = 4) -> Path:
    write_sweep(folder / "s", [ranks_on_nodes(k) for k in (2, ranks)])
    return folder / "s"


def interconnect(folder: Path, name: str, *, nodes: int = 4) -> None:
    run = folder / "interconnect" / name
    run.mkdir(parents=True)
    measured = collectives(series(ranks=nodes), ranks=nodes, nodes=nodes)
    (run / COLLECTIVES_NAME).write_text(measured.model_dump_json(), encoding="utf-8")


def test_bytes_of_the_gradients_are_what_a_ring_must_have_sent(tmp_path: Path) -> None:
    frames = load_frames(sweep(tmp_path))
    sizes = gradient_bytes(frames.runs, frames.traffic)
    assert sizes == pytest.approx({"cnn": GRADIENTS}, rel=1e-4)


def test_a_run_of_the_same_nodes_gives_the_network(tmp_path: Path) -> None:
    frames = load_frames(sweep(tmp_path))
    assert network_beside(frames) is None, "nothing was measured"
    interconnect(tmp_path, "1", nodes=3)
    assert network_beside(frames) is None, "a node was not measured"
    interconnect(tmp_path, "2")
    (tmp_path / "interconnect" / "3").mkdir()
    (tmp_path / "interconnect" / "3" / COLLECTIVES_NAME).write_text("{", encoding="utf-8")
    found = network_beside(frames)
    assert found is not None
    assert found.link.alpha == pytest.approx(LINK.alpha, rel=0.05)
    assert found.link.beta == pytest.approx(LINK.beta, rel=0.05)
    assert found.gradient_bytes == pytest.approx({"cnn": GRADIENTS}, rel=1e-4)
    said = build(frames, network=found, draw=False).tables["forecast"].intro
    assert "that of the interconnect run beside the sweep" in said


def test_ranks_of_one_node_need_no_network(tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [record(config()), record(config(gpus=2))])
    interconnect(tmp_path, "1")
    assert network_beside(load_frames(tmp_path / "s")) is None
