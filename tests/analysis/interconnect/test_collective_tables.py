"""Bandwidths against arithmetic, wrong elements, the fit against what made the times."""

from __future__ import annotations

import re
from typing import Any

import pytest

from analysis.interconnect.collectives import collectives_findings, collectives_frame, fitted
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


@pytest.mark.parametrize(
    ("operation", "bus"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("broadcast", 1.0)],
)
def test_bus_bandwidth_is_factor_times_bytes_over_the_median(operation: Any, bus: float) -> None:
    found = collectives(series(operation=operation, points=(one(),)))
    (row,) = plain_rows(collectives_frame(found))
    assert row["algbw"] == pytest.approx(8 * 2**20 / 0.2)
    assert row["busbw"] == pytest.approx(bus * 8 * 2**20 / 0.2)
    assert (row["min_s"], row["p95_s"], row["max_s"]) == pytest.approx((0.1, 0.38, 0.4))


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
    found = collectives(series(ranks=2), series(ranks=3), series(ranks=4, slower=1.2))
    assert fitted(found, "raw") is None
    (table,) = tables(found)
    assert list(table.data["ranks"]) == [3, 4]
    for error in ("median_error", "worst_error"):
        assert list(table.data[error]) == pytest.approx([0, 0.2], abs=1e-6)
    assert table.shown().rows[0][2].startswith("200 Mbit/s (")


def test_a_bandwidth_that_cannot_be_seen_beside_alpha_has_no_upper_end() -> None:
    same = Link(1.0, 0.0)
    (table,) = tables(collectives(series(ranks=2, link=same), series(ranks=4, link=same)))
    assert re.fullmatch(r"∞ \(.+bit/s to ∞\)", table.shown().rows[0][2])
