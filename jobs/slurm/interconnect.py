"""`make interconnect`, from the login node: submit the job that measures, and wait for its end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jobs.cell.container import check_path, find_image
from jobs.cell.needs import Need
from jobs.config.site import NamedSite, NodeLayout
from jobs.messages import EXIT_UNDECIDED, ROOT, say
from jobs.slurm.client.nodes import check_in_use, leaves, read_nodes
from jobs.slurm.client.run import SCONTROL, asker, read_config
from jobs.slurm.job.interconnect import NO_KILL, InterconnectTask, minutes_for
from jobs.slurm.job.task import JobContext
from jobs.slurm.request import slurm_refusals
from jobs.slurm.script import freeze
from jobs.slurm.submissions import Array
from jobs.slurm.submit import submit_job
from jobs.slurm.watch.endings import end_of, wait_for
from train.errors import ConfigError, unknown
from train.interconnect.record import JOB_NAME, PHASES, SWITCHES_NAME, Phase
from train.record.atomic import write_atomically

INTERCONNECT: Final = "interconnect"


def phases_named(text: str) -> tuple[Phase, ...]:
    """``all``, or some with commas, in the order in which they run.

    Raises:
        ConfigError: there is no such phase.
    """
    names = PHASES if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in PHASES:
            raise ConfigError(f"--phases {text}: {unknown('phase', name, ('all', *PHASES))}")
    return tuple(phase for phase in PHASES if phase in names)


def validate(
    named: NamedSite, results: Path, nodes: str, ranks_per_node: int, **measurement: Any
) -> int:
    """Measure, and print the run's folder; exit code 0, or 3 where the job left nothing.

    ``nodes``: a number, or names; ``measurement``: of :class:`InterconnectTask`.

    Raises:
        ConfigError: the request does not fit the site or the cluster; nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    site, parent = named.site, results / INTERCONNECT
    ask = asker()
    with slurm_refusals(named):
        wanted = read_nodes(nodes, ask)
        if wanted.number < 2:
            raise ConfigError(
                f"NODES={nodes}: a network is measured between nodes, so there must be two or "
                "more, and three or more to tell which of them is slow: say NODES=4, for instance"
            )
        parent.mkdir(parents=True, exist_ok=True)
        folder = parent / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-n{wanted.number}"
        if site.max_nodes is not None and wanted.number > site.max_nodes:
            raise ConfigError(
                f"NODES={nodes}: {named.file} allows a job {site.max_nodes} nodes (max_nodes)"
            )
        for path, what in ((ROOT, "the checkout"), (folder, "the results folder")):
            check_path(path, what)
        context = JobContext(
            name=INTERCONNECT,
            folder=parent,
            site_name=named.name,
            site=site,
            root=freeze(ROOT, parent),
            image=find_image(site.image, ROOT),
            needs=(Need(what="the results folder", path=str(parent), use="write"),),
            cluster=read_config(ask(SCONTROL)).get("ClusterName"),
        )
        layout = NodeLayout(wanted.number, ranks_per_node)
        task = InterconnectTask(folder=str(folder), **measurement, **context.task(layout))
        array = Array(cells=(folder.name,), minutes=minutes_for(task), **vars(layout))
        check_in_use(wanted, site, ask)
        switches = leaves(ask)
        folder.mkdir()
        write_atomically(folder / SWITCHES_NAME, json.dumps(switches) + "\n")
        names = ",".join(wanted.names)
        options: dict[str, Any] = {NO_KILL.removeprefix("--"): True, "nodelist": names or None}
        job = submit_job(context, INTERCONNECT, folder.name, array, [task], **options)
        where = f" ({names})" if names else ""
        say(f"interconnect: job {job} on {wanted.number} nodes{where}, {array.minutes} min at most")
        wait_for(job, site, INTERCONNECT)
    print(folder)
    if not (folder / JOB_NAME).is_file():
        say(f"nothing to make a verdict from ({end_of(job, parent)}); see {folder}")
        return EXIT_UNDECIDED
    return 0
