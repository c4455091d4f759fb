"""A run against what a healthy network reached before, its baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from analysis.interconnect.baseline import (
    Baseline,
    Crossing,
    PairsRates,
    rates_now,
    rates_then,
    uplinks_now,
)
from analysis.interconnect.collectives import series_now, shape_of, through_ports
from analysis.interconnect.facts import environment
from analysis.interconnect.finding import Finding, Weight
from analysis.interconnect.run import Run
from analysis.interconnect.suspects import is_across
from analysis.stats.ratios import ratio, value_of
from analysis.table import Estimate
from train.interconnect.collectives.record import WAYS, Collectives
from train.interconnect.record import LEAST, Tournament

#: A median pair below this share of the baseline is a fault, where the interval says so, too.
SLOWER, SURELY = 0.90, 0.95
#: Firmware, routes and neighbours change; an older baseline proves nothing.
MAX_AGE = timedelta(days=90)
#: Facts that may differ without another network being measured.
_MAY_DIFFER = ("frequency governor", "transparent huge pages", "image")
#: What a remark is called that whole leaves reach each other as before.
UPLINKS_HELD = "uplinks as before"


def against_baseline(
    run: Run, baseline: Baseline, now: datetime, *, force: bool = False
) -> Iterator[Finding]:
    """The whole fabric first; then nodes that got slower than the fabric did.

    force: compare also what differs in more than its rates, and say in what.
    """
    if run.tournament is None:
        return  # said once for the run
    before = rates_then(baseline.pairs)
    if not set(before) & set(rates_now(run.tournament)):
        why = f"no pair of nodes in common with {baseline.run} ({', '.join(baseline.nodes)})"
        yield Finding("open", "baseline", why)
        return
    if reasons := tuple(refusals(baseline, run, run.tournament, now)):
        why = f"{baseline.run}: {'; '.join(reasons)}"
        if not force:
            yield Finding("open", "baseline", f"not comparable with {why}")
            return
        yield Finding("remark", "forced", f"compared by force with {why}")
    # fewer nodes make fewer pairs; one halving may be chance at the threshold
    if 2 * run.tournament.company < min(baseline.company, len(run.tournament.nodes) // 2):
        yield Finding(
            "remark" if force else "open", "concurrency",
            f"up to {baseline.company} pairs ran at the same time without loss in "
            f"{baseline.run}, {run.tournament.company} now: more is shared than was, or other jobs "
            "use the links",
        )  # fmt: skip
    populations = dict(_populations(run.tournament))
    for name, mine in populations.items():
        if (reached := ratio(mine, before)) is not None:
            said = f"{name} reach {_text(reached)} of baseline {baseline.run}"
            yield _judged(reached, "fabric", said)
    for node, way, own in _nodes_behind(run.tournament, [*populations.values()], before):
        said = f"what it {way}s is {_text(own)} of baseline {baseline.run}, beside the others"
        yield _as_tested(_judged(own, way, said, (node,)), run.tournament)
    yield from _uplinks(uplinks_now(run.tournament), baseline)
    if run.collectives is not None:
        yield from _ports(run.collectives, baseline)
        yield from _speeds(run.collectives, baseline)


def _judged(estimate: Estimate, what: str, said: str, nodes: tuple[str, ...] = ()) -> Finding:
    """A remark from SLOWER on; below, a fault if the interval lies below SURELY, else open."""
    value = value_of(estimate)
    if value >= SLOWER:
        return Finding("remark", "baseline", said, nodes, value)
    sure = estimate.high is not None and estimate.high < SURELY
    return Finding("fault" if sure else "open", what, said, nodes, value)


def _text(estimate: Estimate, of: str = "pairs") -> str:
    """``0.50 (0.48 to 0.52, 12 pairs)``"""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f} ({estimate.note})"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f}, {estimate.n} {of})"


def refusals(baseline: Baseline, run: Run, tournament: Tournament, now: datetime) -> Iterator[str]:
    """Why a comparison of the two would not be one of the network alone; all of it."""
    age = now - baseline.made_at
    if age > MAX_AGE:
        yield f"it is {age.days} days old, expected at most {MAX_AGE.days}: keep a new one"
    mine = tuple(sorted({node.interface for node in tournament.nodes}))
    if mine != baseline.interfaces:
        yield f"it went over {', '.join(baseline.interfaces)}, this run over {', '.join(mine)}"
    if tournament.streams != baseline.streams:
        yield f"its pairs used {baseline.streams} connections, this run's {tournament.streams}"
    here = environment(run.facts)
    for name, then in sorted(baseline.environment.items()):
        now_is = here.get(name)
        if now_is is not None and now_is != then and not name.endswith(_MAY_DIFFER):
            yield f"{name}: {then} then, {now_is} now"
    for known, whose in ((baseline.environment, "it"), (here, "this run")):
        if not known:
            yield f"{whose} has no preflight, so it is not known whether the nodes are the same"


def _populations(tournament: Tournament) -> Iterator[tuple[str, PairsRates]]:
    """Within leaf switches and across: one may have got slower and the other not."""
    mine = rates_now(tournament)
    across = {pair: rates for pair, rates in mine.items() if is_across(pair, tournament.switches)}
    within = {p: r for p, r in mine.items() if p not in across}
    if not across or not within:
        yield "all pairs", mine
        return
    yield "pairs within leaf switches", within
    yield "pairs across leaf switches", across


def _nodes_behind(
    tournament: Tournament, populations: Sequence[PairsRates], before: PairsRates
) -> Iterator[tuple[str, str, Estimate]]:
    """Sides of nodes that lost more than the others did: node, its way, now over then.

    Rates are divided by what their population lost as a whole.
    """
    sides: dict[tuple[str, str], PairsRates] = {}
    for mine in populations:
        if (level := ratio(mine, before)) is None:
            continue
        lost = value_of(level)
        for (sender, receiver), rates in mine.items():
            levelled = tuple(rate / lost for rate in rates)
            sides.setdefault((sender, "send"), {})[sender, receiver] = levelled
            sides.setdefault((receiver, "receive"), {})[sender, receiver] = levelled
    least = min(LEAST, len(tournament.nodes) - 1)
    for node in (node.name for node in tournament.nodes):
        for way in ("send", "receive"):
            own = ratio(sides.get((node, way), {}), before)
            if own is None or own.n < least or value_of(own) >= SLOWER or own.high is None:
                continue
            others = [{p: r for p, r in mine.items() if node not in p} for mine in populations]
            if own.high < min((_sure_share(mine, before) for mine in others if mine), default=1.0):
                yield node, way, own


def _sure_share(mine: PairsRates, before: PairsRates) -> float:
    """How far below their median ratio the others may be by chance."""
    reached = ratio(mine, before)
    if reached is None:
        return 1.0
    return 0.0 if reached.low is None else reached.low / value_of(reached)


def _as_tested(finding: Finding, tournament: Tournament) -> Finding:
    """The baseline knows only what a node did while others ran: what it does alone decides."""
    own = [retest.outcome for retest in tournament.retests
           if retest.nodes == finding.nodes and retest.kind in ("node", finding.what)]  # fmt: skip
    weight: Weight = finding.weight
    if finding.weight == "fault" and "confirmed" not in own:
        weight = "remark" if "recovered" in own else "open"
    said = "" if own else "; not retested"
    return replace(finding, weight=weight, evidence=finding.evidence + said)


def _uplinks(now: Sequence[Crossing], baseline: Baseline) -> Iterator[Finding]:
    """Routes are chosen anew with each connection: a fault is what is slower in every round."""
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
        weight, UPLINKS_HELD if weight == "remark" else "fabric",
        f"whole leaf switches to each other reach {value:.2f} of baseline {baseline.run}, "
        f"{len(slow)} of {len(both)} ways less in every round",
        ratio=value,
    )  # fmt: skip


def _ports(collectives: Collectives, baseline: Baseline) -> Iterator[Finding]:
    """Whatever the ranks' number: a data plane that has no RDMA any more."""
    if not baseline.through_ports or (now := through_ports(collectives)):
        return
    if now is False:
        weight: Weight = "fault"
        said = "now they do not: see in logs/collectives what its data plane fell back to"
    elif len(collectives.ranks) == collectives.nodes:
        weight, said = "open", "now it is not known whether they do"
    else:
        return  # ranks of one node share its ports
    why = f"Horovod's collectives went through the InfiniBand ports in {baseline.run}; {said}"
    yield Finding(weight, "RDMA", why)


def _speeds(collectives: Collectives, baseline: Baseline) -> Iterator[Finding]:
    """By way, since what Horovod takes may not be what pairs took; each series at the largest size
    that both have: a slow one ends with fewer."""
    if baseline.shape is None:
        return
    if (shape := shape_of(collectives)) != baseline.shape:
        why = f"collectives are not compared: {baseline.shape} in {baseline.run}, {shape} now"
        yield Finding("remark", "collectives", why)
        return
    then = {(s.way, s.name): s.seconds for s in baseline.collectives}
    for way in WAYS:
        mine, theirs = dict[str, tuple[float]](), dict[str, tuple[float]]()
        for own in series_now(collectives):
            before = then.get((way, own.name), {}) if own.way == way else {}
            if common := set(own.seconds) & set(before):
                size = max(common)
                mine[own.name], theirs[own.name] = (1 / own.seconds[size],), (1 / before[size],)
        if (reached := ratio(mine, theirs)) is None:
            continue
        reach = _text(reached, "series")
        said = f"collectives by {way} reach {reach} of the speed of baseline {baseline.run}"
        found = _judged(reached, "collectives", said)
        shared = replace(found, weight="remark", what="collectives")
        yield shared if collectives.oversubscribed else found
