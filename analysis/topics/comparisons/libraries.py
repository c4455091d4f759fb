"""Does it matter which library averages the gradients? Throughput and accuracy of the same cell.

One comparison per planned cell (all but seed and framework) and other library, over its seeds.
Throughput: ratio of geometric means, Welch's t on logarithms. Accuracy: Welch's t, and apart, two
one-sided tests (Schuirmann 1987) of the claim that it is the same to within MARGIN, fixed before
any run. Equal seeds give equal first weights and data, but rounding may part the runs after a few
steps: they are not paired. Where all seeds end in the same numbers, the verdict says that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.records.columns import SHARED_CORES
from analysis.records.frames import in_order
from analysis.records.lists import Context
from analysis.stats.differences import ALPHA, equivalence, holm
from analysis.stats.intervals import Moments, grouped_moments
from analysis.table import (
    Column,
    Row,
    Table,
    estimate_in,
    frame,
    plain_rows,
    signed,
    significant,
    types,
)
from analysis.topics.comparisons.arms import (
    ABOUT,
    NOT_COMPARED,
    PLACE,
    about,
    accuracy_pairs,
    arms,
    counts,
    numbers,
    outcomes,
    picked,
    run_columns,
    runs_text,
)
from analysis.topics.comparisons.contrast import (
    DIFFERENCE,
    Contrast,
    contrasts,
    family_interval,
    pairs_of,
)
from analysis.topics.names import ratio_text, reasons
from analysis.topics.topic import TWO, Answer, Sweep, Topic, groups, some, varies

#: The first of these that a cell is planned with is what the others are compared with.
ORDER = ("horovod", "multi_worker_mirrored", "mirrored")
#: Accuracies that differ by less are the same for any use made of them here.
MARGIN = 0.01
#: What a run ends with.
_ENDS = ["train_loss", "train_accuracy", "validation_accuracy"]
_RUN = ("images_per_s", "images_per_s_why", "oversubscribed", "device", "device_kind",
        "cores_per_rank", "train_loss", "train_accuracy")  # fmt: skip


COLUMNS = (
    *ABOUT,
    Column("batch_per_rank", "Int64"),
    Column("reference", "string", heading="compared",
           cell=lambda row: f"{row['reference']} / {row['library']}",
           description="the first of the two over, or minus, the second"),
    Column("library", "string"),
    *run_columns(
        "_reference", heading="runs",
        cell=lambda row: f"{runs_text(row, '_reference')} / {runs_text(row)}",
        description="usable runs of the first / of the second, diverged ones included",
    ),
    *run_columns(),
    Column("images_per_s_reference", heading="images/s",
           cell=lambda row: " / ".join(
               significant(row[f"images_per_s{end}"]) for end in ("_reference", "")),
           description="geometric mean over completed runs, steady state: first / second"),
    Column("images_per_s"),
    Column("ratio", estimate=True, heading="throughput ratio (95 % interval)", format=ratio_text,
           description="first over second: ratio of the geometric means, Welch's interval of the "
           "logarithm, of this row alone"),
    Column("ratio_family", estimate=True, heading="in the family",
           cell=lambda row: family_interval(row, "ratio", ratio_text),
           description="Bonferroni's interval of the ratio: all of the family hold together"),
    Column("ratio_p"),
    Column("ratio_p_holm"),
    Column("speed", "string", heading="throughput",
           description="at 0.05, adjusted by Holm's method for the family's tests of a difference"),
    replace(DIFFERENCE, heading="difference in accuracy (95 % interval)", format=signed(4)),
    Column("difference_family", estimate=True, heading="in the family",
           cell=lambda row: family_interval(row, "difference", signed(4)),
           description="Bonferroni's interval of the difference"),
    Column("difference_p"),
    Column("difference_p_holm"),
    Column("equivalence_p"),
    Column("equivalence_p_holm"),
    Column("accuracy"),
    Column("accuracy_reference"),
    Column("identical_seeds", "Int64", description="seeds for which both end in the same loss and "
           "the same accuracies, to the last digit"),
    Column("verdict", "string", heading="accuracy",
           description=f"different: at 0.05 within the same family. Equal to within {MARGIN:g}: "
           "two one-sided tests, 0.05 by Holm's method over the rows. No difference shown: nor "
           "equality; the interval says how large a difference may be hidden in the scatter "
           "between seeds"),
    Column("family", "Int64", description="tests of a difference, two per row"),
)  # fmt: skip


def compared(of: Sweep) -> Table:
    """One row per planned cell and library beside the reference; see COLUMNS.

    ``ratio`` is reference / library, ``difference`` reference - library. One family: Holm over both
    differences of all rows; their equivalence tests are another.
    """
    cells = outcomes(of.frames.planned, of.runs, _RUN)
    found = arms(cells).join(_rates(cells))
    pairs = _pairs(found)
    arm, other = (picked(found, pairs[name]) for name in ("arm_reference", "arm"))
    rows = _rows(arm, other, _identical(cells, pairs))
    return Table(
        "frameworks",
        "Frameworks: the same cell under another library",
        COLUMNS,
        in_order(rows, of.order),
        intro=f"One planned family of {2 * len(rows)} tests beside that of the techniques: the "
        "same technique, data, ranks and batches, with gradients averaged by another library.",
    )


def _pairs(found: pd.DataFrame) -> pd.DataFrame:
    """Each arm beside the arm of the first library in ORDER that the same cell is planned with."""
    cell = ["workload", "technique_label", *PLACE]
    order = found["framework"].map({name: i for i, name in enumerate(ORDER)}).fillna(len(ORDER))
    marked = found.assign(arm=found.index, order=order).sort_values("order", kind="stable")
    first = marked.drop_duplicates(cell)
    pairs = marked.merge(first, on=cell, suffixes=("", "_reference"))[["arm", "arm_reference"]]
    return pairs[pairs["arm"] != pairs["arm_reference"]]


def _rates(cells: pd.DataFrame) -> pd.DataFrame:
    """Per arm: moments of the logarithm of images/s over completed runs, and what they ran on."""
    done = cells[cells["completed"]]
    rates = numbers(done["images_per_s"].where(done["images_per_s"] > 0))
    found = grouped_moments(np.log(rates), done["arm"].to_numpy(), cells["arm"].nunique())
    # a GPU does the work wherever its host's cores are; without one the cores do it
    cores = done["cores_per_rank"].where(done["device_kind"] == "cpu").astype("string")
    machine = done["device"].astype("string").str.cat(cores.fillna(""), sep=", ")
    each = done.assign(machine=machine).drop_duplicates(["arm", "machine"]).sort_values("machine")
    why = done.dropna(subset="images_per_s_why").groupby("arm")["images_per_s_why"]
    return pd.DataFrame({f"rate_{name}": part for name, part in found._asdict().items()}).assign(
        finished=cells.groupby("arm")["completed"].sum(),
        shared=done.groupby("arm")["oversubscribed"].any(),
        machines=each.groupby("arm")["machine"].agg(reasons),
        rate_why=why.agg(reasons),
    )


def _identical(cells: pd.DataFrame, pairs: pd.DataFrame) -> list[int]:
    """Per pair: seeds for which both end in the same numbers."""
    columns = ["arm", "seed", *_ENDS]
    ends = cells.loc[cells["completed"], columns].dropna()
    both = pairs.merge(ends, on="arm")
    both = both.merge(ends.rename(columns={"arm": "arm_reference"}))
    return [*both.groupby("arm").size().reindex(pairs["arm"], fill_value=0)]


def _rows(first: pd.DataFrame, other: pd.DataFrame, identical: Sequence[int]) -> pd.DataFrame:
    """Of arms of the first library beside the other's."""
    names, others = ([*arm["framework"]] for arm in (first, other))
    asked = accuracy_pairs(first, other, names, others)
    over, under = (
        Moments(*(numbers(arm[f"rate_{name}"]) for name in Moments._fields))
        for arm in (first, other)
    )
    rates = pairs_of(over, under, [*map(_no_ratio, plain_rows(first), plain_rows(other))])
    found = contrasts(
        [Contrast("ratio", rates, "ratio_", ratio=True),
         Contrast("difference", asked, "difference_")],
        2 * len(other), simultaneous=True,
    )  # fmt: skip
    equal = equivalence(*asked.tested, MARGIN)
    cells = {
        **about(other), **counts(other), **counts(first, "_reference"), **found,
        "context": [Context(part for part in context if part not in others)
                    for context in other["context"]],
        "batch_per_rank": other["global_batch"] // (other["gpus"] * other["accumulation"]),
        "reference": names, "library": others,
        "images_per_s_reference": np.exp(over.mean), "images_per_s": np.exp(under.mean),
        "accuracy": other["mean"], "accuracy_reference": first["mean"],
        "equivalence_p": equal, "equivalence_p_holm": holm(equal),
        "identical_seeds": identical, "family": np.full(len(other), 2 * len(other)),
    }  # fmt: skip
    made = frame(cells, COLUMNS)
    rows = plain_rows(made)
    verdicts = zip(asked.untested, rows, strict=True)
    return made.assign(
        speed=[_speed(row) for row in rows],
        verdict=[verdict or _verdict(row) for verdict, row in verdicts],
    ).astype(types(COLUMNS))


