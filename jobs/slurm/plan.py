"""The part of a plan that is Slurm's: arrays, GPU-hours, the exact scripts and launch lines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from jobs.clock import clock
from jobs.sites import NamedSite
from jobs.slurm.budget import Cost, charged, hours
from jobs.slurm.units import Array, waves


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
            str(array.parallel),
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
    wave = waves(arrays, limit)
    if wave.later:
        rest = _count(sum(len(array.units) for array in wave.later), "job")
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
        lines.append(f"which runs, for {first.units[0].cells[0]} and each other cell:")
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
    return sum(len(unit.cells) for unit in array.units)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
