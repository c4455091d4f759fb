"""`make interconnect`, from the login node: submit the job that measures, and wait for its end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jobs.cell.container import check_path
from jobs.cell.image import find_image
from jobs.config.site import NamedSite
from jobs.config.yamlfile import unknown
from jobs.messages import EXIT_UNDECIDED, ROOT, NoAnswer, say
from jobs.slurm.arrays import Array, ArrayTask, NodeLayout
from jobs.slurm.client.nodes import Wanted, check_in_use, leaves, read_nodes
from jobs.slurm.client.run import SlurmError, asker
from jobs.slurm.client.sacct import History
from jobs.slurm.client.site import check_site
from jobs.slurm.client.user import hand_over, is_anothers
from jobs.slurm.job.interconnect import NO_KILL, InterconnectTask, minutes_for
from jobs.slurm.request import slurm_refusals
from jobs.slurm.script import freeze, job_name, script_text
from jobs.slurm.submissions import ArrayNote, RunNote, array_folder, comment_of
from jobs.slurm.submit import submit
from jobs.slurm.watch.pace import end_of, wait_for
from train.errors import ConfigError
from train.interconnect.record import JOB_NAME, PHASES, Phase

INTERCONNECT: Final = "interconnect"


@dataclass(frozen=True)
class Request:
    """What the sysadmin asked for."""

    site: NamedSite
    results: Path
    nodes: str  # a number, or names
    interface: str | None = None  # None: the site's
    samples: int = 7
    sample_s: float = 0.25
    phases: tuple[Phase, ...] = PHASES
    ranks_per_node: int = 1


def phases_named(text: str) -> tuple[Phase, ...]:
    """``all``, or some with commas, in the order in which they run.

    Raises:
        ConfigError: there is no such phase.
    """
    if text == "all":
        return PHASES
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in PHASES:
            raise ConfigError(f"--phases {text}: {unknown('phase', name, ('all', *PHASES))}")
    return tuple(phase for phase in PHASES if phase in names)


def validate(request: Request) -> int:
    """Measure, and print the run's folder; exit code 0, or 3 where the job left nothing.

    Raises:
        ConfigError: the request does not fit the site or the cluster; nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    ask, parent = asker(request.site.site.slurm_conf), request.results / INTERCONNECT
    try:
        wanted = read_nodes(request.nodes, ask)
        if wanted.number < 2:
            raise ConfigError(
                f"NODES={request.nodes}: a network is measured between nodes, so there must be two "
                "or more, and three or more to tell which of them is slow: say NODES=4, for "
                "instance"
            )
        if is_anothers(request.site):
            hand_over(request.site, parent)
        parent.mkdir(parents=True, exist_ok=True)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-n{wanted.number}"
        task = _task(request, wanted, parent / name, leaves(ask))
        shape = NodeLayout(wanted.number, request.ranks_per_node)
        minutes = minutes_for(task)
        for remark in check_site(task.site, [shape], ask, minutes=minutes):
            say(remark)
        check_in_use(wanted, task.site.partition, ask, task.site.reservation)
        unit = ArrayTask((INTERCONNECT,), shape, minutes)
        task = task.model_copy(update={"root": str(freeze(ROOT, parent))})
        cluster = History(task.site.slurm_conf).cluster()
        with slurm_refusals(request.site):
            job = _submit(request.site, task, Array(shape, (unit,), minutes, 1), wanted, cluster)
        where = f" ({wanted.names})" if wanted.names else ""
        say(f"interconnect: job {job} on {wanted.number} nodes{where}, {minutes} min at most")
        wait_for(job, task.site.slurm_conf, INTERCONNECT, task.site.poll_s)
    except SlurmError as error:
        raise NoAnswer(f"Slurm gives no answer, or a refusal: {error}") from error
    print(task.folder)
    if not (Path(task.folder) / JOB_NAME).is_file():
        text = end_of(job, task.site.slurm_conf)
        say(f"nothing to make a verdict from ({text}); see {task.folder}")
        return EXIT_UNDECIDED
    return 0


def _task(
    request: Request, wanted: Wanted, folder: Path, switches: dict[str, str]
) -> InterconnectTask:
    site = request.site.site
    if site.max_nodes is not None and wanted.number > site.max_nodes:
        raise ConfigError(
            f"NODES={request.nodes}: {request.site.source} allows a job {site.max_nodes} nodes "
            "(max_nodes)"
        )
    image = find_image(site, ROOT)
    for path, what in ((ROOT, "the checkout"), (folder, "the results folder")):
        check_path(path, what)
    return InterconnectTask(
        folder=str(folder),
        site=site,
        nodes=wanted.number,
        image=image.path,
        image_digest=image.digest,
        image_mark=image.mark,
        root=str(ROOT),
        interface=request.interface,
        samples=request.samples,
        sample_s=request.sample_s,
        phases=request.phases,
        ranks_per_node=request.ranks_per_node,
        switches=switches,
    )


def _submit(
    site: NamedSite, task: InterconnectTask, array: Array, wanted: Wanted, cluster: str | None
) -> str:
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    parent = folder.parent
    name = job_name(INTERCONNECT, parent)
    note = RunNote(
        run=folder.name,
        site=site.name,
        job_name=name,
        slurm_conf=task.site.slurm_conf,
        submitted_at=datetime.now(UTC),
        arrays=(
            ArrayNote(
                units=((folder.name,),), nodes=task.nodes, ranks_per_node=task.ranks_per_node,
                minutes=array.minutes,
            ),
        ),
        kind=INTERCONNECT,
        cluster=cluster,
        user=os.getuid(),
    )  # fmt: skip
    more: dict[str, str | bool] = {NO_KILL.removeprefix("--"): True}
    if wanted.names is not None:
        more["nodelist"] = wanted.names
    script = script_text(
        task.site, array, array_folder(parent, note.run, INTERCONNECT), name=name,
        root=Path(task.root), comment=comment_of(note.run, INTERCONNECT), more=more,
    )  # fmt: skip
    note = submit(parent, note, 0, [task.model_dump(mode="json")], script)
    return note.arrays[0].job_id or ""
