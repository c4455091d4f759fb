"""A run against what was before: its baseline, or what its links are sold as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import numpy as np

from analysis.interconnect.bandwidth import through_ports
from analysis.interconnect.baseline import (
    Baseline,
    Crossing,
    PairsRates,
    impossible,
    rates_now,
    rates_then,
    refusals,
    series_now,
    shape_of,
    uplinks_now,
)
from analysis.interconnect.expected import expected
from analysis.interconnect.finding import Finding, Weight
from analysis.interconnect.run import Run
from analysis.interconnect.uplinks import is_across
from analysis.model.fit import resampled_medians
from train.interconnect.collectives.record import WAYS, Collectives
from train.interconnect.record import LEAST, Tournament

#: A median pair below this share of the baseline is a fault, where the interval says so, too.
SLOWER = 0.90
SURELY = 0.95
#: Of a link's rate, one TCP stream's payload is to reach this share of what headers leave.
SPEC = 0.90
#: bit/s that one TCP stream of this program fills for certain, whatever processors there are.
ONE_STREAM = 10e9
#: Links that are loaded less than this share of their rate hide what they lack.
LOADED = 0.5
RESAMPLES = 1000
#: What a remark is called that whole leaves reach each other as before.
UPLINKS_HELD = "uplinks as before"
Key = TypeVar("Key", str, tuple[str, str])


class Ratio(NamedTuple):
    """Now over then: the median over pairs, and its bootstrap interval (95 %)."""

    value: float
    low: float
    high: float
    pairs: int
    of: str = "pairs"

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f}, {self.pairs} {self.of})"


def ratio(
    now: Mapping[Key, Sequence[float]], then: Mapping[Key, Sequence[float]], seed: int = 0,
    of: str = "pairs",
) -> Ratio | None:  # fmt: skip
    """Pairs and their samples are drawn anew; None: no pair in common."""
    common = sorted(set(now) & set(then))
    if not common:
        return None
    random = np.random.default_rng(seed)
    # one column per pair: medians of resampled samples
    medians_now, medians_then = (
        [resampled_medians(side[p], RESAMPLES, random) for p in common] for side in (now, then)
    )
    drawn = np.stack(medians_now, axis=1) / np.stack(medians_then, axis=1)
    chosen = random.integers(len(common), size=(RESAMPLES, len(common)))
    medians = np.median(np.take_along_axis(drawn, chosen, axis=1), axis=1)
    value = float(np.median([np.median(now[p]) / np.median(then[p]) for p in common]))
    low, high = np.percentile(medians, (2.5, 97.5))
    return Ratio(value, float(low), float(high), len(common), of)


def against_baseline(
    run: Run, baseline: Baseline, now: datetime, *, force: bool = False
) -> Iterator[Finding]:
    """The whole fabric first; then nodes that got slower than the fabric did.

    force: compare also what differs in more than its rates, and say in what.
    """
    nothing = impossible(baseline, run)
    reasons = (nothing,) if nothing else tuple(refusals(baseline, run, now))
    if reasons:
        told = f"{baseline.run}: {'; '.join(reasons)}"
        if nothing or not force:
            yield Finding(weight="open", what="baseline", evidence=f"not comparable with {told}")
            return
        yield Finding(weight="remark", what="forced", evidence=f"compared by force with {told}")
    assert run.tournament is not None
    # fewer nodes make fewer pairs; one halving may be chance at the threshold
    if 2 * run.tournament.company < min(baseline.company, len(run.tournament.nodes) // 2):
        yield Finding(
            weight="remark" if force else "open", what="company",
            evidence=f"up to {baseline.company} pairs ran at the same time without loss in "
            f"{baseline.run}, {run.tournament.company} now: more is shared than was, or other jobs "
            "use the links",
        )  # fmt: skip
    before = rates_then(baseline.pairs)
    levelled: PairsRates = {}
    surely = 1.0
    for name, mine in _populations(run.tournament):
        whole = ratio(mine, before)
        if whole is None:
            continue
        yield _finding(whole, "fabric", (), f"{name} reach {whole} of baseline {baseline.run}")
        levelled |= {p: tuple(r / whole.value for r in rates) for p, rates in mine.items()}
        surely = min(surely, whole.low / whole.value)
    for node, way, own in _nodes_behind(run.tournament, levelled, before, surely):
        said = f"what it {way}s is {own} of baseline {baseline.run}, beside the others"
        yield _as_tested(_finding(own, way, (node,), said), run.tournament)
    yield from _uplinks(uplinks_now(run.tournament), baseline)
    if run.collectives is not None:
        yield from _ports(run.collectives, baseline)
        yield from _collectives(run.collectives, baseline)


def _populations(found: Tournament) -> Iterator[tuple[str, PairsRates]]:
    """Within leaf switches and across: one may have got slower and the other not."""
    mine = rates_now(found)
    across = {pair: rates for pair, rates in mine.items() if is_across(pair, found.switches)}
    within = {p: r for p, r in mine.items() if p not in across}
    if not across or not within:
        yield "all pairs", mine
        return
    yield "pairs within leaf switches", within
    yield "pairs across leaf switches", across


def _nodes_behind(
    found: Tournament, levelled: PairsRates, before: PairsRates, surely: float
) -> Iterator[tuple[str, str, Ratio]]:
    """Nodes that lost more than the others did, by their directions.

    levelled: rates over what their population lost. surely: below this share of it a node is apart.
    """
    least = min(LEAST, len(found.nodes) - 1)
    for node in found.nodes:
        for way, place in (("send", 0), ("receive", 1)):
            own = ratio({p: r for p, r in levelled.items() if p[place] == node.name}, before)
            if own is not None and own.pairs >= least and own.value < SLOWER and own.high < surely:
                yield node.name, way, own


def _as_tested(finding: Finding, found: Tournament) -> Finding:
    """The baseline knows what a node did in company only: what it does alone decides."""
    own = [retest.outcome for retest in found.retests
           if retest.nodes == finding.nodes and retest.kind in ("node", finding.what)]  # fmt: skip
    weight: Weight = finding.weight
    if finding.weight == "fault" and "confirmed" not in own:
        weight = "remark" if "recovered" in own else "open"
    said = "" if own else "; not tested again"
    return finding.model_copy(update={"weight": weight, "evidence": finding.evidence + said})


def _uplinks(now: Sequence[Crossing], baseline: Baseline) -> Iterator[Finding]:
    """Routes are drawn anew with each connection: a fault is what is slower in every round."""
    then = {(c.sender, c.receiver, c.pairs): c.rates for c in baseline.uplinks}
    both = [(c.rates, then[key]) for c in now if (key := (c.sender, c.receiver, c.pairs)) in then]
    if not both:
        return
    value = float(np.median([np.median(mine) / np.median(before) for mine, before in both]))
    slow = [mine for mine, before in both if max(mine) < SLOWER * min(before)]
    weight: Weight = "open" if value < SLOWER else "remark"
    if 2 * len(slow) > len(both):
        weight = "fault"
    yield Finding(
        weight=weight, what=UPLINKS_HELD if weight == "remark" else "fabric", ratio=value,
        evidence=f"whole leaf switches to each other reach {value:.2f} of baseline {baseline.run}, "
        f"{len(slow)} of {len(both)} ways less in every round",
    )  # fmt: skip


def _ports(found: Collectives, baseline: Baseline) -> Iterator[Finding]:
    """Whatever the ranks' number: a data plane that has no RDMA any more."""
    if not baseline.through_ports or (now := through_ports(found)):
        return
    if now is False:
        weight: Weight = "fault"
        said = "now they do not: look what its data plane fell back to (logs/collectives)"
    elif len(found.ranks) == found.nodes:
        weight, said = "open", "now nothing tells whether they do"
    else:
        return  # ranks of one node share its ports
    why = f"Horovod's collectives went through the InfiniBand ports in {baseline.run}; {said}"
    yield Finding(weight=weight, what="RDMA", evidence=why)


