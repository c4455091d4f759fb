"""Arrays: equal layouts and times together; packing as a randomised block design; arrays cut at the
limits of a site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def units_of(configs: Iterable[RunConfig], pack: int = 1) -> list[tuple[str, ...]]:
    return [unit for array in arrays_of(configs, SITE, pack) for unit in array.units]


def part(unit: Iterable[str], number: int) -> list[str]:
    """Techniques (2) or seeds (4) out of ids such as digits-cnn-t1-g2-s0-3f9a1c."""
    return [cell.split("-")[number] for cell in unit]


def test_without_packing_each_cell_is_a_unit_in_the_order_of_the_sweep() -> None:
    cells = sweep(2, 2, gpus=(4, 1))
    arrays = arrays_of(cells, SITE)
    assert units_of(cells) == [(cell.cell_id(),) for cell in cells]
    shapes = [(array.shape, array.minutes) for array in arrays]
    assert shapes == [(NodeLayout(2, 2), 10), (NodeLayout(1, 1), 10)]


@given(pack=st.integers(2, 9), techniques=st.integers(1, 6), seeds=st.integers(1, 4))
def test_packing_loses_no_cell_and_keeps_its_bounds(pack: int, techniques: int, seeds: int) -> None:
    cells = sweep(techniques, seeds, gpus=(1, 2, 4))
    arrays = arrays_of(cells, SITE, pack)
    assert len({(array.shape, array.minutes) for array in arrays}) == len(arrays)
    packed = [(array, cell) for array in arrays for unit in array.units for cell in unit]
    assert Counter(cell for _, cell in packed) == Counter(cell.cell_id() for cell in cells)
    sizes = {cell.cell_id(): cell.gpus for cell in cells}
    assert all(sizes[cell] == array.shape.size for array, cell in packed)
    for array in arrays:
        assert all(10 * len(unit) == array.minutes <= 10 * pack for unit in array.units)


def test_a_block_holds_all_techniques_of_one_seed() -> None:
    """Also of those that bring a batch and epochs of their own."""
    cells = [
        one.model_copy(update={"batch_per_rank": 8 + place, "epochs": 1 + place})
        for place, one in enumerate(sweep(4, 3))
    ]
    units = units_of(cells, pack=4)
    assert [set(part(unit, 2)) for unit in units] == [{"t0", "t1", "t2", "t3"}] * 3
    assert all(len(set(part(unit, 4))) == 1 for unit in units)


def test_small_blocks_share_a_unit_and_large_ones_are_cut_evenly() -> None:
    small = units_of(sweep(2, 4), pack=5)
    assert [part(unit, 4) for unit in small] == [["s0", "s0", "s1", "s1"], ["s2", "s2", "s3", "s3"]]
    large = units_of(sweep(5, 2), pack=4)
    assert sorted(map(len, large)) == [2, 2, 3, 3]
    assert all(len(set(part(unit, 4))) == 1 for unit in large)


def test_the_order_within_a_block_is_drawn_and_stays_drawn() -> None:
    """In every version of this program, and whatever other cells a sweep has."""
    units = units_of(sweep(4, 40), pack=4)
    assert part(units[0], 2) == ["t1", "t3", "t2", "t0"]
    assert set(units_of(sweep(4, 2), pack=4)) <= set(units), "others change no block's"
    first = Counter(part(unit, 2)[0] for unit in units)
    # each technique comes first in about a quarter of 40 blocks
    assert all(3 <= first[f"t{t}"] <= 20 for t in range(4)), first


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
    arrays = arrays_of(cells, SITE, 1, own)
    assert [(array.minutes, len(array.units)) for array in arrays] == [(8, 12), (8, 12)]
    (some,) = arrays_of(cells[:12], SITE, 1, dict.fromkeys(list(own)[:2], 3))
    assert some.minutes == 10, "the others have the site's"
    packed = arrays_of(cells, SITE, 4, own)
    assert [len(array.units) for array in packed] == [3, 3]
    for array in packed:
        assert array.minutes == max(sum(own[cell] for cell in unit) for unit in array.units)
