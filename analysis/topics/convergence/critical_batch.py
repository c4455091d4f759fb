"""Steps to the target against the global batch: runs, the fitted law, the critical batch.

A series holds the runs of one technique on one workload, whatever their batch is made of: ranks,
images per rank or accumulated batches. The law and its fit: analysis/prediction/critical_batch.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, Look, hidden, left_out, looks, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.prediction.critical_batch import fit_critical_batch, law, without_fit
from analysis.records.extract import WORKLOAD
from analysis.records.frames import in_order
from analysis.records.labels import without, without_batch, without_rates
from analysis.table import Column, Row, Table, estimate_in, frame
from analysis.topics.comparisons.arms import SERIES
from analysis.topics.names import NAMES, namer
from analysis.topics.topic import MOST_DRAWN, Answer, Sweep, Topic, has_goals

#: Of a workload; a target ends a run, so that it does not matter how long it could have been.
_WORKLOAD = [name for name in WORKLOAD if name not in ("epochs", "epoch_images")]
GROWS = "the batch grows within a run: its steps belong to no single batch"
MOST_PANELS = 4
_POINTS = 40  # of the line of a law
_DRAWN = ["panel", "technique_label", "cell_id", "status", "seed", "global_batch", "steps", "met"]


def images(value: Any) -> str:
    """A batch that was fitted: tenths of an image only below ten."""
    return fmt.significant(value, 2)


def _ends(row: Row, name: str) -> str:
    low, high = (fmt.count(row[f"{name}_{end}"]) for end in ("low", "high"))
    return low if low == high else f"{low} to {high}"


COLUMNS = (
    *NAMES,
    Column("series", "Int64"),
    Column("target", "string", "target", only_if_varied=True),
    Column("batches", "Int64", "batches", "global batches at which a run reached the target, of "
           "those that were run: the smallest and the largest of these",
           cell=lambda row: f"{row['batches']} of {row['batches_tried']}, {_ends(row, 'batch')}"),
    Column("batches_tried", "Int64"),
    Column("batch_low", "Int64"),
    Column("batch_high", "Int64"),
    Column("reached", "Int64", "reached", "runs that reached the target; the others, diverged "
           "ones among them, are censored: they enter as more steps than they had; a lost run is "
           "in neither number",
           cell=lambda row: f"{row['reached']} of {row['reached'] + row['censored']}"),
    Column("censored", "Int64"),
    Column("epochs_low", "Int64", "epochs", "until the target, of the runs that reached it",
           cell=lambda row: _ends(row, "epochs")),
    Column("epochs_high", "Int64"),
    Column("steps_min", "Float64", "S_min", "steps that no batch, however large, falls below, "
           "with the 95 % interval of the profile likelihood; < and >: a bound, where the "
           "interval has one end", unit="steps", format=fmt.significant, estimate=True),
    Column("critical_batch", "Float64", "B_crit", "global batch that needs twice S_min steps and "
           "twice the fewest images: far below it twice the batch saves half of the steps, far "
           "above it none; interval likewise", unit="images", format=images, estimate=True),
)  # fmt: skip


def fits(of: Sweep) -> Table:
    """One row per series of :func:`points`, with the law's parameters or why there are none."""
    rows = [_row(group) for _, group in of.made(points).groupby("series", sort=False)]
    return Table(
        "critical_batch",
        "Critical batch: how far a larger batch saves steps",
        COLUMNS,
        in_order(frame(rows, COLUMNS), of.order),
        intro="S(B) = S_min (1 + B_crit / B) steps to the target at batch B (McCandlish et al. "
        "2018, 1812.06162, section 2.3), fitted to the runs of one technique, of each base "
        "learning rate by itself where a batch was run at several. Steps count to the end of an "
        "epoch, and until the target was held: where runs take few epochs, B_crit comes out too "
        "large.",
    )


def points(of: Sweep) -> pd.DataFrame:
    """The runs of series with a target at two batches or more, with the number of the ``series``.

    ``steps``: to the target; of a run that is not ``met``, the steps that it had. A run that had
    none is left out. ``grows``: its batch did.
    """
    about = of.runs.set_index("cell_id").rename(columns={"steps": "budget"})
    same = about.groupby(_WORKLOAD, sort=False, dropna=False)
    about = about.assign(workload=same.ngroup())
    about = about[["workload", "framework", "global_batch_last", "budget"]]
    known = of.frames.goals.join(about, on="cell_id")
    met = known["met"].fillna(False).astype(bool)
    known = known.assign(
        met=met,
        steps=known["steps"].where(met, known["budget"]),
        grows=(known["global_batch_last"] > known["global_batch"]).fillna(False),
    )
    known = known[known["steps"] > 0]
    label = known["cell_id"].map(_with_rates_of_batches(of))
    known = known.assign(technique_label=label.fillna(known["technique_label"]))
    series = known.groupby(list(SERIES), sort=False)
    known = known.assign(series=series.ngroup())
    return known[series["global_batch"].transform("nunique") > 1]


