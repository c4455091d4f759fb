"""Findings by collectives: wrong elements, missing series, the way of their bytes, their speed."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.interconnect.judge.finding import Finding, Weight, ratio_finding, ratio_text
from analysis.interconnect.judge.ratios import ratio
from analysis.interconnect.load.baseline import Baseline, series_now, shape_of
from analysis.interconnect.load.collectives import through_ports
from train.interconnect.collectives.record import WAYS, Collectives, Series

#: Headers add to what is sent; less means that it went another way.
CARRIED = 0.99


def series_findings(series: Series) -> Iterator[Finding]:
    wrong = sum(point.wrong for point in series.points)
    name = f"{series.operation} by {series.way}, {series.place} of place, {series.mode}"
    if wrong:
        sizes = [str(point.bytes) for point in series.points if point.wrong]
        yield Finding(weight="fault", what="corrupt",
                      evidence=f"{name}: {wrong} wrong elements at {', '.join(sizes)} bytes, "
                      "expected none")  # fmt: skip
    if series.error:
        yield Finding(weight="open", what="collective", evidence=f"{name}: {series.error}")


def collectives_findings(collectives: Collectives) -> Iterator[Finding]:
    for series in collectives.series:
        yield from series_findings(series)
    if len(collectives.series) < collectives.planned:
        why = f"{len(collectives.series)} of {collectives.planned} series were measured"
        yield Finding(weight="open", what="not measured", evidence=why)
    yield from _elsewhere(collectives)
    if collectives.oversubscribed:
        why = "ranks share cores: times of collectives hold waiting for a core"
        yield Finding(weight="remark", what="oversubscribed", evidence=why)


def _elsewhere(collectives: Collectives) -> Iterator[Finding]:
    """Whether what the ranks must send together went through the interface, or InfiniBand ports.

    Together, because an algorithm need not send equally much from every rank.
    """
    if len(collectives.ranks) > collectives.nodes:
        why = "ranks of one node bypass its interface, so counters do not prove the way taken"
        yield Finding(weight="remark", what="interface", evidence=why)
        return
    sent = [s for s in collectives.series if s.payload_bytes and not s.error]
    counted = [s for s in sent if all(c.sent_bytes is not None for c in s.carried)]
    if len(counted) < len(sent):
        why = "byte counters could not be read during the collectives: no proof of the way taken"
        yield Finding(weight="open", what="interface", evidence=why)
    shares = {way: min((_carried(s) for s in counted if s.way == way), default=1.0) for way in WAYS}
    for way, share in shares.items():
        if share < CARRIED:
            yield Finding(
                weight="open", what="interface",
                evidence=f"collectives by {way}: the interfaces carried {share:.0%} of what the "
                "ranks must send: the traffic takes another way, or RDMA that nothing counts here",
            )  # fmt: skip
    if through_ports(collectives):
        why = "Horovod's collectives went through the InfiniBand ports, plain sockets' did not"
        yield Finding(weight="remark", what="RDMA", evidence=why)


def _carried(series: Series) -> float:
    sent = sum((c.sent_bytes or 0) + (c.port_sent_bytes or 0) for c in series.carried)
    return sent / series.payload_bytes


def collectives_against(collectives: Collectives, baseline: Baseline) -> Iterator[Finding]:
    """What Horovod's collectives went through, and how fast they are, against the baseline."""
    yield from _ports(collectives, baseline)
    yield from _speeds(collectives, baseline)


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
    yield Finding(weight=weight, what="RDMA", evidence=why)


def _speeds(collectives: Collectives, baseline: Baseline) -> Iterator[Finding]:
    """By way, since what Horovod takes may not be what pairs took; each series at the largest size
    that both have: a slow one ends with fewer."""
    if baseline.shape is None:
        return
    if (shape := shape_of(collectives)) != baseline.shape:
        why = f"collectives are not compared: {baseline.shape} in {baseline.run}, {shape} now"
        yield Finding(weight="remark", what="collectives", evidence=why)
        return
    then = {(s.way, s.name): s.seconds for s in baseline.collectives}
    for way in WAYS:
        speeds: dict[str, tuple[float, float]] = {}
        for own in series_now(collectives):
            before = then.get((way, own.name), {}) if own.way == way else {}
            if common := set(own.seconds) & set(before):
                size = max(common)
                speeds[own.name] = 1 / own.seconds[size], 1 / before[size]
        reached = ratio(
            {name: (speed,) for name, (speed, _) in speeds.items()},
            {name: (speed,) for name, (_, speed) in speeds.items()},
        )
        if reached is None:
            continue
        reach = ratio_text(reached, "series")
        said = f"collectives by {way} reach {reach} of the speed of baseline {baseline.run}"
        finding = ratio_finding(reached, "collectives", (), said)
        if collectives.oversubscribed:
            finding = finding.model_copy(update={"weight": "remark", "what": "collectives"})
        yield finding
