"""What a person sees of a sweep: before it runs, while cells run, and when it is over."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from statistics import mean

from rich.console import Console, RenderableType
from rich.live import Live

from jobs.cell.state import FORCED, NEW, RUNNING, UNKNOWN, UNREADABLE, WAITING, CellState, recorded
from jobs.config.sweep import Sweep
from jobs.messages import EXIT_CELL_FAILED, EXIT_UNDECIDED, clock, say
from jobs.plan.differences import apart, in_words
from jobs.table import line, reasons, table, title
from train.config.plan import epochs_to_train
from train.record.run import GOOD

#: Without a terminal, how often it is said where all cells stand.
PERIOD_S = 30.0


class Display:
    """The cells of a sweep while they run: a table on a terminal, elsewhere a line per event.

    On this machine the engine says what it starts (``started``) and passes the time (``tick``); on
    a cluster the watcher says where all cells stand (``update``). Both say what ended (``ended``).
    """

    def __init__(
        self, cells: Sequence[CellState], sweep: str = "", console: Console | None = None
    ) -> None:
        """``sweep``: as SWEEP= names it."""
        self.cells = {cell.name: cell for cell in cells}
        for cell in cells:
            if cell.to_run and not cell.doing:  # whatever became of its last attempt
                self.cells[cell.name] = replace(cell, doing=WAITING, why="")
        self.trouble: str | None = None  # why Slurm gives no answer
        self._sweep = sweep
        self._console = console or Console(stderr=True, emoji=False)
        self._live: Live | None = None
        self._shown, self._next = "", 0.0

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, get_renderable=self.table, refresh_per_second=1
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):  # a terminal that is gone must not end a sweep
                self._live.stop()

    def say(self, text: str) -> None:
        """Above the table, where there is one."""
        with contextlib.suppress(OSError):  # a reader that is gone must not end a sweep
            if self._live is None:  # rich's own print ends the program where its reader is gone
                print(text, file=self._console.file, flush=True)
            else:
                self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, cell: CellState) -> None:
        self.cells[cell.name] = replace(cell, doing=RUNNING, why="", began_at=datetime.now(UTC))
        self._next = self._next or time.monotonic() + PERIOD_S
        if self._live is None:
            number = list(self.cells).index(cell.name) + 1
            how = " (going on from its checkpoint)" if cell.resume else ""
            how = " by an earlier make sweep, waiting for it" if cell.status == RUNNING else how
            self.say(f"[{number}/{len(self.cells)}] {self._names[cell.name]}: started{how}")

    def update(self, cells: Sequence[CellState], trouble: str | None) -> None:
        """Where cells stand now; ``trouble``: why that is not known."""
        self.cells |= {cell.name: cell for cell in cells}
        self.trouble = trouble
        self.tick()

    def tick(self) -> None:
        """Some time has passed: the table draws itself."""
        if self._live is not None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PERIOD_S
        cells = list(self.cells.values())
        below = [f"{cell.name}: {line(cell)}" for cell in cells if cell.active]
        waiting = [cell for cell in cells if cell.alive and cell.state in (WAITING, UNKNOWN)]
        below += reasons(waiting, self.trouble, sweep=self._sweep)
        text = "\n    ".join([title(cells) + self.left(), *below])
        if text != self._shown:  # a queue that does not move fills no log
            self.say(text)
        self._shown = text

    def ended(self, cell: CellState, status: str, why: str) -> None:
        self.cells[cell.name] = now = replace(
            cell, status=status, doing="", why=why, cause=cell.cause if why == cell.why else "",
            began_at=self.cells[cell.name].began_at, ended_at=datetime.now(UTC),
        )  # fmt: skip
        words = f": {why}" if why else ""
        if self._live is None:
            self.say(f"    {cell.name}: {line(now)}{self.left()}{words}")
        elif status not in GOOD:
            self.say(f"{cell.name}: {status}{words}")

    def table(self) -> RenderableType:
        return table(
            list(self.cells.values()), self.trouble, self._console,
            sweep=self._sweep, left=self.left(), names=self._names,
        )  # fmt: skip

    @cached_property
    def _names(self) -> dict[str, str]:
        """Of the cells, with what their ids do not say: a framework, a momentum."""
        differ = apart([cell.config for cell in self.cells.values()])
        words = {name: in_words(settings) for name, settings in differ.items()}
        return {name: f"{name} ({said})" if said else name for name, said in words.items()}

    def left(self) -> str:
        """Remaining time on this machine, where cells run one after another; '' before anything is
        known.

        A running cell's rest is its epochs to go at the pace of its last one. A waiting cell takes
        as long as others of its size, else as any.
        """
        cells = self.cells.values()
        whole: dict[str, float] = {}  # cell -> seconds from its start to its end
        of_size: dict[int, list[float]] = {}
        for cell in cells:
            took_s = cell.seconds()
            if took_s is not None and cell.active:
                last, planned = cell.last_epoch(), epochs_to_train(cell.config)
                if last is None or planned is None:  # planned: not known without the data
                    continue
                took_s += max(0, planned - last.epoch) * (last.train_s + last.eval_s)
            if took_s is not None:
                whole[cell.name] = took_s
                of_size.setdefault(cell.config.gpus, []).append(took_s)
        if not whole or any(cell.job for cell in cells):
            return ""
        left_s = 0.0
        for cell in cells:
            if cell.state in (WAITING, RUNNING):
                usual_s = mean(of_size.get(cell.config.gpus, whole.values()))
                left_s += max(0.0, whole.get(cell.name, usual_s) - (cell.seconds() or 0.0))
        return f"; left {clock(left_s)}"


def say_standing(wanted: Sweep, cells: Sequence[CellState]) -> None:
    """What a sweep does about its cells, before it begins."""
    done = [cell for cell in cells if cell.done]
    to_run = sum(cell.to_run for cell in cells)
    say(f"{wanted.name}: {wanted.title}: {len(cells)} cells, {to_run} to run")
    if done:
        what = "nothing to train" if len(done) == len(cells) else "these are skipped"
        say(f"good records are there already ({_counted(done)}): {what}; FORCE=1 runs them again")
    for cell in cells:
        if not cell.done and cell.status not in (NEW, FORCED):
            again = "goes on from its checkpoint" if cell.resume else "is run again"
            how = {RUNNING: "waiting for its end", UNREADABLE: "is left alone"}
            say(f"{cell.name}: {cell.status} ({cell.why}): {how.get(cell.status, again)}")


def say_results(wanted: Sweep, cells: Sequence[CellState]) -> int:
    """Returns the exit code: a cell that cannot be read is no failed one, and no good one."""
    say(f"all cells: {_counted(cells)}")
    bad = [cell for cell in cells if cell.to_run]
    if bad:
        now = [recorded(cell.config, cell.folder) for cell in bad]
        for text in reasons([cell for cell in now if cell.cause], sweep=wanted.asked):
            say(text)
        say(f"{len(bad)} cells did not complete; the report says why; make sweep runs them again")
    unreadable = sum(cell.status == UNREADABLE for cell in cells)
    if unreadable:
        say(f"{unreadable} cells were left alone: a file that says where they stand cannot be read")
    return EXIT_CELL_FAILED if bad else EXIT_UNDECIDED if unreadable else 0


def _counted(cells: Sequence[CellState]) -> str:
    counts = Counter(cell.status for cell in cells)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
