"""Arrays: cells that ask for the same nodes and time; each element runs one cell, or with packing
several.

Packed cells are a block of a randomised block design: cells that differ in their technique only run
one after another on the same nodes, in an order that was drawn. A slow node or a busy hour then
meets all techniques alike, and is not taken for a difference between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeVar

from jobs.config.site import Site
from train.config.run import RunConfig
from train.errors import ConfigError


@dataclass(frozen=True)
class NodeLayout:
    """Equal nodes; reports call ``size`` the number of GPUs."""

    nodes: int
    ranks_per_node: int

    @property
    def size(self) -> int:
        return self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        ranks = "1 rank" if self.ranks_per_node == 1 else f"{self.ranks_per_node} ranks"
        return f"{nodes} x {ranks}"


def shape_of(gpus: int, site: Site) -> NodeLayout:
    """As few nodes as hold ``gpus`` ranks, with equally many on each.

    Raises:
        ConfigError: the ranks cannot be spread equally, or need more nodes than a job may have.
    """
    nodes = math.ceil(gpus / site.ranks_per_node)
    if site.max_nodes is not None and nodes > site.max_nodes:
        most = site.max_nodes * site.ranks_per_node
        raise ConfigError(
            f"gpus={gpus} needs {nodes} nodes with up to {_ranks(site)} each, and the site allows "
            f"a job {site.max_nodes} (max_nodes): use at most gpus={most}"
        )
    if gpus % nodes:
        near = " or ".join(f"gpus={count}" for count in _nearest(gpus, site))
        raise ConfigError(
            f"gpus={gpus} cannot be spread equally: a node of the site holds {_ranks(site)}, and "
            f"{nodes} nodes do not divide {gpus}; nearest: {near}"
        )
    return NodeLayout(nodes, gpus // nodes)


def _ranks(site: Site) -> str:
    return "1 rank" if site.ranks_per_node == 1 else f"{site.ranks_per_node} ranks"


def _nearest(gpus: int, site: Site) -> list[int]:
    """The next possible counts below and above."""
    most = math.inf if site.max_nodes is None else site.max_nodes * site.ranks_per_node
    # whole nodes always fit, so both searches end within one node's ranks
    below = next(count for count in range(gpus - 1, 0, -1) if _fits(count, site))
    above = next(count for count in range(gpus + 1, gpus * 2 + 1) if _fits(count, site))
    return [below, above] if above <= most else [below]


def _fits(gpus: int, site: Site) -> bool:
    return gpus % math.ceil(gpus / site.ranks_per_node) == 0


T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class ArrayTask:
    """Cells that one array element runs one after another."""

    cells: tuple[str, ...]  # ids, in the order in which they run
    shape: NodeLayout
    minutes: int  # time limit of the job


@dataclass(frozen=True)
class Array:
    """One call of sbatch: one element per unit, a plain job where there is only one."""

    shape: NodeLayout
    units: tuple[ArrayTask, ...]
    minutes: int
    parallel: int  # elements that run at once


class Waves(NamedTuple):
    now: tuple[Array, ...]
    later: tuple[Array, ...]


def units_of(
    configs: Iterable[RunConfig], site: Site, *, pack: int = 1, seed: int = 0
) -> tuple[ArrayTask, ...]:
    """Cells in the order of the sweep; with ``pack`` up to that many of one shape in each unit.

    Cells of one block (same data, model, ranks and seed) stay together where they fit; a block of
    more than ``pack`` cells is cut into parts of nearly equal size. ``seed`` draws the order.

    Raises:
        ConfigError: counts of ranks that do not fit the site, all of them in one message.
    """
    cells = list(configs)
    shapes = _shapes(cells, site)
    if pack == 1:
        return tuple(_unit([config], shapes[config.gpus], site) for config in cells)
    return tuple(
        _unit(part, shape, site)
        for shape, members in _grouped(cells, lambda config: shapes[config.gpus]).items()
        for part in _packed(members, pack, seed)
    )


def arrays_of(units: Iterable[ArrayTask], site: Site) -> tuple[Array, ...]:
    """One array for each shape and time limit, cut where the site's limit on arrays is reached."""
    return tuple(
        Array(shape, tuple(part), minutes, min(site.array_parallel, len(part)))
        for (shape, minutes), same in _grouped(units, lambda u: (u.shape, u.minutes)).items()
        for part in _cut(same, site.array_limit)
    )


