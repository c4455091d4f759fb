"""What a technique keeps of its accuracy when the batch grows: smallest against largest batch.

Between these two scales of one technique and workload nothing but the batch is meant to differ, and
what makes it (ranks, images per rank, accumulated batches). Both are those of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.records.frames import in_order
from analysis.records.labels import without_batch
from analysis.table import Column, Row, Table, estimates_as, frame
from analysis.topics.comparisons.arms import (
    ABOUT,
    CALLED,
    SERIES,
    ArmPairs,
    accuracies,
    arms,
    of_workload,
    runs_text,
)
from analysis.topics.comparisons.claim import Claim, cautions, sentences, told
from analysis.topics.comparisons.contrast import HIGHER, LOWER, UNDECIDED, Contrast, contrasts
from analysis.topics.names import only, ranks_text
from analysis.topics.topic import Answer, Sweep, Topic, groups, varies

ENDS = ("small", "large")
_OF_END = ("gpus", "global_batch", "n", "n_planned", "n_diverged")
_CHANGE = Contrast(heading="change")
#: How a sentence says a result of one technique, and of several.
_VERBS = {
    LOWER: ("loses accuracy", "lose accuracy"), HIGHER: ("gains accuracy", "gain accuracy"),
    UNDECIDED: ("is not shown to lose accuracy", "are not shown to lose accuracy"),
}  # fmt: skip


def _of_end(end: str, batch: str) -> tuple[Column, ...]:
    """CSV columns of one end; the page shows both in one cell, but for the accuracies."""
    return (
        *(Column(f"{name}_{end}", "Int64") for name in _OF_END),
        Column(f"accuracy_{end}", estimate=True, heading=f"accuracy, {batch}", format=fmt.THREE,
               description="mean among runs that did not diverge, with Student's t interval"),
    )  # fmt: skip


def _both(row: Row, name: str) -> str:
    first, last = (fmt.count(row[f"{name}_{end}"]) for end in ENDS)
    return first if first == last else f"{first} → {last}"


COLUMNS = (
    *ABOUT[:-2],  # without ranks and batch
    Column("ranks", None, heading="ranks", cell=lambda row: _both(row, "gpus"),
           description="smallest → largest batch, of the same rank count where one has both"),
    Column("batches", None, heading="global batch", cell=lambda row: _both(row, "global_batch"),
           description="where it grows within a run, that of its first epoch"),
    Column("runs", None, heading="runs",
           cell=lambda row: f"{runs_text(row, '_small')} / {runs_text(row, '_large')}",
           description="usable, at the smallest / at the largest batch, diverged ones included"),
    *_of_end("small", "smallest batch"),
    *_of_end("large", "largest batch"),
    *_CHANGE.columns,
    Column("images_ratio", description="images of a run, as a multiple of the smallest batch's"),
    Column("skewed", "boolean", description="accuracies lie so close to 0 or 1 that up to 10 % of "
           "tests of equal ones err"),
    Column("family", "Int64", description="rows planned"),
)  # fmt: skip


def kept(of: Sweep) -> Table:
    """One row per technique and workload with more than one planned global batch; see COLUMNS.

    ``difference``: mean at the largest batch minus mean at the smallest. Both are of the rank
    count with the widest range of batches, of several the most ranks; else of different counts.
    """
    found = of.made(arms)
    small, large = _ends(found)
    ends = (large.assign(end="the largest batch"), small.assign(end="the smallest batch"))
    pairs = ArmPairs(*ends, "end")
    both = pairs.rows("end")
    rows = {
        **{name: small[name].array for name in ("technique", CALLED, "framework")},
        "context": [*map(without_batch, large["context"])],
        **_end("small", small), **_end("large", large),
        **contrasts({_CHANGE: pairs.accuracy}),
        **{name: both[name] for name in ("images_ratio", "skewed")},
        "family": np.full(len(small), len(small)),
    }  # fmt: skip
    return Table(
        "larger_batch",
        "Larger batch: what accuracy each technique keeps",
        COLUMNS,
        in_order(frame(rows, COLUMNS), of.order),
        intro="The same technique, data and epochs at the smallest and at the largest global batch "
        "of one rank count, or of all if none has two. The rows are one family, whose simultaneous "
        "intervals hold together with 95 %.",
    )


def _ends(found: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Arms of each series: smallest and largest batch, on the ranks with the widest range."""
    batches = found.groupby([*SERIES, "gpus"])["global_batch"]
    found = found.assign(range=batches.transform("max") / batches.transform("min"))
    widest = found.groupby(list(SERIES))["range"].transform("max")
    most = found["gpus"].where(found["range"] == widest)
    most = most.groupby([found[name] for name in SERIES]).transform("max")
    found = found[(widest == 1) | (found["gpus"] == most)]
    ordered = found.sort_values(["global_batch", "gpus"], kind="stable").reset_index(names="arm")
    ends = ordered.groupby(list(SERIES))[["arm", "global_batch"]].agg(["first", "last"])
    grows = ends["global_batch"]["first"] < ends["global_batch"]["last"]
    arms = ends.loc[grows, "arm"].sort_values("first")
    return found.loc[arms["first"]], found.loc[arms["last"]]


def _end(end: str, arms: pd.DataFrame) -> dict[str, Any]:
    return {
        **{f"{name}_{end}": arms[name].array for name in _OF_END},
        **estimates_as(f"accuracy_{end}", accuracies(arms)),
    }


def _what_it_costs(of: Sweep) -> Iterable[Answer]:
    """Who loses accuracy, for each pair of batches and workload."""
    same = ("global_batch_small", "global_batch_large", "framework", "context")
    compared = [rows for rows in groups(of.rows(kept), same)
                if any(row["difference"] is not None for row in rows)]  # fmt: skip
    found = []
    for rows in compared:
        claims = [
            Claim.of(row, _CHANGE, row[CALLED], f"{row[CALLED]} at the smallest batch",
                     "_large", "_small")
            for row in rows
        ]  # fmt: skip
        ends = " to ".join(fmt.count(rows[0][f"global_batch_{end}"]) for end in ENDS)
        ranks = only([row[f"gpus_{end}"] for row in rows for end in ENDS])
        ends += f" on {ranks_text(ranks)}" if varies("gpus")(of) and ranks else ""
        said, *more = sentences(claims, _VERBS)
        text = f"from batch {ends}{of_workload(rows, compared)}, {said}"
        found.append(("What does a larger batch cost?", text, [*more, *cautions(claims)]))
    yield from told("larger_batch", "larger_batch", "runs", found)


TOPIC = Topic(tables=(kept,), answers=(_what_it_costs,), asks=varies("global_batch"))
