"""What changed between two measurements of the same conditions: a regression check.

Conditions are equal where all settings but the seed are. Throughput: ratio of geometric means,
Welch's t on logarithms. Accuracy: Welch's t. One family: Holm over both tests of all conditions.
"No change" is said where the intervals leave no room for one that matters, else "undecided".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from scipy import stats

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
#: A run that somebody or something else ended says nothing of the program.
_ENDED_FROM_OUTSIDE = ("cancelled", "preempted")
#: What must be alike for a change to be the program's, by what it changes.
_MOVED = {
    "speed": {"device": "device", "nodes": "nodes", "oversubscribed": "shared cores"},
    "accuracy": {"data_fingerprint": "data"},
}
_MEASURES = {"ratio": "throughput, after / before,", "difference": "the change of accuracy"}
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
    """One row per condition that completed before."""
    earlier, later = (_completed(frames.runs) for frames in (before, after))
    planned = set(after.planned["condition"].dropna()) | set(later["condition"])
    lost = {"before": _lost(before), "after": _lost(after)}
    rows = [
        {
            **_row(earlier[earlier["condition"] == key], later[later["condition"] == key]),
            **_losses(lost["before"].get(key, (0, 0)), lost["after"].get(key, (0, 0))),
            "planned": key in planned,
        }
        for key in dict.fromkeys(earlier["condition"])
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
    """1 where a condition is worse (see :func:`is_worse`), 3 where one is undecided or none is
    there, else 0."""
    verdicts = found.data["verdict"].fillna("")
    if any(map(is_worse, verdicts)):
        return REGRESSION
    return UNDECIDED if verdicts.str.startswith(OPEN).any() or not len(verdicts) else NO_CHANGE


def is_worse(verdict: str) -> bool:
    """Whether a condition of this verdict is slower, less accurate, or loses runs."""
    return any(word in verdict for word in ("slower", "less accurate", LOSES, LOST))


def _completed(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["status"] == "completed"]


def _losses(before: tuple[int, int], after: tuple[int, int]) -> dict[str, Any]:
    """Shares of lost runs, and p of no growth by Fisher's exact test; see :func:`_lost`."""
    (lost, ended), (lost_now, ended_now) = before, after
    table = [[lost_now, ended_now - lost_now], [lost, ended - lost]]
    return {
        "lost_before": lost / ended if ended else 0.0,
        "lost_after": lost_now / ended_now if ended_now else 0.0,
        "lost_p": float(stats.fisher_exact(table, alternative="greater").pvalue),
    }


def _lost(frames: Frames) -> dict[str, tuple[int, int]]:
    """Of each condition's ended runs: how many left nothing to compare, and how many there are."""
    outside = {p.cell_id for p in frames.problems if p.status in _ENDED_FROM_OUTSIDE}
    planned = frames.planned
    planned = planned[(planned["state"] != "missing") & ~planned["cell_id"].isin(outside)]
    good = _completed(frames.runs)["condition"].value_counts()
    ended = planned["condition"].value_counts()
    return {str(key): (int(n - good.get(key, 0)), int(n)) for key, n in ended.items()}


def _row(earlier: pd.DataFrame, later: pd.DataFrame) -> dict[str, Any]:
    first = (later if len(later) else earlier).iloc[0]
    now, before = (_values(side, "images_per_s") for side in (later, earlier))
    speed = ratio(now, before)
    asked = {"ratio": bool(before)}
    moved = {name: _differ(earlier, later, _MOVED[name]) for name in ("speed", "accuracy")}
    if moved["speed"]:
        speed = Tested(Estimate(None, note=moved["speed"]), None)
    now, before = (_values(side, "validation_accuracy") for side in (later, earlier))
    asked["difference"] = bool(before)
    accuracy = difference(now, before)
    if moved["accuracy"]:
        accuracy = Tested(Estimate(None, note=moved["accuracy"]), None)
    return {
        **{name: first[name] for name in ("technique", "technique_label", "context", "gpus",
                                          "global_batch")},
        "n_before": len(earlier),
        "n_after": len(later),
        "moved": reasons(moved.values()),
        "asked": asked,
        **speed.estimate.columns("ratio"),
        "ratio_p": speed.p,
        **accuracy.estimate.columns("difference"),
        "difference_p": accuracy.p,
    }  # fmt: skip


def _differ(earlier: pd.DataFrame, later: pd.DataFrame, columns: Mapping[str, str]) -> str | None:
    """In what runs of one condition were not alike before and now; None where they were."""
    told = []
    for column, what in columns.items():
        values = (side[column].dropna().astype(str) for side in (earlier, later))
        then, now = (" and ".join(sorted(found.unique())) for found in values)
        if len(later) and then != now:
            told.append(f"{what} {then} before, {now} after")
    return "; ".join(told) or None


def _values(runs: pd.DataFrame, name: str) -> list[float]:
    return [float(value) for value in runs[name].dropna()]


def _verdict(row: dict[str, Any]) -> str:
    if not row["planned"]:
        return f"{OPEN} (not planned now)"
    if not row["n_after"]:
        return LOST
    said = [LOSES] if row["lost_p"] < ALPHA else []
    if row["ratio_p"] is not None and row["ratio_p"] < ALPHA:
        said += ["slower"] if row["ratio"] < SLOWER else ["faster"] if row["ratio"] > 1 else []
    if row["difference_p"] is not None and row["difference_p"] < ALPHA:
        by = row["difference"]
        said += ["less accurate"] if by < LOWER else ["more accurate"] if by > 0 else []
    if any(map(is_worse, said)) or not (why := _doubt(row)):
        return ", ".join(said) or "no change shown"
    return f"{OPEN} ({why})" + "".join(f", {word}" for word in said)


def _doubt(row: dict[str, Any]) -> str | None:
    """What keeps a condition from being called unchanged."""
    found = [row["moved"]]
    if row["lost_after"] > row["lost_before"]:
        found.append("more runs lost, by chance or not")
    for name, least, same in (("ratio", SLOWER, 1.0), ("difference", LOWER, 0.0)):
        low, value = row[f"{name}_low"], row[name]
        if not row["asked"][name]:
            continue  # no run before had one, as random labels have no accuracy
        if row[f"{name}_p"] is None and row["moved"] is None and value != same:
            found.append(row[f"{name}_note"])
        elif low is not None and low < least:
            found.append(f"{_MEASURES[name]} may be {low:.3g}")
    return reasons(found)
