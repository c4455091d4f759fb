"""GPU-hours: what a submission may cost at most, what it takes by earlier cells, and a limit on it.

One rank is one GPU; where there are none, the hours are those of groups of CPU cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.config.site import NamedSite, NodeLayout, Site
from jobs.messages import clock, columns
from jobs.slurm.submissions import Array
from train.errors import ConfigError

#: An estimate is trusted this far: queues differ, nodes differ, and cells are restarted.
MARGIN = 1.5
#: Estimated wall time by cell id; None or absent where it is not known.
Seconds = Mapping[str, float | None]


def array_lines(arrays: Sequence[Array], seconds: Seconds, named: NamedSite) -> list[str]:
    """Where the arrays would run, how often sbatch is called, what they cost, what has to wait."""
    site = named.site
    title = f" ({site.title})" if site.title else ""
    where = f"partition {site.partition}" if site.partition else "the default partition"
    line = f"site {named.name}{title}: {where}, {named.source}"
    if not arrays:
        return [line, "nothing to submit"]
    cells, jobs = len(cells_of(arrays)), sum(len(array.units) for array in arrays)
    lines = [
        *_table(arrays, site),
        "",
        line,
        f"sbatch calls: {len(arrays)}; jobs: {jobs:,}; cells: {cells:,}",
        _in_words(arrays, seconds, site),
    ]
    if site.submit_limit is not None and jobs > site.submit_limit:
        lines.append(
            f"queue: {site.submit_limit} jobs fit now; the other {jobs - site.submit_limit:,} are "
            "submitted when there is room"
        )
    return lines


def check_budget(limit: float, arrays: Sequence[Array], seconds: Seconds, site: Site) -> None:
    """``limit``: BUDGET, in GPU-hours.

    The bound counts, because nothing else is certain; where the time of every cell is known from
    earlier ones, 1.5 times the estimate counts instead.

    Raises:
        ConfigError: the sweep would exceed it; with both numbers, and what to cut.
    """
    expected, unknown = _expected(arrays, seconds, site)
    if expected is None or unknown:
        counted, which = _most(arrays, site), "the bound"
    else:
        counted, which = expected * MARGIN, f"{MARGIN:g} x the estimate"
    if counted <= limit:
        return
    lines = [
        f"the sweep may use {_hours(counted)} GPU-hours, and BUDGET allows {_hours(limit)}; "
        "nothing was submitted:",
        *_table(arrays, site),
        f"{_in_words(arrays, seconds, site)}; {which} counts. To cut:",
        "fewer seeds, epochs or techniques, or a smaller data_fraction, in the sweep's file",
    ]
    if unknown:
        lines.append(
            f"time_min of the site (now {site.time_min}) if cells need less: a cell that is not "
            "done by then goes on in another job"
        )
    if site.exclusive:
        lines.append("exclusive in the site: whole nodes are charged, used or not")
    lines.append(f"or allow it: BUDGET={int(counted) + 1}")
    raise ConfigError("\n  ".join(lines))


def _in_words(arrays: Sequence[Array], seconds: Seconds, site: Site) -> str:
    basis = "whole nodes, " if site.exclusive else ""
    most = _hours(_most(arrays, site))
    text = f"GPU-hours: at most {most} ({basis}every job once until its time limit)"
    expected, unknown = _expected(arrays, seconds, site)
    if expected is None:
        return f"{text}; never run here, so there is nothing to estimate from"
    text += f", about {_hours(expected)} going by earlier cells"
    return f"{text}, {unknown:,} cells left out" if unknown else text


def _table(arrays: Sequence[Array], site: Site) -> list[str]:
    heads = ("array", "nodes", "ranks\n/node", "jobs", "cells", "time\nlimit", "at\nonce")
    body = [
        (
            str(number),
            str(array.shape.nodes),
            str(array.shape.ranks_per_node),
            f"{len(array.units):,}",
            f"{len(cells_of([array])):,}",
            clock(array.minutes * 60),
            str(min(site.array_parallel, len(array.units))),
            _hours(_most([array], site)),
        )
        for number, array in enumerate(arrays, 1)
    ]
    return columns((*heads, "GPU-hours\nat most"), body)


def cells_of(arrays: Sequence[Array]) -> list[str]:
    return [cell for array in arrays for unit in array.units for cell in unit]


def _most(arrays: Sequence[Array], site: Site) -> float:
    """All jobs until their time limits, which is what Slurm may charge for these jobs.

    A cell that is not done by then goes on in another job, which is charged again.
    """
    return sum(_gpus(a.shape, site) * a.minutes * len(a.units) for a in arrays) / 60


def _expected(arrays: Sequence[Array], seconds: Seconds, site: Site) -> tuple[float | None, int]:
    """GPU-hours of the cells whose time is known, None without any; and how many the others are."""
    cells = [(array, cell) for array in arrays for cell in cells_of([array])]
    known = [
        _gpus(array.shape, site) * time / 3600
        for array, cell in cells
        if (time := seconds.get(cell)) is not None
    ]
    return sum(known) if known else None, len(cells) - len(known)


def _gpus(shape: NodeLayout, site: Site) -> int:
    """GPUs that a job keeps from others: whole nodes where the site gives whole nodes only."""
    each = max(shape.ranks_per_node, site.ranks_per_node if site.exclusive else 0)
    return shape.nodes * each


def _hours(value: float) -> str:
    """GPU-hours to three digits or whole."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
