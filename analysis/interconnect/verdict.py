"""PASS, FAIL or UNDECIDED, and every finding that it rests on. No evidence is never a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from analysis.interconnect.baseline import Baseline
from analysis.interconnect.collectives import collectives_findings
from analysis.interconnect.comparison import UPLINKS_HELD, against_baseline
from analysis.interconnect.doubts import TWO_ALONE, doubts
from analysis.interconnect.facts import facts_findings
from analysis.interconnect.finding import Finding, Verdict, doubted
from analysis.interconnect.links import speed_findings
from analysis.interconnect.run import Run
from analysis.interconnect.suspects import TWO_LEAVES, suspect_findings, uplink_findings
from train.interconnect.record import GAVE_UP, JobNote, Measurement

#: Remarks that say that all is as fast as it should be, which frees two that have no peers.
_HELD = {TWO_ALONE: ("baseline", "spec"), TWO_LEAVES: (UPLINKS_HELD,)}


def judge(
    run: Run,
    baseline: Baseline | None = None,
    *,
    force: bool = False,
    line_bits: float | None = None,
    now: datetime | None = None,
) -> Verdict:
    """From all that a run left, and what it is held against.

    force: compare with the baseline though the environment differs. line_bits: of a link as sold,
    bit/s. now: by which a baseline is too old.
    """
    against = tuple(speed_findings(run, line_bits))
    if baseline is not None:
        against += tuple(against_baseline(run, baseline, now or datetime.now(UTC), force=force))
    good = {f.what for f in against if f.weight == "remark"}
    freed = {what for what, by in _HELD.items() if good & set(by)}
    own = [f for f in _findings(run) if f.what not in freed]
    switches = run.tournament.switches if run.tournament else {}
    findings = tuple(doubted(finding, own, switches) for finding in (*own, *against))
    weights = {finding.weight for finding in findings}
    decision = run.tournament.decision if run.tournament else None
    return Verdict(
        status="FAIL" if "fault" in weights else "UNDECIDED" if "open" in weights else "PASS",
        findings=findings,
        nodes=len(run.tournament.nodes) if run.tournament else 0,
        middle=decision.middle if decision else None,
        visible=decision.visible if decision else None,
        visible_links=decision.visible_links if decision else None,
    )


def _findings(run: Run) -> Iterator[Finding]:
    if run.job is not None:
        yield from _of_the_job(run.job)
        yield from _absent(run, run.job)
    yield from facts_findings(run.facts)
    if run.collectives is not None:
        yield from collectives_findings(run.collectives)
    if run.tournament is None:
        yield Finding("open", "nothing", "no pair was measured: nothing shows which node is slow")
        return
    tournament = run.tournament
    for node, why in tournament.lost.items():
        yield Finding("fault", "lost", why, (node,))
    yield from _corrupt(tournament.measurements)
    yield from suspect_findings(tournament)
    yield from doubts(tournament, run.facts)
    yield from uplink_findings(tournament)


def _of_the_job(job: JobNote) -> Iterator[Finding]:
    for step in job.steps:
        for trouble in step.troubles:
            named = () if trouble.node == "?" else (trouble.node,)
            yield Finding("open", trouble.what, f"{step.phase}: {trouble.found}", named)
        if step.stopped:
            yield Finding("open", "stopped", f"{step.phase}: {step.stopped}")
        elif step.exit_code is None:
            yield Finding("open", "failed", f"{step.phase} did not end while the job ran")
        elif step.exit_code and not step.troubles:
            why = f"{step.phase} ended with code {step.exit_code}: see logs/{step.phase}"
            yield Finding("open", "failed", why)
    begun = {step.phase for step in job.steps}
    for phase in (phase for phase in job.phases if phase not in begun):
        why = f"{phase} was requested but did not begin: the job ended before"
        yield Finding("open", "not measured", why)
    if not job.ended:
        why = "the job was ended, or lost with its first node, before it was done"
        yield Finding("open", "stopped", why)


def _absent(run: Run, job: JobNote) -> Iterator[Finding]:
    """Nodes that were asked for and did not take part: a fault, where the node's own program says
    that it could not, and others measured."""
    troubles = {(s.phase, t.node): t for s in job.steps for t in s.troubles}
    came = {node.name for node in run.tournament.nodes} if run.tournament else set()
    for name in job.expected:
        if len(came) > 1 and name not in came:
            trouble = troubles.get(("tournament", name))
            gave_up = trouble is not None and trouble.what == GAVE_UP
            why = f": {trouble.found}" if trouble is not None else ""
            yield Finding("fault" if gave_up else "open", "absent",
                          f"it took no part in the tournament{why}", (name,))  # fmt: skip
        if "preflight" in job.phases and name not in {one.node for one in run.facts}:
            yield Finding("open", "unknown", "its preflight left no record", (name,))


def _corrupt(measurements: Sequence[Measurement]) -> Iterator[Finding]:
    """Wrong bytes end all doubt, whatever the speed."""
    pairs: dict[tuple[str, str], list[int]] = {}
    for m in measurements:
        if m.wrong_bytes:
            pairs.setdefault((m.sender, m.receiver), []).append(m.wrong_bytes)
    for pair, wrong in pairs.items():
        why = f"{sum(wrong)} wrong bytes in {len(wrong)} measurements, expected none"
        yield Finding("fault", "corrupt", f"{why}: TCP's own checksum let them pass", pair)
