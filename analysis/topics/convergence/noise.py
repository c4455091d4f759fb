"""Gradient noise scale: what becomes of it over a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, Look, hidden, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.records.frames import in_order
from analysis.stats.intervals import means
from analysis.table import Column, Table, estimates_as, frame
from analysis.topics.names import NAMES, lacking, panel_name, ranks_column
from analysis.topics.topic import Sweep, Topic

#: Of the epochs that all completed runs of a condition have, those that the table shows.
WHEN: dict[str, Literal["min", "max"]] = {"first": "min", "last": "max"}
MOST_PANELS = 6

_PANEL = ["context", "gpus", "global_batch"]
_ABOUT = ["technique", "technique_label", "context", "gpus", "global_batch"]
_NEEDED = [*_ABOUT, "cell_id", "epoch", "noise_steps", "noise_b_simple", "noise_low",
           "noise_high", "noise_censored"]  # fmt: skip


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    about = (
        "images: geometric mean over completed runs, with the 95 % t interval of the logarithm; of "
        "one run its own value and block bootstrap over its steps; > where the squared gradient of "
        "a run cannot be told from zero: then only a lower bound is known"
    )
    return (
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", "images per optimizer step; where it grows "
               "within a run, of its first epoch"),
        *(Column(when, "Float64", f"B_simple, {when} epoch", about if when == "first" else "",
                 format=fmt.significant, estimate=True) for when in WHEN),
        Column("growth", "Float64", "last / first", "B_simple of the last epoch "
               "over that of the first, run by run: geometric mean with the 95 % t interval of "
               "the logarithm", format=fmt.significant, estimate=True),
    )  # fmt: skip


def table(of: Sweep) -> Table:
    """One row per condition whose completed runs measured their gradient noise.

    Where a run is censored no mean is taken, since it would be of the low ones: ``low`` is then the
    smallest lower end.
    """
    made = columns(of.runs)
    return Table(
        "noise_scale",
        "Noise scale: how large a batch the gradient's noise is worth",
        made,
        in_order(frame(_rows(of.made(shared)), made), of.order),
        intro="B_simple is the trace of the per-image gradient covariance over the squared norm "
        "of the gradient (McCandlish et al. 2018, 1812.06162, appendix A), measured from the "
        "batches of every step. It ignores curvature: read it as an estimate of the critical "
        "batch within a small factor: a batch far above it saves few steps, one far below it still "
        "averages noise away. With batch norm it belongs to the batch that is normalised together: "
        "compare rows of equal batch per rank.",
    )


def shared(of: Sweep) -> pd.DataFrame:
    """Epochs whose noise every completed run of a condition measured, with the number of their
    ``row`` in the table, and the ``step`` at which they end, from the first epoch on."""
    condition, epochs = of.runs.set_index("cell_id")["condition"], of.frames.epochs
    measured = (epochs["status"] == "completed") & epochs["noise_steps"].notna()
    own = epochs[epochs["cell_id"].isin(epochs.loc[measured, "cell_id"].unique())]
    known = own.assign(step=own.groupby("cell_id")["steps"].cumsum())[measured.loc[own.index]]
    known = known[[*_NEEDED, "step"]]
    known = known.assign(row=pd.factorize(known["cell_id"].map(condition))[0])
    known = known.sort_values("row", kind="stable")
    size = known.groupby(["row", "epoch"])["cell_id"].transform("size")
    return known[size == size.groupby(known["row"]).transform("max")]


def _rows(known: pd.DataFrame) -> dict[str, Any]:
    """Columns of the table, from :func:`shared`."""
    about, at = known.drop_duplicates("row"), known.groupby("row")["epoch"]
    ends = {when: known[known["epoch"] == at.transform(least)] for when, least in WHEN.items()}
    made: dict[str, Any] = {name: about[name].array for name in _ABOUT}
    for when, epoch in ends.items():
        made |= estimates_as(when, over_runs(epoch, len(about)))
    return made | estimates_as("growth", growth(ends["first"], ends["last"], len(about)))


def growth(first: pd.DataFrame, last: pd.DataFrame, count: int) -> pd.DataFrame:
    """From one epoch of each condition to another, by ``row``: the parts of an Estimate.

    Epochs of a run are not independent, so that the runs' own quotients are what varies.
    """
    of = ["row", "cell_id", "epoch", "noise_b_simple", "noise_censored"]
    both = first[of].merge(last[of], on=["row", "cell_id"], suffixes=("", "_last"))
    both = both[both["epoch"] != both["epoch_last"]]
    cut = (both["noise_censored"] | both["noise_censored_last"]).fillna(False)
    sizes = [both[name].where(both[name] > 0) for name in ("noise_b_simple", "noise_b_simple_last")]
    quotient = (sizes[1] / sizes[0]).mask(cut).to_numpy(float, na_value=np.nan)
    rows = both["row"].to_numpy()
    found = means(quotient, rows, count, "positive")
    runs, censored = (np.bincount(rows, own, count).astype(int) for own in (None, cut))
    # of the runs that are left a mean would be of the low ones
    told = zip(found["note"], found["n"], runs, censored, strict=True)
    note = np.array([_note(*row, "no run has it in both epochs") for row in told], object)
    known = {end: found[end].mask(censored > 0) for end in ("value", "low", "high")}
    return found.assign(**known, note=note)


def over_runs(epoch: pd.DataFrame, count: int) -> pd.DataFrame:
    """One epoch of each condition over its runs, by ``row``: the parts of an Estimate."""
    rows = epoch["row"].to_numpy()
    # no noise at all, of ranks that see the same images, has no logarithm
    positive = epoch["noise_b_simple"].where(epoch["noise_b_simple"] > 0)
    found = means(positive.to_numpy(float, na_value=np.nan), rows, count, "positive")
    single = (found["n"] == 1).to_numpy()
    own = epoch[positive.notna() & single[rows]]
    for part, name in {"value": "b_simple", "low": "low", "high": "high"}.items():
        found.loc[single, part] = own[f"noise_{name}"].to_numpy(float, na_value=np.nan)
    by_row = epoch.groupby("row")
    censored = by_row["noise_censored"].sum().to_numpy(int)
    # a run without interval bounds nothing
    bounds = by_row["noise_low"].min().where(by_row["noise_low"].count() == by_row.size())
    runs = by_row.size().tolist()
    notes = found["note"].mask(single, "of one run")
    none = [
        f"too few steps in an epoch ({steps}), or no noise between the batches of a step"
        for steps in by_row["noise_steps"].min()
    ]
    told = zip(notes, found["n"], runs, censored, none, strict=True)
    cut = pd.Series(censored > 0)
    low = bounds.to_numpy(float, na_value=np.nan)
    return found.assign(
        value=found["value"].mask(cut, low),
        low=found["low"].mask(cut, low),
        high=found["high"].mask(cut),
        n=found["n"].mask(cut, pd.Series(runs)),
        note=np.array([_note(*row) for row in told], object),
    )


def _note(note: str | None, n: int, runs: int, censored: int, none: str) -> str | None:
    """``none``: why no run has a value."""
    if censored:
        return f"censored in {censored} of {fmt.runs(runs)}"
    return lacking(note, n, runs, runs, None if n else none) if runs else none


def figure(of: Sweep) -> Figure | None:
    """Against the step, as in McCandlish et al. 2018 (1812.06162), figure 4: a panel per context,
    rank count and batch, a line per technique. None where no run measured its noise in two
    epochs."""
    every_technique, seen = numbers(of.made(shared)), of.seen
    data = every_technique[every_technique["technique"].isin(list(seen))]
    # the largest batches come last
    panels, more = panels_of(data[::-1], MOST_PANELS, "panels; the CSV has all")
    if not panels:
        return None
    ends = pd.concat(panels)[["value", "low", "high"]]
    y = Axis("noise scale, images", "decades", low=ends.min().min() / 1.3,
             high=ends.max().max() * 1.3)  # fmt: skip
    by_panel = {panel: [*_lines(own[::-1], seen)] for panel, own in [*panels.items()][::-1]}
    svg = lines(by_panel, Axis("step", low=0), y)
    caption = (
        "B_simple at the end of each epoch: geometric mean over the completed runs of a condition, "
        "with its 95 % interval as a band. Hollow: the squared gradient of a run cannot be told "
        "from zero, so that only a lower bound is known."
    )
    caption += more + hidden(seen, every_technique["technique"])
    return Figure("noise_curve", "Noise scale over training", caption, data, svg)


def numbers(known: pd.DataFrame) -> pd.DataFrame:
    """A row per condition and epoch of :func:`shared`: ``value`` with ``low`` and ``high``; without
    a value ``low`` is a bound."""
    known = known.assign(at=known.groupby(["row", "epoch"]).ngroup())
    known = known.sort_values("at", kind="stable")
    first = known.drop_duplicates("at")
    found = over_runs(known.assign(row=known["at"]), len(first))
    # a lower end without an upper one is a bound
    found["value"] = found["value"].mask(found["low"].notna() & found["high"].isna())
    found["low"] = found["low"].where(found["low"] > 0)  # a bound of zero says nothing
    made = pd.DataFrame({
        "panel": [panel_name(*place) for place in first[_PANEL].itertuples(index=False)],
        "technique": first["technique_label"].array, "row": first["row"].array,
        "epoch": first["epoch"].array, "step": first["step"].array,
        **{name: found[name].array for name in ("value", "low", "high", "n")},
    })  # fmt: skip
    # epochs of too few steps have neither; two with a point or a bound make a curve
    shown = made["value"].notna() | made["low"].notna()
    return made[shown.groupby(made["row"]).transform("sum") > 1].reset_index(drop=True)


def _lines(panel: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    for label, look in seen.items():
        for _, own in panel[panel["technique"] == label].groupby("row", sort=False):
            bound = own["value"].isna()
            yield Line(own["step"], own["value"], look, label if not bound.all() else "",
                       own["low"].mask(bound), own["high"], size=3)  # fmt: skip
            yield Line(own["step"][bound], own["low"][bound], replace(look, marker="^"),
                       label if bound.all() else "", width=0, hollow=True)  # fmt: skip


TOPIC = Topic(tables=(table,), plots=(figure,))
