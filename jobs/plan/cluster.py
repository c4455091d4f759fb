"""`make plan` for a cluster: what would be submitted, word for word. Submits and asks nothing."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from jobs.cell.container import Image, find_image, image_path
from jobs.cell.needs import basic_needs, need_lines
from jobs.cell.state import checked, recorded
from jobs.messages import ROOT, say
from jobs.plan.cost import LEAST_MIN, MARGIN, array_lines, check_budget, time_limits
from jobs.plan.datasets import train_images
from jobs.plan.estimate import completed_cells, known_rates
from jobs.plan.rows import plan_rows
from jobs.plan.text import plan_lines
from jobs.slurm.arrays import arrays_of
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step import launch
from jobs.slurm.job.task import SubmissionContext, minutes_for
from jobs.slurm.request import SweepRequest, context_for
from jobs.slurm.submissions import Array
from jobs.slurm.submit import batch_script, tasks_of
from jobs.slurm.watch.preflight import preflight_layout
from train.config.run import RunConfig
from train.errors import ConfigError

#: Stands for what is known only when it is submitted.
RUN, JOB, FIRST = "RUN", "JOB", "afterok:PREFLIGHT"


def plan_cluster(wish: SweepRequest) -> None:
    """Raises ConfigError where the sweep does not fit the site, or costs more than BUDGET."""
    configs = wish.wanted.configs
    cells = checked([recorded(config, wish.folder / config.cell_id()) for config in configs])
    todo = [cell for cell in cells if cell.to_run]
    completed = completed_cells(wish.results, (cell.config for cell in todo))
    sending = context_for(wish, _image(wish))
    images = train_images(configs, wish.data, wish.store, fetch=False)
    rows = plan_rows(configs, images, known_rates(completed))
    plans = {row.cell_id: row.plan for row in rows}
    limits = time_limits(wish.site, wish.results, plans, todo, completed)
    sending = replace(sending, minutes=limits)
    arrays = arrays_of([cell.config for cell in todo], sending.site, sending.pack, sending.minutes)
    seconds = {row.cell_id: row.time.seconds for row in rows}
    lines = plan_lines(rows, {}, {cell.config.cell_id() for cell in cells if cell.done})
    lines += ["", *array_lines(arrays, seconds, wish.site)]
    if sending.minutes:
        lines.append(
            f"time limits: {MARGIN:g} x what earlier cells like them took at this site, at least "
            f"{LEAST_MIN} min, for {len(sending.minutes)} cells, {sending.site.longest_min} min "
            "for others; jobs of one array have the longest of its cells' limits"
        )
    shared = basic_needs(str(sending.root), sending.image.path, sending.site.scratch)
    lines += ["", *need_lines((*shared, *sending.needs))]
    lines += _scripts(sending, arrays, {config.cell_id(): config for config in configs})
    if arrays:
        lines.append(
            f"\nbefore them the preflight, one job of {minutes_for(sending.site)} min on "
            f"{preflight_layout(arrays)}: the arrays wait for its good end (PREFLIGHT=0 leaves it "
            "out)"
        )
    print("\n".join(lines))
    if wish.budget is not None:
        check_budget(wish.budget, arrays, seconds, sending.site)


def _image(wish: SweepRequest) -> Image:
    """A plan may be made before the image is built."""
    try:
        return find_image(wish.site.site.image, ROOT)
    except ConfigError as error:
        say(f"before the sweep: {error}")
        return Image(str(image_path(wish.site.site.image, ROOT)), None)


def _scripts(
    sending: SubmissionContext, arrays: Sequence[Array], configs: Mapping[str, RunConfig]
) -> list[str]:
    """The text that sbatch would get, and the tokens that start a cell in it, of the first array
    of each shape: others of it differ in folder, size and time limit."""
    first = {array.shape: index for index, array in reversed(list(enumerate(arrays)))}
    lines = []
    for index in sorted(first.values()):
        array = arrays[index]
        script = batch_script(sending, RUN, "0", array, dependency=FIRST)
        name = array.units[0][0]
        task = tasks_of(sending, array, RUN, datetime.now(UTC), ())[0]
        ends_at = time.time() + 60 * array.minutes
        allocation = Allocation(JOB, 0, ends_at, sending.site)
        cell = sending.folder / name
        argv, settings = launch(task, configs[name], cell, 1, allocation, resume=False)
        tokens = ["env", *(f"{key}={value}" for key, value in settings.items()), *argv]
        lines += ["", f"batch script of array {index + 1}, {array.shape}:"]
        lines += [f"    {line}".rstrip() for line in script.rstrip().splitlines()]
        lines += [f"which runs, for {name} and each other cell:", f"    {shlex.join(tokens)}"]
    return lines
