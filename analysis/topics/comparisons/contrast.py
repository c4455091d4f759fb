"""One engine for comparisons: pairs of sets of runs, a metric, a family, and what then is said.

A :class:`Contrast` asks one thing of many pairs: the mean of the first less that of the second, or
the ratio of their geometric means. :func:`contrasts` answers those that were planned together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.stats.differences import ALPHA, family, holm, welch, why_untested
from analysis.stats.intervals import Moments
from analysis.stats.power import MARGIN, further_runs
from analysis.table import (
    NOT_AVAILABLE,
    Column,
    Row,
    count,
    estimates_as,
    joined,
    p_value,
    signed,
)

DISAGREEMENT = "Holm's test decides, while the more cautious interval in the family contains 0"


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
        return only(self.first, known), only(self.second, known)


@dataclass(frozen=True)
class Contrast:
    """What is asked of pairs.

    Args:
        name: its columns begin so: NAME, an estimate with the interval of the pair alone, and
            NAME_family, with that of the family. ``tests``: so begin p and p_holm.
        ratio: whether the moments are of logarithms.
        then: what is said of an undecided pair, and how many further runs would; of
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
            found[f"{one.name}_note"] = [
                joined([note or "", DISAGREEMENT if one.then and unlike else ""], "; ") or None
                for note, unlike in zip(pairs.notes, disagrees, strict=True)
            ]
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
    return Pairs(only(first, known), only(second, known), first.n + second.n, why, notes)


def only(found: Moments, wanted: Any) -> Moments:
    return Moments(*(np.where(wanted, part, np.nan) for part in found))


def family_interval(row: Row, name: str, write: Callable[[Any], str]) -> str:
    """Bonferroni's interval."""
    low, high = row[f"{name}_family_low"], row[f"{name}_family_high"]
    return NOT_AVAILABLE if low is None else f"{write(low)} to {write(high)}"


def further_in_words(rows: Sequence[Row]) -> str:
    """How many more runs would tell undecided rows apart, if they differ; empty where unknown."""
    most = max((row["further_runs"] or 0 for row in rows), default=0)
    runs = "run" if most == 1 else "runs"
    needed = f"{count(most)} more {runs} of each would detect a difference of {MARGIN:g}"
    return needed if most else ""


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
