"""Arms beside the arms they are compared with: what may be tested, and what to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.stats.differences import ALPHA, Welch, welch, why_untested
from analysis.stats.intervals import Floats, Moments, share, shares, t_intervals
from analysis.stats.power import MARGIN, FurtherRuns
from analysis.table import (
    NOT_AVAILABLE,
    Column,
    Row,
    count,
    estimates_as,
    joined,
    p_value,
    percent,
    plain_rows,
    signed,
)
from analysis.topics.comparisons.arms import numbers
from analysis.topics.topic import reasons, with_context

#: A larger difference than that of an epoch's remainder is another budget.
_SAME_BUDGET = 0.05
NOT_COMPARED, SOME_DIVERGED, ALL_DIVERGED = "not compared", "some runs diverged", "all diverged"
STOPS = "a run ends where its target is met, with another budget than others"
SKEWED = "accuracies lie so close to 0 or 1 that p may be too small: false positives of up to 10 %"
NO_USABLE = "no usable run of {} at the planned scale"


def side(pairs: pd.DataFrame, suffix: str) -> pd.DataFrame:
    """One side of merged arms, under the arms' own names."""
    names = ("planned", "usable", "diverged", "n", "mean", "sd", "images", "steps", "stops", "why")
    return pd.DataFrame({name: pairs[name + suffix] for name in names})


class Compared(NamedTuple):
    """Rows of arms beside the rows they are compared with.

    ``arm``, ``other``: moments that may be tested, nan in a row that confirms nothing;
    ``alone``: arm - other with its own interval, of all rows that have one, among the runs that
    did not diverge; ``verdicts``: why a row confirms nothing, None where its test decides;
    ``notes``: what to know of the row.
    """

    arm: Moments
    other: Moments
    alone: Welch
    verdicts: list[str | None]
    notes: list[str | None]


def compared(
    arm: pd.DataFrame, other: pd.DataFrame, names: Sequence[str], others: Sequence[str]
) -> Compared:
    """Rows of :func:`arms` side by side; ``names``, ``others``: as a reader knows them."""
    stops = (arm["stops"] | other["stops"]).to_numpy(bool)
    first, second = (_only(accuracy_moments(rows), ~stops) for rows in (arm, other))
    alone = welch(first, second)
    untested = why_untested(first.n, second.n, alone.error)
    rows = zip(plain_rows(arm), plain_rows(other), names, others, untested, strict=True)
    told = [_told(*row) for row in rows]
    verdicts = [verdict for verdict, _ in told]
    tested = np.array([verdict is None for verdict in verdicts], bool)
    skewed = alone.error > 0
    skewed &= _near_an_end(first) | _near_an_end(second)
    notes = [
        joined([note or "", SKEWED if near else ""], "; ") or None
        for (_, note), near in zip(told, skewed, strict=True)
    ]
    return Compared(_only(first, tested), _only(second, tested), alone, verdicts, notes)


def _near_an_end(found: Moments) -> NDArray[np.bool_]:
    """Where three or more shares have a t interval that leaves [0, 1]."""
    plain = t_intervals(found)
    outside = (plain["low"] < 0) | (plain["high"] > 1)
    return outside.to_numpy(bool) & (found.n > 2)


def _told(arm: Row, other: Row, name: str, other_name: str, untested: str | None) -> Any:
    """(why a row confirms nothing, what to know of it)."""
    both = ((arm, name), (other, other_name))
    if unusable := [NO_USABLE.format(called) for found, called in both if not found["usable"]]:
        return NOT_COMPARED, "; ".join(unusable)
    if arm["stops"] or other["stops"]:
        return NOT_COMPARED, STOPS
    notes = [_diverged(found, called) for found, called in both]
    notes += [_incomplete(found, called) for found, called in both]
    if other["diverged"] == other["usable"]:
        return NOT_COMPARED, joined(notes, "; ")
    if arm["diverged"] == arm["usable"]:
        return ALL_DIVERGED, joined(notes, "; ")
    if not (arm["n"] and other["n"]):
        why = reasons(found["why"] for found, _ in both)
        return NOT_COMPARED, why or "the records do not have it"
    notes.append(untested or "")
    notes.append(_unequal_budget(arm, other, other_name))
    verdict = SOME_DIVERGED if arm["diverged"] or other["diverged"] else None
    return verdict, joined(notes, "; ") or None


def _diverged(arm: Row, name: str) -> str:
    count, of = arm["diverged"], arm["usable"]
    if not count:
        return ""
    if count == of:
        return (
            f"the only run of {name} diverged" if of == 1 else f"all {of} runs of {name} diverged"
        )
    found = share(count, of)
    return (
        f"{count} of {of} runs of {name} diverged (share {found.text(percent)}): the difference is "
        "among those that did not, and confirms nothing"
    )


def _incomplete(arm: Row, name: str) -> str:
    kept = arm["usable"] - arm["diverged"]
    return joined(
        [
            f"{arm['usable']} of {arm['planned']} planned runs of {name} are usable"
            if arm["usable"] < arm["planned"] else "",
            f"{kept - arm['n']} of {kept} runs of {name} have no accuracy"
            if 0 < arm["n"] < kept else "",
        ],
        "; ",
    )  # fmt: skip


