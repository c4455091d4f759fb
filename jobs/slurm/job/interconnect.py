"""The job that measures the network between its nodes: a step for each phase, one after another.

It runs on the first node of the allocation and leaves what the verdict is made from.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs.cell.container import NO_IMAGE, Image, image_now
from jobs.cell.stop import Stop, stopped_by_signals
from jobs.slurm.client.nodes import hostnames
from jobs.slurm.client.run import SlurmError, asker
from jobs.slurm.job.allocation import WARNINGS, Allocation
from jobs.slurm.job.step import GLOO, step_line
from jobs.slurm.job.step_failure import launch_troubles
from jobs.slurm.job.step_ranks import SRUN_LOG, StepLine, StepRanks
from jobs.slurm.job.task import Task
from train.errors import ConfigError
from train.interconnect.facts.record import When
from train.interconnect.record import (
    ALL_PAIRS,
    EXIT_NOT_MET,
    GAVE_UP,
    JOB_NAME,
    NOT_MET,
    PARTNERS,
    PHASES,
    RETESTED,
    JobNote,
    Phase,
    Step,
    Trouble,
)
from train.record.atomic import write_atomically
from train.record.cell_folder import last_words

#: A node that fails is a finding: neither the job nor its step may end with it.
NO_KILL = "--no-kill"
#: A pair's connection, pings, check and pauses, on top of its samples; measured at about 0.4 s.
PAIR_S = 0.6
#: A measurement that does not get on is given up after this time
#: (train.interconnect.measure.stream).
PAIR_GIVEN_UP_S = 80
#: Suspects are measured again, one pair at a time: 6 measurements for a node and 3 for a link.
RETESTS = RETESTED * (6 + 3)
#: A series of collectives: about 24 sizes of 0.1 s and more, the largest two of a few seconds.
SERIES_S = 9.0


class InterconnectTask(Task):
    """Measure the network between the nodes; ``ranks_per_node`` are those of the collectives."""

    folder: str  # of what is found
    interface: str | None
    samples: int
    sample_s: float
    phases: tuple[Phase, ...] = PHASES


def tournament_limit_s(task: InterconnectTask) -> float:
    """What the tournament is to keep to: it has two rounds for each partner, and about 6 more."""
    all_others = task.nodes - 1 + task.nodes % 2  # an odd number: one node has a rest in each round
    partners = all_others if task.nodes <= ALL_PAIRS else PARTNERS
    pair_s = (task.samples + 1) * task.sample_s + PAIR_S
    # where pairs slow each other down, they are measured one by one, for up to so long; then nodes
    # meet fewer others
    one_by_one_s = min(task.nodes * (task.nodes - 1) * pair_s, 900)
    # a slow link takes longer than a healthy one
    return 3 * (2 * partners + 6) * pair_s + one_by_one_s + RETESTS * pair_s


def collectives_s(ranks: int) -> float:
    """About what the collectives take (train.interconnect.collectives.plan): 28 series, and two for
    each smaller number of ranks, of which there are at most 7 and the powers of two above."""
    fewer = min(ranks, 8) + max(0, math.ceil(math.log2(ranks)) - 3)
    import_s = 60  # TensorFlow, on all nodes at once from one file system
    return import_s + SERIES_S * (28 + 2 * fewer)


def start_s(nodes: int) -> float:
    """How long a phase waits for the last of its nodes: srun and the containers take longer on
    large machines, whose nodes read one image from one file system."""
    return 60 + 0.1 * nodes


def limit_s(task: InterconnectTask, phase: Phase) -> float:
    """Seconds after which a phase is ended."""
    limits = {
        "preflight": 0.0,
        "collectives": 2 * collectives_s(task.nodes * task.ranks_per_node),
        # a measurement that was begun is brought to its end
        "tournament": tournament_limit_s(task) + PAIR_GIVEN_UP_S,
    }
    return start_s(task.nodes) + limits[phase]


def turns(task: InterconnectTask) -> list[tuple[Phase, When]]:
    """The steps of the job; the preflight looks twice, at what the counters did meanwhile."""
    steps: list[tuple[Phase, When]] = [(phase, "before") for phase in task.phases]
    return [*steps, ("preflight", "after")] if "preflight" in task.phases else steps


def minutes_for(task: InterconnectTask) -> int:
    """Time limit of the job."""
    return math.ceil(sum(limit_s(task, phase) for phase, _ in turns(task)) / 60) + 1


def of_phase(task: InterconnectTask, phase: Phase) -> InterconnectTask:
    """The nodes and the site as a phase has them: collectives are launched as training is."""
    site = task.site.model_copy(update={"interface": task.interface or task.site.interface})
    if phase == "collectives":
        return task.model_copy(update={"site": site})
    # plain sockets need nothing that MPI's launchers set up, and must not fail with it; and one
    # node's end must not end the others: it is what is looked for
    site = site.model_copy(update={"mpi": GLOO, "srun": (*site.srun, NO_KILL)})
    # facts are of the node itself: its tools are not in the image
    image = NO_IMAGE if phase == "preflight" else task.image
    return task.model_copy(update={"site": site, "image": image, "ranks_per_node": 1})


def launch_line(
    task: InterconnectTask, phase: Phase, when: When = "before", attempt: str = "1"
) -> StepLine:
    """srun, the container and the program of a phase, with what it adds to the environment.

    Args:
        when: before or after, for the preflight.
        attempt: other than those of earlier attempts, whose ranks left addresses behind.
    """
    options = ["--out", task.folder]
    options += [] if task.interface is None else ["--interface", task.interface]
    limits = ["--limit-s", f"{tournament_limit_s(task):.0f}"]
    limits += ["--patience-s", f"{start_s(task.nodes):.0f}"]
    samples = ["--samples", str(task.samples), "--sample-s", f"{task.sample_s:g}"]
    programs = {
        "preflight": ["train.interconnect.facts", *options, "--when", when],
        "tournament": ["train.interconnect", *options, *samples, *limits],
        "collectives": ["train.interconnect.collectives", *options],
    }
    return step_line(
        of_phase(task, phase),
        ["-m", *programs[phase]],
        logs=Path(task.folder) / "logs" / phase,
        meeting=Path(task.folder) / f".rendezvous-{attempt}",
        all_end=phase == "collectives",
    )


def run_interconnect(payload: dict[str, Any]) -> None:
    """On the first node. Exit code 1 where a phase did not come to its end."""
    task = InterconnectTask.model_validate(payload).on_node(os.environ)
    allocation = Allocation.read(os.environ, minutes_for(task), task.site)
    digest, expected = None, list[str]()
    with suppress(ConfigError):  # the phases that need the image say what is wrong with it
        digest = image_now(Image(task.image, task.image_digest, task.image_mark)).digest
    with suppress(SlurmError):  # without an answer nobody is missed
        expected = hostnames(allocation.nodes, asker())
    steps: list[Step] = []

    def write_note(*, ended: bool = False) -> None:
        note = JobNote(
            job=allocation.job,
            nodes=allocation.nodes,
            image=task.image,
            image_digest=digest,
            steps=tuple(steps),
            phases=task.phases,
            expected=tuple(expected),
            ended=ended,
        )
        text = note.model_dump_json(indent=1) + "\n"
        write_atomically(Path(task.folder) / JOB_NAME, text)

    write_note()  # a job that is lost with its first node was begun, and says so
    attempt = f"{allocation.job}-{allocation.restarts}"
    with stopped_by_signals() as stop, stopped_by_signals(signals=WARNINGS):
        for phase, when in turns(task):
            if stop.reason is None:
                argv, settings = launch_line(task, phase, when, attempt)
                settings |= {} if digest is None else {"HOROSCALE_IMAGE_DIGEST": digest}
                steps.append(_run(task, phase, (argv, settings), stop))
                write_note()
    write_note(ended=True)
    sys.exit(1 if any(step.exit_code or step.stopped for step in steps) else 0)


def _run(task: InterconnectTask, phase: Phase, line: StepLine, stop: Stop) -> Step:
    """A failed phase does not end the others: each is evidence of its own."""
    logs = Path(task.folder) / "logs" / phase
    logs.mkdir(parents=True, exist_ok=True)
    ranks, began = StepRanks(logs / SRUN_LOG), time.monotonic()
    if phase != "collectives":
        # the end of one node's part is what is looked for, and no reason to end the others'
        ranks.grace_s = math.inf
    stopped = ranks.run(line, of_phase(task, phase).size, stop, limit_s(task, phase))
    troubles = launch_troubles(ranks) if ranks.code else []
    named = {trouble.node for trouble in troubles}
    for rank, end in ranks.said.ends.items():
        if end.code > 0 and end.host not in named:
            what = NOT_MET if end.code == EXIT_NOT_MET else GAVE_UP
            words = last_words(ranks.log_of(rank), 1)
            troubles.append(Trouble(node=end.host, what=what, found=words))
    return Step(
        phase=phase,
        seconds=time.monotonic() - began,
        exit_code=ranks.code,
        stopped=stopped.text if stopped else None,
        troubles=tuple(troubles),
    )
