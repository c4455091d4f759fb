"""Bandwidths against arithmetic, wrong elements, the fit against what made the times."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from analysis.interconnect.collectives import (
    collectives_findings,
    collectives_frame,
    fitted,
)
from analysis.interconnect.tables import tables_of
from analysis.prediction.collectives import Link
from analysis.table import Table, plain_rows
from tests.analysis.interconnect.runs import collectives, run, series, tournament
from train.interconnect.collectives.record import Carried, Collectives, Point


def one(**told: object) -> Point:
    return Point(**({"bytes": 2**20, "calls": 3, "seconds": (0.1, 0.2, 0.4), "wrong": 0} | told))


def tables(found: Collectives, key: str = "model") -> list[Table]:
    shown = tables_of(run(tournament(), collectives=found))
    return [table for table in shown if table.key == key]


def row_of(nodes: int = 4, ranks: int = 4, **told: Any) -> dict[str, Any]:
    """Of one series with one point."""
    found = collectives(series(ranks=ranks, **told), ranks=ranks, nodes=nodes)
    (row,) = plain_rows(collectives_frame(found))
    return row


@pytest.mark.parametrize(
    ("operation", "bus"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("broadcast", 1.0)],
)
def test_bus_bandwidth_is_factor_times_bytes_over_the_median(operation: str, bus: float) -> None:
    row = row_of(operation=operation, points=(one(),))
    assert row["algbw"] == pytest.approx(8 * 2**20 / 0.2)
    assert row["busbw"] == row["nicbw"] == pytest.approx(bus * 8 * 2**20 / 0.2)
    assert (row["min_s"], row["max_s"], row["mad_s"]) == pytest.approx((0.1, 0.4, 0.1))
    assert row["cv"] == pytest.approx(np.std([0.1, 0.2, 0.4]) / (0.7 / 3))
    assert row["p95_s"] == pytest.approx(0.38)
    assert row["p99_s"] is None  # of three samples it would only be the largest


def test_the_rate_of_a_nodes_port_with_more_ranks_than_nodes() -> None:
    """4 nodes of 8: 377 GB/s of bus bandwidth are 36.5 GB/s per port (ml-engineering)."""
    seconds = (2 * 31 / 32 * 2**34 / 377e9,) * 7
    row = row_of(ranks=32, points=(one(bytes=2**34, seconds=seconds),))
    assert row["busbw"] / 8e9 == pytest.approx(377)
    assert row["nicbw"] / 8e9 == pytest.approx(36.5, rel=0.01)
    # 2 nodes of 4: 4 of 8 parts of each rank's array go to the other node
    point = one(bytes=8_000_000, seconds=(1.0,) * 7)
    row = row_of(operation="all_to_all", ranks=8, nodes=2, points=(point,))
    assert row["nicbw"] == pytest.approx(8 * 4_000_000)


def test_horovod_beside_the_wire_at_the_largest_size_that_both_reached() -> None:
    found = collectives(
        series("raw"), series("horovod", slower=1.25, points=series(slower=1.25).points[:4])
    )
    (table,) = tables(found, "collectives")
    (row,) = table.data.to_dict("records")
    assert row["bytes"] == 2**18
    assert row["ratio"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("found", "weight", "what", "words"),
    [
        (collectives(series(points=(one(), one(bytes=64, wrong=2)))), "fault", "corrupt",
         "2 wrong elements at 64 bytes"),
        (collectives(series(points=(), error="no NCCL here")), "open", "collective",
         "no NCCL here"),
        (collectives(series(), planned=28), "open", "not measured",
         "1 of 28 series were measured"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_collectives(found, weight, what, words) -> None:
    (finding,) = collectives_findings(found)
    assert (finding.weight, finding.what) == (weight, what) and words in finding.evidence


def what(*sent: int | None, ports: int | None = None) -> list[str]:
    """Findings where each of the ranks' interfaces counted so much of a million bytes."""
    carried = tuple(
        Carried(host=f"n{n}", interface="eth0", received_bytes=s, sent_bytes=s,
                port_sent_bytes=ports) for n, s in enumerate(sent)
    )  # fmt: skip
    told = series(payload_bytes=1_000_000, carried=carried)
    return [f.what for f in collectives_findings(collectives(told))]


def test_bytes_that_went_another_way_are_open() -> None:
    assert what(250_000, 250_000) == ["interface"]
    assert what(500_000, 510_000) == what(1_030_000, 0) == [], "a tree's leaves send nothing"
    assert what(510_000, None) == ["interface"], "no proof"
    # InfiniBand ports are no other way
    assert what(1000, 1000, ports=510_000) == ["RDMA"]
    assert what(1000, 1000, ports=0) == ["interface"]


def test_ranks_that_share_a_node_are_no_network_to_fit() -> None:
    assert tables(collectives(series(ranks=2), series(ranks=4), ranks=8)) == []


def test_a_fit_on_two_ranks_predicts_the_ring_that_made_the_times() -> None:
    found = collectives(series(ranks=2), series(ranks=3), series(ranks=4))
    own = fitted(found, "horovod")
    assert own is not None and 8 / own.large.beta == pytest.approx(2e8)
    (table,) = tables(found)
    assert list(table.data["ranks"]) == [3, 4]
    assert list(table.data["worst_error"]) == pytest.approx([0, 0], abs=1e-6)
    assert fitted(found, "raw") is None


def test_a_ring_that_is_slower_than_the_model_shows_in_the_error() -> None:
    (table,) = tables(collectives(series(ranks=2), series(ranks=4, slower=1.2)))
    (row,) = table.shown().rows
    assert row[-3:] == ("4", "+20.0 %", "+20.0 %")
    assert row[2].startswith("200 Mbit/s (")


def test_a_bandwidth_that_cannot_be_seen_beside_alpha_has_no_upper_end() -> None:
    same = Link(1.0, 0.0)
    (table,) = tables(collectives(series(ranks=2, link=same), series(ranks=4, link=same)))
    assert re.fullmatch(r"∞ \(.+bit/s to ∞\)", table.shown().rows[0][2])
