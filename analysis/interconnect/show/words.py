"""A verdict in words: numbers with their units, the reason in one line, lines for a sysadmin."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from analysis.interconnect.judge.finding import Finding, Verdict

#: More nodes than this share, and more than one, are no nodes' fault.
CAP = 0.05
_OF_A_NODE = ("node", "send", "receive", "lost", "unreachable", "absent")
_CODES = {"node": "ic-both", "send": "ic-send", "receive": "ic-recv", "lost": "ic-lost",
          "unreachable": "ic-none", "absent": "ic-absent"}  # fmt: skip


def bits(rate: float) -> str:
    """bit/s"""
    return _scaled(rate, (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)), "bit/s")


def seconds(time: float) -> str:
    return _scaled(time, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)), "us", 1e-6)


def size(count: float) -> str:
    """Bytes, in powers of two as they are measured."""
    return _scaled(count, (("MiB", 2.0**20), ("KiB", 2.0**10)), "B")


def _scaled(
    value: float, units: tuple[tuple[str, float], ...], smallest: str, one: float = 1.0
) -> str:
    for unit, of in units:
        if abs(value) >= 0.9995 * of:  # three digits would round up to the next unit
            return f"{value / of:.3g} {unit}"
    return f"{value / one:.3g} {smallest}"


def seen(verdict: Verdict) -> list[str]:
    """What a fault would have had to be to be seen."""
    faults = []
    if verdict.visible is not None:
        faults.append(f"node or direction below {verdict.visible:.2f} of the median")
    if verdict.visible_links is not None:
        faults.append(f"link below {verdict.visible_links:.2f} of what its ends reach with others")
    return faults or ["fault among what was measured"]


def headline(verdict: Verdict) -> str:
    """The reason for the verdict in one line."""
    if verdict.status == "PASS":
        return f"no {', no '.join(seen(verdict))}"
    weight = "fault" if verdict.status == "FAIL" else "open"
    return "; ".join(
        f"{finding.what} {' -> '.join(finding.nodes)}".strip()
        for finding in verdict.findings
        if finding.weight == weight
    )


def sentence(finding: Finding) -> str:
    where = f" {' -> '.join(finding.nodes)}" if finding.nodes else ""
    return f"{finding.what}{where}: {finding.evidence}"


def lines(verdict: Verdict, run: str) -> list[str]:
    """Drain, undo and exclude; where too many nodes are slow, that is said instead."""
    bad = [f for f in verdict.findings if f.weight == "fault" and f.what in _OF_A_NODE
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
    return [*_drains(bad, run), f"# or keep jobs away from it: --exclude={_word(','.join(names))}"]


def _word(text: str) -> str:
    """As one word of a shell's line, which no name ends."""
    return shlex.quote("".join(sign if sign.isprintable() else "?" for sign in text))


def _drains(bad: Sequence[Finding], run: str) -> list[str]:
    commands = []
    for finding in bad:
        name = _word(finding.nodes[0])
        # sinfo -R cuts at twenty characters: the code and the number come first
        ratio = "" if finding.ratio is None else f" {finding.ratio:.2f}x"
        reason = _word(f"{_CODES[finding.what]}{ratio} run={run}")
        commands.append(f"scontrol update NodeName={name} State=DRAIN Reason={reason}")
        commands.append(f"# once it is fixed: scontrol update NodeName={name} State=RESUME")
    return commands
