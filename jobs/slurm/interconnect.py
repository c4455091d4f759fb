"""The job that measures the network between its nodes: one step of the suite's container, one task
per node. It runs on the allocation's first node and leaves what the verdict is made from."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from jobs.site import Site
from jobs.slurm.allocation import Allocation, warned_by_signal
from jobs.slurm.preflight import launch_problems
from jobs.slurm.ranks import SRUN_LOG, StepRanks
from jobs.slurm.shape import Shape
from jobs.slurm.step import GLOO, IMAGE_PYTHON, NO_IMAGE, rank_base, step_argv, step_environment
from jobs.slurm.unit import container_at
from jobs.stop import Reason, stopped_by_signals
from train.files import write_atomically
from train.frozen import Frozen
from train.interconnect.record import JOB_NAME, JobNote, Trouble

#: A node that fails is a finding: neither the job nor its step may end with it.
NO_KILL = "--no-kill"
#: srun and the containers may take this long to start everywhere.
START_S = 60
#: A pair's connection, pings, check and pauses, on top of its samples; measured at about 0.4 s.
PAIR_S = 0.6
#: More nodes than this meet only so many partners (train.interconnect.tournament).
ALL_PAIRS, PARTNERS = 128, 8
#: A slow link takes longer than a healthy one, and suspects are measured again.
SLACK = 3


class InterconnectTask(Frozen):
    """What the job is told."""

    folder: str
    site: Site
    nodes: int
    image: str
    image_digest: str | None
    root: str
    interface: str | None
    samples: int
    sample_s: float


def seconds_for(nodes: int, samples: int, sample_s: float) -> float:
    """About what a healthy tournament takes; rounds are 2 (n - 1), for odd n 2 n."""
    partners = min(nodes - 1 + nodes % 2, nodes if nodes <= ALL_PAIRS else PARTNERS)
    return (2 * partners + 6) * ((samples + 1) * sample_s + PAIR_S)


def minutes_for(task: InterconnectTask) -> int:
    """Time limit of the job."""
    measured = seconds_for(task.nodes, task.samples, task.sample_s)
    return math.ceil((START_S + SLACK * measured) / 60) + 1


def launch_line(task: InterconnectTask) -> tuple[list[str], dict[str, str]]:
    """srun, the container and the program, with its environment; pure."""
    # plain sockets need nothing that MPI's launchers set up, and must not fail with it
    changes = {"mpi": GLOO, "srun": (*task.site.srun, NO_KILL)}
    site, folder = task.site.model_copy(update=changes), Path(task.folder)
    container = container_at(site, task.image, (task.root, task.folder))
    python = sys.executable if task.image == NO_IMAGE else IMAGE_PYTHON
    argv = [python, "-m", "train.interconnect", "--out", task.folder]
    argv += ["--samples", str(task.samples), "--sample-s", f"{task.sample_s:g}"]
    if task.interface is not None:
        argv += ["--interface", task.interface]
    settings = step_environment(site, container, root=Path(task.root), rendezvous=None)
    # one node's end must not end the others: it is what is looked for
    line = step_argv(site, Shape(task.nodes, 1), container, argv, folder, all_end=False)
    return line, settings


def run_interconnect(told: dict[str, Any]) -> None:
    """Called by submitit. Exit code 1 where there is nothing to make a verdict from."""
    task = InterconnectTask.model_validate(told)
    minutes = minutes_for(task)
    allocation = Allocation.read(os.environ, minutes, task.site.slurm_conf)
    folder = Path(task.folder)
    ranks = StepRanks(folder / SRUN_LOG)
    late = Reason("timeout", f"the measurement took longer than {minutes} min")
    with stopped_by_signals() as stop, warned_by_signal():
        argv, settings = launch_line(task)
        ranks.start(argv, rank_base(os.environ) | settings, task.nodes)
        deadline = time.monotonic() + 60 * minutes - START_S / 2

        def tick() -> Reason | None:
            return stop.reason or (late if time.monotonic() > deadline else None)

        try:
            stopped = ranks.watch(tick)
        finally:
            ranks.end()
    note = JobNote(
        job=allocation.name,
        nodes=allocation.nodes,
        image=task.image,
        image_digest=task.image_digest,
        exit_code=ranks.code,
        stopped=stopped.text if stopped else None,
        troubles=tuple(
            Trouble(node=p.node, what=p.check, found=p.found)
            for p in launch_problems(folder, ranks)
        )
        if ranks.code
        else (),
    )
    write_atomically(folder / JOB_NAME, note.model_dump_json(indent=1) + "\n")
    sys.exit(1 if ranks.code else 0)
