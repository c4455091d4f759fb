"""`make plan` for a cluster: what would be submitted, word for word, and what sbatch answers to it.
Submits nothing."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from jobs.cell.container import Image, find_image, image_path
from jobs.cell.needs import basic_needs, need_lines
from jobs.cell.state import checked, recorded
from jobs.messages import ROOT, say
from jobs.plan.cost import LEAST_MIN, MARGIN, array_lines, time_limits
from jobs.plan.datasets import train_images
from jobs.plan.estimate import completed_cells, known_rates
from jobs.plan.rows import plan_rows
from jobs.plan.text import plan_lines
from jobs.slurm.arrays import ORDER, arrays_of
from jobs.slurm.client.run import SCONTROL, SlurmError, asker, read_config, run
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step import launch
from jobs.slurm.job.task import SubmissionContext, minutes_for
from jobs.slurm.request import SweepRequest, context_for, with_array_limit
from jobs.slurm.submissions import SCRIPT_NAME, Array
from jobs.slurm.submit import batch_script, tasks_of
from jobs.slurm.throttle import Throttle
from jobs.slurm.watch.preflight import preflight_layout
from train.config.run import RunConfig
from train.errors import ConfigError

#: Stands for what is known only when it is submitted.
RUN, JOB, FIRST = "RUN", "JOB", "afterok:PREFLIGHT"


def plan_cluster(wish: SweepRequest) -> None:
    """Raises ConfigError where the sweep does not fit the site."""
    configs = wish.wanted.configs
    cells = checked([recorded(config, wish.folder / config.cell_id()) for config in configs])
    todo = [cell for cell in cells if cell.to_run]
    completed = completed_cells(wish.results, (cell.config for cell in todo))
    sending = context_for(wish, _image(wish))
    images = train_images(configs, wish.data, wish.store)
    rows = plan_rows(configs, images, known_rates(completed))
    plans = {row.cell_id: row.plan for row in rows}
    limits = time_limits(wish.site, wish.results, plans, todo, completed)
    sending, trouble = replace(sending, minutes=limits), ""
    try:
        config = read_config(asker(patience_s=0)(SCONTROL))
        sending = replace(sending, site=with_array_limit(sending.site, config))
    except SlurmError as error:
        trouble = f"\nSlurm gives no answer here, so limits of the cluster are not known ({error})"
    arrays = arrays_of([cell.config for cell in todo], sending.site, sending.minutes)
    first = Throttle(sending.site.array_parallel, watched=False).admitted(arrays)
    arrays = (*first, *arrays[len(first) :])
    seconds = {row.cell_id: row.time.seconds for row in rows}
    lines = plan_lines(rows, {}, {cell.config.cell_id() for cell in cells if cell.done})
    lines += ["", *array_lines(arrays, seconds, wish.site, len(first))]
    if arrays:
        lines.append(f"{ORDER} in each array, so that a slow node affects all techniques")
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
    lines += [trouble] if trouble else _tested(sending, arrays)
    print("\n".join(lines))


def _image(wish: SweepRequest) -> Image:
    """A plan may be made before the image is built."""
    try:
        return find_image(wish.site.site.image, ROOT)
    except ConfigError as error:
        say(f"before the sweep: {error}")
        return Image(str(image_path(wish.site.site.image, ROOT)), None)


def _tested(sending: SubmissionContext, arrays: Sequence[Array]) -> list[str]:
    """What sbatch answers, without a job, to the longest array of each shape: in Slurm's words.

    A remark, and no refusal: it leaves out nodes that are drained now, and what it checks depends
    on EnforcePartLimits.
    """
    longest = {array.shape: array for array in sorted(arrays, key=lambda one: one.minutes)}
    remark = "without the nodes that are drained now; a sweep submits, and then sbatch decides"
    lines = ["", f"sbatch --test-only answers, {remark}:"] if arrays else []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / SCRIPT_NAME
        for shape, array in longest.items():
            # the job that it would wait for does not exist yet
            script.write_text(batch_script(sending, RUN, "0", array), encoding="utf-8")
            try:
                words = run(["sbatch", "--test-only", str(script)]).words
            except SlurmError as error:
                words = error.printed
            lines.append(f"    {shape}: {words}")
    return lines


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
        name = array.cells[0]
        task = tasks_of(sending, array, datetime.now(UTC), ())[0]
        ends_at = time.time() + 60 * array.minutes
        allocation = Allocation(JOB, 0, ends_at, sending.site)
        cell = sending.folder / name
        argv, settings = launch(task, configs[name], cell, 1, allocation, resume=False)
        tokens = ["env", *(f"{key}={value}" for key, value in settings.items()), *argv]
        lines += ["", f"batch script of array {index + 1}, {array.shape}:"]
        lines += [f"    {line}".rstrip() for line in script.rstrip().splitlines()]
        lines += [f"which runs, for {name} and each other cell:", f"    {shlex.join(tokens)}"]
    return lines
