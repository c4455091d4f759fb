"""`make interconnect`, from the login node: submit the job that measures, and wait for its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jobs.cell.container import check_path, find_image
from jobs.config.site import NamedSite
from jobs.config.yamlfile import unknown
from jobs.messages import EXIT_UNDECIDED, ROOT, NoAnswer, say
from jobs.slurm.arrays import Array, NodeLayout
from jobs.slurm.client.nodes import Wanted, check_in_use, leaves, read_nodes
from jobs.slurm.client.run import SlurmError, asker
from jobs.slurm.client.sacct import History
from jobs.slurm.client.site import check_site
from jobs.slurm.client.user import hand_over, is_anothers
from jobs.slurm.job.interconnect import NO_KILL, InterconnectTask, minutes_for
from jobs.slurm.request import slurm_refusals
from jobs.slurm.script import freeze
from jobs.slurm.submissions import JobContext
from jobs.slurm.submit import submit_job
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
    site = request.site.site
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
        folder = parent / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-n{wanted.number}"
        task = _task(request, wanted, folder, leaves(ask))
        shape = NodeLayout(wanted.number, request.ranks_per_node)
        array = Array(units=((folder.name,),), minutes=minutes_for(task), **vars(shape))
        for remark in check_site(site, [shape], ask, minutes=array.minutes):
            say(remark)
        check_in_use(wanted, site.partition, ask, site.reservation)
        context = JobContext(
            name=INTERCONNECT,
            folder=parent,
            site_name=request.site.name,
            site=site,
            root=freeze(ROOT, parent),
            cluster=History(site.slurm_conf).cluster(),
        )
        folder.mkdir()
        task = task.model_copy(update={"root": str(context.root)})
        options: dict[str, Any] = {NO_KILL.removeprefix("--"): True, "nodelist": wanted.names}
        with slurm_refusals(request.site):
            job = submit_job(context, INTERCONNECT, folder.name, array, [task], **options)
        where = f" ({wanted.names})" if wanted.names else ""
        say(f"interconnect: job {job} on {wanted.number} nodes{where}, {array.minutes} min at most")
        wait_for(job, site.slurm_conf, INTERCONNECT, site.poll_s)
    except SlurmError as error:
        raise NoAnswer(f"Slurm gives no answer, or a refusal: {error}") from error
    print(folder)
    if not (folder / JOB_NAME).is_file():
        say(f"nothing to make a verdict from ({end_of(job, site.slurm_conf)}); see {folder}")
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
    image = find_image(site.image, ROOT)
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
