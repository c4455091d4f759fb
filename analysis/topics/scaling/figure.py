"""Figure of throughput against ranks: every run a dot, the ideal line from the smallest count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.figures import (
    MOST_RUNS,
    Figure,
    Look,
    head,
    hidden,
    left_out,
    legend,
    looks_of,
    octaves,
    sideways,
    small_multiples,
    style,
    to_svg,
)
from analysis.records.labels import without_scaling
from analysis.table import Column, frame, types
from analysis.topics.scaling.efficiency import with_series

KEY = "throughput"
MOST_PANELS = 6
COLUMNS: tuple[Column, ...] = (
    Column("panel", "string"), Column("kind", "string"), Column("technique", "string"),
    Column("cell_id", "string"), Column("status", "string"), Column("seed", "Int64"),
    Column("gpus", "Int64"), Column("n", "Int64"), Column("images_per_s"),
    Column("oversubscribed", "boolean"),
)  # fmt: skip
_DOTTED = (0, (2, 3))
_SIDEWAYS = 0.035  # of an octave, between neighbours, so that no dot hides another


def figure(runs: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """Panels per scaling mode, batch and device; ``seen``: the look of each technique that is
    drawn. None where no run of these has a throughput."""
    data = numbers(runs[runs["images_per_s"].notna()])
    shown = data[data["technique"].isin(list(seen))]
    if not len(shown):
        return None
    every = list(dict.fromkeys(shown["panel"]))
    panels = every[:MOST_PANELS]
    shown = shown[shown["panel"].isin(panels)]
    there = looks_of(seen, shown)
    with style():
        canvas, axes = small_multiples(len(panels), len(there), share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, shown[shown["panel"] == panel], there)
            head(axis, panel)
        _scale_y(axes[0], shown["images_per_s"])
        axes[0].set_ylabel("images/s (log)")
        legend(canvas, there, _marks(shown))
        svg = to_svg(canvas)
    caption = _caption(shown) + left_out(len(panels), len(every), "panels; the CSV has all")
    caption += hidden(seen, data["technique"])
    return Figure(KEY, "Throughput against ranks", caption, data, svg)


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per run (at most MOST_RUNS), per geometric mean, and per point of an ideal line."""
    if not len(runs):
        return frame([], COLUMNS)
    marked = with_series(runs).assign(technique=runs["technique_label"])
    named = {number: _panel(own.iloc[0]) for number, own in marked.groupby("series")}
    marked = marked.assign(panel=marked["series"].map(named))
    completed = marked[marked["status"] == "completed"]
    logs = completed.assign(log=completed["images_per_s"].astype(float).map(math.log))
    means = (
        logs.groupby(["series", "panel", "technique", "gpus"], sort=False, observed=True)
        .agg(n=("log", "size"), log=("log", "mean"), oversubscribed=("oversubscribed", "any"))
        .reset_index()
        .sort_values(["series", "gpus"], kind="stable")
    )
    means = means.assign(kind="mean", images_per_s=means["log"].map(math.exp))
    bases = means.groupby("series").head(1).set_index("series")
    per_rank = (bases["images_per_s"] / bases["gpus"])[~bases["oversubscribed"].astype(bool)]
    several = means["series"].map(means["series"].value_counts()) > 1
    ideal = means[several & means["series"].isin(per_rank.index)]
    ideal = ideal.assign(
        kind="ideal", images_per_s=ideal["series"].map(per_rank) * ideal["gpus"], n=None
    )
    dots = marked.assign(kind="run") if len(marked) <= MOST_RUNS else marked.iloc[:0]
    parts = [part for part in (dots, means, ideal) if len(part)]
    wanted = types(COLUMNS)
    typed = [part.reindex(columns=list(wanted)).astype(wanted) for part in parts]
    return pd.concat(typed, ignore_index=True)


def _panel(run: pd.Series[Any]) -> str:
    weak = run["scaling"] == "weak"
    batch = f"{run['batch_per_rank']} images a rank" if weak else f"{run['global_batch']} in all"
    context = without_scaling(str(run["context"]))
    return f"{run['scaling']} scaling, {batch}" + (f"\n{context}" if context else "")


def _draw(axis: Any, data: pd.DataFrame, seen: Mapping[str, Look]) -> None:
    labels = [label for label in seen if (data["technique"] == label).any()]
    for place, label in enumerate(labels):
        look, own = seen[label], data[data["technique"] == label]
        shift = sideways(place, len(labels), _SIDEWAYS)
        ideal, mean = own[own["kind"] == "ideal"], own[own["kind"] == "mean"]
        axis.plot(
            ideal["gpus"].tolist(), ideal["images_per_s"].tolist(), color=look.color,
            linewidth=1.0, alpha=0.7, linestyle=_DOTTED,
        )  # fmt: skip
        axis.plot(
            [g * shift for g in mean["gpus"]], mean["images_per_s"].tolist(), color=look.color,
            linewidth=1.4, linestyle=look.dashes, marker="_", markersize=9,
        )  # fmt: skip
        runs = own[own["kind"] == "run"]
        for (status, shared), part in runs.groupby(["status", "oversubscribed"]):
            diverged = status == "diverged"
            axis.plot(
                [g * shift for g in part["gpus"]], part["images_per_s"].tolist(),
                color=look.color, marker="x" if diverged else look.marker,
                markersize=6 if diverged else 4.5, alpha=0.85, linestyle="none",
                markerfacecolor="none" if shared else look.color,
            )  # fmt: skip
    counts = sorted(set(data["gpus"]))
    octaves(axis, counts, "ranks", "{:g}".format)
    axis.set_xlim(min(counts) / 2**0.4, max(counts) * 2**0.4)


def _marks(data: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """What the legend says beside the techniques."""
    runs = data[data["kind"] == "run"]
    marks: dict[str, dict[str, Any]] = {}
    if (data["kind"] == "ideal").any():
        marks["ideal"] = {"linewidth": 1, "linestyle": _DOTTED}
    if runs["oversubscribed"].any():
        marks["ranks share cores"] = {
            "marker": "o", "markerfacecolor": "none", "linestyle": "none", "markersize": 4.5
        }  # fmt: skip
    if (runs["status"] == "diverged").any():
        marks["diverged"] = {"marker": "x", "linestyle": "none", "markersize": 6}
    return marks


def _scale_y(axis: Any, rates: pd.Series[Any]) -> None:
    """Whole octaves, so that at least two ticks are there however close the rates are."""
    low, high = (math.log2(float(rate)) for rate in (rates.min(), rates.max()))
    first, last = math.floor(low - 0.05), math.ceil(high + 0.05)
    step = max(1, (last - first) // 7)
    axis.set_yscale("log", base=2)
    axis.set_ylim(2.0**first, 2.0**last)
    axis.yaxis.set_major_locator(FixedLocator([2.0**i for i in range(first, last + 1, step)]))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    )


def _caption(data: pd.DataFrame) -> str:
    runs = data[data["kind"] == "run"]
    dots = f"{len(runs)} runs, one dot each (shifted sideways a little so that none hides another)"
    text = (
        f"Steady-state images/s{f' of {dots}' if len(runs) else ''}; lines join geometric means "
        "over completed runs; the table has the intervals. Dotted: ideal, the mean at the smallest "
        "rank count of the same series in proportion to ranks. Both axes are logarithmic, base 2."
    )
    if runs["oversubscribed"].any():
        text += " Hollow: ranks share cores, no scaling figure."
    if (runs["status"] == "diverged").any():
        text += " Crosses: diverged runs, in no mean."
    return text
