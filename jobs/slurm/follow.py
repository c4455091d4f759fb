"""Watch the submitted cells of a sweep to their ends. Jobs do not need it: whoever watches may
leave and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from jobs.ledger import Standing
from jobs.options import say
from jobs.slurm.commands import SlurmError
from jobs.slurm.history import History
from jobs.slurm.inventory import Place, submitted_cells, take
from jobs.slurm.look import over_for_s
from jobs.slurm.notes import RunNote, read_notes
from jobs.slurm.queue import JobState, query
from jobs.slurm.reasons import in_words
from jobs.stop import Stop
from train.config.run import RunConfig

POLL_S = 3.0
WAIT_S = 2.0  # between two looks at one job


class Display(Protocol):
    """What a person sees of it."""

    def update(self, places: Sequence[Place], trouble: str | None) -> None: ...
    def ended(self, cell: Standing) -> None: ...
    def say(self, text: str) -> None: ...


class Left(Exception):
    """The watcher was told to leave; the jobs go on."""


@dataclass
class Watcher:
    """One sweep on a cluster, as seen from the login node."""

    sweep: Path
    job_name: str
    slurm_conf: str | None
    history: History = field(init=False)
    _gone_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.slurm_conf)

    def queue(self, patience_s: float = 0) -> dict[str, JobState]:
        """Raises SlurmError where Slurm gives no answer."""
        return query(self.job_name, self.slurm_conf, patience_s=patience_s)

    def notes(self) -> list[RunNote]:
        return read_notes(self.sweep)[0]

    def look(
        self,
        configs: Sequence[RunConfig],
        notes: Sequence[RunNote],
        queue: Mapping[str, JobState],
        *,
        again: bool = False,
    ) -> list[Place]:
        """Where the cells stand; those whose job has been gone for long enough are settled.

        ``again``: others were seen before, so that a job which is not in the queue may have left it
        just now, and may come back.
        ``notes`` are to be older than ``queue``: a job that is noted and not in it is then over,
        also while another shell submits more.

        Raises:
            SlurmError: no answer about a job that is gone.
        """
        now = time.monotonic()

        def over_s(job: str) -> float:
            seen_s = now - self._gone_since.setdefault(job, now)
            state = queue.get(job)
            return seen_s if again and state is None else max(seen_s, over_for_s(state))

        for job, state in queue.items():
            if not state.ended:
                self._gone_since.pop(job, None)
        submitted = submitted_cells(self.sweep, notes)
        return take(configs, self.sweep, submitted, queue, self.history, over_s)


def follow(
    watcher: Watcher,
    configs: Sequence[RunConfig],
    display: Display,
    stop: Stop,
    refill: Callable[[int], list[RunConfig]],
    waiting: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """Wait until no cell is in the queue; returns cell id -> status of its record.

    ``refill``: told how many of our jobs are alive, may submit more cells, and returns these.
    ``waiting``: whether it still has cells to submit.

    Raises:
        Left: ``stop`` has a reason.
        SlurmError: not all could be submitted; raised when all that could has ended.
    """
    refused: SlurmError | None = None
    open_ = {config.cell_id(): config for config in configs}
    results: dict[str, str] = {}
    trouble_since: datetime | None = None
    while open_ or (waiting() and refused is None):
        if stop.reason:
            raise Left(stop.reason.text)
        try:
            notes = watcher.notes()
            queue = watcher.queue()
            places = watcher.look(list(open_.values()), notes, queue, again=True)
        except SlurmError as error:
            trouble_since = trouble_since or datetime.now(UTC)
            display.update(
                [], f"Slurm gives no answer since {trouble_since:%H:%M:%S} UTC ({error})"
            )
            _pause(stop)
            continue
        trouble_since = None
        display.update(places, None)
        for place in places:
            if not place.alive:
                results[place.standing.config.cell_id()] = place.standing.status
                del open_[place.standing.config.cell_id()]
                display.ended(place.standing)
        if refused is None:
            try:
                added = refill(sum(not state.ended for state in queue.values()))
                open_ |= {config.cell_id(): config for config in added}
            except SlurmError as error:
                refused = error
                display.say(
                    f"no more cells are submitted ({error}); the rest is watched to its end"
                )
        if open_:
            _pause(stop)
    if refused is not None:
        raise refused
    return results


def _pause(stop: Stop) -> None:
    deadline = time.monotonic() + POLL_S
    while time.monotonic() < deadline and not stop.reason:
        time.sleep(0.1)


def wait_for(job: str, watcher: Watcher, what: str) -> None:
    """Until a job is out of the queue, saying as ``what`` why it waits.

    Raises:
        SlurmError: no answer.
    """
    told = ""
    while (state := watcher.queue(60).get(job)) is not None and not state.ended:
        if (why := in_words(state)) not in ("", told):
            say(f"{what}: {why}")
            told = why
        time.sleep(WAIT_S)
