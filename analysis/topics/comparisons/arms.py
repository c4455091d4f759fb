"""Arms of a comparison: the planned cells of one technique at one scale, and what came of them.

An arm is built from the plan and not from what is left of it, so that runs that are lost cannot
make a comparison vanish or move it to a smaller scale. Accuracies are those of runs that completed.
Runs that diverged are counted, and have no accuracy: no interval of a mixture means anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import fmt
from analysis.stats.differences import welch, why_untested
from analysis.stats.intervals import Moments, grouped_moments, share, t_intervals
from analysis.table import Column, Row, plain_rows, types
from analysis.topics.comparisons.contrast import Pairs
from analysis.topics.names import NAMES, all_diverged, lacking, reasons
from analysis.topics.topic import Rows, Sweep

#: A larger difference than that of an epoch's remainder is another budget.
_SAME_BUDGET = 0.05
NOT_COMPARED, SOME_DIVERGED, ALL_DIVERGED = "not compared", "some runs diverged", "all diverged"
STOPS = "a run ends where its target is met, with another budget than others"
SKEWED = "accuracies lie so close to 0 or 1 that p may be too small: false positives of up to 10 %"
NO_USABLE = "no usable run of {} at the planned scale"
NOT_RECORDED = "the records do not have it"
CALLED = "technique_label"
#: Where an arm competes: weak and strong cells stay apart, and batches that are made of other
#: parts, since what normalises a part sees other images.
PLACE = ("gpus", "global_batch", "accumulation", "scaling")
#: One technique with one set of settings, on one workload.
SERIES = ("workload", "framework", "technique_label")
_OUTCOME = ("status", "validation_accuracy", "validation_accuracy_why", "images", "steps", "target",
            "images_per_s", "images_per_s_why", "oversubscribed", "device", "device_kind",
            "cores_per_rank", "train_loss", "train_accuracy")  # fmt: skip
_COUNTS = ("n", "n_planned", "n_diverged")
ABOUT = (
    *NAMES,
    Column("framework", "string"),
    Column("gpus", "Int64", heading="ranks"),
    Column("global_batch", "Int64", heading="global batch"),
)


def outcomes(of: Sweep) -> pd.DataFrame:
    """Planned cells whose config is known, with what their runs gave; see records.columns.PLANNED.

    Adds ``arm``, the number of the cell's arm, and ``completed``.
    """
    planned = of.frames.planned
    known = planned[planned["known"].fillna(False).astype(bool)]
    kept = [name for name in known if name not in _OUTCOME]
    cells = known[kept].merge(of.runs[["cell_id", *_OUTCOME]], on="cell_id", how="left")
    return cells.assign(
        arm=cells.groupby([*SERIES, *PLACE], sort=False, dropna=False).ngroup(),
        completed=cells["status"].eq("completed").fillna(False).astype(bool),
    )


def arms(of: Sweep) -> pd.DataFrame:
    """One row per arm, by its number.

    Beside ABOUT, SERIES and PLACE: ``n``, ``n_planned``, ``n_diverged``: usable, planned and
    diverged runs; ``stops``: a target ends its runs; ``with_accuracy``, ``mean``, ``sd``: moments
    of the accuracies of the others; ``images`` a completed run's mean; ``steps`` null where runs
    differ; ``why`` runs have no accuracy.
    """
    cells = of.made(outcomes)
    table = cells.drop_duplicates("arm").set_index("arm").sort_index()
    by_arm, done = cells.groupby("arm"), cells[cells["completed"]]
    completed, why = done.groupby("arm"), done.dropna(subset="validation_accuracy_why")
    accuracy = numbers(done["validation_accuracy"].where(done["target"].isna()))
    found = grouped_moments(accuracy, done["arm"].to_numpy(), len(table))
    usable, steps = by_arm["status"].count(), completed["steps"].agg(["min", "max"])
    return table[["technique", *SERIES, "context", *PLACE]].assign(
        n=usable,
        n_planned=by_arm.size(),
        n_diverged=usable - by_arm["completed"].sum(),
        with_accuracy=found.n.astype(int),
        mean=found.mean,
        sd=found.sd,
        images=completed["images"].mean().astype("Float64"),
        steps=steps["min"].where(steps["min"] == steps["max"]).astype("Int64"),
        stops=by_arm["target"].count() > 0,
        why=why.groupby("arm")["validation_accuracy_why"].agg(reasons),
    )


def numbers(column: pd.Series[Any]) -> Any:
    """As floats, nan for a null."""
    return column.to_numpy(float, na_value=np.nan)


@dataclass(frozen=True)
class ArmPairs:
    """Rows of :func:`arms` beside others; ``called``: the column with the names by which a reader
    knows them."""

    first: pd.DataFrame
    second: pd.DataFrame
    called: str = CALLED

    @staticmethod
    def columns(other: Column) -> tuple[Column, ...]:
        """Of :meth:`rows`; ``other``: names the second of a pair, whose columns end so."""
        end = f"_{other.name}"
        return (
            *ABOUT,
            other,
            *run_columns(
                heading="runs", cell=lambda row: f"{runs_text(row)} / {runs_text(row, end)}",
                description="usable runs of the first / of the second, diverged ones included",
            ),
            *run_columns(end),
            Column("accuracy", description="mean among runs that did not diverge"),
            Column(f"accuracy{end}"),
        )  # fmt: skip

    def rows(self, other: str) -> dict[str, Any]:
        """By the columns of a table of pairs; ``other``: the name of the second of a pair."""
        both = (("", self.first), (f"_{other}", self.second))
        return {
            **{name: self.first[name].array for name in types(ABOUT)},
            **{f"{name}{end}": own[name].array for end, own in both for name in _COUNTS},
            **{f"accuracy{end}": own["mean"].array for end, own in both},
            other: self.second[self.called].array,
        }

    @cached_property
    def accuracy(self) -> Pairs:
        """What a contrast of accuracies is asked of."""
        both = (self.first, self.second)
        first, second = map(accuracy_moments, both)
        error = welch(first, second).error
        untested = why_untested(first.n, second.n, error)
        skewed = (error > 0) & (_near_an_end(first) | _near_an_end(second))
        verdicts, notes = list[str | None](), list[str | None]()
        for arm, other, why, near in zip(*map(plain_rows, both), untested, skewed, strict=True):
            verdict, told = _told(arm, other, self.called, why)
            verdicts.append(verdict)
            notes.append(reasons([*told, SKEWED if near else None]))
        return Pairs(first, second, verdicts, notes)


def _near_an_end(found: Moments) -> NDArray[np.bool_]:
    """Where three or more shares have a t interval that leaves [0, 1]."""
    plain = t_intervals(found)
    outside = (plain["low"] < 0) | (plain["high"] > 1)
    return outside.to_numpy(bool) & (found.n > 2)


def _told(
    arm: Row, other: Row, called: str, untested: str | None
) -> tuple[str | None, list[str | None]]:
    """(why a row confirms nothing, what to know of it)."""
    both = (arm, other)
    if unusable := [NO_USABLE.format(one[called]) for one in both if not one["n"]]:
        return NOT_COMPARED, [*unusable]
    if arm["stops"] or other["stops"]:
        return NOT_COMPARED, [STOPS]
    lost: list[str | None] = [note for one in both for note in _lost(one, one[called])]
    if other["n_diverged"] == other["n"]:
        return NOT_COMPARED, lost
    if arm["n_diverged"] == arm["n"]:
        return ALL_DIVERGED, lost
    if not (arm["with_accuracy"] and other["with_accuracy"]):
        return NOT_COMPARED, [reasons(one["why"] for one in both) or NOT_RECORDED]
    verdict = SOME_DIVERGED if arm["n_diverged"] or other["n_diverged"] else None
    seen = (arm["images"] or 0) / (other["images"] or 1)
    unequal = seen and abs(seen - 1) >= _SAME_BUDGET
    budget = f"no equal budget: {seen:.2g} times the images of {other[called]}"
    return verdict, [*lost, untested, budget if unequal else None]


def _lost(arm: Row, name: str) -> Iterable[str]:
    """Which runs an accuracy is not of."""
    usable, planned, diverged = (arm[name] for name in _COUNTS)
    kept = usable - diverged
    if not kept:
        yield all_diverged(usable, name)
    elif diverged:
        yield (
            f"{diverged} of {usable} runs of {name} diverged (share "
            f"{share(diverged, usable).text(fmt.percent)}): the difference is among those that did "
            "not, and confirms nothing"
        )
    if usable < planned:
        yield f"{usable} of {planned} planned runs of {name} are usable"
    if 0 < arm["with_accuracy"] < kept:
        yield f"{kept - arm['with_accuracy']} of {kept} runs of {name} have no accuracy"


def accuracy_moments(rows: pd.DataFrame) -> Moments:
    """Of the rows of :func:`arms`."""
    return Moments(*(numbers(rows[name]) for name in ("with_accuracy", "mean", "sd")))


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """Of arms: means of the runs that did not diverge, with Student's t intervals, as the parts of
    an Estimate."""
    found = t_intervals(accuracy_moments(rows), "share")
    told = zip(plain_rows(rows), found["note"].tolist(), strict=True)
    return found.assign(note=np.array([_of_accuracy(arm, note) for arm, note in told], object))


def _of_accuracy(arm: Row, note: str | None) -> str | None:
    usable, diverged = arm["n"], arm["n_diverged"]
    if not usable:
        return NO_USABLE.format(arm["technique_label"])
    if arm["stops"]:
        return STOPS
    some = f"{diverged} of {usable} runs diverged, in no mean"
    note = lacking(note, arm["with_accuracy"], usable - diverged, usable, arm["why"])
    return reasons([some if 0 < diverged < usable else None, note])


def run_columns(end: str = "", **shown: Any) -> tuple[Column, ...]:
    """Numbers of runs of one side, in columns that end so; ``shown``: what the page has of the
    first."""
    return tuple(
        Column(f"{name}{end}", "Int64", **(shown if name == "n" else {})) for name in _COUNTS
    )


def of_workload(rows: Rows, compared: Sequence[Rows]) -> str:
    """What sets a group of rows, which have one target, apart from the others; empty where there is
    one group."""
    parts = [part for part in rows[0]["context"] if not part.startswith("target ")
             and all(part in row["context"] for row in rows)]  # fmt: skip
    return f" ({', '.join(parts)})" if parts and len(compared) > 1 else ""


def runs_text(row: Row, end: str = "") -> str:
    """Usable runs, of how many where some are not."""
    usable, planned = row[f"n{end}"], row[f"n_planned{end}"]
    if usable is None:
        return fmt.NOT_AVAILABLE
    return fmt.count(usable) if usable == planned else f"{usable} of {planned}"
