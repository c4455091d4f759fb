"""Does it matter which library averages the gradients? Throughput and accuracy of the same cell.

One comparison per planned cell (all but seed and framework) and other library, over its seeds.
Throughput: ratio of geometric means, Welch's t on logarithms. Accuracy: Welch's t, and apart, two
one-sided tests (Schuirmann 1987) of the claim that it is the same to within MARGIN, fixed before
any run. Equal seeds give equal first weights and data, but rounding may part the runs after a few
steps: they are not paired. Where all seeds end in the same numbers, the verdict says that.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.records.columns import SHARED_CORES
from analysis.records.frames import in_order
from analysis.stats.differences import ALPHA, equivalence, holm
from analysis.stats.intervals import Moments, grouped_moments
from analysis.table import Column, Names, Row, Table, estimate_in, frame, plain_rows
from analysis.topics.comparisons.arms import NOT_RECORDED, PLACE, ArmPairs, arms, numbers, outcomes
from analysis.topics.comparisons.contrast import UNDECIDED, Contrast, contrasts, pairs_of
from analysis.topics.names import ratio_text, reasons
from analysis.topics.topic import Answer, Sweep, Topic, groups, varies

#: The first of these that a cell is planned with is what the others are compared with.
ORDER = ["horovod", "multi_worker_mirrored", "mirrored"]
#: Accuracies that differ by less are the same for any use made of them here.
MARGIN = 0.01
IDENTICAL = "identical in every seed"
#: What a run ends with.
_ENDS = ["seed", "train_loss", "train_accuracy", "validation_accuracy"]
_RATIO = Contrast(
    "ratio", "throughput ratio", ratio_text, "first over second, of geometric means",
    ratio=True, tests="ratio_", simultaneous=True,
)  # fmt: skip
_DIFFERENCE = Contrast(
    heading="difference in accuracy", write=fmt.signed(4), tests="difference_", simultaneous=True
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
    Column("equivalence_p_holm"),
    Column("verdict", "string", heading="accuracy",
           description=f"different: at 0.05 within the same family. Equal to within {MARGIN:g}: "
           "two one-sided tests, 0.05 by Holm's method over the rows. No difference shown: nor "
           "equality; the interval says how large a difference may be hidden in the scatter "
           "between seeds. Identical: loss and accuracies, to the last digit"),
    Column("family", "Int64", description="tests of a difference, two per row"),
)  # fmt: skip


def compared(of: Sweep) -> Table:
    """One row per planned cell and library beside the first one; see COLUMNS. One family: Holm over
    both differences of all rows; their equivalence tests are another."""
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
    rates = pairs_of(over, under, [_no_ratio(*pair) for pair in both])
    answers = contrasts({_RATIO: rates, _DIFFERENCE: accuracy}, family)
    equal = holm(equivalence(*accuracy.tested, MARGIN))
    tests = zip(accuracy.untested, both, answers["difference_p_holm"], equal, strict=True)
    rows = {
        **pairs.rows("library"),
        **answers,
        "context": [Names(part for part in context if part != framework)
                    for context, framework in zip(first["context"], first["framework"],
                                                  strict=True)],
        "images_per_s": np.exp(over.mean), "images_per_s_library": np.exp(under.mean),
        "equivalence_p_holm": equal,
        "verdict": [why or (IDENTICAL if _alike(*pair) else _verdict(*own))
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
    what the runs ran on, and what each ended with."""
    done = cells[cells["completed"]]
    rates = numbers(done["images_per_s"].where(done["images_per_s"] > 0))
    found = grouped_moments(np.log(rates), done["arm"].to_numpy(), cells["arm"].nunique())
    # a GPU does the work wherever its host's cores are; without one the cores do it
    cores = done["cores_per_rank"].where(done["device_kind"] == "cpu").astype("string")
    machine = done["device"].astype("string").str.cat(cores.fillna(""), sep=", ")
    by_arm = done.assign(machine=machine).sort_values("machine").groupby("arm")
    known = done[_ENDS].dropna()
    ends = pd.Series([*known.itertuples(index=False, name=None)], known.index, dtype=object)
    return pd.DataFrame({f"rate_{name}": part for name, part in found._asdict().items()}).assign(
        shared=by_arm["oversubscribed"].any(),
        machines=by_arm["machine"].agg(reasons),
        rate_why=by_arm["images_per_s_why"].agg(reasons),
        ends=ends.groupby(done["arm"]).agg(frozenset),
    )


def _no_ratio(first: Row, other: Row) -> str | None:
    """Why the throughputs of two arms cannot be compared; None where they can."""
    for arm in (first, other):
        if arm["n"] == arm["n_diverged"]:
            return f"no completed run of {arm['framework']}"
        if not arm["rate_n"]:
            return arm["rate_why"] or NOT_RECORDED
        if arm["shared"]:
            return SHARED_CORES
    same = first["machines"] == other["machines"]
    return None if same else "the two ran on different devices or cores"


def _alike(first: Row, other: Row) -> bool:
    """Whether all runs of both are seeds for which both end in the same numbers."""
    ends = first["ends"] or ()
    return first["n"] == other["n"] == len(ends) > 1 and ends == other["ends"]


def _verdict(p: float, equal: float) -> str:
    """What the seeds say of the accuracies; a difference shown may still be a small one."""
    within = f"equal to within {MARGIN:g}"
    if np.isnan(p):
        return UNDECIDED
    if p < ALPHA:
        return f"different, {within}" if equal < ALPHA else "different"
    return within if equal < ALPHA else "no difference shown"


def _does_it_matter(of: Sweep) -> Iterable[Answer]:
    """Ratio of throughputs and verdict on accuracy, for each pair of libraries."""
    for rows in groups(of.rows(compared), ("framework", "library")):
        first, library = rows[0]["framework"], rows[0]["library"]
        known = [row for row in rows if row["ratio"] is not None]
        verdicts = list(dict.fromkeys(row["verdict"] for row in rows))
        times, more = estimate_in(known[0], "ratio").text(fmt.TWO) if known else "", ""
        if known[1:]:
            times = " to ".join(fmt.TWO(find(row["ratio"] for row in known)) for find in (min, max))
            more = f" (range of the estimates of {len(known)} conditions)"
        text = f"{first} has {times} times the throughput of {library}{more}"
        text = text if known else f"{first} against {library}"
        yield Answer("libraries", "Does the library matter?",
                     f"{text}; accuracy: {fmt.some(verdicts)}.", "frameworks",
                     "tests")  # fmt: skip


TOPIC = Topic(tables=(compared,), answers=(_does_it_matter,), asks=varies("framework"))
