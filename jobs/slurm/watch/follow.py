"""Watch the submitted cells of a sweep to their ends. Jobs do not need it: whoever watches may
leave and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from jobs.cell.state import CellState, recorded
from jobs.cell.stop import Stop
from jobs.display import Display
from jobs.messages import say
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query_ids, shared_query
from jobs.slurm.preflight import report_of
from jobs.slurm.submissions import RunNote, adopt, read_notes, submitted_cells, write_note
from jobs.slurm.watch.reconcile import reconcile
from jobs.slurm.watch.states import by_files
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


class Left(Exception):
    """The watcher was told to leave; the jobs go on."""


@dataclass
class Watcher:
    """A sweep on a cluster as seen from the login node, and what the last look showed."""

    sweep: Path
    slurm_conf: str | None
    notes: list[RunNote] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)  # runs whose notes cannot be read: why
    queue: Mapping[str, JobState] = field(default_factory=dict)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.slurm_conf)

    def look(
        self, configs: Sequence[RunConfig], *, patience_s: float = 0, older_s: float = 0
    ) -> list[CellState]:
        """Where the cells stand; those whose job has been over for long enough get their records.

        The notes are read before the queue is asked: what another shell submits then is in neither.
        ``older_s``: an answer of this age, asked by another sweep of the user, does as well.

        Raises:
            SlurmError: no answer.
            OSError: the notes cannot be read, or a record that is due cannot be written.
        """
        self.notes, self.broken = read_notes(self.sweep)
        self.queue = shared_query(self.slurm_conf, patience_s=patience_s, older_s=older_s)
        for index, note in enumerate(self.notes):
            self.notes[index] = adopted = adopt(note, self.queue)
            if adopted != note:
                with suppress(OSError):  # the next look finds the ids in the queue, too
                    write_note(self.sweep, adopted)
        submitted = submitted_cells(self.sweep, self.notes)
        return reconcile(
            configs, self.sweep, submitted, self.queue, self.history, self._preflight_problem
        )

    def look_at_files(self, configs: Sequence[RunConfig]) -> list[CellState]:
        """The same while Slurm gives no answer, or where nothing was submitted."""
        submitted = submitted_cells(self.sweep, self.notes)
        cells = [recorded(config, self.sweep / config.cell_id()) for config in configs]
        return [by_files(cell, submitted.get(cell.name)) for cell in cells]

    def _preflight_problem(self, job: str) -> str | None:
        report = report_of(self.sweep, job)
        if report is None:
            return None
        return "" if report.ok else str(report.problems[0])


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

    ``refill``: gets the user's jobs, may submit more cells, and returns these.
    ``waiting``: whether it still has cells to submit.

    Raises:
        Left: ``stop`` has a reason.
        SlurmError: not all could be submitted; raised when all that could has ended.
    """
    pace = pace or Pace()
    unended = {config.cell_id(): config for config in configs}
    results: dict[str, str] = {}
    refused: SlurmError | OSError | None = None  # and it will be refused again
    trouble_since, complaint = "", ""
    older_s = 0.0
    while unended or (waiting() and refused is None):
        if stop.reason:
            raise Left(stop.reason.text)
        added: list[RunConfig] = []
        try:
            cells = watcher.look(list(unended.values()), older_s=older_s)
        except (SlurmError, OSError) as error:
            trouble_since = trouble_since or f"{datetime.now(UTC):%H:%M:%S} UTC"
            who = "Slurm" if isinstance(error, SlurmError) else "the results folder"
            display.update([], f"{who} gives no answer since {trouble_since} ({error})")
            seen = "no answer"
        else:
            trouble_since = ""
            display.update(cells, None)
            for cell in cells:
                if not cell.alive:
                    results[cell.name] = cell.status
                    del unended[cell.name]
                    display.ended(cell, cell.status, cell.why)
            if refused is None:
                try:
                    added = refill(watcher.queue)
                except (SlurmError, OSError) as error:
                    refused = error if is_lasting(error) else None
                    complaint = _complain(error, complaint, display)
            unended |= {config.cell_id(): config for config in added}
            seen = " ".join(f"{cell.job}{cell.slurm}" for cell in cells if cell.slurm)
        pause_s = pace.next_s(seen)
        if added:
            pace.again()
        if unended or (waiting() and refused is None):
            _pause(stop, pause_s)
        older_s = 0.0 if added else 0.9 * pause_s  # an older list lacks what was just submitted
    if refused is not None:
        raise refused
    return results


def _complain(error: SlurmError | OSError, before: str, display: Display) -> str:
    """Say, once, why cells could not be submitted."""
    words = error.came if isinstance(error, SlurmError) else str(error)
    if words != before:
        display.say(f"could not submit: {words}")
    if is_lasting(error):
        display.say("no more cells are submitted; the rest is watched to its end")
    return words


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
    said, pace = "", Pace(every_s)
    while True:
        try:
            state = query_ids([job], slurm_conf).get(job)
            if state is None or state.ended:
                return
            why, seen = in_words(state), state.state
        except SlurmError as error:
            if not error.passing:
                raise
            why, seen = f"Slurm gives no answer ({error})", ""
        if why not in ("", said):
            say(f"{what}: {why}")
            said = why
        time.sleep(pace.next_s(seen))
