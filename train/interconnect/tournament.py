"""The tournament: noise, then uplinks, then every pair, then the suspects once more and alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Protocol

from train.interconnect.diagnosis.decide import decide
from train.interconnect.diagnosis.leaf_switches import (
    Leaves,
    fit_partners,
    leaves_of,
    retest_rounds,
    uplink_rounds,
)
from train.interconnect.diagnosis.noise import look_at_noise
from train.interconnect.diagnosis.retest import Run, look_across, look_again
from train.interconnect.diagnosis.statistics import Matrix, matrix_of
from train.interconnect.diagnosis.uplinks import crossings
from train.interconnect.measure.rounds import Pair, Round, scheduled, some_partners
from train.interconnect.measure.stream import Plan
from train.interconnect.record import (
    RETESTED,
    Decision,
    Measurement,
    Node,
    Retest,
    Suspect,
    Tournament,
)

#: Of the time that there is, retests may need this share.
_FOR_RETESTS = 0.3
#: Of the rounds, uplinks may need this share.
_FOR_UPLINKS = 0.25
_UPLINKS, _PAIRS = "uplinks", "tournament"

Say = Callable[[str], None]


class Measures(Protocol):
    """A network whose pairs can be measured: Coordinator, or a simulation."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...
    @property
    def lost(self) -> dict[str, str]: ...
    async def measure(self, pairs: Round, plan: Plan, phase: str) -> list[Measurement]: ...


class _Clock:
    """limit_s: of all; None: there is no hurry."""

    def __init__(self, limit_s: float | None) -> None:
        self._began, self._limit = time.monotonic(), limit_s

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    def is_late(self, keep: float = 0.0) -> bool:
        """keep: share of the time that is for what comes later."""
        return self._limit is not None and self.spent > self._limit * (1 - keep)

    def rounds(self, done: int, keep: float) -> int | None:
        """How many more there is time for, by how long the ``done`` ones took each."""
        if self._limit is None:
            return None
        return int((self._limit * (1 - keep) - self.spent) / (self.spent / done))


