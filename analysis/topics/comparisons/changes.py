"""What changed between two measurements of the same conditions: a regression check.

Conditions are equal where all settings but the seed are. Throughput: ratio of geometric means,
Welch's t on logarithms. Accuracy: Welch's t. One family: Holm over both tests of all conditions.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.records.frames import Frames, in_order
from analysis.stats.differences import ALPHA, Tested, difference, holm, ratio
from analysis.table import (
    Column,
    Estimate,
    Table,
    count,
    frame,
    number,
    p_value,
    percent,
    signed,
)
from analysis.topics.topic import NAMES, reasons

NO_CHANGE, REGRESSION, UNDECIDED = 0, 1, 3
#: Changes smaller than these are no regression, whatever their p.
SLOWER, LOWER = 0.95, -0.01
LOST, LOSES, OPEN = "no completed run now", "loses more runs", "undecided"
COLUMNS: tuple[Column, ...] = (
    *NAMES,
    Column("gpus", "Int64", "ranks"),
    Column("global_batch", "Int64", "global batch"),
    Column("n_before", "Int64", "runs", "completed, before / after",
           cell=lambda row: f"{count(row['n_before'])} / {count(row['n_after'])}"),
    Column("n_after", "Int64"),
    Column("lost_before", "Float64", "lost", "share of ended runs that diverged, failed or left "
           "no usable record, before / after",
           cell=lambda row: f"{percent(row['lost_before'])} / {percent(row['lost_after'])}"),
    Column("lost_after", "Float64"),
    Column("ratio", "Float64", "throughput", "after / before: ratio of geometric means, with its "
           "95 % interval", format=number(2), estimate=True),
    Column("ratio_p", "Float64", "p (Holm)", "adjusted over all tests of this table",
           format=p_value),
    Column("difference", "Float64", "accuracy", "after - before: difference of means, with its "
           "95 % interval", format=signed(3), estimate=True),
    Column("difference_p", "Float64", "p (Holm)", format=p_value),
    Column("verdict", "string", "verdict"),
)  # fmt: skip


def table(before: Frames, after: Frames) -> Table:
    """One row per condition that completed before and is planned now."""
    earlier, later = (_completed(frames.runs) for frames in (before, after))
    planned = set(after.planned["condition"].dropna()) | set(later["condition"])
    common = [key for key in dict.fromkeys(earlier["condition"]) if key in planned]
    rows = [
        {
            **_row(earlier[earlier["condition"] == key], later[later["condition"] == key]),
            "lost_before": _lost(before, key),
            "lost_after": _lost(after, key),
        }
        for key in common
    ]
    adjusted = holm([row[name] for row in rows for name in ("ratio_p", "difference_p")])
    for place, row in enumerate(rows):
        row["ratio_p"], row["difference_p"] = (
            None if math.isnan(p) else float(p) for p in adjusted[2 * place : 2 * place + 2]
        )
        row["verdict"] = _verdict(row)
    return Table(
        "changes",
        f"{after.name} after {before.name}",
        COLUMNS,
        in_order(frame(rows, COLUMNS), after.techniques),
    )


def exit_code(found: Table) -> int:
    """1 where a condition is worse (see :func:`is_worse`), 3 where all are undecided, else 0."""
    verdicts = found.data["verdict"].fillna("")
    if any(map(is_worse, verdicts)):
        return REGRESSION
    return UNDECIDED if verdicts.str.startswith(OPEN).all() else NO_CHANGE


def is_worse(verdict: str) -> bool:
    """Whether a condition of this verdict is slower, less accurate, or loses runs."""
    return any(word in verdict for word in ("slower", "less accurate", LOSES, LOST))


def _completed(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["status"] == "completed"]


def _lost(frames: Frames, condition: str) -> float:
    """Share of this condition's ended runs that left nothing to compare."""
    states = frames.planned.loc[frames.planned["condition"] == condition, "state"]
    ended = int((states != "missing").sum())
    good = int((_completed(frames.runs)["condition"] == condition).sum())
    return 1 - good / ended if ended else 0.0


def _row(earlier: pd.DataFrame, later: pd.DataFrame) -> dict[str, Any]:
    first = (later if len(later) else earlier).iloc[0]
    now, before = (_values(side, "images_per_s") for side in (later, earlier))
    speed = ratio(now, before)
    then, today = (" and ".join(sorted(side["device"].unique())) for side in (earlier, later))
    moved = len(later) > 0 and then != today
    if moved:
        speed = Tested(Estimate(None, note=f"{then} before, {today} after"), None)
    now, before = (_values(side, "validation_accuracy") for side in (later, earlier))
    accuracy = difference(now, before)
    return {
        **{name: first[name] for name in ("technique", "technique_label", "context", "gpus",
                                          "global_batch")},
        "n_before": len(earlier),
        "n_after": len(later),
        "moved": moved,
        **speed.estimate.columns("ratio"),
        "ratio_p": speed.p,
        **accuracy.estimate.columns("difference"),
        "difference_p": accuracy.p,
    }  # fmt: skip


def _values(runs: pd.DataFrame, name: str) -> list[float]:
    return [float(value) for value in runs[name].dropna()]


def _verdict(row: dict[str, Any]) -> str:
    if not row["n_after"]:
        return LOST
    said = [LOSES] if row["lost_after"] > row["lost_before"] else []
    if row["ratio_p"] is not None and row["ratio_p"] < ALPHA:
        said += ["slower"] if row["ratio"] < SLOWER else ["faster"] if row["ratio"] > 1 else []
    if row["difference_p"] is not None and row["difference_p"] < ALPHA:
        by = row["difference"]
        said += ["less accurate"] if by < LOWER else ["more accurate"] if by > 0 else []
    if said:
        return ", ".join(said)
    if row["moved"]:
        return f"{OPEN} (other devices: {row['ratio_note']})"
    if row["ratio_p"] is None and row["difference_p"] is None:
        return f"{OPEN} ({reasons([row['ratio_note'], row['difference_note']])})"
    return "no change shown"
