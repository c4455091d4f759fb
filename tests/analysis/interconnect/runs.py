"""Runs of make interconnect, made up number by number."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

from analysis.interconnect.run import Run
from train.interconnect.decide import decide
from train.interconnect.record import End, Measurement, Node, Noise, Retest, Tournament
from train.interconnect.tournament import matrix_from

HEALTHY = 2e8
BYTES = 10_000_000


def end(*, busy: float = 0.02, waited: float = 0.0, carried: float = 1.03) -> End:
    moved = int(BYTES * carried)
    return End(cpu_s=busy, waited_s=waited, wall_s=1.0, received_bytes=moved, sent_bytes=moved)


def measurement(sender: str, receiver: str, rate: float = HEALTHY, **changes: Any) -> Measurement:
    told: dict[str, Any] = {
        "sender": sender, "receiver": receiver, "phase": "tournament", "together": 2,
        "rates": (rate,) * 5, "bytes": BYTES, "latency_s": 2e-5, "latency_min_s": 1e-5,
        "at_sender": end(), "at_receiver": end(),
    }  # fmt: skip
    return Measurement(**(told | changes))


def tournament(
    names: str = "abcd",
    slow: dict[tuple[str, str], float] | None = None,
    changes: dict[tuple[str, str], dict[str, Any]] | None = None,
    retests: tuple[Retest, ...] = (),
    **fields: Any,
) -> Tournament:
    """slow: rate of a pair, as a share; "*" stands for everyone."""
    found = []
    for sender, receiver in permutations(names, 2):
        keys = ((sender, receiver), (sender, "*"), ("*", receiver))
        share = min([1.0, *(slow[key] for key in keys if slow and key in slow)])
        more = (changes or {}).get((sender, receiver), {})
        found.append(measurement(sender, receiver, HEALTHY * share, **more))
    told: dict[str, Any] = {
        "started_at": datetime(2026, 1, 2, tzinfo=UTC), "seconds": 20.0,
        "nodes": tuple(Node(name=n, interface="eth0", address="10.0.0.1") for n in names),
        "lost": {}, "noise": Noise(pair=(names[0], names[1]), cv=0.002, together=0.99),
        "serial": False, "measurements": tuple(found),
        "decision": decide(matrix_from(list(names), found)), "retests": retests,
    }  # fmt: skip
    return Tournament(**(told | fields))


def retest(kind: str, nodes: tuple[str, ...], ratio: float | None, outcome: str) -> Retest:
    return Retest(
        kind=kind, nodes=nodes, partners=("a", "b"), ratio=ratio, waited=0.0, outcome=outcome,
        why="slow again",
    )  # fmt: skip


def run(found: Tournament | None, job: Any = None) -> Run:
    return Run(Path("results/interconnect/r1"), job, found)
