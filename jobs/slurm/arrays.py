"""Which cells share a call of sbatch: those that ask for the same nodes. Each element runs one.

The order of cells is drawn: a slow node or a busy hour then affects all techniques alike, and is
not taken for a difference between them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jobs.config.site import NodeLayout, Site, layout_of
from jobs.slurm.submissions import Array
from train.config.run import RunConfig
from train.errors import ConfigError

#: Of the random order of cells.
ORDER_SEED = 0
ORDER = f"random order of cells (seed {ORDER_SEED})"


def arrays_of(
    configs: Iterable[RunConfig],
    site: Site,
    minutes: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Array, ...]:
    """One array for each layout, cut where the site's limit on arrays is reached.

    ``minutes``: time limits by cell id; the others have the site's. The longest limit in an array
    is the limit of all: an array for each limit would be hundreds of calls of sbatch.

    Raises:
        ConfigError: counts of ranks that do not fit the site, all of them in one message.
    """
    return tuple(
        Array(
            cells=tuple(cells[at : at + site.array_limit]),
            minutes=max(minutes.get(name, site.longest_min) for name in cells),
            **vars(layout),
        )
        for layout, members in _by_layout(configs, site).items()
        for cells in [sorted((config.cell_id() for config in members), key=_drawn)]
        for at in range(0, len(cells), site.array_limit)
    )


def _drawn(cell: str) -> bytes:
    """Its place in the order, which stays when cells are added, or when some are done."""
    return hashlib.sha256(f"{ORDER_SEED}/{cell}".encode()).digest()


def fitting(arrays: Iterable[Array], room: int | None) -> list[Array]:
    """The arrays that a queue takes which has room for ``room`` more jobs (elements counted); one
    that fits in part is cut. ``room``: None where there is no limit."""
    fit = []
    for array in arrays:
        cells = array.cells[:room]
        room = None if room is None else room - len(cells)
        if cells:
            fit.append(array.model_copy(update={"cells": cells}))
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
