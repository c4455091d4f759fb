"""`python -m jobs COMMAND`: from a sweep file to finished cells, here or on a cluster."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ParamSpec

# ruff: noqa: E402
#: Ctrl-C while the imports below take seconds, as on a network file system: nothing has begun.
INTERRUPT = signal.getsignal(signal.SIGINT)
if __name__ == "__main__" and INTERRUPT != signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import typer

from jobs.cell.lock import only_sweep
from jobs.config.site import NamedSite
from jobs.config.sweep import DATA
from jobs.local.sweep import machine_for, plan_here, sweep_here
from jobs.messages import EXIT_REQUEST, ROOT, refusals, say, without_links
from jobs.named import folder_of, named, named_or_laid_out
from jobs.plan.cluster import plan_cluster
from jobs.plan.datasets import store_for
from jobs.slurm import commands
from jobs.slurm.client.detect import refuse_image, site_for
from jobs.slurm.client.user import become_owner
from jobs.slurm.interconnect import INTERCONNECT, phases_named, validate
from jobs.slurm.job.task import PREFLIGHT
from jobs.slurm.request import SweepRequest
from jobs.slurm.sweep import sweep_cluster
from train.config.datasets import DATASETS
from train.distributed.watchdog import STALL_S
from train.errors import ConfigError
from train.program.command_line import place, run
from train.program.environment import enter, unheard

RESULTS = ROOT / "results"

SweepName = Annotated[str, typer.Argument(help="name under jobs/sweeps, or a path")]
Results = Annotated[Path, typer.Option(parser=place, help="folder of all results")]
Data = Annotated[
    Path, typer.Option(parser=place, help="folder with the data sets; may be read-only")
]
Store = Annotated[
    Path | None,
    typer.Option(parser=place, help="folder for the prepared form of data sets (DATA/prepared)"),
]
Site = Annotated[
    str, typer.Option(help="where to run: local, auto, a name under jobs/sites, or a path")
]
Image = Annotated[
    str, typer.Option(help="on this machine: run ranks inside this image (cpu, gpu or a path)")
]
Account = Annotated[str, typer.Option(help="account of jobs, in place of the site file's")]
Partition = Annotated[str, typer.Option(help="partition, in place of the site file's")]
Qos = Annotated[str, typer.Option(help="QoS, in place of the site file's")]
Time = Annotated[str, typer.Option(help="time limit of a cell's job: minutes, H:MM:SS, D-HH:MM:SS")]

#: Options of earlier versions, and what replaces them.
GONE = {
    "--pack": "each job runs one cell; the cells of an array run in random order, so that a slow "
    "node affects all techniques, and the report names a host whose ranks hold up the others",
    "--budget": "make plan prints the GPU-hours that a sweep may use; TIME= limits each job",
}

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    result_callback=sys.exit,
)  # fmt: skip
Options = ParamSpec("Options")


def command(function: Callable[Options, int]) -> Callable[Options, int]:
    """A command of the program, which returns its exit code."""
    return app.command()(refusals()(function))


def cluster_for(
    site: str, account: str, partition: str, qos: str, time: str, **about: Any
) -> NamedSite | None:
    """The cluster that SITE= names, with these in place of its file's; None: this machine.
    ``about``: as :func:`jobs.slurm.client.detect.site_for` has it."""
    given = {"account": account, "partition": partition, "qos": qos, "time_min": time}
    return site_for(site, options=given, **about)


def written(folder: Path, store: Path | None) -> list[Path]:
    """What a sweep of the practice cluster's user writes: results and prepared data, by the names
    that root was told, since a link on the way may be that user's."""
    places = [folder, folder.parent / PREFLIGHT, folder.parent / ".prepared"]
    return places + ([store] if store and not os.access(store, os.F_OK) else [])


@command
def plan(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    store: Store = None,
    site: Site = "auto",
    account: Account = "",
    partition: Partition = "",
    qos: Qos = "",
    time: Time = "",
    image: Image = "",
) -> int:
    """Show what a sweep would do: cells, sizes, steps, time, launch lines. Runs nothing."""
    wanted, folder = named(sweep, results, data)
    for remark in wanted.remarks:
        say(remark)
    store = store or store_for(data, results)
    # images in folders are prepared to be counted
    own = any(config.dataset not in DATASETS for config in wanted.configs)
    gives = [results / ".prepared"] if own else []
    if cluster := cluster_for(site, account, partition, qos, time, sweep=folder, gives=gives):
        refuse_image(image, cluster)
        plan_cluster(SweepRequest(wanted, folder.parent, data, store, cluster))
    else:
        plan_here(wanted, folder.parent, machine_for(wanted, data, store, folder, image=image))
    return 0


@command
def where(sweep: SweepName = "quickstart", results: Results = RESULTS) -> int:
    """Print the folder of a sweep's results."""
    # the bytes of the name, whatever the terminal knows
    sys.stdout.buffer.write(os.fsencode(f"{folder_of(sweep, results)}\n"))
    return 0


