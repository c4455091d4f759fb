"""What a person sees of a sweep: before it runs, while cells run, and when it is over."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property

from rich.console import Console, RenderableType
from rich.live import Live

from jobs.cell.state import FORCED, NEW, RUNNING, UNKNOWN, WAITING, CellState, recorded
from jobs.config.sweep import Sweep
from jobs.messages import EXIT_CELL_FAILED, EXIT_UNDECIDED, say
from jobs.plan.differences import apart, in_words
from jobs.table import MAX_REASONS, line, reasons, table, title
from train.record.run import GOOD

#: Without a terminal, until a summary is printed again: at first, then twice as long, at most.
FIRST_S, LONGEST_S = 30.0, 600.0
#: On a terminal, between two drawings of the table.
DRAW_S = 1.0


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
        self._shown, self._next, self._period_s = "", 0.0, FIRST_S

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            # drawn by each look, since drawing reads the files of the cells that are shown
            self._live = Live(console=self._console, get_renderable=self.table, auto_refresh=False)
            self._live.start(refresh=True)
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
        if self._live is None:
            self._next = self._next or time.monotonic() + FIRST_S
            number = list(self.cells).index(cell.name) + 1
            how = " (going on from its checkpoint)" if cell.resume else ""
            how = " by an earlier make sweep, waiting for it" if cell.status == RUNNING else how
            self.say(f"[{number}/{len(self.cells)}] {self._names[cell.name]}: started{how}")

    def update(self, cells: Sequence[CellState], trouble: str | None) -> None:
        """Where cells stand now; ``trouble``: why that is not known."""
        before, self.cells = self.cells, self.cells | {cell.name: cell for cell in cells}
        changed = [cell for cell in cells if cell.alive and cell.state != before[cell.name].state]
        if self._live is None:
            for cell in changed:
                self.say(f"    {cell.name}: {line(cell)}")
            if bool(trouble) != bool(self.trouble):
                self.say(f"    {trouble or 'there is an answer again'}")
        self.trouble = trouble
        self.tick()

    def tick(self) -> None:
        """Some time has passed: draw the table, or print a summary, when it is due."""
        now = time.monotonic()
        if now < self._next:
            return
        if self._live is not None:
            self._next = now + DRAW_S
            with contextlib.suppress(OSError):  # a terminal that is gone must not end a sweep
                self._live.refresh()
            return
        self._next = now + self._period_s
        self._period_s = min(2 * self._period_s, LONGEST_S)
        cells = list(self.cells.values())
        active = [cell for cell in cells if cell.active]
        below = [f"{cell.name}: {line(cell)}" for cell in active if len(active) <= MAX_REASONS]
        waiting = [cell for cell in cells if cell.alive and cell.state in (WAITING, UNKNOWN)]
        below += reasons(waiting, self.trouble, sweep=self._sweep)
        text = "\n    ".join([title(cells), *below])
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
            self.say(f"    {cell.name}: {line(now)}{words}")
        elif status not in GOOD:
            self.say(f"{cell.name}: {status}{words}")

    def table(self) -> RenderableType:
        return table(
            list(self.cells.values()), self.trouble, self._console,
            sweep=self._sweep, names=self._names,
        )  # fmt: skip

    @cached_property
    def _names(self) -> dict[str, str]:
        """Of the cells, with what their ids do not say: a framework, a momentum."""
        differ = apart([cell.config for cell in self.cells.values()])
        words = {name: in_words(settings) for name, settings in differ.items()}
        return {name: f"{name} ({said})" if said else name for name, said in words.items()}


def say_standing(wanted: Sweep, cells: Sequence[CellState]) -> None:
    """What a sweep does about its cells, before it begins."""
    done = [cell for cell in cells if cell.done]
    to_run = sum(cell.to_run and not cell.alive for cell in cells)
    say(f"{wanted.name}: {wanted.title}: {len(cells)} cells, {to_run} to run")
    for remark in wanted.remarks:
        say(remark)
    if done:
        what = "nothing to train" if len(done) == len(cells) else "these are skipped"
        say(f"good records are there already ({_counted(done)}): {what}; FORCE=1 runs them again")
    for cell in cells:
        if not (cell.done or cell.alive) and cell.status not in (NEW, FORCED):
            again = "goes on from its checkpoint" if cell.resume else "is run again"
            again = "is left alone" if cell.left_alone else again
            how = {RUNNING: "waiting for its end"}
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
    left = sum(cell.left_alone for cell in cells)
    if left:
        say(f"{left} cells were left alone: their files cannot be used, or others may run them")
    return EXIT_CELL_FAILED if bad else EXIT_UNDECIDED if left else 0


def _counted(cells: Sequence[CellState]) -> str:
    counts = Counter(cell.state for cell in cells)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
