"""A run against what a healthy network reached before, its baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from analysis import fmt
from analysis.interconnect.baseline import Baseline, PairsRates, baseline_of
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
    here, before = baseline_of(run), baseline.rates
    common = {pair: rates for pair, rates in here.rates.items() if pair in before}
    if not common:
        why = f"no pair of nodes in common with {baseline.run} ({', '.join(baseline.nodes)})"
        yield Finding("open", "baseline", why)
        return
    if reasons := tuple(_refusals(baseline, here, now)):
        why = f"{baseline.run}: {'; '.join(reasons)}"
        if not force:
            yield Finding("open", "baseline", f"not comparable with {why}")
            return
        yield Finding("remark", "forced", f"compared by force with {why}")
    # fewer nodes make fewer pairs; one halving may be chance at the threshold
    if 2 * here.company < min(baseline.company, len(here.nodes) // 2):
        why = (f"up to {baseline.company} pairs ran at the same time without loss in "
               f"{baseline.run}, {here.company} now: more is shared, or in use")  # fmt: skip
        yield Finding("remark" if force else "open", "concurrency", why)
    populations = _populations(common, run.tournament.switches)
    for name, mine in populations.items():
        reached = ratio(mine, before)
        said = f"{name} reach {reached.text(fmt.TWO)} of baseline {baseline.run}"
        yield _judged(reached, "fabric", said)
    least = min(LEAST, len(here.nodes) - 1)
    for node, way, own in _nodes_behind([*populations.values()], before, least):
        share = own.text(fmt.TWO)
        said = f"what it {way}s is {share} of baseline {baseline.run}, beside the others"
        yield _as_tested(_judged(own, way, said, (node,)), run.tournament)
    yield from _uplinks(here, baseline)
    if run.collectives is not None:
        yield from _ports(run.collectives, here, baseline)
        yield from _speeds(run.collectives, here, baseline)


def _judged(estimate: Estimate, what: str, said: str, nodes: tuple[str, ...] = ()) -> Finding:
    """A remark from SLOWER on; below, a fault if the interval lies below SURELY, else open."""
    value = value_of(estimate)
    said = f"{said}; {estimate.note or f'{estimate.n} compared'}"
    if value >= SLOWER:
        return Finding("remark", "baseline", said, nodes, value)
    sure = estimate.high is not None and estimate.high < SURELY
    return Finding("fault" if sure else "open", what, said, nodes, value)


def _refusals(baseline: Baseline, here: Baseline, now: datetime) -> Iterator[str]:
    """Why a comparison of the two would not be one of the network alone; all of it."""
    age = now - baseline.made_at
    if age > MAX_AGE:
        yield f"it is {age.days} days old, expected at most {MAX_AGE.days}: keep a new one"
    was, is_now = (
        {"interfaces": ", ".join(one.interfaces), "connections of a pair": str(one.streams),
         **one.environment}
        for one in (baseline, here)
    )  # fmt: skip
    for name in sorted(was.keys() & is_now.keys()):
        if is_now[name] != was[name] and not name.endswith(_MAY_DIFFER):
            yield f"{name}: {was[name]} then, {is_now[name]} now"
    for one, whose in ((baseline, "it"), (here, "this run")):
        if not one.environment:
            yield f"{whose} has no preflight, so it is not known whether the nodes are the same"


def _populations(rates: PairsRates, switches: Mapping[str, str]) -> dict[str, PairsRates]:
    """Within leaf switches and across: one may have got slower and the other not."""
    across = {pair: own for pair, own in rates.items() if is_across(pair, switches)}
    within = {pair: own for pair, own in rates.items() if pair not in across}
    if not across or not within:
        return {"all pairs": rates}
    return {"pairs within leaf switches": within, "pairs across leaf switches": across}


def _nodes_behind(
    populations: Sequence[PairsRates], before: PairsRates, least: int
) -> Iterator[tuple[str, str, Estimate]]:
    """Sides of nodes that lost more than the others did: node, its way, now over then.

    Rates are divided by what their population lost as a whole. least: partners of a side.
    """
    sides: dict[tuple[str, str], PairsRates] = {}
    for mine in populations:
        lost = value_of(ratio(mine, before))
        for (sender, receiver), rates in mine.items():
            levelled = tuple(rate / lost for rate in rates)
            sides.setdefault((sender, "send"), {})[sender, receiver] = levelled
            sides.setdefault((receiver, "receive"), {})[sender, receiver] = levelled
    for (node, way), mine in sides.items():
        own = ratio(mine, before)
        if own.n < least or value_of(own) >= SLOWER or own.high is None:
            continue
        others = [{p: r for p, r in rates.items() if node not in p} for rates in populations]
        rest = [ratio(one, before) for one in others if one]
        # how far below their median ratio the others may be by chance
        if own.high < min(((one.low or 0.0) / value_of(one) for one in rest), default=1.0):
            yield node, way, own


def _as_tested(finding: Finding, tournament: Tournament) -> Finding:
    """The baseline knows only what a node did while others ran: what it does alone decides."""
    own = [retest.outcome for retest in tournament.retests
           if retest.nodes == finding.nodes and retest.kind in ("node", finding.what)]  # fmt: skip
    weight: Weight = finding.weight
    if finding.weight == "fault" and "confirmed" not in own:
        weight = "remark" if "recovered" in own else "open"
    said = "" if own else "; not retested"
    return replace(finding, weight=weight, evidence=finding.evidence + said)


def _uplinks(here: Baseline, baseline: Baseline) -> Iterator[Finding]:
    """Routes are chosen anew with each connection: a fault is what is slower in every round."""
    then, now = (
        {(c.sender, c.receiver, c.pairs): c.rates for c in one.uplinks} for one in (baseline, here)
    )
    if not (both := [(now[key], then[key]) for key in now if key in then]):
        return
    value = float(np.median([np.median(mine) / np.median(before) for mine, before in both]))
    slow = [mine for mine, before in both if max(mine) < SLOWER * min(before)]
    weight: Weight = "open" if value < SLOWER else "remark"
    if 2 * len(slow) > len(both):
        weight = "fault"
    why = (f"whole leaf switches to each other reach {value:.2f} of baseline {baseline.run}, "
           f"{len(slow)} of {len(both)} ways less in every round")  # fmt: skip
    yield Finding(weight, UPLINKS_HELD if weight == "remark" else "fabric", why, ratio=value)


def _ports(collectives: Collectives, here: Baseline, baseline: Baseline) -> Iterator[Finding]:
    """Whatever the ranks' number: a data plane that has no RDMA any more."""
    known = here.through_ports is not None
    shared = len(collectives.ranks) > collectives.nodes  # ranks of one node share its ports
    if not baseline.through_ports or here.through_ports or (shared and not known):
        return
    now = ("they do not: see in logs/collectives what its data plane fell back to"
           if known else "it is not known whether they do")  # fmt: skip
    why = f"Horovod's collectives went through the InfiniBand ports in {baseline.run}; now {now}"
    yield Finding("fault" if known else "open", "RDMA", why)


def _speeds(collectives: Collectives, here: Baseline, baseline: Baseline) -> Iterator[Finding]:
    """By way, since what Horovod takes may not be what pairs took; each series at the largest size
    that both have: a slow one ends with fewer."""
    if here.shape != baseline.shape:
        was = baseline.shape or "none were measured"
        why = f"collectives are not compared: {was} in {baseline.run}, {here.shape} now"
        yield Finding("remark", "collectives", why)
        return
    before = {(series.way, series.name): series.seconds for series in baseline.collectives}
    for way in WAYS:
        now, then = dict[str, tuple[float]](), dict[str, tuple[float]]()
        for series in (series for series in here.collectives if series.way == way):
            theirs = before.get((way, series.name), {})
            if common := series.seconds.keys() & theirs.keys():
                now[series.name] = (1 / series.seconds[max(common)],)
                then[series.name] = (1 / theirs[max(common)],)
        if not now:
            continue
        reached = ratio(now, then)
        share = reached.text(fmt.TWO)
        said = f"collectives by {way} reach {share} of the speed of baseline {baseline.run}"
        found = _judged(reached, "collectives", said)
        shared = replace(found, weight="remark", what="collectives")
        yield shared if collectives.oversubscribed else found
