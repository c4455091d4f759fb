"""PASS, FAIL or UNDECIDED, and every finding that it rests on. No evidence is never a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import AwareDatetime

from analysis.interconnect.bandwidth import collectives_findings
from analysis.interconnect.baseline import Baseline
from analysis.interconnect.compared import UPLINKS_HELD, against_baseline, against_spec, loaded
from analysis.interconnect.doubts import TWO_ALONE, doubts
from analysis.interconnect.finding import Finding
from analysis.interconnect.nodes import facts_findings
from analysis.interconnect.paths import path_findings
from analysis.interconnect.run import Run
from analysis.interconnect.suspects import suspect_findings
from analysis.interconnect.uplinks import TWO_LEAVES, uplink_findings
from train.config.frozen import Frozen
from train.interconnect.record import GAVE_UP, Measurement, Step, Tournament

Status = Literal["PASS", "FAIL", "UNDECIDED"]
#: Remarks that say that all is as fast as it should be, which frees two that have no peers.
_HELD = {TWO_ALONE: ("baseline", "spec"), TWO_LEAVES: (UPLINKS_HELD,)}
#: Doubts about all rates of a run; one about an interface is about its node's.
_UNSURE = ("cpu-limited", "noise")
#: What is no fault any more where rates are doubtful.
_BY_RATE = ("node", "send", "receive", "link", "uplink", "uplink-send", "uplink-receive",
            "fabric", "below spec", "collectives")  # fmt: skip


class Verdict(Frozen):
    """middle: bit/s, of the median node. visible: share of it below which a side would have been a
    suspect; visible_links: a link, below this share of what others reach of their ends' rates."""

    status: Status
    findings: tuple[Finding, ...]
    nodes: int
    middle: float | None
    visible: float | None
    visible_links: float | None = None


class Yardstick(Frozen):
    """What a run is held against beside its own nodes. force: compare with the baseline though the
    environment differs. line_bits: of a link as sold, bit/s."""

    baseline: Baseline | None = None
    force: bool = False
    line_bits: float | None = None
    now: AwareDatetime | None = None


def judge(run: Run, yardstick: Yardstick | None = None) -> Verdict:
    """From all that a run left; pure."""
    against = tuple(_against(run, yardstick or Yardstick()))
    good = {f.what for f in against if f.weight == "remark"}
    freed = {what for what, by in _HELD.items() if good & set(by)}
    own = [f for f in _findings(run) if f.what not in freed]
    findings = (*own, *against)
    switches = run.tournament.switches if run.tournament else {}
    findings = tuple(_doubted(finding, own, switches) for finding in findings)
    weights = {finding.weight for finding in findings}
    status: Status = "FAIL" if "fault" in weights else "UNDECIDED" if "open" in weights else "PASS"
    decision = run.tournament.decision if run.tournament else None
    return Verdict(
        status=status,
        findings=findings,
        nodes=len(run.tournament.nodes) if run.tournament else 0,
        middle=decision.middle if decision else None,
        visible=decision.visible if decision else None,
        visible_links=decision.visible_links if decision else None,
    )


def _doubted(finding: Finding, own: Sequence[Finding], switches: Mapping[str, str]) -> Finding:
    """A rate that processors or noise made says nothing of a link, a node or the fabric; one that
    went another way, or may have, nothing of that node or its leaf, nor of all together."""
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


def _findings(run: Run) -> Iterator[Finding]:
    if run.job is not None:
        for step in run.job.steps:
            yield from _ended(step)
        for phase in run.job.phases:
            if phase not in {step.phase for step in run.job.steps}:
                why = f"{phase} was asked for and not begun: the job was ended before"
                yield Finding(weight="open", what="not measured", evidence=why)
        if not run.job.ended:
            why = "the job was ended, or lost with its first node, before it was done"
            yield Finding(weight="open", what="stopped", evidence=why)
    yield from _absent(run)
    yield from facts_findings(run.facts)
    if run.collectives is not None:
        yield from collectives_findings(run.collectives)
    if run.tournament is None:
        why = "no pair was measured: nothing tells a slow node from the others"
        yield Finding(weight="open", what="nothing", evidence=why)
        return
    found = run.tournament
    for node, why in found.lost.items():
        yield Finding(weight="fault", what="lost", nodes=(node,), evidence=why)
    yield from _coverage(found)
    yield from _corrupt(found.measurements)
    yield from suspect_findings(found)
    yield from doubts(found)
    yield from path_findings(found, run.facts)
    yield from uplink_findings(found)


def _against(run: Run, yardstick: Yardstick) -> Iterator[Finding]:
    yield from loaded(run)
    if yardstick.baseline is not None:
        now = yardstick.now or datetime.now(UTC)
        yield from against_baseline(run, yardstick.baseline, now, force=yardstick.force)
    if yardstick.line_bits is not None:
        yield from against_spec(run, yardstick.line_bits)


def _absent(run: Run) -> Iterator[Finding]:
    """Nodes that were asked for and did not take part: a fault, where the node's own program says
    that it could not, and others measured."""
    if run.job is None:
        return
    said = {(s.phase, t.node): t for s in run.job.steps for t in s.troubles}
    came = {node.name for node in run.tournament.nodes} if run.tournament else set()
    for name in run.job.expected:
        if len(came) > 1 and name not in came:
            trouble = said.get(("tournament", name))
            gave_up = trouble is not None and trouble.what == GAVE_UP
            yield Finding(
                weight="fault" if gave_up else "open", what="absent", nodes=(name,),
                evidence="it took no part in the tournament"
                + (f": {trouble.found}" if trouble is not None else ""),
            )  # fmt: skip
        if "preflight" in run.job.phases and name not in {one.node for one in run.facts}:
            yield Finding(weight="open", what="unknown", nodes=(name,),
                          evidence="its preflight left nothing")  # fmt: skip


def _ended(step: Step) -> Iterator[Finding]:
    for trouble in step.troubles:
        named = () if trouble.node == "?" else (trouble.node,)
        yield Finding(weight="open", what=trouble.what, nodes=named,
                      evidence=f"{step.phase}: {trouble.found}")  # fmt: skip
    if step.stopped:
        yield Finding(weight="open", what="stopped", evidence=f"{step.phase}: {step.stopped}")
    elif step.exit_code is None:
        why = f"{step.phase} came to no end that the job saw"
        yield Finding(weight="open", what="failed", evidence=why)
    elif step.exit_code and not step.troubles:
        why = f"{step.phase} ended with code {step.exit_code}: see logs/{step.phase}"
        yield Finding(weight="open", what="failed", evidence=why)


def _coverage(found: Tournament) -> Iterator[Finding]:
    met = {(m.sender, m.receiver) for m in found.measurements if m.phase == "tournament"}
    possible = len(found.nodes) * (len(found.nodes) - 1)
    if found.cut is None and len(met) < possible:
        why = f"{len(met)} of {possible} ordered pairs were measured: a slow link may be another"
        yield Finding(weight="remark", what="coverage", evidence=why)


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
