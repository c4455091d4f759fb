"""Findings and the verdict that is made of them, in types and in words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from train.config.frozen import Frozen

#: fault: the network's. open: may be one, but this run cannot decide. remark: good to know.
Weight = Literal["fault", "open", "remark"]
Status = Literal["PASS", "FAIL", "UNDECIDED"]
#: Doubts about all rates of a run; one about an interface is about its node's.
_UNSURE = ("cpu-limited", "noise")
#: What is no fault any more where rates are doubtful.
_BY_RATE = ("node", "send", "receive", "link", "uplink", "uplink-send", "uplink-receive",
            "fabric", "below spec", "collectives")  # fmt: skip
#: More nodes than this share, and more than one, are no nodes' fault.
CAP = 0.05
#: Findings of a node that is to be drained, and their codes in its reason.
_CODES = {"node": "ic-both", "send": "ic-send", "receive": "ic-recv", "lost": "ic-lost",
          "unreachable": "ic-none", "absent": "ic-absent"}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """evidence: what was measured, in words. nodes: that it is about; for a link sender and
    receiver. ratio: of what healthy peers reach."""

    weight: Weight
    what: str  # node, send, receive, link, corrupt, unreachable, lost, contention, ...
    evidence: str
    nodes: tuple[str, ...] = ()
    ratio: float | None = None

    @property
    def name(self) -> str:
        return f"{self.what} {' -> '.join(self.nodes)}".strip()


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
    nodes together. own: findings about the run itself, among them the doubts.
    """
    if finding.weight != "fault" or finding.what not in _BY_RATE:
        return finding
    doubts = [f for f in own if f.weight == "open"]
    elsewhere = [f for f in doubts if f.what == "interface"]
    about = {node for f in elsewhere for node in f.nodes}
    about |= {switches[node] for node in about if node in switches}
    astray = about & set(finding.nodes or about)
    if finding.what == "collectives":
        astray = {f.what for f in elsewhere}
    doubtful = bool(astray) or any(f.what in _UNSURE for f in doubts)
    return replace(finding, weight="open") if doubtful else finding


def bits(rate: float) -> str:
    return _scaled(rate, {"Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3, "bit/s": 1.0})


def seconds(time: float) -> str:
    return _scaled(time, {"s": 1.0, "ms": 1e-3, "us": 1e-6})


def size(count: float) -> str:
    """Bytes, in powers of two as they are measured."""
    return _scaled(count, {"MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0})


def _scaled(value: float, units: Mapping[str, float]) -> str:
    """Three digits, in the largest unit that the value reaches; the last one for smaller ones."""
    # three digits would round 0.9995 up to the next unit
    unit = next((unit for unit, of in units.items() if abs(value) >= 0.9995 * of), [*units][-1])
    return f"{value / units[unit]:.3g} {unit}"


def headline(verdict: Verdict) -> str:
    """The reason for the verdict in one line; of a pass, what a fault would have had to be to be
    seen."""
    if verdict.status == "PASS":
        sides, links = verdict.visible, verdict.visible_links
        seen = [f"node or direction below {sides:.2f} of the median"] if sides else []
        seen += [f"link below {links:.2f} of what its ends reach with others"] if links else []
        return f"no {', no '.join(seen or ['fault among what was measured'])}"
    weight = "fault" if verdict.status == "FAIL" else "open"
    return "; ".join(finding.name for finding in verdict.findings if finding.weight == weight)


def lines(verdict: Verdict, run: str) -> list[str]:
    """Drain, undo and exclude; where too many nodes are slow, that is said instead."""
    bad = [f for f in verdict.findings if f.weight == "fault" and f.what in _CODES
           and len(f.nodes) == 1]  # fmt: skip
    if not bad:
        return []
    most = max(1, math.floor(CAP * verdict.nodes))
    names = sorted({finding.nodes[0] for finding in bad})
    if len(names) > most:
        return [
            f"# {len(names)} of {verdict.nodes} nodes are slow, more than {most}: look for what "
            f"they share ({', '.join(map(_word, names))}) before any is drained"
        ]
    commands = []
    for finding in bad:
        name = _word(finding.nodes[0])
        # sinfo -R cuts at twenty characters: the code and the number come first
        ratio = "" if finding.ratio is None else f" {finding.ratio:.2f}x"
        reason = _word(f"{_CODES[finding.what]}{ratio} run={run}")
        update = f"scontrol update NodeName={name} State="
        commands += [f"{update}DRAIN Reason={reason}", f"# once it is fixed: {update}RESUME"]
    return [*commands, f"# or keep jobs away from it: --exclude={_word(','.join(names))}"]


def _word(text: str) -> str:
    """As one word of a shell's line, which no name ends."""
    return shlex.quote("".join(sign if sign.isprintable() else "?" for sign in text))
