"""Columns of a run that its steady-state steps tell: what they took, and shares of it."""

from __future__ import annotations

from statistics import fmean

from analysis.records.columns import STEP_PARTS
from analysis.records.validate import reason_for
from analysis.table import Row
from train.record.run import RankSteps, RunRecord, Spread

OLDER_PARTS = "older records do not have all parts"


def shares(record: RunRecord) -> Row:
    """Of the seconds of a step, all ranks together."""
    steps = record.steps or ()
    total = sum(rank.step_s.mean for rank in steps)
    # where steps were not sampled, nothing overlapped communication
    exposed = [r.communication_s.mean if r.sampled is None else r.exposed_s for r in steps]
    known = [seconds for seconds in exposed if seconds is not None]
    why: str | None = None
    if record.steps is None:
        why = reason_for(record, "steps")
    elif not total:
        why = "no time in any step"
    elif len(known) < len(steps):
        why = reason_for(record, "steps.exposed_s")
    return {
        "communication_share": sum(known) / total if why is None else None,
        "input_share": sum(rank.input_s.mean for rank in steps) / total if total else None,
        "step_shares_why": why,
    }


def step_parts(record: RunRecord) -> Row:
    """Medians of steady-state steps, averaged over ranks."""
    ranks = record.steps
    if not ranks:
        return {"step_parts_why": reason_for(record, "steps") if ranks is None else "no rank"}
    row: Row = {"compute_fastest_s": min(rank.compute_s.median for rank in ranks)}
    reasons: list[str] = []
    for name in (column.name for column in STEP_PARTS if column.name not in row):
        values = [value for rank in ranks if (value := _part(rank, name)) is not None]
        row[name] = fmean(values) if len(values) == len(ranks) else None
        if row[name] is None:
            older = any(name not in rank.model_fields_set for rank in ranks)
            reasons.append(OLDER_PARTS if older else reason_for(record, f"steps.{name}"))
    return row | {"step_parts_why": "; ".join(dict.fromkeys(reasons)) or None}


def _part(rank: RankSteps, name: str) -> float | None:
    value: Spread | float | None = getattr(rank, name)
    if name == "exposed_s" and rank.sampled is None:
        value = rank.communication_s
    return value.median if isinstance(value, Spread) else value
