"""What more ranks gain on the way to the target: hardware efficiency times statistical efficiency.

Ranks process more images per second; a larger batch may need more images for the same accuracy.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis import fmt
from analysis.records.columns import SHARED_CORES
from analysis.records.frames import in_order
from analysis.records.labels import without_scaling
from analysis.stats.differences import ratio
from analysis.table import Column, Estimate, Row, Table, frame
from analysis.topics.names import NAMES, mode, ranks_column, ratio_text, reasons
from analysis.topics.scaling.series import by_series
from analysis.topics.topic import Sweep, Topic, has_goals

#: Of a run, beside what the frame of goals has.
_OF_RUNS = ("series", "context", "workload", "scaling", "batch_per_rank", "images_per_s",
            "images_per_s_why", "oversubscribed")  # fmt: skip
_PARTS = ("total", "hardware", "statistical")


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    def part(name: str, heading: str, description: str) -> Column:
        return Column(name, "Float64", heading, description, format=ratio_text, estimate=True)

    return (
        *NAMES,
        Column("target", "string", "target", only_if_varied=True),
        Column("scaling", "string", "mode", "weak: the batch per rank is fixed; strong: the global "
               "batch is", cell=mode),
        Column("batch_per_rank", "Int64"),
        Column("global_batch", "Int64", "global batch", only_if_varied=True),
        replace(ranks_column(runs), only_if_varied=False),
        Column("n0", "Int64", "baseline", "smallest rank count with the same technique and "
               "settings, data, model, device, batch and target"),
        Column("n", "Int64", "runs", "on these ranks / on the baseline's",
               cell=lambda row: f"{row['n']} / {row['n_base']}"),
        Column("n_base", "Int64"),
        part("total", "true speed-up", "hardware x statistical: how many times as fast the target "
              "is reached, with the 95 % t interval of the logarithm of each run's own images/s "
              "over images"),
        part("hardware", "hardware", "throughput over that of the baseline"),
        part("statistical", "statistical", "images to the target on the baseline over images to "
              "it on these ranks: below 1 where the larger batch needs more of them"),
    )  # fmt: skip


def table(of: Sweep) -> Table:
    """One row per rank count above the smallest of its series."""
    runs = of.made(by_series)
    of_runs = runs.set_index("cell_id")[list(_OF_RUNS)]
    known = of.frames.goals.drop(columns="context").join(of_runs, on="cell_id")
    made = columns(runs)
    rows = []
    for _, group in known.groupby(["series", "workload"], sort=False):
        n0 = group["gpus"].min()
        base, more = group[group["gpus"] == n0], group[group["gpus"] > n0]
        rows += [_row(own, base) for _, own in more.groupby("gpus")]
    return Table(
        "true_speedup",
        "True speed-up: to the target, not to a number of images",
        made,
        in_order(frame(rows, made), of.order),
        intro="Ratios of geometric means. Validation and start-up are in none of them.",
    )


def _row(own: pd.DataFrame, base: pd.DataFrame) -> Row:
    first = own.iloc[0]
    names = ("technique", "technique_label", "target", "scaling", "batch_per_rank", "global_batch",
             "gpus")  # fmt: skip
    if why := _why_not(pd.concat([own, base])):
        found = dict.fromkeys(_PARTS, Estimate(None, n=len(own), note=why))
    else:
        found = _speed_up(own, base)
    return {
        **{name: first[name] for name in names},
        "context": without_scaling(first["context"]),
        "n0": base["gpus"].iloc[0], "n": len(own), "n_base": len(base),
        **{name: cell for part in _PARTS for name, cell in found[part].columns(part).items()},
    }  # fmt: skip


def _why_not(both: pd.DataFrame) -> str:
    """Why runs have no speed-up; empty where they have one."""
    if both["oversubscribed"].any():
        return SHARED_CORES
    if lacking := int(both["images_per_s"].isna().sum()):
        why = reasons(both["images_per_s_why"]) or "the records do not have the throughput"
        return f"{lacking} of {len(both)} runs: {why}"
    never = len(both) - int(both["met"].sum())
    return f"{fmt.runs(never)} never reached the target: images to it have no mean" if never else ""


def _speed_up(own: pd.DataFrame, base: pd.DataFrame) -> dict[str, Estimate]:
    """(T_k / T_1) (E_1 / E_k), of geometric means: Welch's intervals of the logarithms. That of the
    product is of each run's own quotient T / E, since the two are of the same runs."""
    (rates, images), (base_rates, base_images) = (
        (arm["images_per_s"].to_numpy(float), arm["images"].to_numpy(float)) for arm in (own, base)
    )
    return {
        "total": ratio(rates / images, base_rates / base_images),
        "hardware": ratio(rates, base_rates),
        "statistical": ratio(base_images, images),
    }


TOPIC = Topic(tables=(table,), needs=has_goals)