def _no_ratio(first: Row, other: Row) -> str | None:
    """Why the throughputs of two arms cannot be compared; None where they can."""
    for arm in (first, other):
        if not arm["finished"]:
            return f"no completed run of {arm['framework']}"
        if not arm["rate_n"]:
            return arm["rate_why"] or "the records do not have it"
        if arm["shared"]:
            return SHARED_CORES
    same = first["machines"] == other["machines"]
    return None if same else "the two ran on different devices or cores"


def _speed(row: Row) -> str:
    if row["ratio"] is None:
        return NOT_COMPARED
    if row["ratio_p_holm"] is None or row["ratio_p_holm"] >= ALPHA:
        return "inconclusive"
    return f"{row['reference'] if row['ratio'] > 1 else row['library']} is faster"


def _verdict(row: Row) -> str:
    """What the seeds say of the accuracies; a difference shown may still be a small one."""
    p, equal = (row[name] for name in ("difference_p_holm", "equivalence_p_holm"))
    if 1 < row["identical_seeds"] == row["n"] == row["n_reference"]:
        return "identical in every seed"
    if p is None:
        return "inconclusive"
    within = f"to within {MARGIN:g}"
    if p < ALPHA:
        return f"different, equal {within}" if equal is not None and equal < ALPHA else "different"
    return f"equal {within}" if equal is not None and equal < ALPHA else "no difference shown"


