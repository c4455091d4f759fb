"""Shapes and arrays: equal ranks on as few nodes as hold them; packing as a randomised block
design; arrays cut at the limits of a site."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.site import Site
from jobs.slurm.arrays import Array, NodeLayout, arrays_of, fitting, shape_of
from tests.builders import config
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError

SITE = Site(ranks_per_node=2, time_min=10)


@pytest.mark.parametrize(
    ("gpus", "ranks", "nodes", "said"),
    [
        (5, 4, None, r"gpus=5 cannot be spread equally.*nearest: gpus=4 or gpus=6$"),
        (11, 4, None, r"nearest: gpus=9 or gpus=12$"),
        (5, 4, 2, r"nearest: gpus=4 or gpus=6$"),
        (7, 4, 2, r"nearest: gpus=6 or gpus=8$"),
        (3, 2, 1, r"needs 2 nodes .* allows a job 1 .* at most gpus=2"),
        (9, 4, 2, r"needs 3 nodes .* allows a job 2 .* at most gpus=8"),
    ],
)
def test_counts_that_do_not_fit_name_others(
    gpus: int, ranks: int, nodes: int | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        shape_of(gpus, Site(ranks_per_node=ranks, max_nodes=nodes))


@given(gpus=st.integers(1, 300), ranks=st.integers(1, 16))
def test_every_shape_holds_all_ranks_on_the_fewest_nodes(gpus: int, ranks: int) -> None:
    site = Site(ranks_per_node=ranks)
    try:
        shape = shape_of(gpus, site)
    except ConfigError as error:
        names = str(error).split("nearest: ")[1].split(" or ")
        counts = [int(name.removeprefix("gpus=")) for name in names]
        assert counts[0] < gpus < counts[1]
        for count in counts:
            shape_of(count, site)  # what is named as possible is
        return
    assert shape.size == gpus
    assert shape.nodes == math.ceil(gpus / ranks)
    assert 1 <= shape.ranks_per_node <= ranks


def test_a_shape_reads_well() -> None:
    assert str(NodeLayout(1, 1)) == "1 node x 1 rank"
    assert str(NodeLayout(2, 8)) == "2 nodes x 8 ranks"


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


def units_of(configs: Iterable[RunConfig], **packing: int) -> list[tuple[str, ...]]:
    return [unit for array in arrays_of(configs, SITE, **packing) for unit in array.units]


def technique(cell: str) -> str:
    """Out of an id such as digits-cnn-t1-g2-s0-3f9a1c."""
    return cell.split("-")[2]


def seed_of(cell: str) -> str:
    return cell.split("-")[4]


def test_without_packing_each_cell_is_a_unit_in_the_order_of_the_sweep() -> None:
    cells = sweep(2, 2, gpus=(4, 1))
    arrays = arrays_of(cells, SITE)
    assert units_of(cells) == [(cell.cell_id(),) for cell in cells]
    assert [(array.shape, array.minutes) for array in arrays] == [
        (NodeLayout(2, 2), 10), (NodeLayout(1, 1), 10)
    ]  # fmt: skip


@given(
    pack=st.integers(2, 9),
    techniques=st.integers(1, 6),
    seeds=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_packing_loses_no_cell_and_keeps_its_bounds(
    pack: int, techniques: int, seeds: int, seed: int
) -> None:
    cells = sweep(techniques, seeds, gpus=(1, 2, 4))
    arrays = arrays_of(cells, SITE, pack=pack, seed=seed)
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
    assert len(units) == 3
    for unit in units:
        assert {technique(cell) for cell in unit} == {"t0", "t1", "t2", "t3"}
        assert len(set(map(seed_of, unit))) == 1


def test_small_blocks_share_a_unit_whole() -> None:
    units = units_of(sweep(2, 4), pack=5)
    assert [[seed_of(cell) for cell in unit] for unit in units] == [
        ["s0", "s0", "s1", "s1"], ["s2", "s2", "s3", "s3"]
    ]  # fmt: skip


def test_large_blocks_are_cut_evenly_and_share_no_unit_with_others() -> None:
    units = units_of(sweep(5, 2), pack=4)
    assert sorted(map(len, units)) == [2, 2, 3, 3]
    assert all(len(set(map(seed_of, unit))) == 1 for unit in units)


def test_the_order_is_drawn_and_can_be_drawn_again() -> None:
    cells = sweep(4, 40)
    units = units_of(cells, pack=4, seed=1)
    assert units == units_of(cells, pack=4, seed=1)
    assert units != units_of(cells, pack=4, seed=2)
    assert set(units_of(sweep(4, 2), pack=4, seed=1)) <= set(units), "others change no block's"
    first = Counter(technique(unit[0]) for unit in units)
    # each technique comes first in about a quarter of 40 blocks
    assert all(3 <= first[f"t{t}"] <= 20 for t in range(4)), first


def test_the_draw_stays_what_it_was() -> None:
    """A recorded seed must give the same order in every version of this program."""
    (unit,) = units_of(sweep(4, 1), pack=4, seed=7)
    assert [technique(cell) for cell in unit] == ["t0", "t2", "t3", "t1"]


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


def nine() -> tuple[Array, ...]:
    return arrays_of(sweep(1, 9), SITE.model_copy(update={"array_limit": 4}))


@pytest.mark.parametrize(
    ("room", "sizes"),
    [(None, [4, 4, 1]), (9, [4, 4, 1]), (8, [4, 4]), (6, [4, 2]), (0, []), (-3, [])],
)
def test_what_fits_into_the_queue(room: int | None, sizes: list[int]) -> None:
    fit = fitting(nine(), room)
    assert [len(array.units) for array in fit] == sizes
    units = [unit for array in nine() for unit in array.units]
    assert [unit for array in fit for unit in array.units] == units[: sum(sizes)]
