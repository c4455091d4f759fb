"""`make plan` for a cluster: what would be submitted, word for word. Submits and asks nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

from jobs.cell.image import BUILT, Image, find_image
from jobs.cell.state import recorded, refuse_others
from jobs.messages import ROOT, say
from jobs.plan.cost import check_budget, gpu_hours
from jobs.plan.datasets import planned_images
from jobs.plan.estimate import known_rates
from jobs.plan.rows import plan_rows
from jobs.plan.text import render_plan, render_slurm_plan
from jobs.slurm.arrays import Array
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step import launch
from jobs.slurm.preflight import preflight_array, preflight_shape
from jobs.slurm.request import SweepRequest, context_for
from jobs.slurm.submissions import SubmissionContext
from jobs.slurm.submit import batch_script, plan_arrays, tasks_of
from train.config.run import RunConfig
from train.errors import ConfigError

#: Stands for what is known only when it is submitted.
RUN, JOB, FIRST = "RUN", "JOB", "afterok:PREFLIGHT"


def plan_cluster(wish: SweepRequest) -> None:
    """Raises ConfigError where the sweep does not fit the site, or costs more than BUDGET."""
    configs = wish.wanted.configs
    rows = plan_rows(
        configs, planned_images(configs, wish.data, wish.store), known_rates(wish.results)
    )
    cells = [recorded(config, wish.folder / config.cell_id()) for config in configs]
    refuse_others(cells)
    todo = [cell for cell in cells if cell.to_run]
    sending = context_for(wish, _image(wish))
    arrays = plan_arrays(sending, todo)
    cost = gpu_hours(arrays, {row.cell_id: row.seconds for row in rows}, sending.site)
    console = Console()
    render_plan(rows, {}, console, {cell.config.cell_id() for cell in cells if cell.done})
    by_id = {config.cell_id(): config for config in configs}
    render_slurm_plan(
        arrays, wish.site, console, cost=cost,
        script=lambda array: batch_script(sending, RUN, "0", array, dependency=FIRST),
        launch=lambda array: _launch(sending, array, by_id),
    )  # fmt: skip
    if arrays:
        shape = preflight_shape(arrays)
        minutes = preflight_array(sending.site, shape).minutes
        console.print(
            f"\nbefore them the preflight, one job of {minutes} min on {shape}: the arrays wait "
            "for its good end (PREFLIGHT=0 leaves it out)", soft_wrap=True, highlight=False,
        )  # fmt: skip
    if wish.budget is not None and todo:
        check_budget(wish.budget, cost, sending.site)


def _image(wish: SweepRequest) -> Image:
    """A plan may be made before the image is built."""
    try:
        return find_image(wish.site.site, ROOT)
    except ConfigError as error:
        say(f"before the sweep: {error}")
        name = wish.site.site.image
        built = ROOT / "containers" / "images" / f"{name}.sif"
        return Image(str(built) if name in BUILT else name, None)


def _launch(
    sending: SubmissionContext, array: Array, configs: dict[str, RunConfig]
) -> Sequence[str]:
    name = array.units[0][0]
    task = tasks_of(sending, array, RUN, datetime.now(UTC), ())[0]
    ends_at = time.time() + 60 * array.minutes
    allocation = Allocation(JOB, 0, ends_at, sending.site)
    cell = sending.folder / name
    argv, settings = launch(task, configs[name], cell, 1, allocation, resume=False)
    return ["env", *(f"{name}={value}" for name, value in settings.items()), *argv]
