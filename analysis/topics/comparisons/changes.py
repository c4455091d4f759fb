"""What changed between two measurements of the same conditions: a regression check.

Conditions are equal where all settings but the seed are. Throughput: ratio of geometric means,
Welch's t on logarithms. Accuracy: Welch's t. One family: Holm over both tests of all conditions.
"No change" is said where the intervals leave no room for one that matters, else "undecided".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.records.frames import Frames, in_order
from analysis.stats.differences import ALPHA
from analysis.stats.intervals import Moments, grouped_moments
from analysis.table import (
    Column,
    Row,
    Table,
    count,
    frame,
    p_value,
    percent,
    plain_rows,
    signed,
)
from analysis.topics.comparisons.contrast import Contrast, contrasts, pairs_of
from analysis.topics.names import NAMES, ratio_text, reasons

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
_ABOUT = ["technique", "technique_label", "context", "gpus", "global_batch"]
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
           "95 % interval", format=ratio_text, estimate=True),
    Column("ratio_p", "Float64", "p (Holm)", "adjusted over all tests of this table",
           format=p_value),
    Column("difference", "Float64", "accuracy", "after - before: difference of means, with its "
           "95 % interval", format=signed(3), estimate=True),
    Column("difference_p", "Float64", "p (Holm)", format=p_value),
    Column("verdict", "string", "verdict"),
    Column("worse", "boolean", description="slower, less accurate, or loses runs"),
)  # fmt: skip


def table(before: Frames, after: Frames) -> Table:
    """One row per condition that completed before."""
    first = _completed(before.runs).drop_duplicates("condition")
    keys = pd.Index(first["condition"])
    now, then = (_Side(frames, keys) for frames in (after, before))
    known = pd.concat([now.runs, first]).drop_duplicates("condition").set_index("condition")
    made: dict[str, Any] = {
        **{name: known.loc[keys, name].array for name in _ABOUT},
        "n_before": then.n, "n_after": now.n,
        "lost_before": then.lost_share, "lost_after": now.lost_share,
        "lost_p": _more_lost(then, now),
        "planned": keys.isin(after.planned["condition"].dropna()) | (now.n > 0),
        "missing": now.missing, "planned_now": now.planned,
    }  # fmt: skip
    asked = []
    for name, of, column, kind in (
        ("ratio", "speed", "images_per_s", np.log),
        ("difference", "accuracy", "validation_accuracy", np.asarray),
    ):
        of_now, of_then = (side.moments(column, kind) for side in (now, then))
        why = _moved(then, now, of)
        made |= {f"{name}_moved": why, f"{name}_asked": of_then.n > 0}
        asked.append(Contrast(name, pairs_of(of_now, of_then, why), f"{name}_", name == "ratio"))
    found = contrasts(asked)
    made |= found | {f"{one.name}_p": found[f"{one.name}_p_holm"] for one in asked}
    rows = plain_rows(pd.DataFrame(made))
    for row in rows:
        row["verdict"], row["worse"] = _verdict(row)
    return Table(
        "changes",
        f"{after.name} after {before.name}",
        COLUMNS,
        in_order(frame(rows, COLUMNS), after.techniques),
    )


def exit_code(found: Table) -> int:
    """1 where a condition is worse, 3 where one is undecided or none is there, else 0."""
    if found.data["worse"].any():
        return REGRESSION
    verdicts = found.data["verdict"]
    return UNDECIDED if verdicts.str.startswith(OPEN).any() or not len(verdicts) else NO_CHANGE


def _completed(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["status"] == "completed"]


class _Side:
    """One of the two sweeps, condition by condition.

    Attributes:
        runs: completed ones of these conditions.
        n: how many there are.
        planned, missing: cells, and those without a record or ended by somebody else.
        ended, lost: runs that ended, and of these the ones that left nothing to compare.
    """

    def __init__(self, frames: Frames, keys: pd.Index[str]) -> None:
        runs = _completed(frames.runs)
        self.runs = runs[runs["condition"].isin(keys)]
        self._keys, self._place = keys, keys.get_indexer(pd.Index(self.runs["condition"]))
        self.n = np.bincount(self._place, minlength=len(keys))
        planned = frames.planned
        outside = [p.cell_id for p in frames.problems if p.status in _ENDED_FROM_OUTSIDE]
        missing = (planned["state"] == "missing") | planned["cell_id"].isin(outside)
        self.planned, self.ended, self.missing = (
            cells["condition"].value_counts().reindex(keys, fill_value=0).to_numpy(int)
            for cells in (planned, planned[~missing], planned[missing])
        )
        self.lost = np.where(self.ended > 0, self.ended - self.n, 0)

    @property
    def lost_share(self) -> Any:
        return self.lost / np.maximum(self.ended, 1)

    def moments(self, name: str, of: Any = np.asarray) -> Moments:
        values = of(self.runs[name].to_numpy(float, na_value=np.nan))
        return grouped_moments(values, self._place, len(self._keys))

    def values(self, name: str) -> pd.Series[Any]:
        """The distinct ones of each condition, as a text."""
        found = self.runs[["condition", name]].dropna().drop_duplicates()
        found = found.assign(text=found[name].astype(str)).sort_values("text")
        return found.groupby("condition")["text"].agg(" and ".join).reindex(self._keys).fillna("")


def _more_lost(before: _Side, after: _Side) -> Any:
    """p of no growth of the share of lost runs, by Fisher's exact test; 1 where no run ended."""
    ended, lost = before.ended + after.ended, before.lost + after.lost
    return np.nan_to_num(stats.hypergeom.sf(after.lost - 1, ended, lost, after.ended), nan=1.0)


