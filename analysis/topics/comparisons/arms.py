"""Arms of a comparison: the planned cells of one technique at one scale, and what came of them.

An arm is built from the plan and not from what is left of it, so that runs that are lost cannot
make a comparison vanish or move it to a smaller scale. Accuracies are those of runs that completed.
Runs that diverged are counted, and have no accuracy: no interval of a mixture means anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import fmt
from analysis.stats.differences import welch
from analysis.stats.intervals import Moments, grouped_moments, share, t_intervals
from analysis.table import Column, Row, plain_rows, types
from analysis.topics.comparable import comparable, facts
from analysis.topics.comparisons.contrast import Pairs
from analysis.topics.names import NAMES, all_diverged, lacking, reasons
from analysis.topics.topic import Rows, Sweep

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
            "cores_per_rank", "nodes", "data_fingerprint", "git_commit", "git_dirty",
            "image_digest", "train_loss", "train_accuracy")  # fmt: skip
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
    of the accuracies of the others; ``steps`` null where runs differ; ``why`` runs have no
    accuracy; and the facts by which two arms are comparable.
    """
    cells = of.made(outcomes)
    table = cells.drop_duplicates("arm").set_index("arm").sort_index()
    by_arm, done = cells.groupby("arm"), cells[cells["completed"]]
    completed, why = done.groupby("arm"), done.dropna(subset="validation_accuracy_why")
    accuracy = numbers(done["validation_accuracy"].where(done["target"].isna()))
    found = grouped_moments(accuracy, done["arm"].to_numpy(), len(table))
    usable, steps = by_arm["status"].count(), completed["steps"].agg(["min", "max"])
    ran = cells[cells["status"].notna()]
    known = facts(ran, ran["arm"].to_numpy(), len(table)).drop(columns=["n", "n_planned"])
    return (
        table[["technique", *SERIES, "context", *PLACE]]
        .assign(
            n=usable,
            n_planned=by_arm.size(),
            n_diverged=usable - by_arm["completed"].sum(),
            with_accuracy=found.n.astype(int),
            mean=found.mean,
            sd=found.sd,
            steps=steps["min"].where(steps["min"] == steps["max"]).astype("Int64"),
            stops=by_arm["target"].count() > 0,
            why=why.groupby("arm")["validation_accuracy_why"].agg(reasons),
        )
        .join(known)
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
            Column("images_ratio", description="images of a run, as a multiple of the second's"),
            Column("skewed", "boolean", description="accuracies lie so close to 0 or 1 that up to "
                   "10 % of tests of equal ones err"),
        )  # fmt: skip

    def rows(self, other: str) -> dict[str, Any]:
        """By the columns of a table of pairs; ``other``: the name of the second of a pair."""
        both = (("", self.first), (f"_{other}", self.second))
        images = [numbers(own["budget"]) for _, own in both]
        with np.errstate(invalid="ignore"):
            ratio = images[0] / images[1]
        return {
            **{name: self.first[name].array for name in types(ABOUT)},
            **{f"{name}{end}": own[name].array for end, own in both for name in _COUNTS},
            **{f"accuracy{end}": own["mean"].array for end, own in both},
            other: self.second[self.called].array,
            "images_ratio": ratio,
            "skewed": self._skewed,
        }

    @cached_property
    def _skewed(self) -> NDArray[np.bool_]:
        first, second = map(accuracy_moments, (self.first, self.second))
        found: NDArray[np.bool_] = welch(first, second).error > 0
        return found & (_near_an_end(first) | _near_an_end(second))

    @cached_property
    def accuracy(self) -> Pairs:
        """What a contrast of accuracies is asked of."""
        called = (self.first[self.called].array, self.second[self.called].array)
        unequal = comparable(self.first, self.second, ("budget", "lost"), called)
        why, notes = list[str | None](), list[str | None]()
        rows = zip(plain_rows(self.first), plain_rows(self.second), unequal, self._skewed,
                   strict=True)  # fmt: skip
        for arm, other, note, near in rows:
            why.append(_why(arm, other, self.called))
            shares = (_share(one, one[self.called]) for one in (arm, other))
            notes.append(reasons([*shares, note, SKEWED if near else None]))
        return Pairs(accuracy_moments(self.first), accuracy_moments(self.second), why, notes)


def _near_an_end(found: Moments) -> NDArray[np.bool_]:
    """Where three or more shares have a t interval that leaves [0, 1]."""
    plain = t_intervals(found)
    outside = (plain["low"] < 0) | (plain["high"] > 1)
    return outside.to_numpy(bool) & (found.n > 2)


def _why(arm: Row, other: Row, called: str) -> str | None:
    """Why the accuracies of two arms confirm nothing; None where they do."""
    both = (arm, other)
    if unusable := [NO_USABLE.format(one[called]) for one in both if not one["n"]]:
        return reasons(unusable)
    if arm["stops"] or other["stops"]:
        return STOPS
    if lost := [note for one in both if (note := _diverged(one, one[called]))]:
        return reasons(lost)
    if not (arm["with_accuracy"] and other["with_accuracy"]):
        return reasons(one["why"] for one in both) or NOT_RECORDED
    return None


def _diverged(arm: Row, name: str) -> str | None:
    usable, _, diverged = (arm[name] for name in _COUNTS)
    if diverged == usable:
        return all_diverged(usable, name)
    return f"{diverged} of {usable} runs of {name} diverged" if diverged else None


def _share(arm: Row, name: str) -> str | None:
    """Of the runs that diverged, where some did not: the difference is among these."""
    usable, _, diverged = (arm[name] for name in _COUNTS)
    if not 0 < diverged < usable:
        return None
    return f"share of {name} that diverged: {share(diverged, usable).text(fmt.percent)}"


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
