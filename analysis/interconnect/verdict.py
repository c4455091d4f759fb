"""PASS, FAIL or UNDECIDED, and every finding that it rests on. No evidence is never a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from analysis.interconnect.doubts import doubts
from analysis.interconnect.finding import Finding
from analysis.interconnect.run import Run
from train.frozen import Frozen
from train.interconnect.record import Measurement, Retest, Tournament
from train.interconnect.suspects import Suspect

Status = Literal["PASS", "FAIL", "UNDECIDED"]


class Verdict(Frozen):
    """middle: bit/s, of the median node. visible: share of it below which it looked for faults."""

    status: Status
    findings: tuple[Finding, ...]
    nodes: int
    middle: float | None
    visible: float | None


def judge(run: Run) -> Verdict:
    """From all that a run left; pure."""
    findings = tuple(_findings(run))
    weights = {finding.weight for finding in findings}
    status: Status = "FAIL" if "fault" in weights else "UNDECIDED" if "open" in weights else "PASS"
    decision = run.tournament.decision if run.tournament else None
    return Verdict(
        status=status,
        findings=findings,
        nodes=len(run.tournament.nodes) if run.tournament else 0,
        middle=decision.middle if decision else None,
        visible=decision.visible if decision else None,
    )


def _findings(run: Run) -> Iterator[Finding]:
    if run.job is not None:
        for trouble in run.job.troubles:
            named = () if trouble.node == "?" else (trouble.node,)
            yield Finding(weight="open", what=trouble.what, nodes=named, evidence=trouble.found)
        if run.job.stopped:
            yield Finding(weight="open", what="stopped", evidence=run.job.stopped)
    if run.tournament is None:
        yield Finding(weight="open", what="nothing", evidence="the job left no measurement")
        return
    found = run.tournament
    for node, why in found.lost.items():
        yield Finding(weight="fault", what="lost", nodes=(node,), evidence=why)
    yield from _corrupt(found.measurements)
    yield from _suspects(found)
    yield from doubts(found)


def _corrupt(measurements: Sequence[Measurement]) -> Iterator[Finding]:
    """Wrong bytes end all doubt, whatever the speed."""
    pairs: dict[tuple[str, str], list[int]] = {}
    for m in measurements:
        if m.wrong_bytes:
            pairs.setdefault((m.sender, m.receiver), []).append(m.wrong_bytes)
    for pair, wrong in pairs.items():
        yield Finding(
            weight="fault", what="corrupt", nodes=pair,
            evidence=f"{sum(wrong)} wrong bytes in {len(wrong)} measurements, expected none: TCP's "
            "own checksum let them pass",
        )  # fmt: skip


def _suspects(found: Tournament) -> Iterator[Finding]:
    again = {(retest.nodes, _family(retest.kind)): retest for retest in found.retests}
    for suspect in found.decision.suspects:
        if suspect.ratio is None:
            if not set(suspect.nodes) <= set(found.lost):
                yield Finding(weight="fault", what="unreachable", nodes=suspect.nodes,
                              evidence=suspect.why)  # fmt: skip
            continue
        retest = again.get((suspect.nodes, _family(suspect.kind)))
        yield _retested(suspect, retest, found.decision.middle)


def _family(kind: str) -> str:
    """A node's suspicion may be narrowed to one of its directions by the retest."""
    return "link" if kind == "link" else "side"


def _retested(suspect: Suspect, retest: Retest | None, middle: float | None) -> Finding:
    partners = f"{suspect.slow} of {suspect.partners} partners"
    first = f"{suspect.ratio:.2f} of its peers"
    if suspect.kind != "link":
        first += f", with {partners}"
    if retest is None:
        return Finding(weight="open", what=suspect.kind, nodes=suspect.nodes, ratio=suspect.ratio,
                       evidence=f"{first}; not tested again")  # fmt: skip
    alone = "alone" + (f" with {', '.join(retest.partners)}" if retest.partners else "")
    told = {"nodes": suspect.nodes, "ratio": retest.ratio}
    match retest.outcome:
        case "confirmed":
            said = f"{first}; {alone} {retest.ratio:.2f}"
            return Finding(**told, weight="fault", what=retest.kind, evidence=said)
        case "recovered":
            said = f"{first}; {alone} {retest.ratio:.2f}: slow in company only, or it has passed"
            return Finding(**told, weight="remark", what="contention", evidence=said)
        case "cpu":
            said = f"{first}; {retest.why}: the processor, not the link"
            return Finding(**told, weight="open", what="cpu", evidence=said)
        case "unreachable":
            said = f"{first}; then {retest.why}"
            return Finding(**told, weight="open", what=suspect.kind, evidence=said)
