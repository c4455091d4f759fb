"""The network of a sweep comes from an interconnect run of the same nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.page.report import build
from analysis.records.load import load_frames
from analysis.several import network_beside
from tests.analysis.builders import config, rank_steps, record, write_sweep
from tests.analysis.interconnect.runs import LINK, collectives, series
from train.interconnect.collectives.record import COLLECTIVES_NAME
from train.record.run import RunRecord


def ranks_on_nodes(ranks: int, gradient_bytes: int | None) -> RunRecord:
    """One on each node."""
    made = record(config(gpus=ranks), steps=tuple(
        rank_steps(rank, 1.0 + ranks / 100, 0.0, ranks / 100) for rank in range(ranks)
    ))  # fmt: skip
    hosts = tuple(f"n{rank}" for rank in range(ranks))
    world = made.world.model_copy(update={"nodes": ranks, "hostnames": hosts})  # type: ignore[union-attr]
    return made.model_copy(update={"world": world, "gradient_bytes": gradient_bytes})


def sweep(folder: Path, gradient_bytes: int | None = 2_000_000) -> Path:
    write_sweep(folder / "s", [ranks_on_nodes(k, gradient_bytes) for k in (2, 3, 4)])
    return folder / "s"


def interconnect(folder: Path, name: str, *, nodes: int = 4) -> None:
    run = folder / "interconnect" / name
    run.mkdir(parents=True)
    measured = collectives(series(ranks=nodes), ranks=nodes, nodes=nodes)
    (run / COLLECTIVES_NAME).write_text(measured.model_dump_json(), encoding="utf-8")


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
    assert found.alpha == pytest.approx(LINK.alpha, rel=0.05)
    assert found.beta == pytest.approx(LINK.beta, rel=0.05)
    said = build(frames, network=found, draw=False).tables["forecast"].intro
    assert "known from an interconnect run" in said


def test_without_the_bytes_of_the_gradients_training_shows_the_network(tmp_path: Path) -> None:
    """Counters of interfaces do not tell them: they miss what went through uncounted ports."""
    frames = load_frames(sweep(tmp_path, gradient_bytes=None))
    found = build(frames, network=LINK, draw=False).tables["forecast"]
    assert "known from the training" in found.intro and len(found.data)


def test_ranks_of_one_node_need_no_network(tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [record(config()), record(config(gpus=2))])
    interconnect(tmp_path, "1")
    assert network_beside(load_frames(tmp_path / "s")) is None
