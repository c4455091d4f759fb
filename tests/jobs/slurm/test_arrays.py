"""Arrays: equal layouts and times together, in an order that is drawn; cut at a site's limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from jobs.config.site import NodeLayout, Site
from jobs.slurm.arrays import arrays_of
from tests.builders import config
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError

SITE = Site(ranks_per_node=2, time_min=10)


def sweep(
    techniques: int, seeds: int, gpus: tuple[int, ...] = (2,), **more: Any
) -> list[RunConfig]:
    rows = [Technique(name=f"t{t}", base_lr=0.1, base_batch=8) for t in range(techniques)]
    return [
        config(technique=row, seed=seed, gpus=count, batch_per_rank=8, epochs=5, **more)
        for count in gpus
        for row in rows
        for seed in range(seeds)
    ]


def names(configs: Iterable[RunConfig]) -> set[str]:
    return {one.cell_id() for one in configs}


def test_an_array_holds_the_cells_of_one_layout() -> None:
    wide, narrow = sweep(2, 2, gpus=(4,)), sweep(2, 2, gpus=(1,))
    first, second = arrays_of([*wide, *narrow], SITE)
    assert (first.shape, first.minutes) == (NodeLayout(2, 2), 10)
    assert (second.shape, second.minutes) == (NodeLayout(1, 1), 10)
    assert set(first.cells) == names(wide) and set(second.cells) == names(narrow)


def test_the_order_of_cells_is_drawn_and_stays_drawn() -> None:
    """In every version of this program, and whatever other cells a sweep has. Else a node that is
    slow for an hour slows one technique, and the report takes that for a property of it."""
    (all_of_it,) = arrays_of(sweep(4, 40), SITE)
    (part,) = arrays_of(sweep(4, 2), SITE)
    drawn = " ".join("".join(cell.split("-")[2:5:2]) for cell in part.cells)
    assert drawn == "t2s0 t1s0 t0s0 t2s1 t1s1 t3s0 t0s1 t3s1"
    assert part.cells == tuple(cell for cell in all_of_it.cells if cell in part.cells)
    early = Counter(cell.split("-")[2] for cell in all_of_it.cells[:80])
    # of each technique about half is among the first half
    assert all(12 <= early[f"t{t}"] <= 28 for t in range(4)), early
    cut = arrays_of(sweep(4, 2), SITE.model_copy(update={"array_limit": 3}))
    assert tuple(cell for array in cut for cell in array.cells) == part.cells


def test_all_counts_that_do_not_fit_are_named_at_once() -> None:
    wide = sweep(1, 2, gpus=(4,), framework="mirrored")
    with pytest.raises(ConfigError) as caught:
        arrays_of([*sweep(1, 2, gpus=(1, 3, 5)), *wide], SITE)
    first, three, five, mirrored = str(caught.value).splitlines()
    assert first == "the sweep does not fit the site:" and "gpus=3" in three and "gpus=5" in five
    assert "framework mirrored" in mirrored and "gpus=4 needs 2 nodes" in mirrored
    assert mirrored.endswith("at most gpus=2")
    fits = [config(framework="mirrored", gpus=2), config(framework="multi_worker_mirrored", gpus=4)]
    assert [array.shape for array in arrays_of(fits, SITE)] == [NodeLayout(1, 2), NodeLayout(2, 2)]


def test_cells_with_time_limits_of_their_own_share_an_array() -> None:
    """Seen: an array for each minute, so that 9,600 cells took 80 calls of sbatch in place of 12,
    and array_parallel held for each of them."""
    cells = sweep(4, 3, gpus=(2, 4))
    own = {cell.cell_id(): 2 + place % 7 for place, cell in enumerate(cells)}
    arrays = arrays_of(cells, SITE, own)
    assert [(array.minutes, len(array.cells)) for array in arrays] == [(8, 12), (8, 12)]
    (some,) = arrays_of(cells[:12], SITE, dict.fromkeys(list(own)[:2], 3))
    assert some.minutes == 10, "the others have the site's"