def _unequal_budget(arm: Row, other: Row, other_name: str) -> str:
    """What one side saw more or less of images than the other; empty for equal budgets."""
    seen, by_other = arm["images"], other["images"]
    if not seen or not by_other or abs(seen / by_other - 1) < _SAME_BUDGET:
        return ""
    return f"no equal budget: {seen / by_other:.2g} times the images of {other_name}"


def accuracy_moments(rows: pd.DataFrame) -> Moments:
    """Of the rows of :func:`arms`."""
    return Moments(*(numbers(rows[name]) for name in ("n", "mean", "sd")))


def _only(found: Moments, wanted: Any) -> Moments:
    return Moments(*(np.where(wanted, part, np.nan) for part in found))


def interval_cells(
    name: str, value: Floats, low: Floats, high: Floats, n: Any, notes: Sequence[str | None] | None
) -> dict[str, Any]:
    """Columns of an estimate; ``n``: runs of each row."""
    parts = {"value": value, "low": low, "high": high, "n": n, "note": notes}
    return estimates_as(name, pd.DataFrame(parts))


def difference_cells(found: Compared, n: Any, notes: Sequence[str | None]) -> dict[str, Any]:
    alone = found.alone
    return interval_cells("difference", alone.value, alone.low, alone.high, n, notes)


def further_cells(found: FurtherRuns, undecided: NDArray[np.bool_]) -> dict[str, Any]:
    """Of a decided row there is nothing to say."""
    known = np.isfinite(found.runs) & undecided
    notes = zip(found.notes, undecided, strict=True)
    return {
        "further_runs": np.where(known, found.runs, np.nan),
        "further_runs_note": [note if still else None for note, still in notes],
    }


def family_interval(row: Row, name: str, digits: int = 3) -> str:
    """Bonferroni's interval of a difference."""
    low, high = row[f"{name}_family_low"], row[f"{name}_family_high"]
    return NOT_AVAILABLE if low is None else f"{low:+.{digits}f} to {high:+.{digits}f}"


def counts(arms: pd.DataFrame, end: str = "", *, of: str | None = None) -> dict[str, Any]:
    """Planned, usable and diverged runs of one side, in columns that end so.

    ``of``: how the names of ``arms`` end, where not so, too.
    """
    usable, planned, diverged = (
        arms[name + (end if of is None else of)].array for name in ("usable", "planned", "diverged")
    )
    return {
        f"n{end}": usable, f"n_planned{end}": planned, f"n_diverged{end}": diverged,
        **estimates_as(f"diverged{end}", shares(diverged, usable)),
    }  # fmt: skip


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """Of arms: means of the runs that did not diverge, with Student's t intervals, as the parts of
    an Estimate."""
    found = t_intervals(_only(accuracy_moments(rows), ~rows["stops"].to_numpy(bool)), "share")
    told = zip(plain_rows(rows), found["note"].tolist(), strict=True)
    return found.assign(note=np.array([_of_accuracy(arm, note) for arm, note in told], object))


def _of_accuracy(arm: Row, note: str | None) -> str | None:
    if not arm["usable"]:
        return NO_USABLE.format(arm["technique_label"])
    if arm["stops"]:
        return STOPS
    if arm["diverged"]:
        return f"{arm['diverged']} of {arm['usable']} runs diverged: of the others alone"
    return note if arm["n"] else arm["why"] or note


CONDITION = Column(
    "technique_label", "string", heading="condition", cell=with_context,
    description="technique, and the settings that differ within this sweep",
)  # fmt: skip
ABOUT = (
    Column("technique", "string"),
    CONDITION,
    Column("context", "string"),
    Column("framework", "string"),
    Column("gpus", "Int64", heading="ranks"),
    Column("global_batch", "Int64", heading="global batch"),
)


def runs_text(row: Row, end: str = "") -> str:
    """Usable runs, of how many where some are not."""
    usable, planned = row[f"n{end}"], row[f"n_planned{end}"]
    if usable is None:
        return NOT_AVAILABLE
    return count(usable) if usable == planned else f"{usable} of {planned}"


DIFFERENCE = Column(
    "difference", estimate=True, format=signed(3),
    heading="difference (95 % interval)",
    description="in accuracy (fraction) among runs that did not diverge, with Welch's interval of "
    "this row alone; where arms have unequal, few runs, with the degrees of freedom of the smaller",
)  # fmt: skip
P_HOLM = Column(
    "p_holm", heading="p (Holm)", format=p_value,
    description="two-sided p of Welch's test, adjusted by Holm's method over the family",
)  # fmt: skip
VERDICT = Column("verdict", "string", heading="verdict", description=f"by p (Holm) at {ALPHA:g}")
FURTHER = (
    Column(
        "further_runs", "Int64", heading=f"further runs per arm to show {MARGIN:g}",
        note="further_runs_note",
        cell=lambda row: "" if row["further_runs"] is None else count(row["further_runs"]),
        description=f"of an undecided row: with which a true difference of {MARGIN:g} would be "
        "found with probability 0.8 at the family's strictest level, the standard deviations "
        "being at most their 80 % upper bounds",
    ),
    Column("further_runs_note", "string"),
)  # fmt: skip
