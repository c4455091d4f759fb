"""Figure of throughput against ranks: every run a dot, the ideal line from the smallest count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.frames import frame, values
from analysis.labels import without_scaling
from analysis.plots import (
    Figure,
    Look,
    empty,
    head,
    legend,
    looks_of,
    small_multiples,
    style,
    to_svg,
)
from analysis.scaling import series_of
from analysis.stats import geometric_mean

KEY, TITLE = "throughput", "Throughput against ranks"
_TEXT, _INT, _REAL, _BOOL = "string", "Int64", "Float64", "boolean"
COLUMNS: dict[str, str] = {
    "panel": _TEXT, "kind": _TEXT, "technique": _TEXT, "cell_id": _TEXT, "status": _TEXT,
    "seed": _INT, "gpus": _INT, "n": _INT, "images_per_s": _REAL, "oversubscribed": _BOOL,
}  # fmt: skip
_DOTTED = (0, (2, 3))
_SIDEWAYS = 0.035  # of an octave, between neighbours, so that no dot hides another


def throughput_figure(runs: pd.DataFrame, seen: Mapping[str, Look], why: str) -> Figure:
    """Panels per scaling mode, batch and device; see COLUMNS. ``seen`` as in curves."""
    data = throughput_data(runs[runs["images_per_s"].notna()])
    if not len(data):
        return empty(KEY, TITLE, why, data)
    panels = list(dict.fromkeys(data["panel"]))
    there = looks_of(seen, data)
    with style():
        canvas, axes = small_multiples(len(panels), len(there), share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, data[data["panel"] == panel], seen)
            head(axis, panel)
        _scale_y(axes[0], data["images_per_s"])
        axes[0].set_ylabel("images/s (log₂)")
        legend(canvas, there, _signs(data))
        svg = to_svg(canvas)
    return Figure(KEY, TITLE, _caption(data), data, svg)


def throughput_data(runs: pd.DataFrame) -> pd.DataFrame:
    """The numbers of the figure: a row per run, per geometric mean, and per point of an ideal."""
    marked = runs.assign(series=[series_of(run) for _, run in runs.iterrows()])
    devices = runs["device"].nunique()
    rows: list[dict[str, Any]] = []
    for _, series in marked.groupby("series", sort=False):
        about = {
            "panel": _panel(series.iloc[0], devices),
            "technique": series["technique_label"].iloc[0],
        }
        rows += [
            {**about, "kind": "run", "images_per_s": run["images_per_s"],
             **{n: run[n] for n in ("cell_id", "status", "seed", "gpus", "oversubscribed")}}
            for _, run in series.iterrows()
        ]  # fmt: skip
        rows += _lines(series[series["status"] == "completed"], about)
    return frame(rows, COLUMNS)


def _lines(completed: pd.DataFrame, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    means = [
        {**about, "kind": "mean", "gpus": int(group["gpus"].iloc[0]), "n": len(group),
         "images_per_s": geometric_mean(values(group["images_per_s"])),
         "oversubscribed": bool(group["oversubscribed"].any())}
        for _, group in completed.groupby("gpus")
    ]  # fmt: skip
    if len(means) < 2 or means[0]["oversubscribed"]:
        return means
    n0, rate = means[0]["gpus"], means[0]["images_per_s"]
    ideal = [
        {**about, "kind": "ideal", "gpus": mean["gpus"], "images_per_s": rate * mean["gpus"] / n0}
        for mean in means
    ]
    return means + ideal


def _panel(run: pd.Series[Any], devices: int) -> str:
    weak = run["scaling"] == "weak"
    batch = f"{run['batch_per_rank']} images a rank" if weak else f"{run['global_batch']} in all"
    named = f"\n{run['device']}" if devices > 1 else ""
    context = without_scaling(str(run["context"]))
    return f"{run['scaling']} scaling, {batch}" + (f"\n{context}" if context else "") + named


def _draw(axis: Any, data: pd.DataFrame, seen: Mapping[str, Look]) -> None:
    labels = [label for label in seen if (data["technique"] == label).any()]
    for place, label in enumerate(labels):
        look, own = seen[label], data[data["technique"] == label]
        shift = 2 ** (_SIDEWAYS * (place - (len(labels) - 1) / 2))
        ideal, mean = own[own["kind"] == "ideal"], own[own["kind"] == "mean"]
        axis.plot(
            ideal["gpus"].tolist(), ideal["images_per_s"].tolist(), color=look.color,
            linewidth=1.0, alpha=0.7, linestyle=_DOTTED,
        )  # fmt: skip
        axis.plot(
            [g * shift for g in mean["gpus"]], mean["images_per_s"].tolist(), color=look.color,
            linewidth=1.4, linestyle=look.dashes, marker="_", markersize=9,
        )  # fmt: skip
        for _, run in own[own["kind"] == "run"].iterrows():
            _dot(axis, run, look, shift)
    counts = sorted(set(data["gpus"]))
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(counts))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlim(min(counts) / 2**0.4, max(counts) * 2**0.4)
    axis.set_xlabel("ranks (log₂)")


def _dot(axis: Any, run: pd.Series[Any], look: Look, shift: float) -> None:
    diverged, hollow = run["status"] == "diverged", bool(run["oversubscribed"])
    axis.plot(
        [run["gpus"] * shift], [run["images_per_s"]], color=look.color,
        marker="x" if diverged else look.marker, markersize=6 if diverged else 4.5, alpha=0.85,
        linestyle="none", markerfacecolor="none" if hollow else look.color,
    )  # fmt: skip


def _signs(data: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """What the legend says beside the techniques."""
    runs = data[data["kind"] == "run"]
    signs: dict[str, dict[str, Any]] = {}
    if (data["kind"] == "ideal").any():
        signs["ideal, from n0"] = {"linewidth": 1, "linestyle": _DOTTED}
    if runs["oversubscribed"].any():
        signs["ranks share cores"] = {
            "marker": "o", "markerfacecolor": "none", "linestyle": "none", "markersize": 4.5
        }  # fmt: skip
    if (runs["status"] == "diverged").any():
        signs["diverged"] = {"marker": "x", "linestyle": "none", "markersize": 6}
    return signs


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
    text = (
        f"Steady-state images/s of {len(runs)} runs, one dot each (shifted sideways a little so "
        "that none hides another); lines join geometric means over completed runs; no interval "
        "is drawn, the table has it. Dotted: ideal, the mean at the smallest rank count n0 of the "
        "same series times n/n0. Both axes are logarithmic, base 2."
    )
    if runs["oversubscribed"].any():
        text += " Hollow: ranks share cores, no scaling figure."
    if (runs["status"] == "diverged").any():
        text += " Crosses: diverged runs, in no mean."
    return text
