"""What it took to reach the target: epochs, steps, seconds and GPU-hours, and who was sooner."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.records.columns import KNOWN_OF_LOST
from analysis.records.frames import in_order
from analysis.stats.intervals import grouped_moments
from analysis.stats.survival import median_time, share_reached
from analysis.table import Column, Estimate, Row, Table, estimate_in, frame, plain_rows
from analysis.topics.comparisons.arms import numbers, of_workload
from analysis.topics.comparisons.contrast import HIGHER, Contrast, contrasts, pairs_of
from analysis.topics.convergence import curves
from analysis.topics.names import NAMES, namer, place_namer, ranks_column, ratio_text, reasons
from analysis.topics.topic import Answer, Rows, Sweep, Topic, groups, has_goals

MEASURES = ("epoch", "steps", "seconds", "gpu_hours")
LATER = "second is later"
#: Workloads that the first screen tells of; the table has all.
_MOST = 3
#: Conditions of one target whose pairs are listed, from the shortest on; the family counts all.
MOST_PAIRED = 50
_LEFT_OUT = "a run did not reach the target, or is lost"
_RATIOS = [
    Contrast(name, f"{name}, ratio", ratio_text, "second over first: ratio of geometric means",
             ratio=True, tests=f"{name}_", shows=False)
    for name in ("seconds", "steps")
]  # fmt: skip
PAIR_COLUMNS: tuple[Column, ...] = (
    Column("target", "string", heading="target", only_if_varied=True),
    Column("first", "string", heading="sooner"),
    Column("second", "string", heading="later"),
    Column("n", "Int64", heading="runs", cell=lambda row: f"{row['n']} / {row['n_second']}"),
    Column("n_second", "Int64"),
    *(column for one in _RATIOS for column in one.columns),
    Column("verdict", "string", heading="seconds", description="by the simultaneous interval"),
    Column("family", "Int64", description="tests planned: two for each pair"),
)


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
        median_of("seconds", "seconds", "of training and evaluation until then, the clock of the "
                  "target, all starts together, median likewise"),
        median_of("gpu_hours", "rank-hours", "ranks x seconds / 3600: GPU-hours where each rank "
                  "has a GPU"),
        Column("pareto_optimal", "boolean", "Pareto-optimal", "no other row of the same workload "
               "and target is at least as good in both seconds and rank-hours; by medians alone",
               cell=lambda row: "yes" if row["pareto_optimal"] else "", only_if_varied=True),
        Column("workload", "string"),
    )  # fmt: skip


def with_lost(of: Sweep) -> pd.DataFrame:
    """The frame of goals with the ``workload``, and with planned cells that are ``lost``, having no
    usable run: censored at the last time known, which is 0 where nothing is."""
    planned, goals = of.frames.planned, of.frames.goals
    asked = planned[planned["target"].notna()]
    lost = asked[asked["state"] != "usable"].fillna(dict.fromkeys(KNOWN_OF_LOST, 0))
    lost = lost.assign(epoch=lost["epochs_run"], seconds=lost["train_s"] + lost["eval_s"])
    lost = lost.reindex(columns=list(goals)).astype(goals.dtypes.to_dict())
    every = pd.concat([goals.assign(lost=False), lost.assign(lost=True)], ignore_index=True)
    every["met"] = every["met"].fillna(False).astype(bool)
    return every.join(asked.set_index("cell_id")["workload"], on="cell_id")


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
    rank-hours, and smaller in one; null where one of the two is unknown, or no other row has
    both."""
    bounds = rows["seconds_low"].notna() & rows["seconds_high"].isna()
    known = rows.loc[~bounds, ["workload", "seconds", "gpu_hours"]].dropna()
    stands = pd.Series(pd.NA, rows.index, dtype="boolean")
    for _, own in known.groupby("workload"):
        both = own[["seconds", "gpu_hours"]].to_numpy(float)
        mine, others = both[:, None], both[None]
        beaten = (others <= mine).all(axis=2) & (others < mine).any(axis=2)
        stands[own.index] = ~beaten.any(axis=1) if len(own) > 1 else pd.NA
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


