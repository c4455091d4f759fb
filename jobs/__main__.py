"""`python -m jobs COMMAND`: from a sweep file to finished cells, here or on a cluster."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import Annotated

import typer

from jobs.cell.lock import only_sweep
from jobs.config.load import load_sweep
from jobs.local.sweep import machine_for, plan_here, sweep_here
from jobs.messages import (
    DATA,
    RESULTS,
    ROOT,
    STORE,
    Budget,
    Data,
    Image,
    Pack,
    Results,
    Site,
    Store,
    SweepName,
    refusals,
)
from jobs.plan.cluster import plan_cluster
from jobs.slurm import commands
from jobs.slurm.client.detect import refuse_image, site_for
from jobs.slurm.interconnect import phases_named, validate
from jobs.slurm.request import SweepRequest
from jobs.slurm.sweep import sweep_cluster
from train.distributed.watchdog import STALL_S
from train.errors import ConfigError, interrupt_on_signals

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def plan(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    store: Store = STORE,
    site: Site = "auto",
    image: Image = "",
    pack: Pack = 1,
    budget: Budget = None,
) -> None:
    """Show what a sweep would do: cells, sizes, steps, time, launch lines. Runs nothing."""
    with refusals():
        wanted = load_sweep(sweep)
        if found := site_for(site):
            refuse_image(image, found)
            plan_cluster(SweepRequest(wanted, results.resolve(), data, store, found, pack, budget))
        else:
            folder = results.resolve() / wanted.name
            plan_here(wanted, results, machine_for(wanted, data, store, folder, image=image))


@app.command()
def where(sweep: SweepName = "quickstart", results: Results = RESULTS) -> None:
    """Print the folder of a sweep's results."""
    with refusals():
        print(results / load_sweep(sweep).name)


@app.command()
def sweep(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    store: Store = STORE,
    site: Site = "auto",
    image: Image = "",
    force: Annotated[bool, typer.Option("--force", help="run finished cells anew")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="cells at once, as cores allow")] = 1,
    stall_s: Annotated[float, typer.Option(min=5, help="seconds without progress")] = STALL_S,
    limit_s: Annotated[float | None, typer.Option(min=1, help="time limit of a cell, s")] = None,
    wait: Annotated[bool, typer.Option(help="stay until all is done (on a cluster)")] = True,
    pack: Pack = 1,
    budget: Budget = None,
    preflight: Annotated[bool, typer.Option(help="check the cluster's seams first")] = True,
    set_up: Annotated[
        bool, typer.Option("--set-up", help="install first what ranks on this machine need")
    ] = False,
) -> None:
    """Run every cell that has no good record yet; print the folder of the results."""
    with refusals():
        wanted = load_sweep(sweep)
        if found := site_for(site):
            refuse_image(image, found)
            wish = SweepRequest(
                wanted, results.resolve(), data, store, found, pack, budget, stall_s
            )
            code = sweep_cluster(wish, force=force, wait=wait, preflight=preflight)
        else:
            if set_up and not image:
                _set_up_ranks()
            folder = results.resolve() / wanted.name
            with only_sweep(folder):
                machine = machine_for(
                    wanted, data, store, folder, image=image,
                    at_once=jobs, stall_s=stall_s, limit_s=limit_s,
                )  # fmt: skip
                code = sweep_here(wanted, folder, force=force, machine=machine)
        with suppress(OSError):  # nobody reads it
            os.write(1, f"{results.resolve() / wanted.name}\n".encode())
    raise typer.Exit(code)


def _set_up_ranks() -> None:
    """Install TensorFlow and Horovod, which only a machine that runs ranks needs."""
    argv = ["sh", str(ROOT / "containers" / "python.sh"), str(ROOT / "containers" / "setup.py")]
    if code := subprocess.run([*argv, "ranks"], check=False).returncode:
        raise typer.Exit(code)


@app.command()
def status(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Show where every cell stands; one question to Slurm, however many there are."""
    with refusals():
        wanted = load_sweep(sweep)
        code = commands.status(wanted, results.resolve() / wanted.name, for_programs=as_json)
    raise typer.Exit(code)


@app.command()
def cancel(sweep: SweepName = "quickstart", results: Results = RESULTS) -> None:
    """End all jobs of a sweep on a cluster; what was done stays, and can be gone on with."""
    with refusals():
        wanted = load_sweep(sweep)
        code = commands.cancel_jobs(wanted, results.resolve() / wanted.name)
    raise typer.Exit(code)


@app.command()
def logs(
    sweep: SweepName = "quickstart",
    cell: Annotated[str, typer.Option(help="id of a cell, or a part that only it has")] = "",
    results: Results = RESULTS,
) -> None:
    """Show why a cell ended and the ends of its logs, the first cause first."""
    with refusals():
        wanted = load_sweep(sweep)
        code = commands.logs(wanted, results.resolve() / wanted.name, cell)
    raise typer.Exit(code)


@app.command()
def preflight(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    store: Store = STORE,
    site: Site = "auto",
    nodes: Annotated[int | None, typer.Option(min=1, help="on how many nodes")] = None,
) -> None:
    """Check on the cluster's nodes, inside the image, all that a sweep needs there."""
    with refusals():
        wanted = load_sweep(sweep)
        found = site_for(site)
        if found is None:
            raise ConfigError("a preflight needs a cluster: name it with SITE=")
        code = commands.preflight(
            SweepRequest(wanted, results.resolve(), data, store, found), nodes
        )
    raise typer.Exit(code)


@app.command()
def interconnect(
    site: Site = "auto",
    results: Results = RESULTS,
    nodes: Annotated[str, typer.Option(help="how many, or which: node3,node[5-8]")] = "4",
    interface: Annotated[str | None, typer.Option(help="network interface to measure")] = None,
    samples: Annotated[int, typer.Option(min=3, help="per pair and direction")] = 7,
    sample_s: Annotated[float, typer.Option(min=0.01, max=60, help="seconds of each")] = 0.25,
    phases: Annotated[str, typer.Option(help="some of preflight,collectives,tournament")] = "all",
    ranks_per_node: Annotated[int, typer.Option(min=1, help="of the collectives")] = 1,
) -> None:
    """Measure the network between nodes, every ordered pair; prints the folder of the run."""
    with refusals():
        found = site_for(site)
        if found is None:
            raise ConfigError("one machine has no interconnect: name a cluster with SITE=")
        code = validate(
            found, results.resolve(), nodes, ranks_per_node,
            interface=interface, samples=samples, sample_s=sample_s, phases=phases_named(phases),
        )  # fmt: skip
    raise typer.Exit(code)


if __name__ == "__main__":
    interrupt_on_signals()
    app()
