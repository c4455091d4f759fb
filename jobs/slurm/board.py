"""What a person sees of a sweep on a cluster: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jobs.cell.failure import grouped, read_more
from jobs.cell.state import Standing
from jobs.display import WIDE, of_all
from jobs.messages import clock
from jobs.plan.differences import common_start
from jobs.slurm.reconcile import Place
from jobs.slurm.status import (
    NOT_SUBMITTED,
    UNKNOWN,
    WAITING,
    CellState,
    counts,
    read_life,
    survey_places,
    survey_slurm,
)
from jobs.slurm.submissions import RunNote
from train.record.run import GOOD

PLAIN_PERIOD_S = 30.0
#: Different reasons and cells that are spelled out below a table.
MAX_REASONS = 5
LEAST_ROWS = 5
#: Columns beside the cell's name and its nodes, and the least width of each.
COLUMNS = {"state": 9, "epoch": 5, "loss": 6, "accuracy": 8, "images/s": 8, "time": 5, "job": 4}
#: Lines of a terminal that the table itself does not get: title, header, reasons, the prompt.
_OTHER_LINES = 6 + 2 * MAX_REASONS


def title(states: Sequence[CellState]) -> str:
    """12 of 40 cells done: 11 completed, 1 diverged; 8 running; 20 waiting"""
    found = counts(states)
    good = [f"{found[status]} {status}" for status in sorted(GOOD) if found[status]]
    rest = [f"{count} {state}" for state, count in found.most_common() if state not in GOOD]
    done = sum(found[status] for status in GOOD)
    head = f"{done} of {len(states)} cells done" + (f": {', '.join(good)}" if good else "")
    return "; ".join([head, *rest])


def interesting(states: Sequence[CellState], rows: int) -> tuple[list[CellState], int]:
    """At most ``rows`` cells, those first that run, then those that ended badly, that wait, that
    are done, in the sweep's order; and how many are left out."""
    chosen = sorted(range(len(states)), key=lambda at: _rank(states[at]))[:rows]
    return [states[at] for at in sorted(chosen)], len(states) - len(chosen)


def _rank(state: CellState) -> int:
    if state.active:
        return 0
    if state.state in (WAITING, UNKNOWN):
        return 2
    return {NOT_SUBMITTED: 3}.get(state.state, 4 if state.state in GOOD else 1)


def reasons(states: Sequence[CellState], *, sweep: str = "") -> list[str]:
    """Why cells wait and how they ended, equal words told once, the commonest first.

    ``sweep``: as SWEEP= names it."""
    told = [s for s in states if s.why and s.state not in GOOD]
    groups = grouped(told, lambda state: (state.state, _general(state)))
    lines = []
    for same in groups[:MAX_REASONS]:
        one = same[0]
        starts = sorted(s.expected_start for s in same if s.expected_start)
        more = f" (the first is expected to start at {starts[0]})" if starts else ""
        more += f" ({read_more(sweep, one.cell)})" if one.cause else ""
        who = one.cell if len(same) == 1 else f"{len(same)} cells"
        lines.append(f"{who} {one.state}: {one.why}{more}")
    if len(groups) > MAX_REASONS:
        lines.append(f"and {len(groups) - MAX_REASONS} other reasons: make logs CELL=... tells one")
    return lines


def _general(state: CellState) -> str:
    """The words without what differs from job to job."""
    if state.cause:
        return state.cause
    return state.why.replace(state.job, "JOB") if state.job else state.why


def numbers(state: CellState) -> tuple[str, str, str, str]:
    """epoch, loss, accuracy, images/s as text; '' where there is nothing yet."""
    epoch = of_all(state.epoch, state.epochs) if state.epoch or state.active else ""
    loss = "" if state.train_loss is None else f"{state.train_loss:.4f}"
    accuracy = "" if state.validation_accuracy is None else f"{state.validation_accuracy:.4f}"
    rate = "" if state.images_per_s is None else f"{state.images_per_s:,.0f}"
    return epoch, loss, accuracy, rate or (state.phase or "")


