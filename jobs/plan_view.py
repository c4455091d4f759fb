"""The plan as text: the table, the launch lines, and what is to run in how much time."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.console import Console

from jobs.clock import clock
from jobs.plan import PlanRow
from jobs.plan_remarks import summary

#: Of what sets cells apart: columns of their own; a target's words are told below the table.
_TOLD = {"batch", "steps_per_epoch", "epochs", "base_lr", "target"}


def render_plan(
    rows: Sequence[PlanRow],
    lines: Mapping[str, Sequence[str]],
    console: Console,
    done: Collection[str] = (),
) -> None:
    """Print the table, the launch lines, and last what is to run and how long it takes.

    ``lines``: cell id -> tokens; printed unwrapped, quoted for a shell. ``done``: ids of the cells
    that have a good record and are skipped.
    """
    table = _table(rows, done)
    if console.is_terminal and max(map(len, table)) > console.width:
        table = _table(rows, done, shorten=True)
    # a file or a pipe has no width to keep to: nothing is cut
    console.print("\n".join(table), markup=False, highlight=False, soft_wrap=True)
    shown = [row.cell_id for row in rows if row.cell_id in lines]
    if shown:
        console.print("\nlaunch lines, one such process per rank:", highlight=False)
    for name in shown:
        text = f"  {name}:\n    {shlex.join(lines[name])}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print()
    for text in summary(rows, done):
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(
    rows: Sequence[PlanRow], done: Collection[str] = (), *, shorten: bool = False
) -> list[str]:
    """Lines of aligned columns, ids to the left, numbers to the right.

    Plain text: a rich table of two thousand rows takes seconds. ``shorten``: leave out data set and
    model of the ids where all cells share them.
    """
    words = common_start([row.cell_id for row in rows]) if shorten else ""
    keys = [key for key, _ in rows[0].apart if key not in _TOLD] if rows else []
    head = ["cell", *keys, "gpus", "batch", "steps/epoch", "epochs", "steps", "peak lr", "time"]
    above = [""] * len(head)
    if words:
        at = head.index("steps/epoch")
        above[at], head[at] = "steps", "/epoch"
    body = [
        (
            f"..{row.cell_id.removeprefix(words)}" if words else row.cell_id,
            *(dict(row.apart)[key] for key in keys),
            str(row.gpus),
            _batch(row),
            f"{row.steps_per_epoch:,}",
            f"{row.epochs:,}",
            f"{row.total_steps:,}",
            f"{row.lr:.4g}",
            _time(row, done),
        )
        for row in rows
    ]
    lines = [*([above] if words else []), head, *body]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    gap = " " if words else "  "
    return [gap.join(_aligned(line, widths)).rstrip() for line in lines]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    numbers = zip(cells[1:], widths[1:], strict=True)
    return [cells[0].ljust(widths[0]), *(text.rjust(width) for text, width in numbers)]


def common_start(cell_ids: Iterable[str]) -> str:
    """Data set and model of the ids, where all cells share them; else ''."""
    starts = {"-".join(cell_id.split("-")[:2]) + "-" for cell_id in cell_ids}
    return starts.pop() if len(starts) == 1 else ""


def _batch(row: PlanRow) -> str:
    grown = row.last_batch != row.global_batch
    return f"{row.global_batch:,}" + (f"-{row.last_batch:,}" if grown else "")


def _time(row: PlanRow, done: Collection[str]) -> str:
    if row.cell_id in done:
        return "done"
    return "?" if row.seconds is None else f"~{clock(row.seconds)}"