def _with_rates_of_batches(of: Sweep) -> dict[str, str]:
    """Label without its rate of each planned cell whose technique has one rate at each batch, as
    after a search, and several in all: the batch says which."""
    others, labels = without_rates(of.frames.settings)
    cells = of.frames.planned[of.frames.planned["known"]]
    cells = cells.assign(other=cells["technique_settings"].map(others))
    same = cells.groupby(["other", "framework", *_WORKLOAD], dropna=False)
    cells = cells.assign(series=same.ngroup(), all=same["technique_settings"].transform("nunique"))
    rates = cells.groupby(["series", "global_batch"])["technique_settings"].transform("nunique")
    most = rates.groupby(cells["series"]).transform("max")
    own = cells[(most == 1) & (cells["all"] > 1)]
    return dict(zip(own["cell_id"], own["other"].map(labels), strict=True))


def _row(group: pd.DataFrame) -> Row:
    first, reached = group.iloc[0], group[group["met"]]
    tried = group["global_batch"]
    names = ("technique", "technique_label", "series", "target")
    of_runs = (group[name].tolist() for name in ("global_batch", "steps", "met"))
    grows = group["grows"].any()
    found = without_fit(len(reached), GROWS) if grows else fit_critical_batch(*of_runs)
    return {
        **{name: first[name] for name in names},
        "context": without(without_batch(first["context"]), " epoch", " epochs"),
        "batches": reached["global_batch"].nunique(), "batches_tried": tried.nunique(),
        "batch_low": tried.min(), "batch_high": tried.max(),
        "reached": len(reached), "censored": len(group) - len(reached),
        "epochs_low": reached["epoch"].min(), "epochs_high": reached["epoch"].max(),
        **found.steps_min.columns("steps_min"), **found.batch.columns("critical_batch"),
    }  # fmt: skip


def figure(of: Sweep) -> Figure | None:
    """Every run a dot, hollow where it did not get there, and the laws; a panel per workload. None
    where no technique that is drawn has two batches."""
    found, fitted = of.made(points), of.rows(fits)
    panel_of = {row["series"]: str(row["context"]) for row in fitted}
    data = found.assign(panel=found["series"].map(panel_of))
    labels = list(dict.fromkeys(data["technique_label"]))
    known = set(labels) <= set(of.runs["technique_label"])  # else without their rates
    seen = of.seen if known else looks(labels[:MOST_DRAWN])
    shown = data[data["technique_label"].isin(list(seen))]
    panels, more = panels_of(shown, MOST_PANELS, "panels; the CSV has all")
    if not panels:
        return None
    laws = {row["series"]: row for row in fitted if row["critical_batch"] is not None}
    svg = lines(
        {panel: [*_lines(own, laws, seen)] for panel, own in panels.items()},
        Axis("global batch", "octaves"), Axis("steps to the target", "decades"),
    )  # fmt: skip
    drawn = pd.concat(panels)
    caption = fmt.joined([
        f"{fmt.runs(len(drawn))}, one dot each; those of equal steps share one.",
        "" if drawn["met"].all() else "Hollow: the target was not reached within these steps, "
        "which the fit counts.",
        "Lines: S(B) = S_min (1 + B_crit / B), fitted; the table has the intervals."
        if drawn["series"].isin(laws).any() else "",
    ])  # fmt: skip
    first = left_out(len(seen), len(labels), "techniques, the first of the plan")
    caption += more + (hidden(seen, labels) if known else first)
    title = "Steps to the target against the batch"
    return Figure("steps_by_batch", title, caption, data[_DRAWN], svg)


def _lines(
    panel: pd.DataFrame, laws: Mapping[int, Row], seen: Mapping[str, Look]
) -> Iterable[Line]:
    """The law and the runs of each technique."""
    for label, look in seen.items():
        own = panel[panel["technique_label"] == label]
        for _, runs in own.groupby("series", sort=False):
            if fit := laws.get(runs["series"].iloc[0]):
                batches = np.geomspace(fit["batch_low"], fit["batch_high"], _POINTS)
                steps = law(batches, fit["steps_min"], fit["critical_batch"])
                yield Line(batches, steps, look, label, size=0)
            # of thousands of runs many end with the same epoch
            dots = runs.drop_duplicates(["global_batch", "steps", "met"])
            yield Line(dots["global_batch"], dots["steps"], look, "" if fit else label, width=0,
                       hollow=(~dots["met"]).tolist())  # fmt: skip


def _saves_up_to(of: Sweep) -> Iterable[Answer]:
    found = of.rows(fits)
    known = [row for row in found if row["critical_batch"] is not None]
    if not known:
        return
    said = [
        f"{estimate_in(row, 'critical_batch').text(images)} images with {namer(found)(row)}, "
        + fmt.runs(row["reached"] + row["censored"])
        + (f" ({row['censored']:,} censored)" if row["censored"] else "")
        for row in known
    ]
    alone = len(known) == 1 and known[0]["critical_batch_high"] is not None
    below = f"{images(known[0]['critical_batch'])} images" if alone else "it"
    more = [f"well below {below}, doubling the batch nearly halves the steps",
            "well above, it saves little"]  # fmt: skip
    yield Answer("critical_batch", "Which batch balances steps against images?",
                 f"The critical batch is {fmt.joined(fmt.few(said), '; ')}.", "critical_batch",
                 "fits", more)  # fmt: skip


TOPIC = Topic(tables=(fits,), plots=(figure,), answers=(_saves_up_to,), needs=has_goals)
