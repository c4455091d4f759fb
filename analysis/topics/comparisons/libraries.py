"""Does it matter which library averages the gradients? Throughput and accuracy of the same cell.

One comparison per planned cell (all but seed and framework) and other library, over its seeds.
Throughput: ratio of geometric means. Accuracy: difference of means, and apart, two one-sided tests
(Schuirmann 1987) of the claim that it is the same to within SAME_ACCURACY, fixed before any run.
Equal seeds give equal first weights and data, but rounding may part the runs after a few steps:
they are not paired. Where all seeds end in the same numbers, the verdict says that.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.records.columns import SHARED_CORES
from analysis.records.frames import in_order
from analysis.stats.differences import equivalence
from analysis.stats.intervals import Moments, grouped_moments
from analysis.stats.levels import ALPHA, SAME_ACCURACY
from analysis.table import Column, Names, Row, Table, frame, plain_rows
from analysis.topics.comparable import PROGRAM, TIMES, comparable
from analysis.topics.comparisons.arms import NOT_RECORDED, PLACE, ArmPairs, arms, numbers, outcomes
from analysis.topics.comparisons.claim import Claim, cautions, counts, fitting
from analysis.topics.comparisons.contrast import (
    HIGHER,
    LOWER,
    UNDECIDED,
    Contrast,
    contrasts,
    pairs_of,
)
from analysis.topics.names import ratio_text, reasons
from analysis.topics.topic import Answer, Sweep, Topic, groups, varies

#: The first of these that a cell is planned with is what the others are compared with.
ORDER = ["horovod", "multi_worker_mirrored", "mirrored"]
IDENTICAL = "identical in every seed"
#: What a run ends with.
_ENDS = ["seed", "train_loss", "train_accuracy", "validation_accuracy"]
_RATIO = Contrast(
    "ratio", "throughput ratio", ratio_text, "first over second, of geometric means",
    ratio=True, tests="ratio_", shows=False,
)  # fmt: skip
_DIFFERENCE = Contrast(
    heading="difference in accuracy", write=fmt.signed(4), tests="difference_", shows=False
)
COLUMNS = (
    *ArmPairs.columns(
        Column("library", "string", heading="compared",
               cell=lambda row: f"{row['framework']} / {row['library']}",
               description="the first of the two over, or minus, the second"),
    ),
    Column("images_per_s", heading="images/s",
           cell=lambda row: " / ".join(
               fmt.significant(row[f"images_per_s{end}"]) for end in ("", "_library")),
           description="geometric mean over completed runs, steady state: first / second"),
    Column("images_per_s_library"),
    *_RATIO.columns,
    *_DIFFERENCE.columns,
    Column("equivalence_p", description="two one-sided tests, not corrected"),
    Column("verdict", "string", heading="accuracy",
           description="different: the simultaneous interval excludes 0. Equal to within "
           f"{SAME_ACCURACY:g}: two one-sided tests, 0.05 / rows. Undecided: neither is shown; the "
           "interval says how large a difference may be hidden in the scatter between seeds. "
           "Identical: loss and accuracies, to the last digit"),
    Column("family", "Int64", description="tests of a difference, two per row"),
)  # fmt: skip


def compared(of: Sweep) -> Table:
    """One row per planned cell and library beside the first one; see COLUMNS. One family: both
    differences of all rows; their equivalence tests are another."""
    found = of.made(arms).join(_measured(of.made(outcomes)))
    numbered = _pairs(found)
    first, other = found.loc[numbered["arm_first"]], found.loc[numbered["arm"]]
    pairs = ArmPairs(first, other, "framework")
    accuracy = pairs.accuracy
    family = 2 * len(first)
    over, under = (
        Moments(*(numbers(arm[f"rate_{name}"]) for name in Moments._fields))
        for arm in (first, other)
    )
    both = [*zip(plain_rows(first), plain_rows(other), strict=True)]
    called = (first["framework"].array, other["framework"].array)
    elsewhere = comparable(first, other, TIMES, called)
    why = [_no_ratio(*pair) or reason for pair, reason in zip(both, elsewhere, strict=True)]
    rates = pairs_of(over, under, why)._replace(notes=comparable(first, other, PROGRAM, called))
    answers = contrasts({_RATIO: rates, _DIFFERENCE: accuracy}, family)
    equal = equivalence(*accuracy.tested, SAME_ACCURACY)
    is_equal = equal < ALPHA / max(len(both), 1)
    tests = zip(accuracy.why, both, answers["difference_verdict"], is_equal, strict=True)
    rows = {
        **pairs.rows("library"),
        **answers,
        "context": [Names(part for part in context if part != framework)
                    for context, framework in zip(first["context"], first["framework"],
                                                  strict=True)],
        "images_per_s": np.exp(over.mean), "images_per_s_library": np.exp(under.mean),
        "equivalence_p": equal,
        "verdict": [IDENTICAL if not why and _alike(*pair) else _verdict(*own)
                    for why, pair, *own in tests],
        "family": np.full(len(first), family),
    }  # fmt: skip
    return Table(
        "frameworks",
        "Frameworks: the same cell under another library",
        COLUMNS,
        in_order(frame(rows, COLUMNS), of.order),
        intro=f"One planned family of {fmt.counted(family, 'test')} beside that of the techniques: "
        "the same technique, data, ranks and batches, with gradients averaged by another library.",
    )


def _pairs(found: pd.DataFrame) -> pd.DataFrame:
    """Each arm beside the arm of the first library in ORDER that the same cell is planned with."""
    cell = ["workload", "technique_label", *PLACE]
    order = pd.Categorical(found["framework"], ORDER)
    marked = found.assign(arm=found.index, order=order).sort_values("order", kind="stable")
    pairs = marked.merge(marked.drop_duplicates(cell), on=cell, suffixes=("", "_first"))
    return pairs[pairs["arm"] != pairs["arm_first"]]


def _measured(cells: pd.DataFrame) -> pd.DataFrame:
    """Per arm, of its completed runs: moments of the logarithm of images/s, why there are none,
    and what each ended with."""
    done = cells[cells["completed"]]
    rates = numbers(done["images_per_s"].where(done["images_per_s"] > 0))
    found = grouped_moments(np.log(rates), done["arm"].to_numpy(), cells["arm"].nunique())
    known = done[_ENDS].dropna()
    ends = pd.Series([*known.itertuples(index=False, name=None)], known.index, dtype=object)
    return pd.DataFrame({f"rate_{name}": part for name, part in found._asdict().items()}).assign(
        rate_why=done.groupby("arm")["images_per_s_why"].agg(reasons),
        ends=ends.groupby(done["arm"]).agg(frozenset),
    )


def _no_ratio(first: Row, other: Row) -> str | None:
    """Why an arm has no throughput to compare; None where both have one."""
    for arm in (first, other):
        if arm["n"] == arm["n_diverged"]:
            return f"no completed run of {arm['framework']}"
        if not arm["rate_n"]:
            return arm["rate_why"] or NOT_RECORDED
        if arm["shared"] != "no":
            return SHARED_CORES
    return None


def _alike(first: Row, other: Row) -> bool:
    """Whether all runs of both are seeds for which both end in the same numbers."""
    ends = first["ends"] or ()
    return first["n"] == other["n"] == len(ends) > 1 and ends == other["ends"]


def _verdict(result: str, is_equal: bool) -> str:
    """What the seeds say of the accuracies; a difference shown may still be a small one."""
    within = f"equal to within {SAME_ACCURACY:g}"
    if result in (HIGHER, LOWER):
        return f"different, {within}" if is_equal else "different"
    return within if is_equal and result == UNDECIDED else result


def _does_it_matter(of: Sweep) -> Iterable[Answer]:
    """Ratio of throughputs and verdict on accuracy, for each pair of libraries."""
    for rows in groups(of.rows(compared), ("framework", "library")):
        first, library = rows[0]["framework"], rows[0]["library"]
        ratios, accuracies = (
            [Claim.of(row, one, first, library, "", "_library") for row in rows]
            for one in (_RATIO, _DIFFERENCE)
        )
        known = [row["ratio"] for row in rows if row["ratio"] is not None]
        text = f"{first} against {library}"
        if known:
            times = " to ".join(fmt.TWO(end(known)) for end in (min, max))
            times = times if rows[1:] else ratios[0].estimate.text(fmt.TWO)
            text = f"{first} has {times} times the throughput of {library}"
            text += f": {counts(ratios, 'condition')}" if rows[1:] else ""
        text += f"; accuracy: {fmt.some(list(dict.fromkeys(row['verdict'] for row in rows)))}."
        yield Answer("libraries", "Does the library matter?", text, "frameworks", "tests",
                     fitting(text, cautions(accuracies)))  # fmt: skip


TOPIC = Topic(tables=(compared,), answers=(_does_it_matter,), asks=varies("framework"))