def waves(arrays: Iterable[Array], room: int | None) -> Waves:
    """What fits into a queue that takes ``room`` more jobs (elements counted), and what waits.

    ``room``: None where the site sets no limit; an array that fits in part is cut.
    """
    now: list[Array] = []
    later: list[Array] = []
    left = room
    for array in arrays:
        count = len(array.units) if left is None else max(0, min(left, len(array.units)))
        left = None if left is None else left - count
        for units, wave in ((array.units[:count], now), (array.units[count:], later)):
            if units:
                parallel = min(array.parallel, len(units))
                wave.append(replace(array, units=units, parallel=parallel))
    return Waves(tuple(now), tuple(later))


def _shapes(configs: Iterable[RunConfig], site: Site) -> dict[int, NodeLayout]:
    shapes, wrong = {}, []
    for gpus in dict.fromkeys(config.gpus for config in configs):
        try:
            shapes[gpus] = shape_of(gpus, site)
        except ConfigError as error:
            wrong.append(str(error))
    wrong += _spread_wide(configs, shapes, site)
    if wrong:
        raise ConfigError("\n  ".join(["the sweep does not fit the site:", *wrong]))
    return shapes


def _spread_wide(
    configs: Iterable[RunConfig], shapes: Mapping[int, NodeLayout], site: Site
) -> list[str]:
    """Cells that are one process, yet whose ranks are on several nodes of the site."""
    wide = {
        config.gpus: shapes[config.gpus]
        for config in configs
        if config.processes == 1 and config.gpus in shapes and shapes[config.gpus].nodes > 1
    }
    return [
        f"framework mirrored is one process on one node, and gpus={gpus} needs {shape} here: use "
        f"framework multi_worker_mirrored, or at most gpus={site.ranks_per_node}"
        for gpus, shape in wide.items()
    ]


def _unit(configs: Sequence[RunConfig], shape: NodeLayout, site: Site) -> ArrayTask:
    return ArrayTask(tuple(c.cell_id() for c in configs), shape, site.time_min * len(configs))


def _packed(configs: Sequence[RunConfig], pack: int, seed: int) -> list[list[RunConfig]]:
    parts: list[list[RunConfig]] = []
    for block, members in _grouped(configs, _block).items():
        # a draw of an experiment's design, no secret
        Random(f"{seed}/{block}").shuffle(members)  # noqa: S311
        count = -(-len(members) // pack)
        for part in _even(members, count):
            if parts and count == 1 and len(parts[-1]) + len(part) <= pack:
                parts[-1] += part
            else:
                parts.append(part)
    return parts


def _block(config: RunConfig) -> str:
    """What the cells to be compared share; techniques may bring their own batch and epochs.

    The text names the draw, so it stays when cells are added, when some are done, and when the
    contract gains a field (defaults are left out).
    """
    return config.model_dump_json(
        exclude={"technique", "batch_per_rank", "epochs"}, exclude_defaults=True
    )


def _even(items: Sequence[T], parts: int) -> list[list[T]]:
    """Cut in order into ``parts`` whose sizes differ by at most one."""
    bounds = [len(items) * i // parts for i in range(parts + 1)]
    return [list(items[a:b]) for a, b in pairwise(bounds)]


def _cut(items: Sequence[T], most: int) -> list[Sequence[T]]:
    return [items[i : i + most] for i in range(0, len(items), most)]


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Groups in the order in which their first members come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
