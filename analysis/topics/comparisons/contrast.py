"""One engine for comparisons: pairs of sets of runs, a metric, a family, and what then is said.

A :class:`Contrast` asks one thing of many pairs: the mean of the first less that of the second, or
the ratio of their geometric means. It declares the columns of the answers, and :func:`contrasts`
fills them for those that were planned together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.stats.differences import ALPHA, family, holm, welch, why_untested
from analysis.stats.intervals import Moments
from analysis.stats.power import MARGIN, further_runs
from analysis.table import Column, Row, estimates_as

UNDECIDED, HIGHER, LOWER = "undecided", "higher", "lower"


class Pairs(NamedTuple):
    """Sets of runs beside those they are compared with, one element each.

    ``first``, ``second``: moments, of logarithms where ratios are asked for; nan where there is
    nothing to compare. ``untested``: why a pair confirms nothing, whatever its difference is; None
    where its test decides. ``notes``: what to know of it.
    """

    first: Moments
    second: Moments
    untested: Sequence[str | None]
    notes: Sequence[str | None]

    @property
    def tested(self) -> tuple[Moments, Moments]:
        known = np.array([why is None for why in self.untested], bool)
        return only(self.first, known), only(self.second, known)


@dataclass(frozen=True)
class Contrast:
    """What is asked of pairs; by default, of accuracies among runs that did not diverge.

    Args:
        name: its columns begin so: NAME is an estimate with the interval of the pair alone.
        ratio: whether the moments are of logarithms.
        tests: p, p_holm and verdict begin so; None: the pairs are explored, without a test.
        simultaneous: NAME_family has Bonferroni's interval, beside that of the pair alone.
        further: how many further runs would decide an undecided pair.
    """

    name: str = "difference"
    heading: str = "difference"
    write: Callable[[Any], str] = fmt.SIGNED
    about: str = "in accuracy (fraction) among runs that did not diverge"
    ratio: bool = False
    tests: str | None = ""
    simultaneous: bool = False
    further: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        family, tests = f"{self.name}_family", self.tests

        def simultaneous(row: Row) -> str:
            low, high = (row[f"{family}_{end}"] for end in ("low", "high"))
            return fmt.NOT_AVAILABLE if low is None else f"{self.write(low)} to {self.write(high)}"

        found = [
            Column(self.name, estimate=True, heading=f"{self.heading} (95 % interval)",
                   format=self.write, description=f"{self.about}, with Welch's interval of this "
                   "row alone; where arms have unequal, few runs, with the degrees of freedom of "
                   "the smaller"),
        ]  # fmt: skip
        if self.simultaneous:
            found.append(
                Column(family, estimate=True, heading="simultaneous 95 % interval",
                       cell=simultaneous, description="Bonferroni's: all of the family hold "
                       "together. Holm's test, which decides, may show a difference that this "
                       "more cautious interval leaves open")
            )  # fmt: skip
        if tests is not None:
            found += [
                Column(f"{tests}p", description="two-sided, of Welch's test in the family"),
                Column(f"{tests}p_holm", heading="p (Holm)", format=fmt.p_value,
                       description="adjusted by Holm's method over the family"),
            ]  # fmt: skip
        return (*found, *(_FURTHER if self.further else ()))


_FURTHER = (
    Column("verdict", "string", heading="verdict", description=f"by p (Holm) at {ALPHA:g}"),
    Column(
        "further_runs", "Int64", heading=f"extra runs per arm to detect {MARGIN:g}",
        note="further_runs_note",
        cell=lambda row: "" if row["further_runs"] is None else fmt.count(row["further_runs"]),
        description=f"of an undecided row: with which a true difference of {MARGIN:g} would be "
        "found with probability 0.8 at the family's strictest level, the standard deviations "
        "being at most their 80 % upper bounds",
    ),
    Column("further_runs_note", "string"),
)  # fmt: skip


def contrasts(asked: Mapping[Contrast, Pairs], size: int = 0) -> dict[str, Any]:
    """Columns of the answers: of :attr:`Contrast.columns`, and the verdict of each.

    Args:
        asked: planned together: one family, with Holm's adjustment over all their tests.
        size: of the family, where more was planned.
    """
    tested = [pairs.tested for pairs in asked.values()]
    first, second = (
        Moments(*(np.concatenate(parts) for parts in zip(*side, strict=True)))
        for side in zip(*tested, strict=True)
    )
    together = family(first, second, size)
    simultaneous = any(one.simultaneous for one in asked)
    p = together.p if simultaneous else welch(first, second).p
    parts = (p, holm(p, size), together.low, together.high)
    ends = np.cumsum([len(pairs.notes) for pairs in asked.values()])[:-1]
    found: dict[str, Any] = {}
    own = zip(*(np.split(part, ends) for part in parts), strict=True)
    for (one, pairs), sides, (p, p_holm, low, high) in zip(asked.items(), tested, own, strict=True):
        write = np.exp if one.ratio else np.asarray
        alone = welch(pairs.first, pairs.second)
        n = np.nan_to_num(pairs.first.n) + np.nan_to_num(pairs.second.n)
        answer = {"value": write(alone.value), "low": write(alone.low), "high": write(alone.high),
                  "n": n, "note": pairs.notes}  # fmt: skip
        found |= estimates_as(one.name, pd.DataFrame(answer))
        wide = answer | {"low": write(low), "high": write(high), "note": None}
        found |= estimates_as(f"{one.name}_family", pd.DataFrame(wide))
        verdicts = [
            why or (UNDECIDED if not p < ALPHA else HIGHER if value > 0 else LOWER)
            for why, p, value in zip(pairs.untested, p_holm, alone.value, strict=True)
        ]
        found |= {f"{one.tests}p": p, f"{one.tests}p_holm": p_holm, f"{one.tests}verdict": verdicts}
        if one.further:
            more = further_runs(*sides, alpha=ALPHA / max(size, 1))
            open_ = np.array(verdicts, object) == UNDECIDED
            found |= {
                "further_runs": np.where(np.isfinite(more.runs) & open_, more.runs, np.nan),
                "further_runs_note": np.where(open_, np.array(more.notes, object), np.array(None)),
            }
    return found


def pairs_of(first: Moments, second: Moments, why: Sequence[str | None]) -> Pairs:
    """``why``: what keeps two sets from being compared at all; None where they can be."""
    known = np.array([reason is None for reason in why], bool)
    untested = why_untested(first.n, second.n, welch(first, second).error)
    notes = [reason or other for reason, other in zip(why, untested, strict=True)]
    return Pairs(only(first, known), only(second, known), why, notes)


def only(found: Moments, wanted: Any) -> Moments:
    return Moments(*(np.where(wanted, part, np.nan) for part in found))


def further_in_words(rows: Sequence[Row], pair: str = "") -> str:
    """How many more runs each of two would need to be told apart, if they differ; empty where
    unknown. ``pair``: the two, where ``rows`` has no other one."""
    most = max((row["further_runs"] or 0 for row in rows), default=0)
    difference = f"a difference of {MARGIN:g}{f' between {pair}' if pair else ''}"
    each = "each" if pair else "each technique of an undecided pair"
    needs = f"{each} needs up to {fmt.counted(most, 'more run')}"
    return f"to detect {difference}, {needs}" if most else ""
