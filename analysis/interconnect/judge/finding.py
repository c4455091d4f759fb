"""Findings, the verdict that is made of them, which of them follow from a ratio, and which leave
others in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from analysis.interconnect.judge.ratios import value_of
from analysis.table import Estimate
from train.config.frozen import Frozen

#: fault: the network's. open: may be one, but this run cannot decide. remark: good to know.
Weight = Literal["fault", "open", "remark"]
Status = Literal["PASS", "FAIL", "UNDECIDED"]
#: Doubts about all rates of a run; one about an interface is about its node's.
_UNSURE = ("cpu-limited", "noise")
#: What is no fault any more where rates are doubtful.
_BY_RATE = ("node", "send", "receive", "link", "uplink", "uplink-send", "uplink-receive",
            "fabric", "below spec", "collectives")  # fmt: skip
#: A median pair below this share of the baseline is a fault, where the interval says so, too.
SLOWER = 0.90
SURELY = 0.95


class Finding(Frozen):
    """nodes: that it is about; for a link sender and receiver. ratio: of what healthy peers reach.
    evidence: what was measured, in words."""

    weight: Weight
    what: str  # node, send, receive, link, corrupt, unreachable, lost, contention, ...
    nodes: tuple[str, ...] = ()
    ratio: float | None = None
    evidence: str


class Verdict(Frozen):
    """middle: bit/s, of the median node. visible: share of it below which a side would have been a
    suspect; visible_links: a link, below this share of what others reach of their ends' rates."""

    status: Status
    findings: tuple[Finding, ...]
    nodes: int
    middle: float | None
    visible: float | None
    visible_links: float | None = None


def doubted(finding: Finding, own: Sequence[Finding], switches: Mapping[str, str]) -> Finding:
    """The finding, no longer a fault where the rates that it rests on are in doubt.

    Rates that processors or noise limit show nothing of links, nodes or the fabric. Traffic that
    took, or may have taken, another way shows nothing of its node, that node's leaf switch, or all
    nodes together.

    Args:
        own: findings about the run itself, among them the doubts.
        switches: node -> leaf switch.
    """
    if finding.weight != "fault" or finding.what not in _BY_RATE:
        return finding
    doubts = [f for f in own if f.weight == "open"]
    elsewhere = [f for f in doubts if f.what == "interface"]
    about = {node for f in elsewhere for node in f.nodes}
    about |= {switches[node] for node in about if node in switches}
    if finding.what == "collectives":
        astray = bool(elsewhere)
    else:
        astray = bool(about & set(finding.nodes)) if finding.nodes else bool(about)
    doubtful = astray or any(f.what in _UNSURE for f in doubts)
    return finding.model_copy(update={"weight": "open"}) if doubtful else finding


def ratio_finding(estimate: Estimate, what: str, nodes: tuple[str, ...], said: str) -> Finding:
    """A remark from SLOWER on; below, a fault if the interval lies below SURELY, else open."""
    value = value_of(estimate)
    weight: Weight = "remark"
    if value < SLOWER:
        weight = "fault" if estimate.high is not None and estimate.high < SURELY else "open"
    return Finding(weight=weight, what="baseline" if weight == "remark" else what, nodes=nodes,
                   ratio=value, evidence=said)  # fmt: skip


def ratio_text(estimate: Estimate, of: str = "pairs") -> str:
    """``0.50 (0.48 to 0.52, 12 pairs)``"""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f} ({estimate.note})"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f}, {estimate.n} {of})"
