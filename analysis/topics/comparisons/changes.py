"""What changed between two measurements of the same conditions: verdicts against a baseline.

Conditions are equal where all settings but the seed are. Three tests of each are one family:
throughput (ratio of geometric means), accuracy, and lost runs (Fisher's exact test). A condition
fails by what is shown in the family. It passes where its own intervals leave no room for a loss
that matters, since each that passes must pass by itself; else it is undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from analysis import fmt
from analysis.records.frames import Frames, in_order
from analysis.stats.intervals import grouped_moments
from analysis.stats.levels import ALPHA, SAME_ACCURACY, SLOWER
from analysis.table import Column, Row, Table, estimate_in, frame, plain_rows
from analysis.topics.comparable import ACCURACY, TIMES, comparable, facts
from analysis.topics.comparisons.arms import numbers
from analysis.topics.comparisons.contrast import LOWER, Contrast, contrasts, pairs_of
from analysis.topics.names import NAMES, ratio_text, reasons

#: A run that somebody or something else ended says nothing of the program.
_ENDED_FROM_OUTSIDE = ("cancelled", "preempted")
_ABOUT = ["technique", "technique_label", "context", "gpus", "global_batch"]
_NOTHING = {"technique_label": "every condition", "verdict": "undecided",
            "why": "no condition completed before"}  # fmt: skip


class Measure(NamedTuple):
    """A number of runs that is compared.

    ``least``: a change that is not below it is no regression, whatever its p. ``alike``: facts
    that must not change for the change to be the program's.
    """

    asks: Contrast
    column: str
    least: float
    worse: str
    alike: Sequence[str]


MEASURES = (
    Measure(
        Contrast("ratio", "throughput ratio", ratio_text, "after / before, of geometric means",
                 ratio=True, tests="ratio_", alone=True, shows=False),
        "images_per_s", SLOWER, "slower", TIMES,
    ),
    Measure(
        Contrast("difference", "change of accuracy", fmt.SIGNED, "after - before, of means",
                 tests="difference_", alone=True, shows=False),
        "validation_accuracy", -SAME_ACCURACY, "less accurate", ACCURACY,
    ),
)  # fmt: skip
#: Of each condition; that of lost runs is the third.
_TESTS = len(MEASURES) + 1
COLUMNS: tuple[Column, ...] = (
    Column("what", "string"),
    *NAMES,
    Column("gpus", "Int64", "ranks"),
    Column("global_batch", "Int64", "global batch"),
    Column("n_before", "Int64", "runs", "completed, before / after",
           cell=lambda row: f"{fmt.count(row['n_before'])} / {fmt.count(row['n_after'])}"),
    Column("n_after", "Int64"),
    Column("lost_before", "Float64", "lost", "share of ended runs that diverged, failed or left "
           "no usable record, before / after",
           cell=lambda row: " / ".join(fmt.percent(row[f"lost_{when}"])
                                       for when in ("before", "after"))),
    Column("lost_after", "Float64"),
    Column("lost_p", description="one-sided, of Fisher's test that no more are lost than before, "
           "not corrected"),
    *(column for measure in MEASURES for column in measure.asks.columns),
    Column("family", "Int64", description="tests, three per condition"),
    Column("evidence", "string"),
    Column("verdict", "string", "verdict"),
    Column("why", "string", "why", wide=True),
)  # fmt: skip


def table(before: Frames, after: Frames) -> Table:
    """A row per condition that completed before: a table of verdicts; see analysis/check.py."""
    done = [frames.runs[frames.runs["status"] == "completed"] for frames in (before, after)]
    keys = pd.Index(done[0]["condition"].unique())
    known = pd.concat(done[::-1]).drop_duplicates("condition").set_index("condition")
    done = [runs[runs["condition"].isin(keys)] for runs in done]
    places = [keys.get_indexer(pd.Index(runs["condition"])) for runs in done]
    n_then, n_now = (np.bincount(place, minlength=len(keys)) for place in places)
    then, now = (_ended(frames, keys) for frames in (before, after))
    lost_then = (then["ended"] - n_then).clip(lower=0)
    lost_now = (now["ended"] - n_now).clip(lower=0)
    ended = then["ended"] + now["ended"]
    # Fisher's exact test of no growth; nan where no run ended
    lost_p = stats.hypergeom.sf(lost_now - 1, ended, lost_then + lost_now, now["ended"])
    made: dict[str, Any] = {
        **{name: known.loc[keys, name].array for name in _ABOUT},
        "n_before": n_then, "n_after": n_now,
        "lost_before": (lost_then / then["ended"].clip(lower=1)).array,
        "lost_after": (lost_now / now["ended"].clip(lower=1)).array,
        "lost_p": lost_p, "missing": now["missing"].array, "planned": now["planned"].array,
        "family": _TESTS * len(keys),
    }  # fmt: skip
    known_then, known_now = map(facts, done, places, [len(keys)] * 2)
    asked = {}
    for measure in MEASURES:
        values = [numbers(runs[measure.column]) for runs in done]
        values = [np.log(own) for own in values] if measure.asks.ratio else values
        of_then, of_now = map(grouped_moments, values, places, [len(keys)] * 2)
        why = comparable(known_then, known_now, measure.alike, ("before", "after"))
        made[f"{measure.asks.name}_asked"] = of_then.n > 0
        asked[measure.asks] = pairs_of(of_now, of_then, why)
    rows = plain_rows(pd.DataFrame(made | contrasts(asked, _TESTS * len(keys))))
    for row in rows:
        row["verdict"], row["why"] = _verdict(row)
        row["evidence"] = ", ".join(_measured(row, one.asks) for one in MEASURES)
    found = frame(rows or [_NOTHING], COLUMNS).assign(what="change")
    found = in_order(found, after.techniques)
    return Table("changes", f"{after.name} after {before.name}", COLUMNS, found)


def _ended(frames: Frames, keys: pd.Index[str]) -> pd.DataFrame:
    """Per condition: planned cells; of these the ``missing``, which have no record or were ended by
    somebody else; and those that ``ended``."""
    planned = frames.planned
    outside = [one.cell_id for one in frames.problems if one.status in _ENDED_FROM_OUTSIDE]
    missing = (planned["state"] == "missing") | planned["cell_id"].isin(outside)
    found = missing.astype(int).groupby(planned["condition"]).agg(planned="size", missing="sum")
    found = found.reindex(keys, fill_value=0)
    return found.assign(ended=found["planned"] - found["missing"])


def _measured(row: Row, asks: Contrast) -> str:
    """With the interval that decides: of a loss that is shown the simultaneous one."""
    end = "_family" if row[f"{asks.tests}verdict"] == LOWER else ""
    return f"{asks.heading} {estimate_in(row, f'{asks.name}{end}').text(asks.write)}"


def _verdict(row: Row) -> tuple[str, str]:
    """(verdict, why)."""
    if not (row["planned"] or row["n_after"]):
        return "undecided", "not planned now"
    if not row["n_after"]:
        return "failed", "no completed run now"
    worse, doubts = list[str](), list[str | None]()
    if row["lost_p"] is not None and row["lost_p"] < ALPHA / row["family"]:
        worse.append("loses more runs")
    elif row["lost_after"] > row["lost_before"]:
        doubts.append("more runs lost, by chance or not")
    if row["missing"]:
        doubts.append(
            f"{row['missing']} of {row['planned']} planned runs have no record, or were "
            "cancelled or preempted"
        )
    for measure in MEASURES:
        name, least = measure.asks.name, measure.least
        value, low, shown = (row[f"{name}{end}"] for end in ("", "_low", "_verdict"))
        if shown == LOWER and value < least:
            worse.append(measure.worse)
        # without one before, as random labels have no accuracy, there is nothing to keep
        if row[f"{name}_p"] is None and value != measure.asks.none:
            doubts.append(row[f"{name}_note"] if row[f"{name}_asked"] else None)
        elif low is not None and low < least:
            doubts.append(f"{measure.asks.heading} may be {low:.3g}")
    if worse:
        return "failed", ", ".join(worse)
    said = reasons(doubts)
    return ("undecided", said) if said else ("passed", "no loss shown")
