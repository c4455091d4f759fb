"""The plan as text: the table, the arrays, batch scripts and launch lines; what is to run, in how
much time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from jobs.config.site import NamedSite
from jobs.messages import clock
from jobs.plan.cost import Cost, charged, hours
from jobs.plan.differences import common_start
from jobs.plan.rows import PlanRow, summary
from jobs.slurm.arrays import Array

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


def _batch(row: PlanRow) -> str:
    grown = row.last_batch != row.global_batch
    return f"{row.global_batch:,}" + (f"-{row.last_batch:,}" if grown else "")


def _time(row: PlanRow, done: Collection[str]) -> str:
    if row.cell_id in done:
        return "done"
    return "?" if row.seconds is None else f"~{clock(row.seconds)}"


def render_slurm_plan(
    arrays: Sequence[Array],
    named: NamedSite,
    console: Console,
    *,
    cost: Cost,
    script: Callable[[Array], str],
    launch: Callable[[Array], Sequence[str]],
    room: int | None = None,
) -> None:
    """Print what would be submitted. Asks Slurm nothing.

    ``script``: the text that sbatch would get; ``launch``: the tokens that start a cell in it; both
    are shown once for each shape and time limit. ``room``: jobs that the queue takes now.
    """
    # a file or a pipe has no width to keep to: nothing is cut
    console.print(array_table(arrays, named), crop=console.is_terminal)
    console.print()
    for text in [*slurm_summary(arrays, named, cost, room), *_scripts(arrays, script, launch)]:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def array_table(arrays: Sequence[Array], named: NamedSite) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = ("array", "nodes", "ranks\n/node", "jobs", "cells", "time\nlimit", "at\nonce")
    for name in (*columns, "GPU-hours\nat most"):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    for number, array in enumerate(arrays, 1):
        bound = charged(array.shape, named.site) * array.minutes * len(array.units) / 60
        table.add_row(
            str(number),
            str(array.shape.nodes),
            str(array.shape.ranks_per_node),
            f"{len(array.units):,}",
            f"{_cells(array):,}",
            clock(array.minutes * 60),
            str(min(named.site.array_parallel, len(array.units))),
            hours(bound),
        )
    return table


def slurm_summary(
    arrays: Sequence[Array], named: NamedSite, cost: Cost, room: int | None = None
) -> list[str]:
    """Where it would run, how often sbatch is called, what it costs, what has to wait."""
    site = named.site
    title = f" ({site.title})" if site.title else ""
    where = f"partition {site.partition}" if site.partition else "the default partition"
    lines = [f"site {named.name}{title}: {where}, {named.source}"]
    if not arrays:
        return [*lines, "nothing to submit"]
    calls = "1 call" if len(arrays) == 1 else f"{len(arrays)} calls"
    lines.append(
        f"{calls} of sbatch for {_count(cost.jobs, 'job')} with {_count(cost.cells, 'cell')}"
    )
    lines.append(_cost_line(cost, whole_nodes=site.exclusive))
    limit = site.submit_limit if room is None else room
    if limit is not None and cost.jobs > limit:
        rest = _count(cost.jobs - limit, "job")
        lines.append(f"queue: {limit} jobs fit now; {rest} are submitted when there is room")
    return lines


def _cost_line(cost: Cost, *, whole_nodes: bool) -> str:
    basis = "whole nodes, " if whole_nodes else ""
    text = f"GPU-hours: at most {hours(cost.at_most)} ({basis}every job once until its time limit)"
    if cost.expected is None:
        return text + "; never run here, so there is nothing to estimate from"
    text += f", about {hours(cost.expected)} going by earlier cells"
    return text + (f", {_count(cost.unknown, 'cell')} left out" if cost.unknown else "")


def _scripts(
    arrays: Sequence[Array],
    script: Callable[[Array], str],
    launch: Callable[[Array], Sequence[str]],
) -> list[str]:
    numbers: dict[tuple[object, int], list[int]] = {}
    for number, array in enumerate(arrays, 1):
        numbers.setdefault((array.shape, array.minutes), []).append(number)
    lines = []
    for same in numbers.values():
        first = arrays[same[0] - 1]
        which = f"array {same[0]}, {first.shape}"
        if len(same) > 1:
            which = f"arrays {_ranges(same)}, {first.shape}; this is array {same[0]}, the rest "
            which += "differ in size and folder"
        lines.append(f"\nbatch script of {which}:")
        lines += [f"    {line}".rstrip() for line in script(first).rstrip().splitlines()]
        lines.append(f"which runs, for {first.units[0][0]} and each other cell:")
        lines.append(f"    {shlex.join(launch(first))}")
    return lines


def _ranges(numbers: Sequence[int]) -> str:
    """1-3, 7: numbers that follow each other as a range."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _cells(array: Array) -> int:
    return sum(len(unit) for unit in array.units)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
