"""GPU-hours: what a submission may cost at most, what earlier cells let expect, and a limit on it.

One rank is one GPU; where there are none, the hours are those of groups of CPU cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.config.site import Site
from jobs.slurm.arrays import Array, NodeLayout
from train.errors import ConfigError

#: An estimate is trusted this far: queues differ, nodes differ, and cells are restarted.
MARGIN = 1.5


@dataclass(frozen=True)
class Part:
    """GPU-hours of one shape."""

    shape: NodeLayout
    jobs: int
    cells: int
    at_most: float
    expected: float  # of the cells whose time is known
    unknown: int  # cells whose time is not


@dataclass(frozen=True)
class Cost:
    """GPU-hours of a submission, in parts by shape, the dearest first."""

    parts: tuple[Part, ...]

    @property
    def jobs(self) -> int:
        return sum(part.jobs for part in self.parts)

    @property
    def cells(self) -> int:
        return sum(part.cells for part in self.parts)

    @property
    def at_most(self) -> float:
        """All jobs until their time limits: what Slurm may charge for these jobs.

        A cell that is not done by then goes on in another job, which costs anew.
        """
        return sum(part.at_most for part in self.parts)

    @property
    def expected(self) -> float | None:
        """From the times of earlier cells; None where no cell's time is known."""
        known = sum(part.cells - part.unknown for part in self.parts)
        return sum(part.expected for part in self.parts) if known else None

    @property
    def unknown(self) -> int:
        return sum(part.unknown for part in self.parts)


def gpu_hours(arrays: Iterable[Array], seconds: Mapping[str, float | None], site: Site) -> Cost:
    """``seconds``: estimated wall time by cell id; None or absent where it is not known.

    Whole nodes count where the site gives whole nodes only (exclusive).
    """
    found: dict[NodeLayout, list[Array]] = {}
    for array in arrays:
        found.setdefault(array.shape, []).append(array)
    parts = [_part(shape, same, seconds, site) for shape, same in found.items()]
    return Cost(tuple(sorted(parts, key=lambda part: -part.at_most)))


def _part(
    shape: NodeLayout, arrays: Sequence[Array], seconds: Mapping[str, float | None], site: Site
) -> Part:
    gpus = charged(shape, site)
    cells = [cell for array in arrays for unit in array.units for cell in unit]
    known = [known for cell in cells if (known := seconds.get(cell)) is not None]
    return Part(
        shape=shape,
        jobs=sum(len(array.units) for array in arrays),
        cells=len(cells),
        at_most=sum(gpus * array.minutes * len(array.units) for array in arrays) / 60,
        expected=gpus * sum(known) / 3600,
        unknown=len(cells) - len(known),
    )


def charged(shape: NodeLayout, site: Site) -> int:
    """GPUs that a job keeps from others."""
    each = shape.ranks_per_node
    return shape.nodes * (max(each, site.ranks_per_node) if site.exclusive else each)


def check_budget(limit: float, cost: Cost, site: Site) -> None:
    """``limit``: BUDGET, in GPU-hours.

    What counts is the bound, because nothing else is certain; where the time of every cell is known
    from earlier ones, it is 1.5 times the estimate instead.

    Raises:
        ConfigError: the sweep would exceed it; with both numbers, and what to cut.
    """
    expected = cost.expected
    complete = expected is not None and cost.unknown == 0
    counted = expected * MARGIN if complete and expected is not None else cost.at_most
    if counted <= limit:
        return
    if complete:
        why = f"{MARGIN:g} x the estimate of {hours(expected)} from earlier cells"
        why += f"; {hours(cost.at_most)} if all jobs ran until their time limits"
    else:
        why = f"{cost.jobs:,} jobs until their time limits"
        why += f"; the time of {cost.unknown:,} of {cost.cells:,} cells is not known, so the bound "
        why += "counts"
    raise ConfigError(
        "\n  ".join(
            [
                f"the sweep may use {hours(counted)} GPU-hours ({why}), and BUDGET allows "
                f"{hours(limit)}; nothing was submitted. To cut:",
                *_cuts(cost, site, complete),
                f"or allow it: BUDGET={_rounded_up(counted)}",
            ]
        )
    )


def _cuts(cost: Cost, site: Site, complete: bool) -> list[str]:
    dearest = cost.parts[0]
    share = dearest.at_most / cost.at_most
    lines = [
        f"the dearest: gpus={dearest.shape.size}, {dearest.cells:,} cells in {dearest.jobs:,} jobs "
        f"on {dearest.shape}: {hours(dearest.at_most)} GPU-hours of the bound, {share:.0%} of it",
        "fewer seeds, epochs or techniques, or a smaller data_fraction, in the sweep's file",
    ]
    if not complete:
        lines.append(
            f"time_min of the site (now {site.time_min}) if cells need less: a cell that is not "
            "done by then goes on in another job"
        )
    if site.exclusive and any(p.shape.ranks_per_node < site.ranks_per_node for p in cost.parts):
        lines.append("exclusive in the site: whole nodes are charged, used or not")
    return lines


def hours(value: float | None) -> str:
    """GPU-hours to three digits or whole."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rounded_up(value: float) -> str:
    return f"{int(value) + 1}"
