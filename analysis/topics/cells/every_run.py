"""Every run by itself, and what makes the numbers of some doubtful."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis import fmt
from analysis.table import Column, Table
from analysis.topics.names import NAMES, batch_text, ranks_column
from analysis.topics.topic import Caution, Sweep, Topic

#: Slowest steady epoch over the median one: above this, a run was not alone.
_UNEQUAL = 1.5
#: Seconds above the median: less is one turn of another program.
_HICCUP_S = 1.0
#: Rank counts in a sentence; more are counted.
_NAMED = 4


def table(runs: pd.DataFrame) -> Table:
    """One row per usable run, for the page; runs.csv has all columns.

    Steps, images and rates are what the epochs of a record add up to, not what its config asks for.
    """
    grows = runs["global_batch_last"] > runs["global_batch"]
    columns = (
        Column("cell_id", "string", "cell", wide=True),
        Column("status", "string", "status"),
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", "images of a step; where it grows, of the "
               "first → last epoch", only_if_varied=not grows.any(),
               cell=lambda row: batch_text(row["global_batch"], row["global_batch_last"])),
        Column("global_batch_last", "Int64"),
        Column("seed", "Int64", "seed", format=fmt.count),
        Column("epochs_run", "Int64", "epochs", only_if_varied=True),
        Column("steps", "Int64", "steps", "of the optimizer, over all epochs", only_if_varied=True),
        Column("images", "Int64", "images", "over all epochs and ranks: runs of unequal steps or "
               "images are no comparison at equal budget", only_if_varied=True),
        Column("skipped_steps", "Int64", "skipped", "steps without an update, since a gradient "
               "overflowed in half precision", only_if_varied=not runs["skipped_steps"].any()),
        Column("validation_accuracy", "Float64", "validation accuracy", format=fmt.THREE,
               note="validation_accuracy_why"),
        Column("validation_accuracy_why", "string"),
        Column("images_per_s", "Float64", "images/s", note="images_per_s_why"),
        Column("images_per_s_why", "string"),
        Column("train_s", "Float64", "training s"),
        Column("hosts", "object", "hosts", only_if_varied=True),
    )  # fmt: skip
    wanted = [name for column in columns for name in column.types]
    return Table(
        "every_run",
        "Every run",
        columns,
        runs[wanted],
        intro="The folder of a cell has its config, its record and the logs of its ranks. To run a "
        "cell again, delete its record.json and run make sweep.",
        folded=True,
    )


def _alarms(of: Sweep) -> Iterable[Caution]:
    """Findings that make a run's numbers doubtful, each with the runs that say it."""
    told = of.runs[["cell_id", "alarms"]].explode("alarms")
    for alarm, own in told.groupby("alarms", sort=False):
        text = f"Alarm in {fmt.first_of(own['cell_id'].tolist(), 1)}: {alarm}"
        yield Caution(text, "all", is_alarm=True)


def _repeating(of: Sweep) -> Iterable[Caution]:
    """Ranks that see the same images: found unasked it is an alarm, asked for a property."""
    told = of.runs[(of.runs["partition"] == "same") & (of.runs["gpus"] > 1)]
    if len(told):
        first = fmt.first_of(told["cell_id"].tolist(), 1)
        text = (f"All ranks train on the same images, as configured (partition: same), in {first}: "
                "a global batch is worth that of one rank, and images/s count each image once per "
                "rank.")  # fmt: skip
        yield Caution(text, "all")


def _sharing(of: Sweep) -> Iterable[Caution]:
    ranks = of.runs.loc[of.runs["oversubscribed"].fillna(False), "gpus"]
    if len(ranks):
        on = fmt.first_of([f"{n:,}" for n in sorted(ranks.unique())], _NAMED)
        text = f"In {len(ranks):,} of {fmt.runs(len(of.runs))} (on {on} ranks), ranks share cores "
        yield Caution(f"{text}or a CPU quota: their times say nothing about scaling.", "times")


def _disturbed(of: Sweep) -> Iterable[Caution]:
    """Epochs of equal work that took very unequal times; a batch that grows changes the work."""
    epochs = of.frames.epochs
    fixed = of.runs.loc[of.runs["global_batch_last"] == of.runs["global_batch"], "cell_id"]
    steady = epochs["steady"].fillna(False) & epochs["cell_id"].isin(fixed)
    by_cell = epochs["train_s"][steady].groupby(epochs["cell_id"], sort=False)
    worst = by_cell.agg(["median", "max"])
    over = worst["max"] / worst["median"]
    slow = over[(over > _UNEQUAL) & (worst["max"] > worst["median"] + _HICCUP_S)]
    if len(slow):
        text = (f"In {len(slow):,} of {fmt.runs(len(of.runs))} an epoch took up to "
                f"{fmt.significant(slow.max(), 2)} times its run's median (most in "
                f"{slow.idxmax()}): seconds are unreliable, compare images/s.")  # fmt: skip
        yield Caution(text, "times")


def _unplanned(of: Sweep) -> Iterable[Caution]:
    """Sweep files with one name share a folder, whose sweep.json is of the last one that ran."""
    if cells := of.frames.unplanned:
        text = (f"Not counted: {fmt.counted(len(cells), 'cell')} with a record in this folder "
                f"({fmt.first_of(cells, 1)}), which the last make sweep did not plan. Sweep files "
                "with the same `name:` share a folder: give each its own.")  # fmt: skip
        yield Caution(text, "all")


TOPIC = Topic(
    tables=(lambda of: table(of.runs),),
    cautions=(_alarms, _repeating, _sharing, _disturbed, _unplanned),
)
