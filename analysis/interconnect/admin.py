"""Lines for a sysadmin to paste: printed, never run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.interconnect.finding import Finding
from analysis.interconnect.verdict import Verdict

#: More nodes than this share, and more than one, are no nodes' fault.
CAP = 0.05
_OF_A_NODE = ("node", "send", "receive", "lost", "unreachable", "absent")
_CODES = {"node": "ic-both", "send": "ic-send", "receive": "ic-recv", "lost": "ic-lost",
          "unreachable": "ic-none", "absent": "ic-absent"}  # fmt: skip


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
            f"they share ({', '.join(names)}) before any is drained"
        ]
    return [*_drains(bad, run), f"# or keep jobs away from it: --exclude={','.join(names)}"]


def _drains(bad: Sequence[Finding], run: str) -> list[str]:
    found = []
    for finding in bad:
        name = finding.nodes[0]
        # sinfo -R cuts at twenty signs: the code and the number come first
        ratio = "" if finding.ratio is None else f" {finding.ratio:.2f}x"
        reason = f"{_CODES[finding.what]}{ratio} run={run}"
        found.append(f'scontrol update NodeName={name} State=DRAIN Reason="{reason}"')
        found.append(f"# when it is mended: scontrol update NodeName={name} State=RESUME")
    return found