def _moved(before: _Side, after: _Side, of: str) -> list[str | None]:
    """In what runs of a condition were not alike before and now; None where they were."""
    told: list[list[str]] = [[] for _ in before.n]
    for column, what in _MOVED[of].items():
        pairs = zip(before.values(column), after.values(column), after.n, told, strict=True)
        for then, now, n, own in pairs:
            if n and then != now:
                own.append(f"{what} {then} before, {now} after")
    return ["; ".join(own) or None for own in told]


def _verdict(row: Row) -> tuple[str, bool]:
    """In words, and whether the condition is worse."""
    if not row["planned"]:
        return f"{OPEN} (not planned now)", False
    if not row["n_after"]:
        return LOST, True
    said, worse = [], False
    if row["lost_p"] < ALPHA:
        said, worse = [LOSES], True
    for name, words, least, same in (
        ("ratio", ("slower", "faster"), SLOWER, 1.0),
        ("difference", ("less accurate", "more accurate"), LOWER, 0.0),
    ):
        if row[f"{name}_p"] is not None and row[f"{name}_p"] < ALPHA:
            less = row[name] < least
            said += [words[0]] if less else [words[1]] if row[name] > same else []
            worse |= less
    if worse or not (why := _doubt(row)):
        return ", ".join(said) or "no change shown", worse
    return f"{OPEN} ({why})" + "".join(f", {word}" for word in said), False


def _doubt(row: Row) -> str | None:
    """What keeps a condition from being called unchanged."""
    moved = [row[f"{name}_moved"] for name in _MEASURES]
    found = [reasons(why for why in moved if why)]
    if row["lost_after"] > row["lost_before"]:
        found.append("more runs lost, by chance or not")
    if row["missing"]:
        found.append(
            f"{row['missing']} of {row['planned_now']} planned runs have no record, or were "
            "cancelled or preempted"
        )
    for name, least, same in (("ratio", SLOWER, 1.0), ("difference", LOWER, 0.0)):
        low, value = row[f"{name}_low"], row[name]
        if not row[f"{name}_asked"]:
            continue  # no run before had one, as random labels have no accuracy
        if row[f"{name}_p"] is None and not any(moved) and value != same:
            found.append(row[f"{name}_note"])
        elif low is not None and low < least:
            found.append(f"{_MEASURES[name]} may be {low:.3g}")
    return reasons(why for why in found if why)
