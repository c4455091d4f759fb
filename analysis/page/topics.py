"""Which tables and figures make up which topic of the report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial

import pandas as pd

from analysis.figures import Figure, Look, roles
from analysis.page.parts import parts
from analysis.prediction.collectives import Link
from analysis.records.frames import Frames, in_order
from analysis.table import Table, first_of
from analysis.topics import axes, class_scores, completeness, machine, ranks, usage
from analysis.topics.comparisons import larger_batch, libraries, ranking, techniques
from analysis.topics.convergence import (
    by_batch,
    critical_batch,
    curves,
    learning_rates,
    reached,
    steps_by_batch,
    targets,
    true_speedup,
)
from analysis.topics.scaling import (
    efficiency,
    efficiency_figure,
    increases,
    nodes,
    step_figure,
    waterfall,
)
from analysis.topics.scaling.forecasts import Forecasts, forecasts
from analysis.topics.scaling.loss import Loss, loss
from analysis.topics.topic import Topic
from analysis.topics.training import applied, noise, noise_figure

#: Techniques that a figure draws; more could not be told apart.
MOST_DRAWN = 12
_BEST = 3  # of them in colours, whatever answers name


class Shared:
    """What several topics are made from, each made once, when it is first asked for."""

    def __init__(self, frames: Frames, network: Link | None) -> None:
        self.frames, self.network = frames, network
        self.said = ""  # by the answers: figures, which are drawn after them, stress what they name

    @cached_property
    def by_series(self) -> pd.DataFrame:
        """The runs, with their series."""
        return efficiency.with_series(self.frames.runs)

    @cached_property
    def ahead(self) -> Forecasts:
        of = self.frames
        return forecasts(self.by_series, of.techniques, of.name, self.network)

    @cached_property
    def seen(self) -> dict[str, Look]:
        return _looks(self.frames, self.said)

    @cached_property
    def reached(self) -> Table:
        of = self.frames
        return reached.table(of.runs, of.epochs, of.techniques)

    @cached_property
    def claims(self) -> Table:
        return techniques.table(self.frames.planned, self.frames.runs, self.frames.techniques)

    @cached_property
    def scaling(self) -> Table:
        return efficiency.table(self.by_series, self.frames.techniques)

    @cached_property
    def rates(self) -> Table:
        of = self.frames
        return learning_rates.table(of.planned, of.runs, of.settings, of.techniques)

    @cached_property
    def axes(self) -> Table:
        return axes.table(self.frames)

    @cached_property
    def increases(self) -> increases.Increases:
        return increases.tables(self.by_series, self.frames.techniques)

    @cached_property
    def loss(self) -> Loss:
        return loss(self.by_series, self.network)

    @cached_property
    def met(self) -> pd.DataFrame:
        return critical_batch.points(self.frames.goals, self.frames.runs, self.frames.settings)

    @cached_property
    def critical(self) -> Table:
        return critical_batch.table(self.met, self.frames.techniques)


def topics_of(of: Shared) -> Iterable[Topic]:
    """All of them, with what makes their figures."""
    frames = of.frames
    planned, runs, epochs, order = frames.planned, frames.runs, frames.epochs, frames.techniques

    def topic(
        key: str,
        title: str,
        tables: Iterable[Callable[[], Table]],
        figures: Iterable[Callable[[], Figure | None]] = (),
    ) -> Topic:
        failures: list[str] = []
        made = parts([partial(_written, table) for table in tables], "A table", failures)
        return Topic(key, title, made, failures=tuple(failures), plots=tuple(figures))

    def lacking() -> Table:
        return completeness.table(frames.problems)

    def used() -> Table:
        return usage.table(frames.attempts)

    if not len(runs):
        yield topic("completeness", "Cells without a result", (lacking, used))
        return
    yield topic(
        "techniques",
        "Which technique",
        (
            lambda: of.claims,
            lambda: ranking.ranking_table(planned, runs),
            lambda: ranking.pairs_table(planned, runs),
        ),
        (lambda: techniques.figure(of.claims.data, of.seen),),
    )
    yield topic(
        "convergence",
        "Accuracy",
        (
            lambda: of.reached,
            lambda: larger_batch.table(planned, runs, order),
        ),
        (
            lambda: by_batch.figure(of.reached.data, of.seen),
            lambda: curves.figure(epochs, curves.ACCURACY, of.seen),
        ),
    )
    yield topic(
        "axes",
        "What each setting does",
        (lambda: of.axes,),
        (lambda: axes.figure(of.axes.data),),
    )
    yield topic(
        "learning_rates",
        "Learning rate",
        (lambda: of.rates,),
        (lambda: learning_rates.figure(of.rates.data),),
    )
    yield topic(
        "scaling",
        "Scaling",
        (
            lambda: of.scaling,
            lambda: of.loss.table,
            lambda: of.increases.worth,
            lambda: of.increases.steps,
            lambda: of.ahead.table,
        ),
        (
            lambda: efficiency_figure.figure(of.scaling.data, of.ahead.table.data, of.seen),
            lambda: waterfall.figure(of.loss),
            lambda: step_figure.figure(runs, of.seen),
        ),
    )
    yield topic("libraries", "Which library", (lambda: libraries.table(planned, runs, order),))
    if len(goals := frames.goals):
        yield topic(
            "targets",
            "Time to the target",
            (
                lambda: targets.table(goals, planned, runs, order),
                lambda: true_speedup.table(goals, of.by_series, order),
                lambda: of.critical,
            ),
            (
                lambda: steps_by_batch.figure(of.met, of.critical.data, of.seen),
                lambda: curves.figure(epochs, curves.ACCURACY_IN_TIME, of.seen),
            ),
        )
    yield topic(
        "noise",
        "Gradient noise",
        (lambda: noise.table(epochs, runs, order),),
        (lambda: noise_figure.figure(epochs, runs, of.seen),),
    )
    yield topic(
        "training",
        "How training went",
        (lambda: applied.table(runs, epochs, order),),
        (lambda: curves.figure(epochs, curves.LOSS, of.seen, _smoothed(runs)),),
    )
    yield topic(
        "classes",
        "Classes",
        (lambda: class_scores.table(frames.classes, runs, order),),
    )
    yield topic(
        "cells",
        "Cells and machines",
        (
            lacking,
            used,
            lambda: usage.queue_table(frames.attempts),
            lambda: nodes.table(runs),
            lambda: ranks.table(frames.ranks),
            lambda: completeness.every_run(runs),
            lambda: machine.traffic(frames.traffic, epochs, runs),
            lambda: machine.hosts(runs),
            lambda: machine.table(runs),
        ),
    )


def drawn(topic: Topic) -> Topic:
    """With its figures, which take seconds."""
    failures = [*topic.failures]
    made = parts(topic.plots, "A plot", failures)
    there = tuple(figure for figure in made if figure is not None)
    return replace(topic, figures=there, failures=tuple(failures))


def _written(make: Callable[[], Table]) -> Table:
    """Raises now what would end the page when it is written."""
    table = make()
    table.shown()
    return table


def _looks(frames: Frames, named: str) -> dict[str, Look]:
    """The techniques that figures show, in the order of all tables: of many, those that reach most
    at the largest batch, after the reference. In colours: the best, and what answers name.

    Args:
        named: the answers.
    """
    runs = in_order(frames.runs, frames.techniques)
    labels = list(dict.fromkeys(runs["technique_label"]))
    # one technique with several settings has no reference
    reference = techniques.reference_technique(frames.techniques)
    first = next(iter(runs.loc[runs["technique"] == reference, "technique_label"]), None)
    first = first if runs["technique"].nunique() > 1 else None
    done = runs[(runs["status"] == "completed") & (runs["technique_label"] != first)]
    largest = done[done["global_batch"] == done["global_batch"].max()]
    means = largest.groupby("technique_label", sort=False)["validation_accuracy"].mean()
    best = [*means.nlargest(MOST_DRAWN - 1).index]
    places = {one: re.search(rf"(?<!\w){re.escape(one)}(?!\w)", named) for one in labels}
    said = sorted((at.start(), one) for one, at in places.items() if at)
    if len(labels) > MOST_DRAWN:
        labels = [label for label in labels if label in {first, *best}]
    return roles(labels, first, [*best[:_BEST], *(one for _, one in said), *best])


def _smoothed(runs: pd.DataFrame) -> str:
    """Whose loss has another floor than that of the others."""
    labels = runs.loc[runs["label_smoothing"] > 0, "technique_label"]
    names = first_of(list(dict.fromkeys(labels)), MOST_DRAWN)
    return f"Against smoothed labels, so never near 0: {names}." if names else ""
