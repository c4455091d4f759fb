"""The cells of a sweep as a person reads them: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.cell.state import NOT_SUBMITTED, RUNNING, UNKNOWN, WAITING, CellState
from jobs.messages import clock
from jobs.plan.differences import common_start
from train.config.plan import epochs_to_train
from train.record.run import GOOD

#: Different reasons that are spelled out below a table.
MAX_REASONS = 5
MIN_ROWS = 5
#: Lines of a terminal that the table itself does not get: title, header, reasons, the prompt.
OTHER_LINES = 6 + 2 * MAX_REASONS
#: Columns that the name of the cell gives way to, and the least width of each.
COLUMNS = {"state": 9, "epoch": 5, "loss": 6, "accuracy": 8, "images/s": 8, "time": 5}
MAX_WIDTH = 16
#: On fewer columns names lose what all of them begin with, and nodes are left out.
WIDE = 110


def title(cells: Sequence[CellState]) -> str:
    """12 of 40 cells done: 11 completed, 1 diverged; 8 running; 20 waiting"""
    count = Counter(cell.state for cell in cells)
    good = [f"{count[status]} {status}" for status in sorted(GOOD) if count[status]]
    rest = [f"{number} {state}" for state, number in count.most_common() if state not in GOOD]
    done = sum(count[status] for status in GOOD)
    head = f"{done} of {len(cells)} cells done" + (f": {', '.join(good)}" if good else "")
    return "; ".join([head, *rest])


def reasons(cells: Sequence[CellState], *, sweep: str) -> list[str]:
    """Why cells wait and how they ended, equal reasons once, the commonest first.

    ``sweep``: as SWEEP= names it."""
    groups: dict[tuple[str, str], list[CellState]] = {}
    for cell in cells:
        if cell.why and cell.state not in (*GOOD, NOT_SUBMITTED):
            reason = cell.cause or cell.why.replace(cell.job or cell.name, "_")
            groups.setdefault((cell.state, reason), []).append(cell)
    lines = []
    for same in sorted(groups.values(), key=len, reverse=True)[:MAX_REASONS]:
        one = same[0]
        starts = sorted(cell.expected_start for cell in same if cell.expected_start)
        more = f" (the first is expected to start at {starts[0]})" if starts else ""
        more += f" (make logs SWEEP={shlex.quote(sweep)} CELL={one.name})" if one.cause else ""
        who = one.name if len(same) == 1 else f"{len(same)} cells"
        lines.append(f"{who} {one.state}: {one.why}{more}")
    if len(groups) > MAX_REASONS:
        lines.append(f"and {len(groups) - MAX_REASONS} other reasons")
    return lines


def numbers(cell: CellState) -> dict[str, str]:
    """Where the cell's training is, by column; '' where there is nothing yet."""
    last, planned = cell.last_epoch(), epochs_to_train(cell.config)
    shown = dict.fromkeys(COLUMNS, "") | {"state": cell.state, "time": clock(cell.seconds())}
    if last is not None:
        shown["epoch"] = of_all(last.epoch, planned)
        shown["loss"] = "" if last.train_loss is None else f"{last.train_loss:.4f}"
        accuracy = last.validation_accuracy
        shown["accuracy"] = "" if accuracy is None else f"{accuracy:.4f}"
        shown["images/s"] = f"{last.images / max(last.train_s, 1e-9):,.0f}"
    elif cell.active:
        shown["epoch"] = of_all(0, planned)
        shown["images/s"] = cell.phase() or ("starting" if cell.state == RUNNING else "")
    return shown


def of_all(epoch: int, epochs: int | None) -> str:
    """3/12, or 3 alone where it takes the data to know the number of all."""
    return str(epoch) if epochs is None else f"{epoch}/{epochs}"


def line(cell: CellState) -> str:
    """One cell in words."""
    facts = numbers(cell) | {"job": cell.job, "on": cell.nodes}
    state = facts.pop("state")
    return ", ".join([f"{state}", *(f"{name} {text}" for name, text in facts.items() if text)])


def lines(cells: Sequence[CellState], trouble: str | None, *, sweep: str) -> Iterator[str]:
    """All of a sweep without a terminal, one line each."""
    yield title(cells)
    yield from (f"  {cell.name}: {line(cell)}" for cell in cells)
    yield from reasons(cells, sweep=sweep)
    if trouble:
        yield trouble


def table(
    cells: Sequence[CellState],
    trouble: str | None,
    console: Console,
    *,
    sweep: str,
    left: str = "",
    full_name: Callable[[CellState], str] = lambda cell: cell.name,
) -> RenderableType:
    """As many cells as the terminal has room for, below them the reasons and Slurm's trouble.

    ``left``: the time until all is done, in words; ``full_name``: of a cell, where there is room.
    """
    shown = choose(cells, max(MIN_ROWS, console.height - OTHER_LINES))
    wide, submitted = console.width >= WIDE, any(cell.job for cell in cells)
    start = "" if wide else common_start([cell.name for cell in cells])
    body = Table(box=None, pad_edge=False)
    body.add_column("cell", no_wrap=True, overflow="ellipsis")
    for column, least in (COLUMNS | ({"job": 4} if submitted else {})).items():
        side: Literal["left", "right"] = "left" if column in ("state", "job") else "right"
        body.add_column(column, justify=side, no_wrap=True, min_width=least, max_width=MAX_WIDTH)
    if wide and submitted:
        body.add_column("nodes", no_wrap=True, overflow="ellipsis")
    for cell in shown:
        name = full_name(cell) if wide else cell.name
        texts = [f"..{name.removeprefix(start)}" if start else name, *numbers(cell).values()]
        texts += [cell.job or ""] if submitted else []
        texts += [cell.nodes or ""] if wide and submitted else []
        body.add_row(*map(Text, texts))
    below = [f"... and {len(cells) - len(shown)} more cells"] if len(shown) < len(cells) else []
    below += reasons(cells, sweep=sweep) + ([trouble] if trouble else [])
    return Group(Text(title(cells) + left, style="italic"), body, *map(Text, below))


def choose(cells: Sequence[CellState], rows: int) -> list[CellState]:
    """At most ``rows`` cells: first those that run, then those that ended badly, that wait, that
    are done; in the sweep's order."""

    def rank(index: int) -> int:
        cell = cells[index]
        if cell.active:
            return 0
        if cell.state in (WAITING, UNKNOWN):
            return 2
        return {NOT_SUBMITTED: 3}.get(cell.state, 4 if cell.done else 1)

    return [cells[index] for index in sorted(sorted(range(len(cells)), key=rank)[:rows])]
