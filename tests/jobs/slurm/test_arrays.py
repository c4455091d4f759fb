"""Units and arrays: packing as a randomised block design, cut at the limits of a site."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.site import Site
from jobs.slurm.arrays import ArrayTask, NodeLayout, arrays_of, units_of, waves
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError

SITE = Site(ranks_per_node=2, time_min=10, array_parallel=3, array_limit=1000)


def config(technique: str = "naive", **changes: Any) -> RunConfig:
    fields = {"dataset": "digits", "model": "cnn", "gpus": 2, "batch_per_rank": 8, "epochs": 5}
    row = Technique(name=technique, base_lr=0.1, base_batch=8)
    return RunConfig(**{"seed": 0, **fields, **changes}, technique=row)


def sweep(techniques: int, seeds: int, gpus: tuple[int, ...] = (2,)) -> list[RunConfig]:
    return [
        config(f"t{t}", seed=s, gpus=g)
        for g in gpus
        for t in range(techniques)
        for s in range(seeds)
    ]


def parts(cell: str) -> tuple[str, str]:
    """Technique and seed out of an id such as digits-cnn-t1-g2-s0-3f9a1c."""
    return cell.split("-")[2], cell.split("-")[4]


def test_without_packing_each_cell_is_a_unit_in_the_order_of_the_sweep() -> None:
    cells = sweep(2, 2, gpus=(4, 1))
    units = units_of(cells, SITE)
    assert [unit.cells for unit in units] == [(cell.cell_id(),) for cell in cells]
    assert {unit.minutes for unit in units} == {10}
    assert [unit.shape for unit in units] == [NodeLayout(2, 2)] * 4 + [NodeLayout(1, 1)] * 4


@given(
    pack=st.integers(1, 9),
    techniques=st.integers(1, 6),
    seeds=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_packing_loses_no_cell_and_keeps_its_bounds(
    pack: int, techniques: int, seeds: int, seed: int
) -> None:
    cells = sweep(techniques, seeds, gpus=(1, 2, 4))
    units = units_of(cells, SITE, pack=pack, seed=seed)
    assert Counter(c for u in units for c in u.cells) == Counter(c.cell_id() for c in cells)
    sizes = {cell.cell_id(): cell.gpus for cell in cells}
    for unit in units:
        assert len(unit.cells) <= pack
        assert unit.minutes == 10 * len(unit.cells)
        assert {sizes[cell] for cell in unit.cells} == {unit.shape.size}


def test_a_block_holds_all_techniques_of_one_seed() -> None:
    units = units_of(sweep(4, 3), SITE, pack=4)
    assert len(units) == 3
    for unit in units:
        techniques, seeds = zip(*map(parts, unit.cells), strict=True)
        assert set(techniques) == {"t0", "t1", "t2", "t3"}
        assert len(set(seeds)) == 1


def test_techniques_with_their_own_batch_and_epochs_share_a_block() -> None:
    cells = [
        config(f"t{t}", seed=s, batch_per_rank=8 * t + 8, epochs=t + 1)
        for t in range(3)
        for s in range(2)
    ]
    for unit in units_of(cells, SITE, pack=3):
        assert {parts(cell)[0] for cell in unit.cells} == {"t0", "t1", "t2"}


def test_small_blocks_share_a_unit_whole() -> None:
    units = units_of(sweep(2, 4), SITE, pack=5)
    assert [[parts(cell)[1] for cell in unit.cells] for unit in units] == [
        ["s0", "s0", "s1", "s1"],
        ["s2", "s2", "s3", "s3"],
    ]


def test_large_blocks_are_cut_evenly_and_share_no_unit_with_others() -> None:
    units = units_of(sweep(5, 2), SITE, pack=4)
    assert [len(unit.cells) for unit in units] == [2, 3, 2, 3]
    assert all(len({parts(cell)[1] for cell in unit.cells}) == 1 for unit in units)


def test_the_order_is_drawn_and_can_be_drawn_again() -> None:
    cells = sweep(4, 40)
    units = units_of(cells, SITE, pack=4, seed=1)
    assert units == units_of(cells, SITE, pack=4, seed=1)
    assert units != units_of(cells, SITE, pack=4, seed=2)
    places = Counter(parts(unit.cells[0])[0] for unit in units)
    # each technique comes first in about a quarter of 40 blocks
    assert all(3 <= places[f"t{t}"] <= 20 for t in range(4)), places


def test_the_draw_of_a_block_does_not_depend_on_the_others() -> None:
    few = units_of(sweep(4, 2), SITE, pack=4, seed=1)
    many = units_of(sweep(4, 5), SITE, pack=4, seed=1)
    assert set(few) <= set(many)


def test_the_draw_stays_what_it_was() -> None:
    """A recorded seed must give the same order in every version of this program."""
    (unit,) = units_of(sweep(4, 1), SITE, pack=4, seed=7)
    assert [parts(cell)[0] for cell in unit.cells] == ["t0", "t2", "t3", "t1"]


def test_counts_that_do_not_fit_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        units_of(sweep(1, 2, gpus=(1, 3, 4, 5)), SITE)
    assert str(caught.value).count("\n") == 2
    assert "gpus=3" in str(caught.value)
    assert "gpus=5" in str(caught.value)


def test_one_process_does_not_fit_several_nodes() -> None:
    fits = [config(framework="mirrored", gpus=2), config(framework="multi_worker_mirrored", gpus=4)]
    assert [unit.shape for unit in units_of(fits, SITE)] == [NodeLayout(1, 2), NodeLayout(2, 2)]
    with pytest.raises(ConfigError, match=r"mirrored .* gpus=4 needs 2 nodes .* at most gpus=2"):
        units_of([*fits, config(framework="mirrored", gpus=4)], SITE)


def test_one_array_for_each_shape_and_time() -> None:
    units = units_of(sweep(5, 2, gpus=(1, 2, 4)), SITE, pack=3)
    arrays = arrays_of(units, SITE)
    assert [(array.shape, array.minutes, len(array.units)) for array in arrays] == [
        (NodeLayout(1, 1), 20, 2), (NodeLayout(1, 1), 30, 2),
        (NodeLayout(1, 2), 20, 2), (NodeLayout(1, 2), 30, 2),
        (NodeLayout(2, 2), 20, 2), (NodeLayout(2, 2), 30, 2),
    ]  # fmt: skip
    assert Counter(unit for array in arrays for unit in array.units) == Counter(units)


def test_arrays_are_cut_at_the_limit_and_throttled() -> None:
    site = SITE.model_copy(update={"array_limit": 4})
    arrays = arrays_of(units_of(sweep(1, 9), site), site)
    assert [(len(array.units), array.parallel) for array in arrays] == [(4, 3), (4, 3), (1, 1)]


@pytest.mark.parametrize(
    ("room", "now", "later"),
    [
        (None, [4, 4, 1], []),
        (9, [4, 4, 1], []),
        (8, [4, 4], [1]),
        (6, [4, 2], [2, 1]),
        (0, [], [4, 4, 1]),
        (-3, [], [4, 4, 1]),
    ],
)
def test_what_fits_into_the_queue(room: int | None, now: list[int], later: list[int]) -> None:
    site = SITE.model_copy(update={"array_limit": 4})
    arrays = arrays_of(units_of(sweep(1, 9), site), site)
    wave = waves(arrays, room)
    assert [len(array.units) for array in wave.now] == now
    assert [len(array.units) for array in wave.later] == later
    order = [unit for array in (*wave.now, *wave.later) for unit in array.units]
    assert order == [unit for array in arrays for unit in array.units]
    assert all(array.parallel <= len(array.units) for array in (*wave.now, *wave.later))


def test_units_are_values() -> None:
    assert ArrayTask(("a",), NodeLayout(1, 1), 5) == ArrayTask(("a",), NodeLayout(1, 1), 5)
