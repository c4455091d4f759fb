"""GPU-hours: what a submission may cost at most, and what it takes by earlier cells.

One rank is one GPU; where there are none, the hours are those of groups of CPU cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jobs.cell.state import CellState
from jobs.config.site import NamedSite, Site
from jobs.messages import clock, columns
from jobs.plan.estimate import Completed, estimate, known_rates, rate_key
from jobs.slurm.submissions import Array, jobs_at
from train.config.plan import RunPlan

#: An estimate is trusted this far: queues differ, nodes differ, and cells are restarted.
MARGIN = 1.5
#: So many earlier cells tell a time limit, which is this long at least.
LIKE_IT, LEAST_MIN = 3, 10
#: Estimated wall time by cell id; None or absent where it is not known.
Seconds = Mapping[str, float | None]


def time_limits(
    named: NamedSite,
    results: Path,
    plans: Mapping[str, RunPlan],
    todo: Iterable[CellState],
    completed: Completed,
) -> dict[str, int]:
    """Minutes that the jobs of cells may take, by cell id, where earlier cells of the same data,
    model, ranks and batch that ran at this site tell it. A cell whose time was over gets the
    most."""
    site = named.site
    if site.time_min is not None:
        return {}
    rates = known_rates(completed, jobs_at(results, named.name, site.partition))
    limits = {}
    for cell in todo:
        rate = rates.get(key := rate_key(cell.config))
        if rate is None or rate.cells < LIKE_IT or cell.status == "timeout":
            continue
        seconds = estimate(plans[cell.name], {key: rate}).seconds
        assert seconds is not None  # the key is among the rates
        needed = math.ceil((MARGIN * seconds + site.signal_s) / 60)
        limits[cell.name] = min(max(LEAST_MIN, needed), site.max_time_min)
    return limits


def array_lines(arrays: Sequence[Array], seconds: Seconds, named: NamedSite, now: int) -> list[str]:
    """Where the arrays would run, how often sbatch is called, what they cost, what has to wait."""
    site = named.site
    title = f" ({site.title})" if site.title else ""
    where = f"partition {site.partition}" if site.partition else "the default partition"
    line = f"site {named.name}{title}: {where}, {named.file}"
    if not arrays:
        return [line, "nothing to submit"]
    head = ["array", "nodes", "ranks\n/node", "jobs", "time\nlimit", "at\nonce"]
    head.append("GPU-hours\nat most")
    body = [
        (
            str(number),
            str(array.nodes),
            str(array.ranks_per_node),
            f"{len(array.cells):,}",
            clock(array.minutes * 60),
            str(min(array.parallel, len(array.cells))) if number <= now else "later",
            _hours(_cost([array], seconds, site)[0]),
        )
        for number, array in enumerate(arrays, 1)
    ]
    jobs = sum(len(array.cells) for array in arrays)
    counts = f"sbatch calls: {len(arrays)}; jobs: {jobs:,}, one per cell"
    if now < len(arrays):
        counts += f"; {len(arrays) - now} arrays wait for room (array_parallel)"
    lines = [*columns(head, body), "", line, counts, _in_words(arrays, seconds, site)]
    if site.submit_limit is not None and jobs > site.submit_limit:
        lines.append(
            f"queue: {site.submit_limit} jobs fit now; the other {jobs - site.submit_limit:,} are "
            "submitted when there is room"
        )
    return lines


def _in_words(arrays: Sequence[Array], seconds: Seconds, site: Site) -> str:
    most, expected, unknown = _cost(arrays, seconds, site)
    basis = "whole nodes, used or not, " if site.exclusive else ""
    text = f"GPU-hours: at most {_hours(most)} ({basis}every job once until its time limit)"
    if not expected:
        return f"{text}; never run here, so there is nothing to estimate from"
    text += f", about {_hours(expected)} going by earlier cells"
    return f"{text}, {unknown:,} cells left out" if unknown else text


def _cost(arrays: Sequence[Array], seconds: Seconds, site: Site) -> tuple[float, float, int]:
    """GPU-hours at most; those of the cells whose time is known; and how many the others are.

    At most: all jobs until their time limits, which is what Slurm may charge for these jobs. A cell
    that is not done by then goes on in another job, which is charged again.
    """
    most, expected, unknown = 0.0, 0.0, 0
    for array in arrays:
        # whole nodes are kept from others where the site gives whole nodes only
        gpus = array.nodes * (site.ranks_per_node if site.exclusive else array.ranks_per_node)
        times = [seconds.get(cell) for cell in array.cells]
        most += gpus * array.minutes * len(array.cells) / 60
        expected += gpus * sum(time or 0.0 for time in times) / 3600
        unknown += times.count(None)
    return most, expected, unknown


def _hours(value: float) -> str:
    """GPU-hours to three digits or whole."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
