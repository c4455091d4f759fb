"""Arrays: cells that ask for the same nodes and time; each element runs one cell, or with packing
several.

Packed cells are a block of a randomised block design: cells that differ in their technique only run
one after another on the same nodes, in an order that was drawn. A slow node or a busy hour then
meets all techniques alike, and is not taken for a difference between them.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from pydantic import Field

from jobs.config.site import Site
from train.config.frozen import Frozen
from train.config.run import RunConfig
from train.errors import ConfigError


@dataclass(frozen=True)
class NodeLayout:
    """The shape of a job: equal nodes. Reports call ``size`` the number of GPUs."""

    nodes: int
    ranks_per_node: int

    @property
    def size(self) -> int:
        return self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{nodes} x {_ranks(self.ranks_per_node)}"


def shape_of(gpus: int, site: Site) -> NodeLayout:
    """As few nodes as hold ``gpus`` ranks, with equally many on each.

    Raises:
        ConfigError: the ranks cannot be spread equally, or need more nodes than a job may have.
    """
    nodes, each = math.ceil(gpus / site.ranks_per_node), _ranks(site.ranks_per_node)
    if site.max_nodes is not None and nodes > site.max_nodes:
        most = site.max_nodes * site.ranks_per_node
        raise ConfigError(
            f"gpus={gpus} needs {nodes} nodes with up to {each} each, and the site allows a job "
            f"{site.max_nodes} (max_nodes): use at most gpus={most}"
        )
    if gpus % nodes:
        near = " or ".join(f"gpus={count}" for count in _nearest(gpus, site))
        raise ConfigError(
            f"gpus={gpus} cannot be spread equally: a node of the site holds {each}, and {nodes} "
            f"nodes do not divide {gpus}; nearest: {near}"
        )
    return NodeLayout(nodes, gpus // nodes)


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def _nearest(gpus: int, site: Site) -> list[int]:
    """The next possible counts below and above; whole nodes always fit."""
    most = 2 * gpus if site.max_nodes is None else site.max_nodes * site.ranks_per_node
    counts = range(1, min(2 * gpus, most) + 1)
    fit = [count for count in counts if count % math.ceil(count / site.ranks_per_node) == 0]
    at = bisect(fit, gpus)
    return fit[at - 1 : at + 1]


class Array(Frozen):
    """One call of sbatch, planned or noted: an array with an element per unit, or a plain job."""

    job_id: str | None = None  # None: not submitted yet, or nobody lived to write the id down
    units: tuple[tuple[str, ...], ...] = Field(min_length=1)  # cells of each element, in order
    nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    minutes: int = Field(ge=1)  # time limit of an element
    block_seed: int | None = None  # of the random order of cells within packed units

    @property
    def shape(self) -> NodeLayout:
        return NodeLayout(self.nodes, self.ranks_per_node)

    def elements(self) -> tuple[str, ...]:
        """Job ids of its units, in order; none while its id is not known."""
        if self.job_id is None:
            return ()
        if len(self.units) == 1:
            return (self.job_id,)
        return tuple(f"{self.job_id}_{index}" for index in range(len(self.units)))


def arrays_of(
    configs: Iterable[RunConfig], site: Site, *, pack: int = 1, seed: int = 0
) -> tuple[Array, ...]:
    """One array for each shape and time limit, cut where the site's limit on arrays is reached.

    An element runs one cell, or up to ``pack`` of one shape. Cells of one block (same data, model,
    ranks and seed) stay together where they fit; a block of more than ``pack`` cells is cut into
    parts of nearly equal size. ``seed`` draws the order within blocks.

    Raises:
        ConfigError: counts of ranks that do not fit the site, all of them in one message.
    """
    cells = list(configs)
    shapes = _shapes(cells, site)
    by_shape: dict[NodeLayout, list[RunConfig]] = {}
    for config in cells:
        by_shape.setdefault(shapes[config.gpus], []).append(config)
    alike: dict[tuple[NodeLayout, int], list[tuple[str, ...]]] = {}
    for shape, members in by_shape.items():
        for part in _packed(members, pack, seed) if pack > 1 else [[cell] for cell in members]:
            units = alike.setdefault((shape, site.time_min * len(part)), [])
            units.append(tuple(config.cell_id() for config in part))
    return tuple(
        Array(
            units=tuple(units[at : at + site.array_limit]),
            minutes=minutes,
            block_seed=seed if pack > 1 else None,
            **vars(shape),
        )
        for (shape, minutes), units in alike.items()
        for at in range(0, len(units), site.array_limit)
    )


def fitting(arrays: Iterable[Array], room: int | None) -> list[Array]:
    """The arrays that a queue takes which has room for ``room`` more jobs (elements counted); one
    that fits in part is cut. ``room``: None where there is no limit."""
    fit = []
    for array in arrays:
        units = array.units if room is None else array.units[: max(0, room)]
        room = None if room is None else room - len(units)
        if units:
            fit.append(array.model_copy(update={"units": units}))
    return fit


def _shapes(configs: Iterable[RunConfig], site: Site) -> dict[int, NodeLayout]:
    """Number of ranks -> shape."""
    shapes, wrong = {}, []
    for config in configs:
        if config.gpus not in shapes:
            try:
                shapes[config.gpus] = shape_of(config.gpus, site)
            except ConfigError as error:
                wrong.append(str(error))
                continue
        shape = shapes[config.gpus]
        if config.processes == 1 and shape.nodes > 1:
            wrong.append(
                f"framework mirrored is one process on one node, and gpus={config.gpus} needs "
                f"{shape} here: use framework multi_worker_mirrored, or at most "
                f"gpus={site.ranks_per_node}"
            )
    if wrong:
        raise ConfigError("\n  ".join(["the sweep does not fit the site:", *dict.fromkeys(wrong)]))
    return shapes


def _packed(configs: Sequence[RunConfig], pack: int, seed: int) -> list[list[RunConfig]]:
    blocks: dict[str, list[RunConfig]] = {}
    for config in configs:
        blocks.setdefault(_block(config), []).append(config)
    parts: list[list[RunConfig]] = []
    for block, members in blocks.items():
        # a draw of an experiment's design, no secret
        Random(f"{seed}/{block}").shuffle(members)  # noqa: S311
        count = math.ceil(len(members) / pack)
        bounds = [len(members) * index // count for index in range(count + 1)]
        for begin, end in pairwise(bounds):
            part = members[begin:end]
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
