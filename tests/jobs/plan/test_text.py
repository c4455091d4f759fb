"""Slurm's part of a plan: readable for one cell and for two thousand, and exact."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.config.site import NamedSite, Site
from jobs.plan.cost import gpu_hours
from jobs.plan.text import render_slurm_plan, slurm_summary
from jobs.slurm.arrays import Array
from jobs.slurm.script import script_text

LAUNCH = ["srun", "--ntasks=2", "apptainer", "exec", "/a b/cpu.sif", "python3"]


def named(**changes: Any) -> NamedSite:
    site = Site(**{"ranks_per_node": 8, "time_min": 60, "partition": "gpu", **changes})
    return NamedSite("mine", site, Path("jobs/sites/mine.yaml"))


def array(nodes: int, count: int) -> Array:
    units = tuple((f"cell-{nodes}-{i}",) for i in range(count))
    return Array(units=units, nodes=nodes, ranks_per_node=8, minutes=60)


def script(array: Array) -> str:
    return script_text(
        named().site, array, Path("/results/s/.slurm/run"), name="n", root=Path("/r"), python="py"
    )


def text_of(arrays: tuple[Array, ...], site: NamedSite, seconds: Any = None, **more: Any) -> str:
    out = io.StringIO()
    cost = gpu_hours(arrays, seconds or {}, site.site)
    render_slurm_plan(
        arrays, site, Console(file=out, width=80), cost=cost, script=script,
        launch=lambda array: LAUNCH, **more,
    )  # fmt: skip
    return out.getvalue()


def test_arrays_costs_scripts_and_launch_lines_are_shown() -> None:
    site = named()
    arrays = (array(1, 3), array(2, 1))
    text = text_of(arrays, site, {"cell-1-0": 1800.0})
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "1", "8", "3", "3", "1:00:00", "3", "24"] in rows
    assert ["2", "2", "8", "1", "1", "1:00:00", "1", "16"] in rows
    assert "2 calls of sbatch for 4 jobs with 4 cells" in text
    assert "GPU-hours: at most 40 (every job once until its time limit), about 4 going by" in text
    assert "3 cells left out" in text
    for one in arrays:
        shown = "\n".join(f"    {line}".rstrip() for line in script(one).rstrip().splitlines())
        assert shown in text
    assert text.count(shlex.join(LAUNCH)) == 2


def test_two_thousand_cells_stay_a_page() -> None:
    site = named()
    arrays = tuple(array(nodes, count) for nodes in (1, 2, 4, 8) for count in (150, 150, 150, 50))
    text = text_of(arrays, site)
    assert "16 calls of sbatch for 2,000 jobs with 2,000 cells" in text
    assert "batch script of arrays 1-4, 1 node x 8 ranks; this is array 1" in text
    assert text.count("#!/bin/bash") == 4
    assert len(text.splitlines()) < 150


def test_nothing_is_wrapped_or_cut_in_a_pipe() -> None:
    site = named()
    arrays = [array(1, 2)]
    long = ["srun", *(f"--option-{i}=value" for i in range(40))]
    out = io.StringIO()
    render_slurm_plan(
        arrays, site, Console(file=out, width=20), cost=gpu_hours(arrays, {}, site.site),
        script=script, launch=lambda array: long,
    )  # fmt: skip
    assert f"    {shlex.join(long)}\n" in out.getvalue()


def test_what_does_not_fit_the_queue_is_told() -> None:
    site = named(submit_limit=5)
    arrays = [array(1, 12)]
    cost = gpu_hours(arrays, {}, site.site)
    assert "queue: 5 jobs fit now; 7 jobs are submitted when there is room" in slurm_summary(
        arrays, site, cost
    )
    assert "queue: 2 jobs fit now; 10 jobs are submitted when there is room" in slurm_summary(
        arrays, site, cost, room=2
    )


def test_nothing_to_submit() -> None:
    site = named()
    lines = slurm_summary([], site, gpu_hours([], {}, site.site))
    assert lines[-1] == "nothing to submit"
    assert text_of((), site).strip().endswith("nothing to submit")
