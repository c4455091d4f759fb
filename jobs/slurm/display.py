"""What a person sees while a sweep is followed: a live table in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from jobs.display import LiveDisplay, PlainDisplay
from jobs.ledger import Standing
from jobs.slurm.follow import Display
from jobs.slurm.inventory import Place
from jobs.slurm.queue import RUNNING
from jobs.slurm.reasons import in_words

SAY_AGAIN_S = 60.0


@contextmanager
def display_for(cells: Sequence[Standing]) -> Iterator[Display]:
    console = Console(stderr=True)
    if console.is_terminal:
        with LiveDisplay(cells, console) as live:
            yield Followed(live)
    else:
        yield Followed(PlainDisplay(cells, sys.stderr))


class Followed:
    """The local sweep's display, told by the queue instead of by our own processes."""

    def __init__(self, display: LiveDisplay | PlainDisplay) -> None:
        self._display = display
        self._started: set[str] = set()
        self._said: tuple[str, float] = ("", 0.0)

    def update(self, places: Sequence[Place], trouble: str | None) -> None:
        for place in places:
            name = place.standing.config.cell_id()
            if place.job is not None and place.job.state in RUNNING and name not in self._started:
                self._started.add(name)
                self._display.started(place.standing)
        text = trouble or _waiting(places)
        said, at = self._said
        if text and (text != said or time.monotonic() - at > SAY_AGAIN_S):
            self._said = (text, time.monotonic())
            self._display.say(text)
        self._display.tick()

    def ended(self, cell: Standing) -> None:
        self._display.ended(cell, cell.status, "" if cell.done else cell.why)

    def say(self, text: str) -> None:
        self._display.say(text)


def _waiting(places: Sequence[Place]) -> str:
    """How many wait, and why the first of them does."""
    waiting = [place.job for place in places if place.job is not None and place.job.waits]
    if not waiting:
        return ""
    return f"{len(waiting)} cells wait in the queue: {in_words(waiting[0]) or waiting[0].state}"
