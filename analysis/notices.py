"""What a reader must keep in mind, most serious first: shown above every table and figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pandas as pd

from analysis.load import Sweep
from analysis.provenance import mixtures
from analysis.scaling import SHARED_CORES
from train.record.run import RunRecord

NOTHING = "No planned cell has a usable record: nothing can be compared or concluded."
#: How the most serious ones begin.
ALARM = "ALARM"
#: Slowest steady epoch over the median one: above this, a run was not alone.
_UNEQUAL = 1.5
#: Seconds above the median: less is one turn of another program.
_HICCUP_S = 1.0
#: More cells than this are counted, not named.
_NAMED = 4


def notices(sweep: Sweep, runs: pd.DataFrame, scaling: pd.DataFrame) -> tuple[str, ...]:
    """Alarms of the records, then what is missing, then what the numbers may be disturbed by."""
    found = [*([] if sweep.records else [NOTHING]), *_alarms(sweep.records)]
    found += _skipped(sweep.records)
    if sweep.problems:
        found.append(
            f"{len(sweep.problems)} planned cell(s) are in no table: see “Cells not in the "
            "tables”. Rows may have fewer runs than planned."
        )
    if runs["oversubscribed"].any():
        found.append(f"In some runs {SHARED_CORES}.")
    found += [*_too_good(scaling), *_disturbed(sweep.records)]
    if sweep.unplanned:
        found.append(
            f"{len(sweep.unplanned)} record(s) in the folder are not in the present plan and are "
            f"not used: {', '.join(sweep.unplanned)}."
        )
    return (*found, *mixtures(sweep.records))


def _alarms(records: Sequence[RunRecord]) -> list[str]:
    """Findings that make a run's numbers doubtful, each with the runs that say it."""
    cells: dict[str, list[str]] = {}
    for record in records:
        for alarm in record.alarms:
            cells.setdefault(alarm, []).append(record.cell_id)
    return [f"{ALARM} in {_named(found)}: {alarm}" for alarm, found in cells.items()]


def _skipped(records: Sequence[RunRecord]) -> list[str]:
    """Half precision that overflowed: the runs took fewer updates than their steps."""
    lost = {r.cell_id: sum(epoch.skipped_steps for epoch in r.epochs) for r in records}
    lost = {cell: count for cell, count in lost.items() if count}
    if not lost:
        return []
    steps = sum(epoch.steps for r in records if r.cell_id in lost for epoch in r.epochs)
    return [
        f"{sum(lost.values()):,} of {steps:,} steps made no update, since a gradient overflowed in "
        f"half precision: {_named(list(lost))}. The table “What was applied” counts them."
    ]


def _disturbed(records: Sequence[RunRecord]) -> list[str]:
    """Epochs of equal work that took very unequal times; a batch that grows changes the work."""
    slow = {}
    for record in records:
        steady = {sample.epoch for sample in getattr(record.throughput, "samples", ())}
        times = [epoch.train_s for epoch in record.epochs if epoch.epoch in steady]
        if not times or len({epoch.global_batch for epoch in record.epochs}) > 1:
            continue
        median = statistics.median(times)
        if max(times) > max(_UNEQUAL * median, median + _HICCUP_S):
            slow[record.cell_id] = max(times) / median
    if not slow:
        return []
    return [
        f"The slowest steady epoch took more than {_UNEQUAL} times the median one, up to "
        f"{max(slow.values()):.1f} times, in {_named(list(slow))}: something else used the "
        "machine, or held it up. Images/s, a median over epochs, hardly feels it; training seconds "
        "and shares of a step do."
    ]


def _named(cells: Sequence[str]) -> str:
    if len(cells) > _NAMED:
        return f"{len(cells)} runs ({', '.join(cells[:_NAMED])}, ...)"
    return ", ".join(cells)


def _too_good(scaling: pd.DataFrame) -> list[str]:
    """A rank that is faster among others than alone: rather a disturbed baseline than a wonder."""
    above = scaling[scaling["efficiency"].fillna(0) > 1.02]
    rows = [f"{row.technique} at {row.gpus} ranks" for row in above.itertuples()]
    if not rows:
        return []
    return [
        f"Efficiency above 1 ({', '.join(rows)}): the runs on fewer ranks were slowed by something "
        "(other load on the machine, most often). Measure again on a quiet machine."
    ]