def _collectives(found: Collectives, baseline: Baseline) -> Iterator[Finding]:
    """By way, since what Horovod takes may not be what pairs took; each series at the largest size
    that both have: a slow one ends with fewer."""
    if baseline.shape is None:
        return
    if (shape := shape_of(found)) != baseline.shape:
        why = f"collectives are not compared: {baseline.shape} in {baseline.run}, {shape} now"
        yield Finding(weight="remark", what="collectives", evidence=why)
        return
    then = {(s.way, s.name): s.seconds for s in baseline.collectives}
    for way in WAYS:
        speeds: dict[str, tuple[float, float]] = {}
        for own in series_now(found):
            before = then.get((way, own.name), {}) if own.way == way else {}
            if common := set(own.seconds) & set(before):
                size = max(common)
                speeds[own.name] = 1 / own.seconds[size], 1 / before[size]
        reached = ratio(
            {name: (speed,) for name, (speed, _) in speeds.items()},
            {name: (speed,) for name, (_, speed) in speeds.items()}, of="series",
        )  # fmt: skip
        if reached is None:
            continue
        said = f"collectives by {way} reach {reached} of the speed of baseline {baseline.run}"
        finding = _finding(reached, "collectives", (), said)
        if found.oversubscribed:
            finding = finding.model_copy(update={"weight": "remark", "what": "collectives"})
        yield finding


def _finding(found: Ratio, what: str, nodes: tuple[str, ...], said: str) -> Finding:
    """Between a fault and none lies what the interval leaves open."""
    weight: Weight = "remark"
    if found.value < SLOWER:
        weight = "fault" if found.high < SURELY else "open"
    return Finding(weight=weight, what="baseline" if weight == "remark" else what, nodes=nodes,
                   ratio=found.value, evidence=said)  # fmt: skip


def loaded(run: Run) -> Iterator[Finding]:
    """Whether the links were loaded at all, where their speed is known."""
    middle = run.tournament.decision.middle if run.tournament else None
    likely = expected(run.facts)
    if middle is None or likely is None or middle >= LOADED * likely.goodput:
        return
    yield Finding(
        weight="open", what="not loaded", ratio=middle / likely.goodput,
        evidence=f"the median side reaches {middle / 1e9:.3g} Gbit/s of links of "
        f"{likely.line / 1e9:.4g} Gbit/s: a link that lost half of its rate would not be seen",
    )  # fmt: skip


def against_spec(run: Run, line_bits: float) -> Iterator[Finding]:
    """line_bits: of the link as it is sold, bit/s, one way."""
    middle = run.tournament.decision.middle if run.tournament else None
    likely = expected(run.facts, line_bits)
    if middle is None or likely is None:
        return
    share = middle / likely.goodput
    good = share >= SPEC
    # a faster line is not to be blamed for what one stream does not fill
    assert run.tournament is not None
    sure = likely.goodput <= ONE_STREAM * run.tournament.streams
    yield Finding(
        weight="remark" if good else "fault" if sure else "open",
        what="spec" if good else "below spec",
        ratio=share,
        evidence=f"the median side reaches {middle / 1e6:.4g} Mbit/s, {share:.2f} of what headers "
        f"leave of {line_bits / 1e6:.4g} Mbit/s",
    )
