"""The plan as text: a table of the cells, launch lines, what is to run and for how long."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence

from jobs.messages import clock, columns
from jobs.plan.differences import common_start
from jobs.plan.remarks import summary
from jobs.plan.rows import PlanRow
from train.config.plan import RunPlan

#: Of what sets cells apart: these have columns of their own, or (a target) a remark.
_SHOWN_ELSEWHERE = {"batch", "steps_per_epoch", "epochs", "base_lr", "target"}


def plan_lines(
    rows: Sequence[PlanRow],
    launch_lines: Mapping[str, Sequence[str]],
    done: Collection[str] = (),
) -> list[str]:
    """The table, the launch lines, and last what is to run and how long it takes.

    ``launch_lines``: cell id -> tokens; unwrapped, quoted for a shell. ``done``: ids of the cells
    that have a good record and are skipped.
    """
    lines = _table(rows, done)
    # a file or a pipe has no width to keep to
    if sys.stdout.isatty() and max(map(len, lines)) > shutil.get_terminal_size().columns:
        lines = _table(rows, done, common_start([row.cell_id for row in rows]))
    if launch_lines:
        lines += ["", "launch lines, one such process per rank:"]
    for name in (row.cell_id for row in rows if row.cell_id in launch_lines):
        lines += [f"  {name}:", f"    {shlex.join(launch_lines[name])}"]
    return [*lines, "", *summary(rows, done)]


def _table(rows: Sequence[PlanRow], done: Collection[str], start: str = "") -> list[str]:
    """``start``: of all ids, left out of them where a terminal is narrow, as heads are split."""
    keys = [key for key in rows[0].apart if key not in _SHOWN_ELSEWHERE]
    head = ["cell", *keys, "gpus", "batch", "steps/epoch", "epochs", "steps", "peak lr", "time"]
    if start:
        head = [name.replace("/", "\n/").replace(" ", "\n") for name in head]
    body = [
        (
            f"..{row.cell_id.removeprefix(start)}" if start else row.cell_id,
            *(row.apart[key] for key in keys),
            *_numbers(row.plan),
            "done" if row.cell_id in done else _time(row),
        )
        for row in rows
    ]
    return columns(head, body, left=1)


def _numbers(plan: RunPlan) -> tuple[str, ...]:
    config, first, last = plan.config, plan.epochs[0], plan.epochs[-1]
    batch = f"{first.global_batch:,}"
    if last.global_batch != first.global_batch:
        batch += f"-{last.global_batch:,}"
    sizes = first.steps, len(plan.epochs), plan.total_steps
    rate = config.technique.peak_lr(config.global_batch)
    return str(config.gpus), batch, *(f"{size:,}" for size in sizes), f"{rate:.4g}"


def _time(row: PlanRow) -> str:
    return "?" if row.time.seconds is None else f"~{clock(row.time.seconds)}"