def table(
    states: Sequence[CellState],
    trouble: str | None,
    rows: int,
    *,
    width: int = WIDE,
    sweep: str = "",
) -> RenderableType:
    """The cells (at most ``rows`` of them), below them the reasons, and what Slurm does not say.

    On less than WIDE columns the names lose what all of them begin with, and nodes are left out.
    """
    shown, left = interesting(states, max(LEAST_ROWS, rows))
    start = common_start([state.cell for state in states]) if width < WIDE else ""
    found = Table(box=None, pad_edge=False)
    found.add_column("cell", no_wrap=True, overflow="ellipsis")
    for name, least in COLUMNS.items():
        side: Literal["left", "right"] = "left" if name in ("state", "job") else "right"
        found.add_column(name, justify=side, no_wrap=True, min_width=least, max_width=16)
    if width >= WIDE:
        found.add_column("nodes", no_wrap=True, overflow="ellipsis")
    for state in shown:
        name = f"..{state.cell.removeprefix(start)}" if start else state.cell
        texts = [name, state.state, *numbers(state), clock(state.seconds), state.job or ""]
        texts += [state.nodes or ""] if width >= WIDE else []
        found.add_row(*(Text(text) for text in texts))
    below = [f"... and {left} more cells"] if left else []
    below += reasons(states, sweep=sweep)
    below += [trouble] if trouble else []
    return Group(Text(title(states), style="italic"), found, *(Text(line) for line in below))


def lines(
    states: Sequence[CellState], trouble: str | None, rows: int, *, sweep: str = ""
) -> Iterator[str]:
    """The same without a terminal: one line each."""
    yield title(states)
    shown, left = interesting(states, rows)
    for state in shown:
        yield f"  {state.cell}: {line(state)}"
    if left:
        yield f"  ... and {left} more cells"
    yield from reasons(states, sweep=sweep)
    if trouble:
        yield trouble


def line(state: CellState) -> str:
    """One cell in words."""
    epoch, loss, accuracy, rate = numbers(state)
    facts = {"epoch": epoch, "loss": loss, "accuracy": accuracy, "images/s": rate,
             "time": clock(state.seconds), "job": state.job, "on": state.nodes}  # fmt: skip
    return ", ".join([state.state, *(f"{name} {text}" for name, text in facts.items() if text)])


class Board:
    """All cells of a sweep while it is watched; both displays draw it."""

    def __init__(
        self, cells: Sequence[Standing], notes: Callable[[], Sequence[RunNote]], sweep: str = ""
    ) -> None:
        self._notes = notes
        self.sweep = sweep  # as SWEEP= names it
        self.trouble: str | None = None
        first = survey_slurm([(cell, read_life(cell)) for cell in cells], {}, (), {})
        self.states = {state.cell: state for state in first}

    def update(self, places: Sequence[Place], trouble: str | None) -> None:
        self.trouble = trouble
        for state in survey_places(places, self._notes()):
            self.states[state.cell] = state

    def all(self) -> list[CellState]:
        return list(self.states.values())

    def ended(self, cell: Standing) -> CellState:
        """Its record's word; the job stays as it was last seen."""
        (state,) = survey_slurm([(cell, read_life(cell))], {}, (), {})
        self.states[state.cell] = state
        return state


class LiveBoard:
    """A table that is drawn again and again; cells that ended badly are told above it, too."""

    def __init__(self, board: Board, console: Console) -> None:
        self.board = board
        self._console = console
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=1)

    def __enter__(self) -> LiveBoard:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone must not end a sweep
            self._live.stop()

    def update(self, places: Sequence[Place], trouble: str | None) -> None:
        self.board.update(places, trouble)

    def ended(self, cell: Standing) -> None:
        state = self.board.ended(cell)
        if state.state not in GOOD:
            self.say(f"{state.cell}: {state.state}: {state.why}")

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> RenderableType:
        rows = self._console.height - _OTHER_LINES
        width = self._console.width
        board = self.board
        return table(board.all(), board.trouble, rows, width=width, sweep=board.sweep)


class PlainBoard:
    """One line per event, and every half a minute where all cells stand."""

    def __init__(self, board: Board, out: TextIO) -> None:
        self.board = board
        self._out = out
        self._told = ""
        self._last = float("-inf")

    def update(self, places: Sequence[Place], trouble: str | None) -> None:
        self.board.update(places, trouble)
        if time.monotonic() - self._last < PLAIN_PERIOD_S:
            return
        text = "\n".join(_summary(self.board.all(), trouble))
        if text != self._told:  # a queue that does not move fills no log
            self.say(text)
            self._told = text
        self._last = time.monotonic()

    def ended(self, cell: Standing) -> None:
        state = self.board.ended(cell)
        self.say(f"    {state.cell}: {line(state)}" + (f": {state.why}" if state.why else ""))

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a reader that is gone must not end a sweep
            print(text, file=self._out, flush=True)


def _summary(states: Sequence[CellState], trouble: str | None) -> Iterator[str]:
    yield title(states)
    for state in states:
        if state.active:
            yield f"    {state.cell}: {line(state)}"
    waiting = [state for state in states if state.state in (WAITING, UNKNOWN)]
    yield from (f"    {text}" for text in reasons(waiting))
    if trouble:
        yield f"    {trouble}"
