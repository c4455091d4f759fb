"""What it took to reach the target: epochs, steps, seconds and GPU-hours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from analysis import fmt
from analysis.records.frames import in_order
from analysis.stats.survival import median_time, share_reached
from analysis.table import Column, Estimate, Row, Table, estimate_in, frame
from analysis.topics.convergence import curves
from analysis.topics.convergence.target_pairs import LATER, target_pairs, with_lost
from analysis.topics.names import NAMES, named, place_namer, ranks_column, reasons
from analysis.topics.topic import Answer, Rows, Sweep, Topic, groups, has_goals

MEASURES = ("epoch", "steps", "images", "seconds", "train_s", "gpu_hours")


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    def median_of(name: str, heading: str, description: str) -> Column:
        return Column(name, "Float64", heading, description, format=_short, estimate=True)

    return (
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", only_if_varied=True),
        Column("target", "string", "target", "accuracies that every one of the evaluations in a "
               "row reaches; training accuracy is the running mean over an epoch",
               only_if_varied=True),
        Column("n", "Int64"),
        Column("reached", "Float64", "reached", "runs that reached it, with the exact 95 % "
               "interval of their share; a diverged run did not", estimate=True, cell=_reached),
        median_of("epoch", "epochs", "until the last of the evaluations that held the target: "
                  "median over all runs, one that never reached it counting as infinite, with its "
                  "95 % interval where there are runs enough"),
        median_of("steps", "steps", "optimizer steps until then, median likewise"),
        Column("images", "Float64", estimate=True),
        median_of("seconds", "seconds", "of training and evaluation until then, the clock of the "
                  "target, all starts together, median likewise"),
        median_of("train_s", "training s", "the same without evaluation"),
        median_of("gpu_hours", "rank-hours", "ranks x seconds / 3600: GPU-hours where each rank "
                  "has a GPU"),
        Column("pareto_optimal", "boolean", "Pareto-optimal", "no other row of the same workload "
               "and target is at least as good in both seconds and rank-hours; by medians alone",
               cell=lambda row: "yes" if row["pareto_optimal"] else "", only_if_varied=True),
        Column("workload", "string"),
    )  # fmt: skip


def to_target(of: Sweep) -> Table:
    """One row per condition with a target; cells of the plan without a usable run are lost."""
    every = of.made(with_lost)
    made = columns(of.runs)
    rows = [_row(group) for _, group in every.groupby("condition", sort=False, observed=True)]
    found = frame(rows, made)
    found["pareto_optimal"] = _pareto_optimal(found)
    return Table(
        "targets",
        "What it took to reach the target",
        made,
        in_order(found, of.order),
        intro="A run stops when its target is reached or can no longer be reached, so that its "
        "final accuracy is no measure of its technique.",
    )


def _row(group: pd.DataFrame) -> dict[str, Any]:
    ordered = group.sort_values("seed", kind="stable")
    about = ("technique", "technique_label", "context", "gpus", "global_batch", "target",
             "workload")  # fmt: skip
    row: dict[str, Any] = {name: ordered[name].iloc[0] for name in about}
    lost, never = ordered["lost"].tolist(), ~(ordered["met"] | ordered["lost"])
    hours = ordered["seconds"] * ordered["gpus"] / 3600
    times = ordered.assign(gpu_hours=hours)[[*MEASURES]].astype(float).mask(never, math.inf)
    row |= share_reached(times["epoch"].tolist(), lost).columns("reached")
    why = reasons([row["reached_note"], *ordered.loc[never, "why"]])
    row |= {"n": len(ordered), "reached_note": why}
    for name in MEASURES:
        row |= _finite(median_time(times[name].tolist(), lost)).columns(name)
    return row


def _pareto_optimal(rows: pd.DataFrame) -> pd.Series[Any]:
    """Whether no other row of a workload has medians at most as large in both seconds and
    rank-hours, and smaller in one; null where one of the two is unknown."""
    bounds = rows["seconds_low"].notna() & rows["seconds_high"].isna()
    known = rows.loc[~bounds, ["workload", "seconds", "gpu_hours"]].dropna()
    stands = pd.Series(pd.NA, rows.index, dtype="boolean")
    for _, own in known.groupby("workload"):
        both = own[["seconds", "gpu_hours"]].to_numpy(float)
        mine, others = both[:, None], both[None]
        beaten = (others <= mine).all(axis=2) & (others < mine).any(axis=2)
        stands[own.index] = ~beaten.any(axis=1)
    return stands


def _finite(found: Estimate) -> Estimate:
    """An infinite median is null, and its note says that it is infinite; the upper end of a finite
    one stays infinite: null would make a bound of it."""
    value, low, high = (None if x is None or math.isinf(x) else x for x in found[:3])
    return found._replace(value=value, low=low, high=high if value is None else found.high)


def _reached(row: Row) -> str:
    if row["reached"] is None:
        return fmt.NOT_AVAILABLE
    low, high = (100 * row[f"reached_{end}"] for end in ("low", "high"))
    kept = row["reached_n"]
    return f"{round(row['reached'] * kept)} of {kept} ({low:.0f} to {high:.0f} %)"


def _short(value: float) -> str:
    """Counts as they are, also the half that a median of two may have."""
    return f"{value:,.0f}" if float(value).is_integer() else fmt.significant(value)


def _how_long(of: Sweep) -> Iterable[Answer]:
    if not (found := of.rows(to_target)):
        return
    met = sum(round(row["reached"] * row["reached_n"]) for row in found if row["reached_n"])
    runs = sum(row["reached_n"] for row in found)
    targets = {row["target"] for row in found}
    text = f"{met:,} of {fmt.runs(runs)} reached "
    text += found[0]["target"] if len(targets) == 1 else "their targets"
    lost = sum(row["n"] for row in found) - runs
    text += f", and {lost:,} {'is' if lost == 1 else 'are'} lost" if lost else ""
    goals = groups(found, ("workload", "target"))
    soonest = [(rows[0]["target"], said) for rows in goals if (said := _soonest(of, rows, found))]
    if len(targets) == len(soonest) == 1:
        text, more = f"{text}; {soonest[0][1]}", []
    else:
        more = [f"{target}: {said}" if len(targets) > 1 else said
                for target, said in soonest]  # fmt: skip
    yield Answer("targets", "How long does the target take?", f"{text}.", "targets", "medians",
                 {"reached": met, "runs": runs, "lost": lost}, fmt.few(more))  # fmt: skip


def _soonest(of: Sweep, rows: Rows, found: Rows) -> str:
    """Of the conditions with one target that with the shortest median time, and how many others
    are shown to take longer; empty where none has a median. ``found``: all conditions."""
    # a bound is no time
    known = [row for row in rows if row["seconds"] is not None
             and (row["seconds_low"] is None or row["seconds_high"] is not None)]  # fmt: skip
    if not known:
        return ""
    fast = min(known, key=lambda row: row["seconds"])
    text = f"{estimate_in(fast, 'seconds').text(_whole)} s with {named(fast, found)} at batch "
    text += fmt.count(fast["global_batch"])
    others = len(rows) - 1
    if not others:
        return f"the median is {text}"
    name = place_namer(of.made(to_target).data)(fast)
    later = [row["verdict"] for row in of.rows(target_pairs) if row["first"] == name].count(LATER)
    which = {0: "any other", others: "every other"}.get(later, f"{later} of {others} others")
    if any(row["workload"] != fast["workload"] for row in found):
        which += " with its data and network"
    return f"the shortest median is {text}, {'' if later else 'not '}shown shorter than {which}"


def _whole(value: float) -> str:
    return "∞" if math.isinf(value) else fmt.number(0)(value)


TOPIC = Topic(
    tables=(to_target, target_pairs),
    plots=(curves.accuracy_in_time,),
    answers=(_how_long,),
    asks=has_goals,
    needs=has_goals,
)
