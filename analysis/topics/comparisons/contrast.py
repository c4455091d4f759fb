"""One engine for comparisons: pairs of sets of runs, a metric, a family, and what is then claimed.

A :class:`Contrast` asks one thing of many pairs: the mean of the first less that of the second, or
the ratio of their geometric means. :func:`contrasts` answers those that were planned together. A
difference is claimed exactly where its simultaneous interval, which is printed, excludes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.stats.differences import family, welch, why_untested
from analysis.stats.intervals import Moments
from analysis.stats.levels import ALPHA, DETECTED
from analysis.stats.power import further_runs
from analysis.table import Column, estimates_as
from analysis.topics.names import reasons

HIGHER, LOWER, UNDECIDED = "higher", "lower", "undecided"
#: There are values but no test of them; there is nothing to compare.
UNTESTED, NOT_COMPARED = "untested", "not compared"
RESULTS = (HIGHER, LOWER, UNDECIDED, UNTESTED, NOT_COMPARED)


class Pairs(NamedTuple):
    """Sets of runs beside those they are compared with, one element each.

    ``first``, ``second``: moments, of logarithms where ratios are asked for; nan where there is
    nothing to compare. ``why``: why a pair is not tested, whatever its difference is; None where it
    is. ``notes``: what else to know of it.
    """

    first: Moments
    second: Moments
    why: Sequence[str | None]
    notes: Sequence[str | None]

    @property
    def tested(self) -> tuple[Moments, Moments]:
        known = np.array([why is None for why in self.why], bool)
        return only(self.first, known), only(self.second, known)


@dataclass(frozen=True)
class Contrast:
    """What is asked of pairs; by default, of accuracies among runs that did not diverge.

    Args:
        name: its columns begin so: NAME has the interval of the pair alone, NAME_family the
            simultaneous one, which decides and is shown.
        ratio: whether the moments are of logarithms.
        tests: p, verdict and why begin so.
        further: how many further runs would decide an undecided pair.
        alone: whether the page shows the pair's own interval, too.
        shows: whether it shows the verdict.
    """

    name: str = "difference"
    heading: str = "difference"
    write: Callable[[Any], str] = fmt.SIGNED
    about: str = "in accuracy (fraction) among runs that did not diverge"
    ratio: bool = False
    tests: str = ""
    further: bool = False
    alone: bool = False
    shows: bool = True

    @property
    def none(self) -> float:
        """What stands for no difference."""
        return float(self.ratio)

    @property
    def columns(self) -> tuple[Column, ...]:
        return (
            Column(self.name, estimate=True, format=self.write,
                   heading=f"{self.heading} (95 % interval)" if self.alone else "",
                   description=f"{self.about}, with Welch's interval of "
                   "this row alone; where arms have unequal, few runs, with the degrees of freedom "
                   "of the smaller"),
            Column(f"{self.name}_family", estimate=True, format=self.write,
                   note="" if self.alone else f"{self.name}_note",
                   heading=f"{self.heading} (simultaneous 95 % interval)",
                   description=f"{self.about}, with Bonferroni's interval: all of the family hold "
                   "together"),
            Column(f"{self.tests}p", description="two-sided, of Welch's test, not corrected"),
            Column(f"{self.tests}verdict", "string", heading="verdict" if self.shows else "",
                   description=f"higher or lower exactly if the simultaneous interval excludes "
                   f"{self.none:g}; untested: there is no interval, as the note explains"),
            Column(f"{self.tests}verdict_why", "string", description="why it is not tested"),
            *(_FURTHER if self.further else ()),
        )  # fmt: skip


_FURTHER = (
    Column(
        "further_runs", "Int64", heading=f"extra runs per arm to detect {DETECTED:g}",
        note="further_runs_note",
        cell=lambda row: "" if row["further_runs"] is None else fmt.count(row["further_runs"]),
        description=f"of an undecided row: with which a true difference of {DETECTED:g} would be "
        "found with probability 0.8, the standard deviations being at most their 80 % upper bounds",
    ),
    Column("further_runs_note", "string"),
)  # fmt: skip


def contrasts(asked: Mapping[Contrast, Pairs], size: int = 0) -> dict[str, Any]:
    """Columns of the answers, see :attr:`Contrast.columns`.

    Args:
        asked: planned together: one family over all of them.
        size: of the family, where more was planned than the pairs given.
    """
    tested = [pairs.tested for pairs in asked.values()]
    first, second = (
        Moments(*(np.concatenate(parts) for parts in zip(*side, strict=True)))
        for side in zip(*tested, strict=True)
    )
    size = max(size, len(first.n), 1)
    together = family(first, second, size)
    ends = np.cumsum([len(pairs.why) for pairs in asked.values()])[:-1]
    found: dict[str, Any] = {}
    own = zip(*(np.split(part, ends) for part in together[1:4]), strict=True)
    for (one, pairs), (low, high, p) in zip(asked.items(), own, strict=True):
        write = np.exp if one.ratio else np.asarray
        level: Callable[[Any], str] = (lambda log: fmt.significant(np.exp(log))) if one.ratio else (
            fmt.significant)  # fmt: skip
        alone = welch(pairs.first, pairs.second)
        untested = why_untested(pairs.first, pairs.second, level)
        why = [reason or other for reason, other in zip(pairs.why, untested, strict=True)]
        n = np.nan_to_num(pairs.first.n) + np.nan_to_num(pairs.second.n)
        notes = [reasons(both) for both in zip(why, pairs.notes, strict=True)]
        answer = {"value": write(alone.value), "low": write(alone.low), "high": write(alone.high),
                  "n": n, "note": notes}  # fmt: skip
        found |= estimates_as(one.name, pd.DataFrame(answer))
        wide = answer | {"low": write(low), "high": write(high), "note": None}
        found |= estimates_as(f"{one.name}_family", pd.DataFrame(wide))
        verdicts = np.select(
            [np.isnan(alone.value), np.isnan(low), low > 0, high < 0],
            [NOT_COMPARED, UNTESTED, HIGHER, LOWER], UNDECIDED,
        )  # fmt: skip
        found |= {f"{one.tests}p": p, f"{one.tests}verdict": verdicts,
                  f"{one.tests}verdict_why": why}  # fmt: skip
        if one.further:
            found |= _further(pairs, verdicts == UNDECIDED, size)
    return found


def _further(pairs: Pairs, open_: Any, size: int) -> dict[str, Any]:
    more = further_runs(*pairs.tested, alpha=ALPHA / size)
    return {
        "further_runs": np.where(np.isfinite(more.runs) & open_, more.runs, np.nan),
        "further_runs_note": np.where(open_, np.array(more.notes, object), np.array(None)),
    }


def pairs_of(first: Moments, second: Moments, why: Sequence[str | None]) -> Pairs:
    """``why``: what keeps two sets from being compared at all; None where they can be."""
    known = np.array([reason is None for reason in why], bool)
    return Pairs(only(first, known), only(second, known), why, [None] * len(why))


def only(found: Moments, wanted: Any) -> Moments:
    return Moments(*(np.where(wanted, part, np.nan) for part in found))
