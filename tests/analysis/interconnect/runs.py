"""Runs of make interconnect, made up number by number."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

from analysis.interconnect.finding import Verdict
from analysis.interconnect.run import Run
from analysis.prediction.collectives import Link, ring
from train.interconnect.collectives.record import Collectives, Operation, Point, Rank, Series, Way
from train.interconnect.diagnosis.decide import decide
from train.interconnect.facts.record import Fact, NodeFacts, When
from train.interconnect.record import (
    End,
    JobNote,
    Measurement,
    Node,
    Noise,
    Phase,
    Retest,
    Step,
    Tournament,
    Trouble,
)
from train.interconnect.tournament import matrix_from

HEALTHY = 2e8
#: Node c is slow in both directions, and in its retest.
SLOW = {("c", "*"): 0.5, ("*", "c"): 0.5}
LINK = Link(30e-6, 8 / HEALTHY)
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
        "company": len(names) // 2, "measurements": tuple(found),
        "decision": decide(matrix_from(list(names), found)), "retests": retests,
    }  # fmt: skip
    return Tournament(**(told | fields))


def retest(kind: str, nodes: tuple[str, ...], ratio: float | None, outcome: str) -> Retest:
    return Retest(
        kind=kind, nodes=nodes, partners=("a", "b"), ratio=ratio, waited=0.0, outcome=outcome,
        why="slow again",
    )  # fmt: skip


CONFIRMED = (retest("node", ("c",), 0.5, "confirmed"),)


def leaves(*names: str) -> dict[str, str]:
    """The nodes of leaf1, leaf2, ...: node -> its leaf switch."""
    return {node: f"leaf{number}" for number, own in enumerate(names, 1) for node in own}


def run(found: Tournament | None, job: Any = None, **more: Any) -> Run:
    return Run(Path("results/interconnect/r1"), job, found, **more)


def said(verdict: Verdict, *weights: str) -> str:
    """``weight what nodes`` of each finding; weights: of these alone."""
    return "; ".join(
        " ".join((found.weight, found.what, *found.nodes))
        for found in verdict.findings
        if found.weight in weights or not weights
    )


def step(phase: Phase = "tournament", *troubles: Trouble, code: int | None = 0) -> Step:
    return Step(phase=phase, seconds=1.0, exit_code=code, stopped=None, troubles=troubles)


def note(*steps: Step, expected: str = "abcd", **changes: Any) -> JobNote:
    told = {"phases": tuple(one.phase for one in steps), "expected": tuple(expected)} | changes
    return JobNote(job="7", nodes="[a-d]", image="none", image_digest=None, steps=steps, **told)


def node_facts(node: str, when: When = "before", **values: str | None) -> NodeFacts:
    """Facts of the network group; a value of None is unknown. Some names are those of counters."""
    facts = tuple(
        Fact(
            group="network", name=name, value=value,
            role="counter" if re.search(r"errors|drops| \w+_\w+$", name) else "same",
            why=None if value is not None else "not told",
        )
        for name, value in values.items()
    )  # fmt: skip
    return NodeFacts(
        node=node, when=when, taken_at=datetime(2026, 1, 2, tzinfo=UTC), interface="eth0",
        facts=facts,
    )  # fmt: skip


def facts_of(names: str, **values: str | None) -> tuple[NodeFacts, ...]:
    return tuple(node_facts(name, **values) for name in names)


def series(
    way: Way = "horovod", operation: Operation = "all_reduce", ranks: int = 4, *,
    link: Link = LINK, slower: float = 1.0, **changes: Any,
) -> Series:  # fmt: skip
    """Times of a ring over links of 200 Mbit/s."""
    points = tuple(
        Point(bytes=size, calls=7, wrong=0,
              seconds=tuple(ring(ranks, size).seconds(link) * slower * (1 + k / 100)
                            for k in range(-3, 4)))
        for size in (8, 1024, 2**16, 2**18, 2**20)
    )  # fmt: skip
    told: dict[str, Any] = {
        "way": way, "operation": operation, "place": "in", "mode": "blocked", "ranks": ranks,
        "points": points,
    }  # fmt: skip
    return Series(**(told | changes))


def collectives(*found: Series, ranks: int = 4, nodes: int = 4, **changes: Any) -> Collectives:
    told: dict[str, Any] = {
        "started_at": datetime(2026, 1, 2, tzinfo=UTC), "seconds": 60.0,
        "ranks": tuple(Rank(host=f"n{r % nodes}", interface="eth0", address="10.0.0.1", cores=(0,))
                       for r in range(ranks)),
        "nodes": nodes, "controller": "gloo", "oversubscribed": False,
        "stack": {"horovod": "0.28.1"}, "planned": len(found), "series": found,
    }  # fmt: skip
    return Collectives(**(told | changes))
