"""A topic of the report: a question with the tables, figures and sentences that answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, Look, roles
from analysis.prediction.collectives import Link
from analysis.records.frames import Frames, in_order
from analysis.table import Row, Table, plain_rows

T = TypeVar("T")
Rows = Sequence[Row]
#: What a caution touches: the times of a run, its accuracy, all of it, or no meaning at all.
Touches = Literal["times", "accuracy", "all", "none"]
#: What the others are compared with, where a sweep has it.
REFERENCE = "naive"
#: Techniques that a figure draws; more could not be told apart.
MOST_DRAWN = 12
#: Of an answer; tables and their notes have the rest.
MOST_CHARACTERS = 300


@dataclass(frozen=True)
class Answer:
    """
    Args:
        verdict: one short sentence with its number.
        evidence: anchor of what shows it, and the name of its CSV: programs find the numbers there.
        more: what supports the verdict, and what would settle what is open; sentences without
            their capital and full stop.
    """

    key: str
    question: str
    verdict: str
    evidence: str = ""
    link: str = "evidence"
    more: Sequence[str] = ()

    @property
    def details(self) -> str:
        return fmt.joined(fmt.sentence(text) for text in self.more if text)

    @property
    def text(self) -> str:
        return fmt.joined([self.verdict, self.details])

    def as_json(self) -> dict[str, str]:
        return {"key": self.key, "question": self.question, "text": self.text,
                "evidence": self.evidence}  # fmt: skip


@dataclass(frozen=True)
class Caution:
    """What changes the meaning of an answer, or should be known beside it."""

    text: str
    touches: Touches
    is_alarm: bool = False


class Sweep:
    """What topics are made from. What several of them need is made once, when first asked for."""

    def __init__(self, frames: Frames, network: Link | None = None) -> None:
        """``network``: of an interconnect run of the same nodes."""
        self.frames, self.network = frames, network
        self._made: dict[Callable[[Sweep], Any], Any] = {}

    @property
    def runs(self) -> pd.DataFrame:
        return self.frames.runs

    @property
    def order(self) -> tuple[str, ...]:
        """Techniques in the order of all tables."""
        return self.frames.techniques

    def made(self, make: Callable[[Sweep], T]) -> T:
        """What a function makes of this sweep."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("T", self._made[make])

    def rows(self, table: Callable[[Sweep], Table]) -> Rows:
        """The rows of the table that a function makes, with None for every null."""
        return plain_rows(self.made(table).data)

    @cached_property
    def seen(self) -> dict[str, Look]:
        """The techniques that figures show: of many, those that reach most at the largest batch,
        after the reference. The best ones have colours."""
        runs = in_order(self.runs, self.order)
        labels = list(dict.fromkeys(runs["technique_label"]))
        # one technique with several settings has no reference
        reference = reference_technique(self.order)
        first = next(iter(runs.loc[runs["technique"] == reference, "technique_label"]), None)
        first = first if runs["technique"].nunique() > 1 else None
        done = runs[(runs["status"] == "completed") & (runs["technique_label"] != first)]
        largest = done[done["global_batch"] == done["global_batch"].max()]
        means = largest.groupby("technique_label", sort=False)["validation_accuracy"].mean()
        best = [*means.nlargest(MOST_DRAWN - 1).index]
        if len(labels) > MOST_DRAWN:
            labels = [label for label in labels if label in {first, *best}]
        return roles(labels, first, best)


def varies(column: str) -> Callable[[Sweep], bool]:
    """Whether runs differ in a column."""
    return lambda of: of.runs[column].nunique() > 1


def has_goals(of: Sweep) -> bool:
    """Whether runs had a target."""
    return len(of.frames.goals) > 0


@dataclass(frozen=True)
class Topic:
    """What answers one question; each part is made from the sweep.

    asks: whether the sweep varies what the question is about: such topics come first. tables may
    be without rows, and a plot None: then they are not shown. needs: whether there is what its
    parts are made of; else none of them is.
    """

    tables: tuple[Callable[[Sweep], Table], ...] = ()
    plots: tuple[Callable[[Sweep], Figure | None], ...] = ()
    answers: tuple[Callable[[Sweep], Iterable[Answer]], ...] = ()
    cautions: tuple[Callable[[Sweep], Iterable[Caution]], ...] = ()
    asks: Callable[[Sweep], bool] = lambda of: False
    needs: Callable[[Sweep], bool] = lambda of: len(of.runs) > 0


def reference_technique(techniques: Sequence[str]) -> str | None:
    """The technique that the others are compared with: naive, else the first of the sweep."""
    if REFERENCE in techniques:
        return REFERENCE
    return techniques[0] if techniques else None


def groups(rows: Rows, by: Sequence[str]) -> list[list[Row]]:
    """Rows that are equal in ``by``, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in by), []).append(row)
    return list(found.values())
