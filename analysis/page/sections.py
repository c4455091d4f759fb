"""The sections of the report: which topics make them, in an order that follows from what the sweep
varies. A part that cannot be made is a sentence in its place."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

from analysis.plots.figure import Figure
from analysis.table import Table
from analysis.topics.topic import Sweep, Topic

T = TypeVar("T")
_PROGRAM = Path(__file__).parents[1]


class Place(NamedTuple):
    """``topics``: modules of analysis.topics, each with its TOPIC."""

    key: str
    title: str
    topics: tuple[str, ...]


#: Those that ask for what the sweep varies come first, in this order.
PAGE = (
    Place("completeness", "Cells without a result", ("cells.completeness",)),
    Place("scaling", "Scaling", (
        "scaling.how_far",
        "scaling.step_figure",
        "scaling.more_ranks",
    )),
    Place("techniques", "Which technique", (
        "comparisons.techniques",
        "comparisons.ranking",
    )),
    Place("convergence", "Accuracy", (
        "convergence.reached",
        "comparisons.larger_batch",
    )),
    Place("axes", "What each setting does", ("axes",)),
    Place("libraries", "Which library", ("comparisons.libraries",)),
    Place("targets", "Time to the target", (
        "convergence.targets",
        "convergence.critical_batch",
    )),
    Place("learning_rates", "Learning rate", ("convergence.learning_rates",)),
    Place("noise", "Gradient noise", ("convergence.noise",)),
    Place("cells", "Cells and machines", (
        "ranks",
        "cells.every_run",
        "cells.machine",
    )),
)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """Tables and figures of a few topics under one heading.

    key: its anchor on the page. failures: sentences about parts that could not be made.
    """

    key: str
    title: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        shown = any(len(table.data) for table in self.tables)
        return not (shown or self.figures or self.failures)


class Parts:
    """Makes what the topics say of a sweep, by place, those first that the sweep asks for.

    failures: of each place, a sentence for each part that could not be made, and that no other
    place has.
    """

    def __init__(self, of: Sweep) -> None:
        self._of, self._known = of, list[str]()
        self.failures = {place: list[str]() for place in PAGE}
        self._topics = {}
        for place in PAGE:
            topics = [import_module(f"analysis.topics.{name}").TOPIC for name in place.topics]
            self._topics[place] = [topic for topic in topics if topic.needs(of)]
        # whether a sweep asks may depend on a table
        asks = self.every("A table", lambda topic: [topic.asks])
        self._topics = dict(sorted(self._topics.items(), key=lambda own: not any(asks[own[0]])))

    def every(
        self, what: str, makers: Callable[[Topic], Iterable[Callable[[Sweep], T]]]
    ) -> dict[Place, tuple[T, ...]]:
        """``what``: one of the parts, at the beginning of a sentence."""
        found = {}
        for place, topics in self._topics.items():
            known = len(self._known)
            own = [make for topic in topics for make in makers(topic)]
            found[place] = parts(own, self._of, what, self._known)
            self.failures[place] += self._known[known:]
        return found

    def all_of(
        self, what: str, makers: Callable[[Topic], Iterable[Callable[[Sweep], Iterable[T]]]]
    ) -> list[T]:
        """Of makers that make several; each of them whole or not at all."""
        found = self.every(what, lambda topic: map(_whole, makers(topic)))
        return [one for own in found.values() for several in own for one in several]


def _whole(make: Callable[[Sweep], Iterable[T]]) -> Callable[[Sweep], tuple[T, ...]]:
    return lambda of: tuple(make(of))


def written(make: Callable[[Sweep], Table]) -> Callable[[Sweep], Table]:
    """Raises now what would end the page when it is written."""

    def table(of: Sweep) -> Table:
        found = of.made(make)
        found.shown()
        return found

    return table


def parts(
    makers: Iterable[Callable[[Sweep], T]], of: Sweep, what: str, failures: list[str]
) -> tuple[T, ...]:
    """What the makers make; of one that raises, a sentence is appended to ``failures``, once.

    Args:
        what: one of the parts, at the beginning of a sentence.
    """
    found = []
    for make in makers:
        try:
            found.append(make(of))
        except Exception as error:  # noqa: BLE001  whatever it is, no other part depends on it
            said = _sentence(error)
            if not any(known.endswith(said) for known in failures):
                failures.append(f"{what} {said}")
    return tuple(found)


def _sentence(error: Exception) -> str:
    """With the file and line in analysis/ that raised it."""
    inside = [
        f"{Path(frame.filename).relative_to(_PROGRAM)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_PROGRAM)
    ]
    message = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
    why = f"{type(error).__name__}{f': {message}' if message else ''}"
    return (
        f"could not be made: {why} (analysis/{inside[-1]}). This is a fault of the program: "
        "please report it with this line. The other parts of the report do not depend on it."
    )