def target_pairs(of: Sweep) -> Table:
    """Every pair of conditions with one target, by rising time to it.

    Ratios of geometric means, one family over all tests. A condition with a run that did not reach
    the target, or is lost, has no mean: it is not compared.
    """
    cells = of.made(with_lost)
    arm, met = cells.groupby("condition", sort=False).ngroup().to_numpy(), cells["met"].to_numpy()
    arms = cells.drop_duplicates("condition").reset_index(drop=True)
    lacking = np.bincount(arm, ~met, len(arms)) > 0
    logs = {
        one: grouped_moments(np.log(numbers(cells[one.name].where(met))), arm, len(arms))
        for one in _RATIOS
    }
    seconds = logs[_RATIOS[0]]
    order = np.argsort(np.where(lacking, np.inf, seconds.mean), kind="stable")
    listed, family = [np.empty((2, 0), int)], 0
    for _, rows in arms.iloc[order].groupby("workload", sort=False):
        family += len(rows) * (len(rows) - 1)
        pairs_here = np.triu_indices(min(len(rows), MOST_PAIRED), 1)
        listed.append(rows.index.to_numpy()[np.stack(pairs_here)])
    first, second = np.concatenate(listed, axis=1)
    why = [_LEFT_OUT if lost else None for lost in lacking[first] | lacking[second]]
    pairs = {one: pairs_of(own.at(second), own.at(first), why) for one, own in logs.items()}
    name_of = place_namer(arms)
    names = pd.array([name_of(row) for row in plain_rows(arms)], "string")
    answers = contrasts(pairs, family)
    found = {
        "target": arms["target"].to_numpy()[first],
        "first": names[first], "second": names[second],
        "n": seconds.n[first], "n_second": seconds.n[second],
        "family": np.full(len(first), family),
        "verdict": [LATER if one == HIGHER else one for one in answers["seconds_verdict"]],
        **answers,
    }  # fmt: skip
    return Table(
        "target_pairs",
        "Pairs of conditions: time to the target",
        PAIR_COLUMNS,
        frame(found, PAIR_COLUMNS),
        folded=True,
    )


def _how_long(of: Sweep) -> Iterable[Answer]:
    """One per workload, which has one target: times to different ones are not compared."""
    found = of.rows(to_target)
    every = groups(found, ("workload",))
    others = len(every) - _MOST
    for rows in every[:_MOST]:
        met = sum(round(row["reached"] * row["reached_n"]) for row in rows if row["reached_n"])
        runs = sum(row["reached_n"] for row in rows)
        lost = sum(row["n"] for row in rows) - runs
        soonest = _soonest(of, rows, found)
        where = "" if soonest else of_workload(rows, every)
        text = f"{met:,} of {fmt.runs(runs)} reached {rows[0]['target']}{where}"
        text += f", and {lost:,} {'is' if lost == 1 else 'are'} lost" if lost else ""
        text = fmt.joined([text, soonest], "; ")
        more = [f"{others} more in the table"] if others > 0 and rows is every[_MOST - 1] else []
        yield Answer("targets", "How long does the target take?", f"{text}.", "targets", "medians",
                     more)  # fmt: skip


def _soonest(of: Sweep, rows: Rows, found: Rows) -> str:
    """The shortest median time of ``rows``, and than how many others it is shown to be shorter;
    empty where none has a median. ``found``: all conditions."""
    # a bound is no time
    known = [row for row in rows if row["seconds"] is not None
             and (row["seconds_low"] is None or row["seconds_high"] is not None)]  # fmt: skip
    if not known:
        return ""
    fast = min(known, key=lambda row: row["seconds"])
    text = f"{estimate_in(fast, 'seconds').text(_short)} s of training and evaluation with "
    text += f"{namer(found)(fast)} at batch {fmt.count(fast['global_batch'])}"
    others = len(rows) - 1
    if not others:
        return f"the median is {text}"
    name = place_namer(of.made(to_target).data)(fast)
    later = [row["verdict"] for row in of.rows(target_pairs) if row["first"] == name].count(LATER)
    than = f"{later} of {fmt.counted(others, 'other')}" if later else "any other"
    return f"the shortest median is {text}, {'' if later else 'not '}shown shorter than {than}"


TOPIC = Topic(
    tables=(to_target, target_pairs),
    plots=(curves.accuracy_in_time,),
    answers=(_how_long,),
    asks=has_goals,
    needs=has_goals,
)
