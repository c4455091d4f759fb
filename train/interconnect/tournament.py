"""The tournament: noise first, then every pair, then the suspects once more and alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import numpy as np

from train.interconnect.again import Run, look_across, look_again
from train.interconnect.decide import decide
from train.interconnect.matrix import Matrix, matrix_of, robust_deviation
from train.interconnect.record import Measurement, Node, Noise, Tournament
from train.interconnect.rounds import Pair, Round, everyone, one_at_a_time, some_partners
from train.interconnect.stream import Plan
from train.interconnect.switches import fit_partners, leaves_of, retest_rounds

#: More nodes than this meet some partners only, drawn at random.
ALL_PAIRS = 128
PARTNERS = 8
#: Pairs in company must keep this share of their rate alone, or they are measured one at a time.
TOGETHER = 0.93
#: So many pairs are compared alone and in company.
COMPARED = 3

Say = Callable[[str], None]


class Measures(Protocol):
    """A network whose pairs can be measured: Coordinator, or a simulation."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...
    @property
    def lost(self) -> dict[str, str]: ...
    async def measure(self, pairs: Round, plan: Plan, phase: str) -> list[Measurement]: ...


async def play(
    coordinator: Measures,
    plan: Plan,
    seed: int,
    say: Say,
    switches: Mapping[str, str] | None = None,
) -> Tournament:
    """All phases; needs at least two agents.

    switches: node -> leaf switch, of the nodes whose switch is known.

    Suspects are measured again with fresh partners and nothing beside them, and only what is slow
    again is confirmed: what recovers alone was contention.
    """
    began, started = datetime.now(UTC), time.monotonic()
    count = len(coordinator.nodes)
    done: list[Measurement] = []

    async def run(pairs: Round, phase: str) -> list[Measurement]:
        found = await coordinator.measure(pairs, plan, phase)
        done.extend(found)
        return found

    say("how steady is one pair, and does it mind company")
    rounds = everyone(count) if count <= ALL_PAIRS else some_partners(count, PARTNERS, seed)
    noise = await _noise(run, rounds)
    serial = noise is not None and noise.together is not None and noise.together < TOGETHER
    if serial:
        rounds = one_at_a_time(rounds)
    for number, pairs in enumerate(rounds, 1):
        say(f"round {number} of {len(rounds)}: {len(pairs)} pairs")
        await run(pairs, "tournament")
    names = tuple(node.name for node in coordinator.nodes)
    matrix = matrix_from(names, [m for m in done if m.phase == "tournament"])
    leaves = leaves_of(names, switches or {})
    decision = decide(matrix, leaves=leaves)
    # a slow link does not make its ends unfit to compare others with
    accused = {n for s in decision.suspects if s.kind in ("node", "send", "receive")
               for n in s.nodes}  # fmt: skip
    healthy = [number for number in range(count) if names[number] not in accused]
    retests = []
    for index, suspect in enumerate(decision.suspects):
        if suspect.ratio is not None:
            say(f"once more and alone: {suspect.kind} {' -> '.join(suspect.nodes)}")
            if suspect.kind.startswith("uplink"):
                assert leaves is not None
                tried, others = retest_rounds(suspect, leaves, decision.suspects)
                retests.append(await look_across(run, suspect, tried, others))
            else:
                fit = fit_partners(suspect, names, healthy, leaves, decision.suspects)
                retests.append(await look_again(run, names, suspect, fit, index))
    return Tournament(
        started_at=began,
        seconds=time.monotonic() - started,
        nodes=coordinator.nodes,
        lost=coordinator.lost,
        noise=noise,
        serial=serial,
        measurements=tuple(done),
        decision=decision,
        retests=tuple(retests),
        switches=dict(switches or {}),
    )


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


async def _noise(run: Run, rounds: Sequence[Round]) -> Noise | None:
    """One pair alone, twice; then some pairs alone, and with all of their round."""
    first = rounds[0]
    repeated = [m for _ in range(2) for m in await run((first[0],), "noise")]
    rates = [rate for measurement in repeated for rate in measurement.rates]
    if not rates:
        return None
    together = None
    if len(first) > 1:
        alone = {first[0]: rates}
        for pair in first[1:COMPARED]:
            (measurement,) = await run((pair,), "noise")
            alone[pair] = list(measurement.rates)
        company = dict(zip(first, await run(first, "noise"), strict=True))
        ratios = [
            float(np.median(company[pair].rates) / np.median(before))
            for pair, before in alone.items()
            if before and company[pair].rates
        ]
        together = min(ratios, default=None)
    names = (repeated[0].sender, repeated[0].receiver)
    cv = robust_deviation(rates) / float(np.median(rates))
    return Noise(pair=names, cv=cv, together=together)
