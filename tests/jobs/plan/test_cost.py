"""GPU-hours: the bound that Slurm may charge, the estimate, and what a budget refuses."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.site import Site
from jobs.plan.cost import Cost, charged, check_budget, gpu_hours, hours
from jobs.slurm.arrays import Array, NodeLayout
from train.errors import ConfigError

SITE = Site(ranks_per_node=8, time_min=30)
WHOLE = SITE.model_copy(update={"exclusive": True})


def array(
    nodes: int, ranks: int, jobs: int, minutes: int = 30, pack: int = 1, tag: str = "c"
) -> Array:
    name = f"{tag}{nodes * ranks}"
    units = tuple(tuple(f"{name}-{job}-{i}" for i in range(pack)) for job in range(jobs))
    return Array(units=units, nodes=nodes, ranks_per_node=ranks, minutes=minutes)


ARRAYS = [array(1, 1, 4), array(2, 8, 6)]
SECONDS = {cell: 600.0 for a in ARRAYS for unit in a.units for cell in unit}


def test_the_bound_is_all_jobs_until_their_limits() -> None:
    cost = gpu_hours(ARRAYS, {}, SITE)
    assert cost.at_most == pytest.approx(4 * 0.5 + 6 * 16 * 0.5)
    assert (cost.expected, cost.unknown, cost.cells, cost.jobs) == (None, 10, 10, 10)
    assert [part.shape for part in cost.parts] == [NodeLayout(2, 8), NodeLayout(1, 1)]


def test_the_estimate_counts_the_gpus_of_each_cell() -> None:
    cost = gpu_hours(ARRAYS, SECONDS, SITE)
    assert cost.expected == pytest.approx((4 + 6 * 16) / 6)
    assert cost.unknown == 0


def test_packed_cells_count_each() -> None:
    cost = gpu_hours([array(1, 8, 2, minutes=90, pack=3)], {"c8-0-0": 3600.0}, SITE)
    assert (cost.jobs, cost.cells, cost.unknown) == (2, 6, 5)
    assert cost.at_most == pytest.approx(2 * 8 * 1.5)
    assert cost.expected == pytest.approx(8)


def test_arrays_of_one_shape_are_one_part() -> None:
    cost = gpu_hours([array(1, 2, 3), array(1, 2, 1, minutes=60, tag="d")], {}, SITE)
    assert len(cost.parts) == 1
    assert cost.at_most == pytest.approx(2 * (3 * 0.5 + 1))


def test_whole_nodes_are_charged_where_only_whole_nodes_are_given() -> None:
    assert charged(NodeLayout(2, 3), SITE) == 6
    assert charged(NodeLayout(2, 3), WHOLE) == 16
    assert gpu_hours([array(2, 3, 1)], {}, WHOLE).at_most == pytest.approx(8)


def refusal(limit: float, cost: Cost, site: Site = SITE) -> str:
    with pytest.raises(ConfigError) as caught:
        check_budget(limit, cost, site)
    return str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "counted"),
    [({}, 50.0), (SECONDS, 25.0), ({**SECONDS, "c1-0-0": None}, 50.0)],
)
def test_the_bound_counts_unless_all_times_are_known(
    seconds: dict[str, Any], counted: float
) -> None:
    cost = gpu_hours(ARRAYS, seconds, SITE)
    check_budget(counted, cost, SITE)
    text = refusal(counted - 0.01, cost)
    assert text.startswith(f"the sweep may use {hours(counted)} GPU-hours")
    assert "nothing was submitted" in text


def test_a_refusal_names_both_numbers_and_what_to_cut() -> None:
    text = refusal(20, gpu_hours(ARRAYS, {}, SITE))
    assert "the sweep may use 50 GPU-hours (10 jobs until their time limits" in text
    assert "BUDGET allows 20" in text
    assert "gpus=16, 6 cells in 6 jobs on 2 nodes x 8 ranks: 48 GPU-hours of the bound, 96%" in text
    assert "time_min of the site (now 30)" in text
    assert text.endswith("BUDGET=51")
    known = refusal(20, gpu_hours(ARRAYS, SECONDS, SITE))
    assert "1.5 x the estimate of 16.7 from earlier cells; 50 if all jobs ran" in known
    assert "time_min" not in known


def test_what_is_offered_as_enough_is_enough() -> None:
    cost = gpu_hours(ARRAYS, SECONDS, SITE)
    check_budget(float(refusal(1, cost).rpartition("BUDGET=")[2]), cost, SITE)


def test_idle_gpus_of_whole_nodes_are_named() -> None:
    cost = gpu_hours([array(1, 2, 1)], {}, WHOLE)
    assert "whole nodes are charged" in refusal(1, cost, WHOLE)


def test_nothing_costs_nothing() -> None:
    cost = gpu_hours([], {}, SITE)
    assert cost.at_most == 0
    check_budget(0, cost, SITE)
