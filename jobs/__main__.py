"""`python -m jobs COMMAND`: from a sweep file to finished cells, here or on a cluster."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Annotated

import typer

from jobs.local import machine_for, plan_here, sweep_here
from jobs.lock import only_sweep
from jobs.options import (
    DATA,
    RESULTS,
    STORE,
    Budget,
    Data,
    Pack,
    Results,
    Site,
    Store,
    SweepName,
    refusals,
)
from jobs.slurm import program
from jobs.slurm.program import Wish, site_for
from jobs.sweep import load_sweep

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def plan(
    sweep: SweepName = "quickstart",
    results: Results = RESULTS,
    data: Data = DATA,
    store: Store = STORE,
    site: Site = "auto",
    pack: Pack = 1,
    budget: Budget = None,
) -> None:
    """Show what a sweep would do: cells, sizes, steps, time, launch lines. Runs nothing."""
    with refusals():
        wanted = load_sweep(sweep)
        if found := site_for(site):
            program.plan(Wish(wanted, results.resolve(), data, store, found, pack, budget))
        else:
            plan_here(wanted, results, machine_for(wanted, data, store))


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
    force: Annotated[bool, typer.Option("--force", help="run finished cells anew")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="cells at once, as cores allow")] = 1,
    stall_s: Annotated[float, typer.Option(min=5, help="seconds without progress")] = 300.0,
    limit_s: Annotated[float | None, typer.Option(min=1, help="time limit of a cell, s")] = None,
    wait: Annotated[bool, typer.Option(help="stay until all is done (on a cluster)")] = True,
    pack: Pack = 1,
    budget: Budget = None,
    preflight: Annotated[bool, typer.Option(help="check the cluster's seams first")] = True,
) -> None:
    """Run every cell that has no good record yet; the rest is skipped."""
    with refusals():
        signal.signal(signal.SIGTERM, _interrupt)
        wanted = load_sweep(sweep)
        if found := site_for(site):
            wish = Wish(wanted, results.resolve(), data, store, found, pack, budget, stall_s)
            code = program.sweep(wish, force=force, wait=wait, preflight=preflight)
        else:
            folder = results.resolve() / wanted.name
            with only_sweep(folder):
                machine = machine_for(
                    wanted, data, store, at_once=jobs, stall_s=stall_s, limit_s=limit_s
                )
                code = sweep_here(wanted, folder, force=force, machine=machine)
    raise typer.Exit(code)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    app()
