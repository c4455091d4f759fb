"""The job that measures the network between its nodes: a step for each phase, one after another.

It runs on the first node of the allocation and leaves what the verdict is made from.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from jobs.cell.container import IMAGE_PYTHON, NO_IMAGE
from jobs.cell.image import FileMark, Image, image_now
from jobs.cell.stop import Reason, Stop, stopped_by_signals
from jobs.config.site import Site
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.client.nodes import hostnames
from jobs.slurm.client.run import SlurmError, asker
from jobs.slurm.job.allocation import Allocation, warned_by_signal
from jobs.slurm.job.preflight import launch_problems
from jobs.slurm.job.step import GLOO, rank_base, step_argv, step_environment
from jobs.slurm.job.step_ranks import GRACE_S, SRUN_LOG, StepRanks
from jobs.slurm.job.task import container_at
from train.config.frozen import Frozen
from train.errors import ConfigError
from train.interconnect.facts.record import When
from train.interconnect.record import (
    EXIT_NOT_MET,
    GAVE_UP,
    JOB_NAME,
    NOT_MET,
    PHASES,
    SWITCHES_NAME,
    JobNote,
    Phase,
    Step,
    Trouble,
)
from train.record.atomic import write_atomically
from train.record.cell_folder import tail_of

#: A node that fails is a finding: neither the job nor its step may end with it.
NO_KILL = "--no-kill"
#: srun and the containers may take this long to start everywhere.
START_S = 60
#: And on large machines longer: one image, read by all nodes from one file system.
START_NODE_S = 0.1
#: A pair's connection, pings, check and pauses, on top of its samples; measured at about 0.4 s.
PAIR_S = 0.6
#: A measurement that does not get on is given up after this time
#: (train.interconnect.measure.stream).
PAIR_GIVEN_UP_S = 80
#: More nodes than this meet only so many partners (train.interconnect.record).
ALL_PAIRS, PARTNERS = 128, 8
#: A slow link takes longer than a healthy one.
SLACK = 3
#: Suspects are measured again, one pair at a time: so many measurements at most, 6 for each of 8
#: nodes and 3 for each of 8 links.
RETESTS = 8 * 6 + 8 * 3
#: A fabric, or machine, that bears no company is measured pair by pair, for up to so long; then
#: nodes meet fewer others.
ALONE_S = 900.0
#: A series of collectives: about 24 sizes of 0.1 s and more, the largest two of a few seconds.
SERIES_S = 9.0
#: Loading TensorFlow, on all nodes at once from one file system.
IMPORT_S = 60


class InterconnectTask(Frozen):
    """What the job is told."""

    folder: str
    site: Site
    nodes: int
    image: str
    image_digest: str | None  # when it was submitted
    image_mark: FileMark | None = None  # of the file that had it
    root: str
    interface: str | None
    samples: int
    sample_s: float
    phases: tuple[Phase, ...] = PHASES
    ranks_per_node: int = 1  # of the collectives
    switches: dict[str, str] = Field(default_factory=dict)  # node -> leaf switch


def tournament_s(nodes: int, samples: int, sample_s: float) -> float:
    """About what a healthy tournament takes; rounds are 2 (n - 1), for odd n 2 n."""
    partners = min(nodes - 1 + nodes % 2, nodes if nodes <= ALL_PAIRS else PARTNERS)
    return (2 * partners + 6) * ((samples + 1) * sample_s + PAIR_S)


def tournament_limit_s(task: InterconnectTask) -> float:
    """What the tournament is told to keep to."""
    pair = (task.samples + 1) * task.sample_s + PAIR_S
    alone = min(task.nodes * (task.nodes - 1) * pair, ALONE_S)
    return SLACK * tournament_s(task.nodes, task.samples, task.sample_s) + alone + RETESTS * pair


def collectives_s(ranks: int) -> float:
    """About what the collectives take (train.interconnect.collectives.plan): 28 series and those of
    fewer ranks, which are no more than 7 and the powers of two above."""
    fewer = min(ranks, 8) + max(0, math.ceil(math.log2(max(ranks, 1))) - 3)
    return IMPORT_S + SERIES_S * (28 + 2 * fewer)


def start_s(nodes: int) -> float:
    """How long a phase waits for the last of its nodes."""
    return START_S + START_NODE_S * nodes


def limit_s(task: InterconnectTask, phase: Phase) -> float:
    """Seconds after which a phase is ended."""
    start = start_s(task.nodes)
    match phase:
        case "preflight":
            return start
        case "collectives":
            return start + 2 * collectives_s(task.nodes * task.ranks_per_node)
        case "tournament":
            # what is begun is brought to its end
            return start + tournament_limit_s(task) + PAIR_GIVEN_UP_S


def minutes_for(task: InterconnectTask) -> int:
    """Time limit of the job."""
    return math.ceil(sum(limit_s(task, phase) for phase, _ in turns(task)) / 60) + 1


def turns(task: InterconnectTask) -> list[tuple[Phase, When]]:
    """The steps of the job; the preflight looks twice, at what the counters did meanwhile."""
    found: list[tuple[Phase, When]] = [(phase, "before") for phase in task.phases]
    return [*found, ("preflight", "after")] if "preflight" in task.phases else found


def launch_line(
    task: InterconnectTask, phase: Phase, when: When = "before", meeting: Path | None = None
) -> tuple[list[str], dict[str, str]]:
    """srun, the container and the program of a phase, with its environment.

    Args:
        when: before or after, for the preflight.
        meeting: file through which the ranks of the collectives meet where the site uses Gloo.
    """
    folder = Path(task.folder)
    container = container_at(task.site, task.image, (task.root, task.folder))
    python = sys.executable if task.image == NO_IMAGE else IMAGE_PYTHON
    rank = ["--out", task.folder]
    if task.interface is not None:
        rank += ["--interface", task.interface]
    # plain sockets need nothing that MPI's launchers set up, and must not fail with it; and one
    # node's end must not end the others: it is what is looked for
    training = task.site.model_copy(update={"interface": task.interface or task.site.interface})
    changes = {"mpi": GLOO, "srun": (*task.site.srun, NO_KILL)}
    site, shape, all_end = training.model_copy(update=changes), NodeLayout(task.nodes, 1), False
    match phase:
        case "preflight":
            # of the node itself: its tools are not in the image
            container = container_at(task.site, NO_IMAGE, ())
            rank = [sys.executable, "-m", "train.interconnect.facts", *rank, "--when", when]
        case "tournament":
            rank = [python, "-m", "train.interconnect", *rank]
            rank += ["--samples", str(task.samples), "--sample-s", f"{task.sample_s:g}"]
            rank += ["--limit-s", f"{tournament_limit_s(task):.0f}"]
            rank += ["--patience-s", f"{start_s(task.nodes):.0f}"]
        case "collectives":
            # as training does
            site, shape, all_end = training, NodeLayout(task.nodes, task.ranks_per_node), True
            rank = [python, "-m", "train.interconnect.collectives", *rank]
    rendezvous = meeting if task.site.mpi == GLOO else None
    settings = step_environment(site, container, root=Path(task.root), rendezvous=rendezvous)
    logs = folder / "logs" / phase
    return step_argv(site, shape, container, rank, logs, all_end=all_end), settings


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