def _does_it_matter(of: Sweep) -> Iterable[Answer]:
    """Ratio of throughputs and verdict on accuracy, for each pair of libraries."""
    for rows in groups(of.rows(compared), ("reference", "library")):
        first = rows[0]
        ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
        verdicts = list(dict.fromkeys(row["verdict"] for row in rows))
        if len(rows) == 1 and ratios:
            ratio = estimate_in(first, "ratio").text(TWO)
            text = f"{first['reference']} has {ratio} times the throughput of {first['library']}"
        elif ratios:
            text = (
                f"{first['reference']} has {TWO(min(ratios))} to {TWO(max(ratios))} times the "
                f"throughput of {first['library']} in {len(rows)} conditions"
            )
        else:
            text = f"{first['reference']} against {first['library']}"
        text += f"; accuracy: {some(verdicts)}."
        yield Answer("libraries", "Does the library matter?", text, "frameworks", "tests",
                     {"reference": first["reference"], "library": first["library"],
                      "ratio": first["ratio"] if len(rows) == 1 else None,
                      "low": first["ratio_low"] if len(rows) == 1 else None,
                      "high": first["ratio_high"] if len(rows) == 1 else None})  # fmt: skip


TOPIC = Topic(tables=(compared,), answers=(_does_it_matter,), asks=varies("framework"))
