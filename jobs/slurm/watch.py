"""Watch the submitted cells of a sweep to their ends. Jobs do not need it: whoever watches may
leave and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from jobs.cell.state import Standing
from jobs.cell.stop import Stop
from jobs.messages import say
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query
from jobs.slurm.reconcile import Place, take
from jobs.slurm.status import over_for_s
from jobs.slurm.submissions import RunNote, adopt, read_notes, submitted_cells, write_note
from train.config.run import RunConfig

#: Seconds between two looks: in the first minute, then growing while nothing changes. A look is one
#: question to Slurm for all jobs of the user, and a cluster has many users.
FIRST_S, FIRST_FOR_S = 5.0, 60.0
LEAST_S, MOST_S, SLOWER = 30.0, 60.0, 1.25


@dataclass
class Pace:
    """When to look next. ``every_s``: always after this time; None: as the site did not say."""

    every_s: float | None = None
    _began: float = field(default_factory=time.monotonic)
    _pause_s: float = LEAST_S
    _seen: str = ""

    def next_s(self, seen: str) -> float:
        """Seconds until the next look; ``seen``: what the last one showed."""
        changed, self._seen = seen != self._seen, seen
        if self.every_s is not None:
            return self.every_s
        if time.monotonic() - self._began < FIRST_FOR_S:
            return FIRST_S
        self._pause_s = LEAST_S if changed else min(self._pause_s * SLOWER, MOST_S)
        return self._pause_s

    def again(self) -> None:
        """Something was submitted: what is wrong with it shows soon."""
        self._began = time.monotonic()


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
    slurm_conf: str | None
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.slurm_conf)

    def queue(self, patience_s: float = 0, *, older_s: float = 0) -> dict[str, JobState]:
        """All jobs of the user. ``older_s``: an answer of this age, asked by another sweep of the
        user, does as well.

        Raises:
            SlurmError: no answer.
        """
        return query(self.slurm_conf, patience_s=patience_s, older_s=older_s)

    def notes(self) -> list[RunNote]:
        """Raises OSError where they cannot be read."""
        return read_notes(self.sweep)[0]

    def adopt(self, notes: list[RunNote], queue: Mapping[str, JobState]) -> None:
        """Fill in, and write down, the ids of jobs that nobody lived to note.

        Raises:
            OSError: the folder cannot be written.
        """
        for index, note in enumerate(notes):
            notes[index] = adopt(note, queue)
            if notes[index] != note:
                write_note(self.sweep, notes[index])

    def look(
        self,
        configs: Sequence[RunConfig],
        notes: Sequence[RunNote],
        queue: Mapping[str, JobState],
    ) -> list[Place]:
        """Where the cells stand; those whose job has been over for long enough get their records.

        Raises:
            SlurmError: no answer about a job that is gone.
            OSError: a record that is due cannot be written.
        """
        submitted = submitted_cells(self.sweep, notes)
        return take(configs, self.sweep, submitted, queue, self.history,
                    lambda job: over_for_s(queue.get(job)))  # fmt: skip


def follow(
    watcher: Watcher,
    configs: Sequence[RunConfig],
    display: Display,
    stop: Stop,
    refill: Callable[[Mapping[str, JobState]], list[RunConfig]],
    waiting: Callable[[], bool] = lambda: False,
    pace: Pace | None = None,
) -> dict[str, str]:
    """Wait until no cell is in the queue; returns cell id -> status of its record.

    ``refill``: told the user's jobs, may submit more cells, and returns these.
    ``waiting``: whether it still has cells to submit.

    Raises:
        Left: ``stop`` has a reason.
        SlurmError: not all could be submitted; raised when all that could has ended.
    """
    pace = pace or Pace()
    refused: SlurmError | OSError | None = None
    open_ = {config.cell_id(): config for config in configs}
    results: dict[str, str] = {}
    trouble_since: datetime | None = None
    pause_s, complained = 0.0, ""
    while open_ or (waiting() and refused is None):
        if stop.reason:
            raise Left(stop.reason.text)
        try:
            notes = watcher.notes()
            queue = watcher.queue(older_s=0.9 * pause_s)
            watcher.adopt(notes, queue)
            places = watcher.look(list(open_.values()), notes, queue)
        except (SlurmError, OSError) as error:
            trouble_since = trouble_since or datetime.now(UTC)
            who = "Slurm" if isinstance(error, SlurmError) else "the results folder"
            display.update(
                [], f"{who} gives no answer since {trouble_since:%H:%M:%S} UTC ({error})"
            )
            pause_s = pace.next_s("no answer")
            _pause(stop, pause_s)
            continue
        trouble_since = None
        display.update(places, None)
        for place in places:
            if not place.alive:
                results[place.standing.config.cell_id()] = place.standing.status
                del open_[place.standing.config.cell_id()]
                display.ended(place.standing)
        added: list[RunConfig] = []
        if refused is None:
            try:
                added = refill(queue)
                open_ |= {config.cell_id(): config for config in added}
            except (SlurmError, OSError) as error:
                words = error.came if isinstance(error, SlurmError) else str(error)
                if words != complained:
                    display.say(f"could not submit: {words}")
                complained = words
                if is_lasting(error):
                    refused = error
                    display.say("no more cells are submitted; the rest is watched to its end")
        pause_s = pace.next_s(" ".join(f"{p.job.job}{p.job.state}" for p in places if p.job))
        if added:
            pace.again()
        if open_ or (waiting() and refused is None):
            _pause(stop, pause_s)
        pause_s = 0.0 if added else pause_s  # a list from before lacks what was just submitted
    if refused is not None:
        raise refused
    return results


def _pause(stop: Stop, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.reason:
        time.sleep(min(0.1, seconds))


def wait_for(job: str, slurm_conf: str | None, what: str, every_s: float | None) -> None:
    """Until Slurm says that a job has ended, or no longer knows it, saying as ``what`` why it
    waits.

    Raises:
        SlurmError: no answer, and none is to be expected.
    """
    told, pace = "", Pace(every_s)
    while True:
        try:
            state = query(slurm_conf, arrays=[job]).get(job)
            if state is None or state.ended:
                return
            why, seen = in_words(state), state.state
        except SlurmError as error:
            if not error.passing:
                raise
            why, seen = f"Slurm gives no answer ({error})", ""
        if why not in ("", told):
            say(f"{what}: {why}")
            told = why
        time.sleep(pace.next_s(seen))
