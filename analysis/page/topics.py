"""Which tables and figures make up which topic of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from analysis.figures import Figure, looks
from analysis.prediction.collectives import Link
from analysis.records.frames import Frames
from analysis.table import Table
from analysis.topics import completeness, machine, usage
from analysis.topics.classes import confusion, scores
from analysis.topics.comparisons import larger_batch, libraries, ranking, techniques
from analysis.topics.convergence import (
    best_rates,
    by_batch,
    by_images,
    critical_batch,
    curves,
    learning_rates,
    reached,
    steps_by_batch,
    targets,
    true_speedup,
)
from analysis.topics.scaling import efficiency, increases, nodes, step_figure, waterfall
from analysis.topics.scaling import figure as throughput
from analysis.topics.scaling.forecasts import Forecasts
from analysis.topics.scaling.loss import loss
from analysis.topics.topic import Topic
from analysis.topics.training import applied, noise, noise_figure, sigmoid_inputs, trust

#: Techniques that a figure draws; more could not be told apart.
MOST_DRAWN = 12


def topics_of(
    frames: Frames,
    by_series: pd.DataFrame,
    ahead: Forecasts | None,
    network: Link | None,
    *,
    draw: bool,
) -> Iterable[Topic]:
    """``by_series``: the runs of the frames, with their series."""
    runs, epochs, order = frames.runs, frames.epochs, frames.techniques
    lacking, used = completeness.table(frames.problems), usage.table(frames.attempts)
    if ahead is None:
        yield Topic("completeness", "Cells without a result", (lacking, used))
        return
    made = reached.table(runs, epochs, order)
    seen = looks(_drawn(made))
    planned = frames.planned

    def drawn(*figures: Callable[[], Figure | None]) -> tuple[Figure, ...]:
        return tuple(made for figure in figures if (made := figure())) if draw else ()

    yield Topic(
        "techniques",
        "Which technique",
        (
            techniques.table(planned, runs, order),
            ranking.ranking_table(planned, runs),
            ranking.pairs_table(planned, runs),
        ),
    )
    sizes = by_images.table(runs, order)
    yield Topic(
        "convergence",
        "Accuracy",
        (made, larger_batch.table(planned, runs, order), sizes),
        drawn(
            lambda: by_batch.figure(made.data, seen),
            lambda: by_images.figure(runs, sizes.data),
            lambda: curves.figure(epochs, curves.ACCURACY, seen),
        ),
    )
    rates = learning_rates.table(planned, runs, frames.settings, order)
    yield Topic(
        "learning_rates",
        "Learning rate",
        (rates,),
        drawn(
            lambda: learning_rates.figure(rates.data),
            lambda: best_rates.figure(rates.data),
        ),
    )
    each = increases.tables(by_series, order)
    lost = loss(by_series, network)
    yield Topic(
        "scaling",
        "Scaling",
        (
            efficiency.table(by_series, order),
            lost.table,
            each.worth,
            each.steps,
            each.laws,
            ahead.table,
        ),
        drawn(
            lambda: throughput.figure(by_series, seen),
            lambda: waterfall.figure(lost),
            lambda: step_figure.figure(runs),
        ),
    )
    yield Topic("libraries", "Which library", (libraries.table(planned, runs, order),))
    if len(goals := frames.goals):
        met = critical_batch.points(goals, runs, frames.settings)
        critical = critical_batch.table(met, order)
        yield Topic(
            "targets",
            "Time to the target",
            (
                targets.table(goals, planned, runs, order),
                true_speedup.table(goals, by_series, order),
                critical,
            ),
            drawn(
                lambda: steps_by_batch.figure(met, critical.data, seen),
                lambda: curves.figure(epochs, curves.ACCURACY_IN_TIME, seen),
            ),
        )
    yield Topic(
        "noise",
        "Gradient noise",
        (noise.table(epochs, runs, order),),
        drawn(lambda: noise_figure.figure(epochs, runs, seen)),
    )
    yield Topic(
        "training",
        "How training went",
        (applied.table(runs, epochs, order), trust.table(epochs, runs, order)),
        drawn(
            lambda: curves.figure(epochs, curves.LOSS, seen, _smoothed(runs)),
            lambda: trust.figure(runs),
            lambda: sigmoid_inputs.figure(epochs),
        ),
    )
    classes = scores.table(frames.classes, runs, order)
    yield Topic("classes", "Classes", (classes,), drawn(lambda: confusion.figure(frames.confusion)))
    yield Topic(
        "cells",
        "Cells and machines",
        (
            lacking,
            used,
            usage.queue_table(frames.attempts),
            nodes.table(runs),
            completeness.every_run(runs),
            machine.traffic(frames.traffic, epochs, runs),
            machine.hosts(runs),
            machine.table(runs),
        ),
    )


def _drawn(made: Table) -> list[str]:
    """Labels of the techniques that figures show, in the order of the table: of many, those that
    reach most at the largest batch."""
    rows = made.data
    labels = list(dict.fromkeys(rows["technique_label"]))
    if len(labels) <= MOST_DRAWN:
        return labels
    largest = rows[rows["global_batch"] == rows["global_batch"].max()]
    best = set(largest.nlargest(MOST_DRAWN, "validation_accuracy")["technique_label"])
    return [label for label in labels if label in best][:MOST_DRAWN]


def _smoothed(runs: pd.DataFrame) -> str:
    """Whose loss has another floor than that of the others."""
    labels = runs.loc[runs["label_smoothing"] > 0, "technique_label"]
    names = ", ".join(list(dict.fromkeys(labels))[:MOST_DRAWN])
    return f"Against smoothed labels, so never near 0: {names}." if names else ""