async def play(
    coordinator: Measures,
    plan: Plan,
    seed: int,
    say: Say,
    switches: Mapping[str, str] | None = None,
    limit_s: float | None = None,
    keep: Callable[[Tournament], object] | None = None,
) -> Tournament:
    """All phases; needs at least two agents.

    switches: node -> leaf switch, of the nodes whose switch is known. limit_s: time for all of it;
    where that is short, nodes meet fewer others, and what was left out is told in ``cut``. keep:
    called with the record before suspects are measured again.

    Suspects are measured again with fresh partners and nothing beside them, and only what is slow
    again is confirmed: what recovers alone was contention.
    """
    began, clock = datetime.now(timezone.utc), _Clock(limit_s)
    count = len(coordinator.nodes)
    names = tuple(node.name for node in coordinator.nodes)
    leaves = leaves_of(names, switches or {})
    done: list[list[Measurement]] = []  # one for each round

    def use(streams: int) -> None:
        nonlocal plan
        plan = plan._replace(streams=streams)

    async def run(pairs: Round, phase: str) -> list[Measurement]:
        done.append(await coordinator.measure(pairs, plan, phase))
        return done[-1]

    say("how steady is one pair, and how much company does it bear")
    # drawn, so that those who run at the same time do not all share one pair of switches
    noise, company, streams = await look_at_noise(run, some_partners(count, 1, seed)[0], use)
    most = clock.rounds(len(done), _FOR_RETESTS)
    few = None if most is None else max(1, int(_FOR_UPLINKS * most))
    across = uplink_rounds(leaves, seed, apart=company < count // 2, most=few) if leaves else []
    rounds = scheduled(count, company, seed, None if most is None else most - len(across))
    planned = [*((_UPLINKS, pairs) for pairs in across), *((_PAIRS, pairs) for pairs in rounds)]
    cut = None
    for number, (phase, pairs) in enumerate(planned, 1):
        if clock.is_late(_FOR_RETESTS):
            cut = f"{number - 1} of {len(planned)} rounds were measured in {clock.spent:.0f} s"
            break
        say(f"round {number} of {len(planned)}: {len(pairs)} pairs, {phase}")
        await run(pairs, phase)
    matrix = matrix_from(names, [m for found in done for m in found if m.phase == _PAIRS])
    uplinks = [found for found in done if found[0].phase == _UPLINKS]
    crossed = crossings(leaves, names, uplinks) if leaves else {}
    decision = decide(matrix, leaves=leaves, crossed=crossed)

    def record(retests: Sequence[Retest]) -> Tournament:
        return Tournament(
            started_at=began,
            seconds=clock.spent,
            nodes=coordinator.nodes,
            lost=coordinator.lost,
            noise=noise,
            company=company,
            streams=streams,
            cut=cut,
            measurements=tuple(m for found in done for m in found),
            decision=decision,
            retests=tuple(retests),
            switches=dict(switches or {}),
        )

    if keep is not None:
        keep(record(()))  # a retest may outlast the job
    return record(await _look_again(run, coordinator, decision, leaves, clock, say))


async def _look_again(
    run: Run, coordinator: Measures, decision: Decision, leaves: Leaves | None, clock: _Clock,
    say: Say,
) -> list[Retest]:  # fmt: skip
    """The slowest suspects; those that there is no time for stay suspects, and those that are lost
    meanwhile are that."""
    names = tuple(node.name for node in coordinator.nodes)
    # a slow link does not make its ends unfit to compare others with
    accused = {n for s in decision.suspects if s.kind in ("node", "send", "receive")
               for n in s.nodes}  # fmt: skip
    links = _sound_ends(decision, names)
    found: list[Retest] = []

    def between(one: int, other: int) -> bool:
        return leaves is not None and leaves.apart(one, other)

    def across(link: Suspect) -> bool:
        return between(*map(names.index, link.nodes))

    for index, suspect in enumerate(_slowest(decision.suspects, across)):
        gone = set(coordinator.lost)
        if clock.is_late():
            break
        if gone & set(suspect.nodes):
            continue
        healthy = [n for n, name in enumerate(names) if name not in accused | gone]
        say(f"once more and alone: {suspect.kind} {' -> '.join(suspect.nodes)}")
        if suspect.kind.startswith("uplink"):
            assert leaves is not None
            rounds = retest_rounds(suspect, names, leaves, decision.suspects)
            found.append(await look_across(run, suspect, rounds))
        else:
            fit = fit_partners(suspect, names, healthy, leaves, decision.suspects)
            found.append(await look_again(run, names, suspect, fit, index, between, links))
    return found


def _sound_ends(decision: Decision, names: Sequence[str]) -> set[Pair]:
    """Suspect links whose ends are none: those of a slow end show what that end does."""
    slow = {(s.kind, name) for s in decision.suspects for name in s.nodes}
    return {
        Pair(names.index(sender), names.index(receiver))
        for sender, receiver in (s.nodes for s in decision.suspects if s.kind == "link")
        if slow.isdisjoint({("node", sender), ("send", sender), ("node", receiver),
                            ("receive", receiver)})
    }  # fmt: skip


def _slowest(suspects: Sequence[Suspect], across: Callable[[Suspect], bool]) -> list[Suspect]:
    """Uplinks first: what they slow down is no fault of nodes. Links within a leaf have no routes
    to collide on, so those across, which have, do not crowd them out."""
    slow = [s for s in suspects if s.ratio is not None]
    slow.sort(key=lambda s: (not s.kind.startswith("uplink"), s.ratio))
    links = [s for s in slow if s.kind == "link"]
    return [
        *[s for s in slow if s.kind != "link"][:RETESTED],
        *[s for s in links if not across(s)][:RETESTED],
        *[s for s in links if across(s)][:RETESTED],
    ]


def matrix_from(names: Sequence[str], measurements: Iterable[Measurement]) -> Matrix:
    """The last measurement of each pair counts."""
    number = {name: index for index, name in enumerate(names)}
    samples: dict[Pair, tuple[float, ...]] = {}
    failed: dict[Pair, str] = {}
    for measurement in measurements:
        pair = Pair(number[measurement.sender], number[measurement.receiver])
        samples.pop(pair, None)
        failed.pop(pair, None)
        if measurement.rates:
            samples[pair] = measurement.rates
        else:
            failed[pair] = measurement.error or "no sample"
    return matrix_of(names, samples, failed)
