"""One engine for comparisons: pairs of sets of runs, a metric, a family, and what then is said.

A :class:`Contrast` asks one thing of many pairs: the mean of the first less that of the second, or
the ratio of their geometric means. :func:`contrasts` answers those that were planned together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.stats.differences import ALPHA, family, holm, welch, why_untested
from analysis.stats.intervals import Moments, share, shares, t_intervals
from analysis.stats.power import MARGIN, further_runs
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
from analysis.topics.names import reasons, with_context

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


class Pairs(NamedTuple):
    """Sets of runs beside those they are compared with, one element each.

    ``first``, ``second``: moments, of logarithms where ratios are asked for; nan where there is
    nothing to compare, though ``n`` counts the runs of both. ``untested``: why a pair confirms
    nothing, whatever its difference is; None where its test decides. ``notes``: what to know of it.
    """

    first: Moments
    second: Moments
    n: Any
    untested: Sequence[str | None]
    notes: Sequence[str | None]

    @property
    def tested(self) -> tuple[Moments, Moments]:
        known = np.array([why is None for why in self.untested], bool)
        return _only(self.first, known), _only(self.second, known)


@dataclass(frozen=True)
class Contrast:
    """What is asked of pairs.

    Args:
        name: its columns begin so: NAME, an estimate with the interval of the pair alone, and
            NAME_family, with that of the family. ``tests``: so begin p and p_holm.
        ratio: whether the moments are of logarithms.
        then: what is said of a pair that is not decided, and how many further runs would; of
            others, which is higher. Empty: the topic says it.
    """

    name: str
    pairs: Pairs
    tests: str = ""
    ratio: bool = False
    then: str = ""


def contrasts(
    asked: Sequence[Contrast], size: int = 0, *, simultaneous: bool = False
) -> dict[str, Any]:
    """Columns of the answers.

    Args:
        asked: planned together: one family, with Holm's adjustment over all their tests.
        size: of the family, where more was planned.
        simultaneous: with Bonferroni's intervals, and the caution that a calm reference asks for.
    """
    tested = [one.pairs.tested for one in asked]
    first, second = (_all_of(side) for side in zip(*tested, strict=True))
    together = family(first, second, size) if simultaneous else None
    p = welch(first, second).p if together is None else together.p
    p_holm = holm(p, size) if together is None else together.p_holm
    ends = np.cumsum([len(one.pairs.notes) for one in asked])[:-1]
    found: dict[str, Any] = {}
    for at, one in enumerate(asked):
        pairs, write = one.pairs, np.exp if one.ratio else np.asarray
        alone = welch(pairs.first, pairs.second)
        parts = {"value": write(alone.value), "low": write(alone.low), "high": write(alone.high),
                 "n": pairs.n}  # fmt: skip
        found |= estimates_as(one.name, pd.DataFrame(parts | {"note": pairs.notes}))
        own_p, own_holm = (np.split(part, ends)[at] for part in (p, p_holm))
        found |= {f"{one.tests}p": own_p, f"{one.tests}p_holm": own_holm}
        if together is not None:
            low, high, disagrees = (np.split(part, ends)[at] for part in
                                    (together.low, together.high, together.disagrees))  # fmt: skip
            parts |= {"low": write(low), "high": write(high), "note": None}
            found |= estimates_as(f"{one.name}_family", pd.DataFrame(parts))
            found[f"{one.name}_disagrees"] = disagrees
        if one.then:
            verdicts = [
                why or (one.then if not p < ALPHA else "higher" if value > 0 else "lower")
                for why, p, value in zip(pairs.untested, own_holm, alone.value, strict=True)
            ]
            more = further_runs(*tested[at], alpha=ALPHA / max(size, 1))
            still = np.array([verdict == one.then for verdict in verdicts], bool)
            found |= {
                "verdict": verdicts,
                "further_runs": np.where(np.isfinite(more.runs) & still, more.runs, np.nan),
                "further_runs_note": [
                    note if ask else None for note, ask in zip(more.notes, still, strict=True)
                ],
            }
    return found


def _all_of(sides: Iterable[Moments]) -> Moments:
    return Moments(*(np.concatenate(parts) for parts in zip(*sides, strict=True)))


def pairs_of(first: Moments, second: Moments, why: Sequence[str | None]) -> Pairs:
    """``why``: what keeps two sets from being compared at all; None where they can be."""
    known = np.array([reason is None for reason in why], bool)
    untested = why_untested(first.n, second.n, welch(first, second).error)
    notes = [reason or other for reason, other in zip(why, untested, strict=True)]
    return Pairs(_only(first, known), _only(second, known), first.n + second.n, why, notes)


def accuracy_pairs(
    arm: pd.DataFrame, other: pd.DataFrame, names: Sequence[str], others: Sequence[str]
) -> Pairs:
    """Accuracies of rows of :func:`arms` side by side; ``names``, ``others``: as a reader knows
    them."""
    stops = (arm["stops"] | other["stops"]).to_numpy(bool)
    first, second = (_only(accuracy_moments(rows), ~stops) for rows in (arm, other))
    error = welch(first, second).error
    untested = why_untested(first.n, second.n, error)
    rows = zip(plain_rows(arm), plain_rows(other), names, others, untested, strict=True)
    told = [_told(*row) for row in rows]
    skewed = (error > 0) & (_near_an_end(first) | _near_an_end(second))
    notes = [
        joined([note or "", SKEWED if near else ""], "; ") or None
        for (_, note), near in zip(told, skewed, strict=True)
    ]
    n = (arm["n"] + other["n"]).to_numpy(int)
    return Pairs(first, second, n, [verdict for verdict, _ in told], notes)


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


def about(rows: pd.DataFrame) -> dict[str, Any]:
    """The columns of ABOUT, from arms."""
    return {column.name: rows[column.name].array for column in ABOUT}


def of_workload(row: Row, compared: Sequence[Sequence[Row]]) -> str:
    """What sets one group of rows apart from the others; empty where there is one group."""
    names = [(rows[0]["context"] or "", rows[0]["framework"] or "") for rows in compared]
    context, framework = row["context"] or "", row["framework"] or ""
    if len(compared) < 2:
        return ""
    several = len({name for _, name in names}) > 1 and framework not in context
    told = joined([context, framework if several else ""], ", ")
    return f" ({told})" if told else ""


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
