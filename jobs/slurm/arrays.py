"""Which cells share a call of sbatch: those that ask for the same nodes. Each element runs one
cell, or with packing several.

Packed cells are a block of a randomised block design: cells that differ in their technique only run
one after another on the same nodes, in an order that was drawn. A slow node or a busy hour then
meets all techniques alike, and is not taken for a difference between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from random import Random
from types import MappingProxyType

from jobs.config.site import NodeLayout, Site, layout_of
from jobs.slurm.submissions import Array
from train.config.run import RunConfig
from train.errors import ConfigError

#: Of the random order of cells within blocks.
BLOCK_SEED = 0


def arrays_of(
    configs: Iterable[RunConfig],
    site: Site,
    pack: int = 1,
    minutes: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Array, ...]:
    """One array for each layout and number of cells in an element, cut where the site's limit on
    arrays is reached.

    An element runs one cell, or up to ``pack`` of one layout. Cells of one block (same data, model,
    ranks and seed) stay together where they fit; a block of more than ``pack`` cells is cut into
    parts of nearly equal size.

    ``minutes``: time limits by cell id; the others have the site's. The longest limit in an array
    is the limit of all: an array for each limit would be hundreds of calls of sbatch.

    Raises:
        ConfigError: counts of ranks that do not fit the site, all of them in one message.
    """
    alike: dict[tuple[NodeLayout, int], list[tuple[str, ...]]] = {}
    for layout, members in _by_layout(configs, site).items():
        for part in _packed(members, pack) if pack > 1 else [[cell] for cell in members]:
            unit = tuple(config.cell_id() for config in part)
            alike.setdefault((layout, len(unit)), []).append(unit)
    return tuple(
        Array(
            units=tuple(units[at : at + site.array_limit]),
            minutes=max(
                sum(minutes.get(name, site.longest_min) for name in unit) for unit in units
            ),
            **vars(layout),
        )
        for (layout, _), units in alike.items()
        for at in range(0, len(units), site.array_limit)
    )


def fitting(arrays: Iterable[Array], room: int | None) -> list[Array]:
    """The arrays that a queue takes which has room for ``room`` more jobs (elements counted); one
    that fits in part is cut. ``room``: None where there is no limit."""
    fit = []
    for array in arrays:
        units = array.units[:room]
        room = None if room is None else room - len(units)
        if units:
            fit.append(array.model_copy(update={"units": units}))
    return fit


def _by_layout(configs: Iterable[RunConfig], site: Site) -> dict[NodeLayout, list[RunConfig]]:
    cells: dict[NodeLayout, list[RunConfig]] = {}
    wrong: list[str] = []
    for config in configs:
        try:
            layout = layout_of(config.gpus, site)
        except ConfigError as error:
            wrong.append(str(error))
            continue
        cells.setdefault(layout, []).append(config)
        if config.processes == 1 and layout.nodes > 1:
            wrong.append(
                f"framework mirrored is one process on one node, and gpus={config.gpus} needs "
                f"{layout} here: use framework multi_worker_mirrored, or at most "
                f"gpus={site.ranks_per_node}"
            )
    if wrong:
        raise ConfigError("\n  ".join(["the sweep does not fit the site:", *dict.fromkeys(wrong)]))
    return cells


def _packed(configs: Sequence[RunConfig], pack: int) -> list[list[RunConfig]]:
    blocks: dict[str, list[RunConfig]] = {}
    for config in configs:
        blocks.setdefault(_block(config), []).append(config)
    parts: list[list[RunConfig]] = []
    for block, members in blocks.items():
        # a draw of an experiment's design, no secret
        Random(f"{BLOCK_SEED}/{block}").shuffle(members)  # noqa: S311
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
