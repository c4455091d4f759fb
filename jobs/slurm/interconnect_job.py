"""The job that measures the network between its nodes: a step for each phase, one after another. It
runs on the allocation's first node and leaves what the verdict is made from."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from jobs.slurm.allocation import Allocation, warned_by_signal
from jobs.slurm.interconnect import InterconnectTask, launch_line, limit_s, minutes_for, turns
from jobs.slurm.preflight import launch_problems
from jobs.slurm.ranks import SRUN_LOG, StepRanks
from jobs.slurm.step import rank_base
from jobs.stop import Reason, Stop, stopped_by_signals
from train.facts.record import When
from train.files import write_atomically
from train.interconnect.record import JOB_NAME, SWITCHES_NAME, JobNote, Phase, Step, Trouble


def run_interconnect(told: dict[str, Any]) -> None:
    """Called by submitit. Exit code 1 where a phase did not come to its end."""
    task = InterconnectTask.model_validate(told)
    allocation = Allocation.read(os.environ, minutes_for(task), task.site.slurm_conf)
    write_atomically(Path(task.folder) / SWITCHES_NAME, json.dumps(task.switches) + "\n")
    steps: list[Step] = []
    with stopped_by_signals() as stop, warned_by_signal():
        for phase, when in turns(task):
            if stop.reason is None:
                steps.append(_step(task, phase, when, allocation, stop))
    note = JobNote(
        job=allocation.name,
        nodes=allocation.nodes,
        image=task.image,
        image_digest=task.image_digest,
        steps=tuple(steps),
        phases=task.phases,
    )
    write_atomically(Path(task.folder) / JOB_NAME, note.model_dump_json(indent=1) + "\n")
    sys.exit(1 if any(step.exit_code or step.stopped for step in steps) else 0)


def _step(
    task: InterconnectTask, phase: Phase, when: When, allocation: Allocation, stop: Stop
) -> Step:
    """A failed phase does not end the others: each is evidence of its own."""
    folder = Path(task.folder)
    logs = folder / "logs" / phase
    logs.mkdir(parents=True, exist_ok=True)
    meeting = folder / f".rendezvous-{allocation.job}-{allocation.restarts}"
    argv, settings = launch_line(task, phase, when, meeting)
    if task.image_digest is not None:
        settings["HOROSCALE_IMAGE_DIGEST"] = task.image_digest
    ranks, began, limit = StepRanks(logs / SRUN_LOG), time.monotonic(), limit_s(task, phase)
    late = Reason("timeout", f"{phase} took longer than {limit:.0f} s")
    size = task.nodes * (task.ranks_per_node if phase == "collectives" else 1)
    ranks.start(argv, rank_base(os.environ) | settings, size)

    def tick() -> Reason | None:
        return stop.reason or (late if time.monotonic() > began + limit else None)

    try:
        stopped = ranks.watch(tick)
    finally:
        ranks.end()
    troubles = launch_problems(logs, ranks) if ranks.code else []
    return Step(
        phase=phase,
        seconds=time.monotonic() - began,
        exit_code=ranks.code,
        stopped=stopped.text if stopped else None,
        troubles=tuple(Trouble(node=p.node, what=p.check, found=p.found) for p in troubles),
    )
