"""What changes the meaning of an answer, or should be known beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.page.parts import parts
from analysis.provenance import Touches, mixtures
from analysis.records.frames import Frames
from analysis.table import Table, first_of, plain_rows
from analysis.topics import usage
from analysis.topics.topic import namer

#: Slowest steady epoch over the median one: above this, a run was not alone.
_UNEQUAL = 1.5
#: Seconds above the median: less is one turn of another program.
_HICCUP_S = 1.0
#: More cells than this are counted, not named.
_NAMED = 4


@dataclass(frozen=True)
class Caution:
    text: str
    touches: Touches
    is_alarm: bool = False


def cautions(
    frames: Frames, tables: Mapping[str, Table], slower: Sequence[str], failures: list[str]
) -> tuple[Caution, ...]:
    """Most serious first.

    Args:
        tables: of the report, by key.
        slower: counts that the smaller ones let one expect to be faster.
        failures: gets a sentence for each kind of caution that could not be made.
    """
    runs, epochs = frames.runs, frames.epochs
    if not len(runs):
        return ()
    data = {key: table.data for key, table in tables.items()}
    kinds: list[Callable[[], list[Caution]]] = [
        lambda: _alarms(runs),
        lambda: _repeating(runs),
        lambda: _skipped(epochs),
        lambda: _sharing(runs),
        lambda: _too_good(data["scaling"]) if "scaling" in data else [],
        lambda: _disturbed(epochs),
        lambda: [Caution(f"{text}.", "times") for text in slower[:_NAMED]],
        lambda: [Caution(*mixture) for mixture in mixtures(runs)],
        lambda: _without_result(data["usage"]) if "usage" in data else [],
        lambda: _unplanned(frames.unplanned),
    ]
    return tuple(found for own in parts(kinds, "A caution", failures) for found in own)


def _sharing(runs: pd.DataFrame) -> list[Caution]:
    shared = runs["oversubscribed"].fillna(False)
    if not shared.any():
        return []
    counts = sorted(runs.loc[shared, "gpus"].unique())
    on = first_of([f"{ranks:,}" for ranks in counts], _NAMED)
    return [
        Caution(
            f"Ranks of the runs on {on} share cores or a CPU quota: their times are no scaling "
            "figures.",
            "times",
        )
    ]


def _without_result(used: pd.DataFrame) -> list[Caution]:
    lost = usage.without_result(used)
    return [Caution(lost, "none")] if lost else []


def _unplanned(cells: Sequence[str]) -> list[Caution]:
    if not cells:
        return []
    records = "the record" if len(cells) == 1 else "the records"
    return [
        Caution(
            f"Not used, since the present plan does not have them: {records} of "
            f"{_named(cells, 'cells')}.",
            "none",
        )
    ]


def _alarms(runs: pd.DataFrame) -> list[Caution]:
    """Findings that make a run's numbers doubtful, each with the runs that say it."""
    told = runs.loc[runs["alarms"].notna() & (runs["alarms"] != ""), ["cell_id", "alarms"]]
    told = told.assign(alarm=told["alarms"].str.split(" | ", regex=False)).explode("alarm")
    return [
        Caution(f"Alarm in {_named(own['cell_id'].tolist())}: {alarm}", "all", is_alarm=True)
        for alarm, own in told.groupby("alarm", sort=False)
    ]


def _repeating(runs: pd.DataFrame) -> list[Caution]:
    """Ranks that see the same images: found unasked it is an alarm, asked for a property."""
    told = runs[(runs["partition"] == "same") & (runs["gpus"] > 1)]
    if not len(told):
        return []
    return [
        Caution(
            "As their config asks (partition: same), all ranks train on the same images in "
            f"{_named(told['cell_id'].tolist())}: a global batch is worth that of one rank, and "
            "images/s count each image once for every rank.",
            "all",
        )
    ]


def _skipped(epochs: pd.DataFrame) -> list[Caution]:
    """Half precision that overflowed: the runs took fewer updates than their steps."""
    by_cell = epochs.groupby("cell_id", sort=False, observed=True)[["skipped_steps", "steps"]].sum()
    lost = by_cell[by_cell["skipped_steps"] > 0]
    if not len(lost):
        return []
    return [
        Caution(
            f"{int(lost['skipped_steps'].sum()):,} of {int(lost['steps'].sum()):,} steps made no "
            "update, since a gradient overflowed in half precision: "
            f"{_named([str(cell) for cell in lost.index])}.",
            "accuracy",
        )
    ]


def _disturbed(epochs: pd.DataFrame) -> list[Caution]:
    """Epochs of equal work that took very unequal times; a batch that grows changes the work."""
    steady = epochs.loc[epochs["steady"].fillna(False), ["cell_id", "train_s"]]
    by_cell = steady.groupby("cell_id", sort=False, observed=True)
    middle, worst = by_cell["train_s"].median(), by_cell["train_s"].max()
    grows = epochs.groupby("cell_id", sort=False, observed=True)["epoch_batch"].nunique() > 1
    limit = pd.concat([_UNEQUAL * middle, middle + _HICCUP_S], axis=1).max(axis=1)
    slow = (worst > limit) & ~grows.reindex(worst.index)
    if not slow.any():
        return []
    cells = [str(cell) for cell in slow.index[slow]]
    return [
        Caution(
            "Something slowed the machine down: some epochs took up to "
            f"{(worst / middle)[slow].max():.1f} times the median one in {_named(cells)}. Compare "
            "images/s, which are medians over epochs, rather than seconds.",
            "times",
        )
    ]


def _too_good(scaling: pd.DataFrame) -> list[Caution]:
    """Efficiency surely above 1: rather a disturbed baseline than a wonder."""
    above = scaling[scaling["efficiency_low"].fillna(0) > 1]
    if not len(above):
        return []
    named = namer(plain_rows(scaling))
    rows = [f"{named(row)} at {row['gpus']} ranks" for row in plain_rows(above)]
    return [
        Caution(
            f"The interval of the efficiency lies above 1 ({_named(rows)}): more ranks have more "
            "cache, or something slowed the runs on fewer ranks. Measure the smallest count again "
            "on a quiet machine.",
            "times",
        )
    ]


def _named(cells: Sequence[str], what: str = "runs") -> str:
    named = first_of(cells, _NAMED)
    return f"{len(cells)} {what} ({named})" if len(cells) > _NAMED else named
