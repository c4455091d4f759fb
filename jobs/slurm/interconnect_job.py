"""The job that measures the network between its nodes: a step for each phase, one after another. It
runs on the allocation's first node and leaves what the verdict is made from."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from jobs.cause import tail_of
from jobs.slurm.allocation import Allocation, warned_by_signal
from jobs.slurm.commands import SlurmError
from jobs.slurm.image import Image, image_now
from jobs.slurm.interconnect import InterconnectTask, launch_line, limit_s, minutes_for, turns
from jobs.slurm.nodelist import hostnames
from jobs.slurm.preflight import launch_problems
from jobs.slurm.ranks import GRACE_S, SRUN_LOG, StepRanks
from jobs.slurm.step import rank_base
from jobs.slurm.where import asker
from jobs.stop import Reason, Stop, stopped_by_signals
from train.errors import ConfigError
from train.interconnect.facts.record import When
from train.interconnect.record import (
    EXIT_NOT_MET,
    GAVE_UP,
    JOB_NAME,
    NOT_MET,
    SWITCHES_NAME,
    JobNote,
    Phase,
    Step,
    Trouble,
)
from train.record.atomic import write_atomically


def run_interconnect(told: dict[str, Any]) -> None:
    """On the first node. Exit code 1 where a phase did not come to its end."""
    task = InterconnectTask.model_validate(told)
    allocation = Allocation.read(os.environ, minutes_for(task), task.site.slurm_conf)
    write_atomically(Path(task.folder) / SWITCHES_NAME, json.dumps(task.switches) + "\n")
    task = task.model_copy(update={"image_digest": _digest_now(task)})
    steps: list[Step] = []
    note = JobNote(
        job=allocation.job,
        nodes=allocation.nodes,
        image=task.image,
        image_digest=task.image_digest,
        steps=(),
        phases=task.phases,
        expected=_names(allocation.nodes, task.site.slurm_conf),
        ended=False,
    )

    def keep(**changes: object) -> None:
        told = note.model_copy(update={"steps": tuple(steps), **changes})
        write_atomically(Path(task.folder) / JOB_NAME, told.model_dump_json(indent=1) + "\n")

    keep()  # a job that is lost with its first node was begun, and says so
    with stopped_by_signals() as stop, warned_by_signal():
        for phase, when in turns(task):
            if stop.reason is None:
                steps.append(_step(task, phase, when, allocation, stop))
                keep()
    keep(ended=True)
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
    # the end of one node's part is what is looked for, and no reason to end the others'
    grace_s = GRACE_S if phase == "collectives" else math.inf
    ranks, began, limit = (
        StepRanks(logs / SRUN_LOG, grace_s=grace_s), time.monotonic(), limit_s(task, phase)
    )  # fmt: skip
    late = Reason("timeout", f"{phase} took longer than {limit:.0f} s")
    size = task.nodes * (task.ranks_per_node if phase == "collectives" else 1)
    ranks.start(argv, rank_base(os.environ) | settings, size)

    def tick() -> Reason | None:
        return stop.reason or (late if time.monotonic() > began + limit else None)

    try:
        stopped = ranks.watch(tick)
    finally:
        ranks.end()
    problems = launch_problems(logs, ranks) if ranks.code else []
    troubles = [Trouble(node=p.node, what=p.check, found=p.found) for p in problems]
    known = {trouble.node for trouble in troubles}
    troubles += [
        Trouble(
            node=end.host,
            what=NOT_MET if end.code == EXIT_NOT_MET else GAVE_UP,
            found=_last_words(logs / f"rank-{end.rank}.log"),
        )
        for end in ranks.said.ends
        if end.code > 0 and end.host not in known
    ]
    return Step(
        phase=phase,
        seconds=time.monotonic() - began,
        exit_code=ranks.code,
        stopped=stopped.text if stopped else None,
        troubles=tuple(troubles),
    )


def _digest_now(task: InterconnectTask) -> str | None:
    """None also where the image cannot be read: the phases that need it then say so."""
    with contextlib.suppress(ConfigError):
        return image_now(Image(task.image, task.image_digest, task.image_mark)).digest
    return None


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in tail_of(log) if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _names(nodes: str, slurm_conf: str | None) -> tuple[str, ...]:
    """Empty where Slurm does not answer: then nobody is missed."""
    with contextlib.suppress(SlurmError):
        return tuple(hostnames(nodes, asker(slurm_conf)))
    return ()
