"""The cells of a sweep as a person reads them: a table on a terminal, lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.cell.state import ENDING, NOT_SUBMITTED, RUNNING, STARTING, UNKNOWN, WAITING, CellState
from jobs.messages import clock
from jobs.plan.differences import common_start
from train.config.plan import epochs_to_train
from train.errors import make_line
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
#: Who is shown where there is no room for all; 1: those that ended badly.
ORDER = {RUNNING: 0, STARTING: 0, ENDING: 0, WAITING: 2, UNKNOWN: 2, NOT_SUBMITTED: 3}
ORDER |= dict.fromkeys(GOOD, 4)


def title(cells: Sequence[CellState]) -> str:
    """12 of 40 cells done: 11 completed, 1 diverged; 8 running; 20 waiting"""
    count = Counter(cell.state for cell in cells)
    good = [f"{count[status]} {status}" for status in sorted(GOOD) if count[status]]
    rest = [f"{number} {state}" for state, number in count.most_common() if state not in GOOD]
    done = sum(count[status] for status in GOOD)
    head = f"{done} of {len(cells)} cells done" + (f": {', '.join(good)}" if good else "")
    return "; ".join([head, *rest])


def reasons(cells: Sequence[CellState], trouble: str | None = None, *, sweep: str) -> list[str]:
    """Why cells wait and how they ended, equal reasons once, the commonest first; then Slurm's
    trouble.

    ``sweep``: as SWEEP= names it."""
    groups: dict[tuple[str, str], list[CellState]] = {}
    for cell in cells:
        if cell.why and cell.state not in (*GOOD, NOT_SUBMITTED):
            reason = cell.cause or cell.why.replace(cell.job or cell.name, "_")
            groups.setdefault((cell.state, reason), []).append(cell)
    lines = []
    for same in sorted(groups.values(), key=len, reverse=True)[:MAX_REASONS]:
        one = same[0]
        starts = [cell.expected_start for cell in same if cell.expected_start]
        more = ""
        if starts:
            first = min(starts).astimezone()
            more = f" (the first is expected to start at {first:%Y-%m-%d %H:%M %Z})"
        more += f" ({make_line('logs', SWEEP=sweep, CELL=one.name)})" if one.cause else ""
        who = one.name if len(same) == 1 else f"{len(same)} cells"
        lines.append(f"{who} {one.state}: {one.why}{more}")
    if len(groups) > MAX_REASONS:
        lines.append(f"and {len(groups) - MAX_REASONS} other reasons")
    return [*lines, trouble] if trouble else lines


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
    state = facts.pop("state") or ""
    return ", ".join([state, *(f"{name} {text}" for name, text in facts.items() if text)])


def lines(cells: Sequence[CellState], trouble: str | None, *, sweep: str) -> Iterator[str]:
    """All of a sweep without a terminal, one line each."""
    yield title(cells)
    yield from (f"  {cell.name}: {line(cell)}" for cell in cells)
    yield from reasons(cells, trouble, sweep=sweep)


def table(
    cells: Sequence[CellState],
    trouble: str | None,
    console: Console,
    *,
    sweep: str,
    names: Mapping[str, str] | None = None,
) -> RenderableType:
    """As many cells as the terminal has room for, below them the reasons and Slurm's trouble.

    ``names``: of the cells, where there is room.
    """
    rows = max(MIN_ROWS, console.height - OTHER_LINES)
    by_rank = sorted(cells, key=lambda cell: ORDER.get(cell.state, 1))
    chosen = {cell.name for cell in by_rank[:rows]}
    shown = [cell for cell in cells if cell.name in chosen]  # in the sweep's order
    wide = console.width >= WIDE
    start = "" if wide else common_start([cell.name for cell in cells])
    body = Table(box=None, pad_edge=False)
    body.add_column("cell", no_wrap=True)
    for column, least in COLUMNS.items():
        body.add_column(
            column, justify="left" if column == "state" else "right",
            no_wrap=True, min_width=least, max_width=MAX_WIDTH,
        )  # fmt: skip
    if any(cell.job for cell in cells):
        body.add_column("job", no_wrap=True, min_width=4, max_width=MAX_WIDTH)
        if wide:
            body.add_column("nodes", no_wrap=True)
    for cell in shown:
        name = names[cell.name] if wide and names else cell.name
        name = f"..{name.removeprefix(start)}" if start else name
        texts = [name, *numbers(cell).values(), cell.job or "", cell.nodes or ""]
        body.add_row(*map(Text, texts[: len(body.columns)]))
    more = [f"... and {len(cells) - len(shown)} more cells"] if len(shown) < len(cells) else []
    below = more + reasons(cells, trouble, sweep=sweep)
    return Group(Text(title(cells), style="italic"), body, *map(Text, below))
