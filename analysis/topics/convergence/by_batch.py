"""Figure of the final accuracy against the global batch: means with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from analysis import fmt
from analysis.plots.figure import GREY, Figure, Look, hidden, left_out, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.records.labels import without_batch
from analysis.table import estimate_in, plain_rows
from analysis.topics.names import with_context

MOST_PANELS = 4


def figure(reached: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """``reached``: the table of conditions; ``seen``: the look of each technique drawn. None
    where their accuracies are of one batch."""
    known = reached[reached["validation_accuracy"].notna()]
    more = hidden(seen, known["technique_label"])
    known = known[known["technique_label"].isin(list(seen))]
    low, high = known["global_batch"].min(), known["global_batch"].max()
    if known["global_batch"].nunique() < 2:
        return None
    # under weak scaling each rank count has one batch: lines then join rank counts
    several = known.groupby(["gpus", "epochs"])["global_batch"].nunique().max() > 1
    every = [own for _, own in known.groupby(["gpus", "epochs"] if several else ["epochs"])]
    drawn = every[-MOST_PANELS:]
    lengths = known["epochs"].nunique() > 1
    panels = {}
    for own in drawn:
        counts = sorted(set(own["gpus"]))
        name = ", ".join(map(str, counts)) + (" rank" if counts == [1] else " ranks")
        name += f", {own['epochs'].iloc[0]} epochs" if lengths else ""
        panels[name] = [*_lines(own, seen)]
    svg = lines(panels, Axis("global batch", "octaves"), Axis("validation accuracy"))
    n = n_of(pd.concat(drawn)["validation_accuracy_n"])
    grey = [f" Grey: the reference, {name}." for name, look in seen.items() if look.color == GREY]
    caption = "Mean validation accuracy after the last epoch of the runs that completed"
    if known["validation_accuracy_low"].notna().any():
        caption += ", with its 95 % t interval over seeds as a band"
    caption += f" ({n}).{''.join(grey)}"
    caption += left_out(len(drawn), len(every), "panels, those of the most ranks") + more
    title = f"Accuracy from batch {fmt.count(low)} to {fmt.count(high)}"
    return Figure("accuracy_by_batch", title, caption, known, svg)


def _lines(panel: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    """What differs in more than the batch is no line."""
    contexts = panel["context"].map(without_batch)
    for label, look in seen.items():
        own = panel[panel["technique_label"] == label].sort_values("global_batch")
        by_context = own.groupby(contexts, sort=False)
        for context, line in by_context:
            found = [(row, estimate_in(row, "validation_accuracy")) for row in plain_rows(line)]
            yield Line(
                line["global_batch"], line["validation_accuracy"], look,
                f"{label}; {context}" if len(by_context) > 1 else label,
                line["validation_accuracy_low"], line["validation_accuracy_high"],
                tips=[f"{with_context(row)}, batch {fmt.count(row['global_batch'])}: "
                      f"{own.text(fmt.THREE)}, {fmt.runs(own.n)}" for row, own in found],
            )  # fmt: skip