@command
def sweep(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    store: Store = None,
    site: Site = "auto",
    account: Account = "",
    partition: Partition = "",
    qos: Qos = "",
    time: Time = "",
    image: Image = "",
    force: Annotated[bool, typer.Option("--force", help="run finished cells anew")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="cells at once, as cores allow")] = 1,
    stall_s: Annotated[float, typer.Option(min=5, help="seconds without progress")] = STALL_S,
    wait: Annotated[bool, typer.Option(help="stay until all is done (on a cluster)")] = True,
    preflight: Annotated[bool, typer.Option(help="check the cluster's seams first")] = True,
    set_up: Annotated[
        bool, typer.Option("--set-up", help="install first what ranks on this machine need")
    ] = False,
) -> int:
    """Run every cell that has no good record yet; print the folder of the results."""
    wanted, folder = named(sweep, results, data)
    names = unheard(os.environ)
    gives = written(results / wanted.name, store)
    cluster = cluster_for(site, account, partition, qos, time, sweep=folder, gives=gives, data=data)
    if names:
        say(f"not passed on to ranks: {', '.join(names)} (docs/set-up.md says why)")
    if cluster:
        refuse_image(image, cluster)
        store = store or store_for(data, results)
        request = SweepRequest(wanted, folder.parent, data, store, cluster, stall_s)
        code = sweep_cluster(request, force=force, wait=wait, preflight=preflight)
    else:
        if set_up and not image:
            # TensorFlow and Horovod, which only a machine that runs ranks needs
            setup = [str(ROOT / "containers" / name) for name in ("python.sh", "setup.py")]
            if code := subprocess.run(["sh", *setup, "ranks"], check=False).returncode:
                return code
        become_owner(folder)
        store = store or store_for(data, results)
        with only_sweep(folder):
            machine = machine_for(
                wanted, data, store, folder, image=image,
                at_once=jobs, stall_s=stall_s,
            )  # fmt: skip
            code = sweep_here(wanted, folder, force=force, machine=machine)
    with suppress(OSError):  # nobody reads it
        os.write(1, os.fsencode(f"{folder}\n"))
    return code


@command
def status(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> int:
    """Show where every cell stands; one question to Slurm, however many there are."""
    return commands.status(*named_or_laid_out(sweep, results, data), for_programs=as_json)


@command
def cancel(sweep: SweepName = "quickstart", results: Results = RESULTS, data: Data = DATA) -> int:
    """End all jobs of a sweep on a cluster; what was done stays, and can be gone on with."""
    return commands.cancel_jobs(folder_of(sweep, without_links(results)))


@command
def logs(
    sweep: SweepName = "quickstart",
    cell: Annotated[str, typer.Option(help="id of a cell, or a part that only it has")] = "",
    results: Results = RESULTS,
    data: Data = DATA,
) -> int:
    """Show why a cell ended and the ends of its logs, the first cause first."""
    return commands.logs(*named_or_laid_out(sweep, results, data), cell)


@command
def preflight(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    store: Store = None,
    site: Site = "auto",
    account: Account = "",
    partition: Partition = "",
    qos: Qos = "",
    time: Time = "",
    nodes: Annotated[int | None, typer.Option(min=1, help="on how many nodes")] = None,
) -> int:
    """Check on the cluster's nodes, inside the image, all that a sweep needs there."""
    wanted, folder = named(sweep, results, data)
    gives = written(results / wanted.name, store)
    cluster = cluster_for(
        site, account, partition, qos, time, of_cells=False, gives=gives, data=data
    )
    store = store or store_for(data, results)
    if cluster is None:
        raise ConfigError("a preflight needs a cluster: name it with SITE=")
    return commands.preflight(SweepRequest(wanted, folder.parent, data, store, cluster), nodes)


@command
def interconnect(
    site: Site = "auto",
    results: Results = RESULTS,
    account: Account = "",
    partition: Partition = "",
    qos: Qos = "",
    time: Time = "",
    nodes: Annotated[str, typer.Option(help="how many, or which: node3,node[5-8]")] = "4",
    interface: Annotated[str | None, typer.Option(help="network interface to measure")] = None,
    samples: Annotated[int, typer.Option(min=3, help="per pair and direction")] = 7,
    sample_s: Annotated[float, typer.Option(min=0.01, max=60, help="seconds of each")] = 0.25,
    phases: Annotated[str, typer.Option(help="some of preflight,collectives,tournament")] = "all",
    ranks_per_node: Annotated[int, typer.Option(min=1, help="of the collectives")] = 1,
) -> int:
    """Measure the network between nodes, every ordered pair; prints the folder of the run."""
    gives = [results / INTERCONNECT]
    cluster = cluster_for(site, account, partition, qos, time, of_cells=False, gives=gives)
    if cluster is None:
        raise ConfigError("one machine has no interconnect: name a cluster with SITE=")
    return validate(
        cluster, without_links(results), nodes, ranks_per_node,
        interface=interface, samples=samples, sample_s=sample_s, phases=phases_named(phases),
    )  # fmt: skip


def refuse_gone(argv: Sequence[str]) -> None:
    """Exits with 2 where an option of an earlier version is given."""
    for option, instead in GONE.items():
        if any(word.partition("=")[0] == option for word in argv):
            say(f"error: {option[2:].upper()}= ({option}) is no option any more: {instead}")
            sys.exit(EXIT_REQUEST)


def main() -> None:
    enter("command", os.environ)
    refuse_gone(sys.argv)
    # 10,000 cells stay to the end: a search for cycles at each 700th object takes a quarter of it
    gc.set_threshold(100_000)
    signal.signal(signal.SIGINT, INTERRUPT)
    app()


if __name__ == "__main__":
    run(main)
