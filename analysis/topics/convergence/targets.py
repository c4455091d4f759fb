"""What it took to reach the target: epochs, steps, seconds and GPU-hours, and who was sooner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.records.columns import KNOWN_OF_LOST
from analysis.records.frames import in_order
from analysis.stats.differences import welch
from analysis.stats.intervals import grouped_moments
from analysis.stats.levels import ALPHA
from analysis.stats.survival import median_time, share_reached
from analysis.table import Column, Estimate, Row, Table, estimate_in, frame
from analysis.topics.comparisons.arms import of_workload
from analysis.topics.convergence import curves
from analysis.topics.names import NAMES, cores_text, namer, ranks_column, ranks_text, reasons
from analysis.topics.topic import Answer, Rows, Sweep, Topic, groups, has_goals

SHARE_CORES = "ranks share cores"
SEVERAL = "its runs used several machines"
MEASURES = ("epoch", "steps", "seconds", "gpu_hours")
#: Workloads on the first screen; the table has all.
_MOST = 3
#: Conditions of one target whose pairs are tested.
MOST_PAIRED = 50


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
        Column("machine", "string", "machine", "times are compared within one machine only",
               note="machine_note", only_if_varied=True),
        Column("machine_note", "string"),
        Column("pareto_optimal", "boolean", "Pareto-optimal", "no other row of the same workload, "
               "target and machine is at least as good in both seconds and rank-hours; by medians "
               "alone", cell=lambda row: "yes" if row["pareto_optimal"] else "",
               only_if_varied=True),
        Column("workload", "string"),
        Column("condition", "string"),
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
    every = every.join(asked.set_index("cell_id")["workload"], on="cell_id")
    return every.join(machines(of.runs), on="cell_id")


def machines(runs: pd.DataFrame) -> pd.DataFrame:
    """By cell: the ``machine`` whose times can be compared, and where there is none, why
    (``machine_note``)."""
    cores = runs["cores_per_rank"].map(cores_text, na_action="ignore")
    gpu = (runs["device_kind"] == "gpu") | runs["device"].str.contains("per rank")
    shared = runs["oversubscribed"].fillna(False).astype(bool)
    found = pd.DataFrame({
        "cell_id": runs["cell_id"],
        "machine": runs["device"].where(gpu, runs["device"] + ", " + cores).mask(shared),
        "machine_note": pd.Series(SHARE_CORES, runs.index, "string").where(shared),
    })  # fmt: skip
    return found.set_index("cell_id")


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
             "workload", "condition")  # fmt: skip
    row: dict[str, Any] = {name: ordered[name].iloc[0] for name in about}
    machine = ordered["machine"].dropna().unique()
    notes = reasons([*ordered["machine_note"], SEVERAL if len(machine) > 1 else None])
    row |= {"machine": None if notes else next(iter(machine), None), "machine_note": notes}
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
    """Whether no other row of a workload and machine has medians at most as large in both seconds
    and rank-hours, and smaller in one; null where one of the two is unknown, or no other row has
    both."""
    bounds = rows["seconds_low"].notna() & rows["seconds_high"].isna()
    known = rows.loc[~bounds, ["workload", "machine", "seconds", "gpu_hours"]].dropna()
    stands = pd.Series(pd.NA, rows.index, dtype="boolean")
    for _, own in known.groupby(["workload", "machine"]):
        fewest = own.groupby("seconds")["gpu_hours"].min()  # by rising seconds
        sooner = fewest.cummin().shift(fill_value=math.inf)
        hours = own["gpu_hours"]
        beaten = own["seconds"].map(fewest).lt(hours) | own["seconds"].map(sooner).le(hours)
        stands[own.index] = ~beaten if len(own) > 1 else pd.NA
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
    """One per workload, which has one target: times to different ones are not compared."""
    found = of.rows(to_target)
    every = groups(found, ("workload",))
    others = len(every) - _MOST
    for rows in every[:_MOST]:
        met = sum(round(row["reached"] * row["reached_n"]) for row in rows if row["reached_n"])
        runs = sum(row["reached_n"] for row in rows)
        lost = sum(row["n"] for row in rows) - runs
        text = f"{met:,} of {fmt.runs(runs)} reached {rows[0]['target']}{of_workload(rows, every)}"
        text += f"; {lost:,} {'is' if lost == 1 else 'are'} lost" if lost else ""
        times, more = _times(of, rows)
        if others > 0 and rows is every[_MOST - 1]:
            more.append(f"{others} more in the table")
        yield Answer("targets", "How long does the target take?", f"{text}. {times}".strip(),
                     "targets", "medians", more)  # fmt: skip


def _times(of: Sweep, rows: Rows) -> tuple[str, list[str]]:
    """The shortest and the longest median time of the conditions on one machine; how many pairs
    differ, and what was left out."""
    # a bound is no time
    timed = [row for row in rows if row["seconds"] is not None
             and (row["seconds_low"] is None or row["seconds_high"] is not None)]  # fmt: skip
    machines = Counter(row["machine"] for row in timed if row["machine"])
    most = max(machines, key=machines.__getitem__, default=None)
    out = [row for row in (rows if most else timed)
           if row["machine_note"] or row["machine"] not in (most, None)]  # fmt: skip
    whys = Counter(row["machine_note"] or row["machine"] for row in out)
    left_out = fmt.some([f"{fmt.counted(n, 'condition')} ({why})" for why, n in whys.items()])
    if most is None:
        return "", [f"no times are compared: {left_out}"] if out else []
    more = [f"not compared with these: {left_out}"] if out else []
    same = [row for row in timed if row["machine"] == most]
    fast, slow = (pick(same, key=lambda row: row["seconds"]) for pick in (min, max))
    names = [_place(row, same) for row in (fast, slow)]
    if fast is slow:
        return f"The median is {_time(fast)}.", more
    both = [part for part in names[0] if part in names[1]]
    ends = [fmt.joined([_time(row), *(part for part in name if part not in both)])
            for row, name in zip((fast, slow), names, strict=True)]  # fmt: skip
    steps = " to ".join(dict.fromkeys(_short(row["steps"]) for row in (fast, slow)))
    text = f"{fmt.joined(['Median time', *both])}: {' to '.join(ends)} ({steps} steps)."
    apart = {row["condition"] for row in out}
    return text, [_differ(of, [row for row in rows if row["condition"] not in apart]), *more]


def _time(row: Row) -> str:
    return f"{estimate_in(row, 'seconds').text(_short)} s"


def _place(row: Row, rows: Rows) -> list[str]:
    """``with lamb``, ``at batch 128``, ``on 2 ranks``: as far as ``rows`` differ in it."""
    parts = {
        ("technique_label", "context"): f"with {namer(rows)(row)}",
        ("global_batch",): f"at batch {fmt.count(row['global_batch'])}",
        ("gpus",): f"on {ranks_text(row['gpus'])}",
    }
    return [part for names, part in parts.items()
            if len({tuple(own[name] for name in names) for own in rows}) > 1]  # fmt: skip


def _differ(of: Sweep, rows: Rows) -> str:
    """How many pairs of conditions are shown to differ in time: each by an interval of the ratio
    that holds for all pairs together. One with a run that did not reach the target, or is lost, has
    no mean: its pairs count, untested."""
    if len(rows) > MOST_PAIRED:
        return f"pairs of more than {MOST_PAIRED} conditions are not tested"
    cells, order = of.made(with_lost), pd.Index([row["condition"] for row in rows])
    cells = cells[cells["condition"].isin(order)]
    times = cells["seconds"].where(cells["met"].groupby(cells["condition"]).transform("all"))
    logs = np.log(times.to_numpy(float, na_value=np.nan))
    means = grouped_moments(logs, order.get_indexer(cells["condition"]), len(order))
    first, second = np.triu_indices(len(order), 1)
    found = welch(means.at(second), means.at(first), level=1 - ALPHA / len(first))
    tested = np.flatnonzero(np.isfinite(found.low))
    shown, more = int(((found.low > 0) | (found.high < 0)).sum()), len(first) - len(tested)
    if not len(tested):
        return "no pair is tested: that needs two runs each, and none without the target"
    if len(first) == 1:
        ends = [part[tested[0]] for part in (found.low, found.value, found.high)]
        ends = ends if ends[1] > 0 else [-end for end in ends[::-1]]
        low, value, high = map(fmt.significant, np.exp(ends))
        text = f"the longer takes {value} ({low} to {high}) times the shorter"
        text += "" if shown else ": no difference is shown"
    else:
        are = "are" if shown > 1 else "is"
        pairs = fmt.counted(len(tested), "pair")
        text = f"{shown or 'none'} of {pairs} {are} shown to differ in time"
    return text + (f"; {more} more {'is' if more == 1 else 'are'} not tested" if more else "")


TOPIC = Topic(
    tables=(to_target,),
    plots=(curves.accuracy_in_time,),
    answers=(_how_long,),
    asks=has_goals,
    needs=has_goals,
)
