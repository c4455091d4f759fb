"""`python -m jobs plan|sweep`: from a sweep file to finished cells."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from jobs.datafacts import planned_images, train_images
from jobs.display import LiveDisplay, PlainDisplay
from jobs.engine import Interrupted, Machine, run_cells
from jobs.estimate import known_rates
from jobs.launch import CellTask, core_groups, rank_environment, train_argv
from jobs.ledger import FORCED, NEW, RUNNING, Standing, lay_out, survey
from jobs.lock import only_sweep
from jobs.plan import plan_rows, render_plan
from jobs.settle import is_good
from jobs.stop import stopped_by_signals
from jobs.supervisor import ROOT
from jobs.sweep import Sweep, load_sweep
from train.config import ConfigError, RunConfig
from train.record import SweepManifest

EXIT_CELL_FAILED, EXIT_REQUEST, EXIT_INTERRUPTED = 1, 2, 130
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

SweepName = Annotated[str, typer.Argument(help="name under jobs/sweeps, or a path")]
Results = Annotated[Path, typer.Option(help="folder of all results")]
Data = Annotated[Path, typer.Option(help="folder with the data sets; may be read-only")]
Store = Annotated[Path, typer.Option(help="folder for the prepared form of data sets")]
Site = Annotated[str, typer.Option(help="where to run: auto or local")]


@app.command()
def plan(
    sweep: SweepName = "quickstart",
    results: Results = ROOT / "results",
    data: Data = ROOT / ".data",
    store: Store = ROOT / ".data" / "prepared",
    site: Site = "auto",
) -> None:
    """Show what a sweep would do: cells, sizes, steps, time, launch lines. Runs nothing."""
    with _refusals():
        _check_site(site)
        wanted = load_sweep(sweep)
        machine = _machine(wanted, data, store, at_once=1, stall_s=300, limit_s=None)
        rows = plan_rows(
            wanted.configs, planned_images(wanted.configs, data, store), known_rates(results)
        )
        folder = results / wanted.name
        # one line for each number of ranks: within it, only names differ
        first = {config.gpus: config for config in reversed(wanted.configs)}
        lines = {c.cell_id(): _launch_line(c, folder, machine) for c in first.values()}
        done = {c.cell_id() for c in wanted.configs if is_good(folder / c.cell_id())}
        render_plan(rows, lines, Console(), done)


@app.command()
def where(sweep: SweepName = "quickstart", results: Results = ROOT / "results") -> None:
    """Print the folder of a sweep's results."""
    with _refusals():
        print(results / load_sweep(sweep).name)


@app.command()
def sweep(
    sweep: SweepName = "quickstart",
    results: Results = ROOT / "results",
    data: Data = ROOT / ".data",
    store: Store = ROOT / ".data" / "prepared",
    site: Site = "auto",
    force: Annotated[bool, typer.Option("--force", help="run finished cells anew")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="cells at once, as cores allow")] = 1,
    stall_s: Annotated[float, typer.Option(min=5, help="seconds without progress")] = 300.0,
    limit_s: Annotated[float | None, typer.Option(min=1, help="time limit of a cell, s")] = None,
) -> None:
    """Run every cell that has no good record yet; the rest is skipped."""
    with _refusals():
        signal.signal(signal.SIGTERM, _interrupt)
        _check_site(site)
        wanted = load_sweep(sweep)
        folder = results.resolve() / wanted.name
        with only_sweep(folder):
            machine = _machine(wanted, data, store, at_once=jobs, stall_s=stall_s, limit_s=limit_s)
            code = _sweep(wanted, folder, force=force, machine=machine)
    raise typer.Exit(code)


def _sweep(wanted: Sweep, folder: Path, *, force: bool, machine: Machine) -> int:
    plan_rows(wanted.configs, train_images(wanted.configs, machine.data, machine.store), {})
    manifest = SweepManifest(
        name=wanted.name,
        title=wanted.title,
        cells=tuple(config.cell_id() for config in wanted.configs),
        techniques=wanted.techniques,
    )
    lay_out(wanted.configs, folder, manifest)
    cells = survey(wanted.configs, folder)
    if force:
        cells = [replace(cell, status=FORCED) if cell.done else cell for cell in cells]
    _say_standing(wanted, cells)
    if all(cell.done for cell in cells):
        return 0
    results = _run(cells, folder, machine)
    return _say_results(cells, results)


def _run(cells: Sequence[Standing], folder: Path, machine: Machine) -> dict[str, str]:
    # make, told to end, ends the shell of its recipe, and nobody tells us
    parent = os.getppid() if "MAKELEVEL" in os.environ else None
    console = Console(stderr=True)
    with stopped_by_signals(parent) as stop:
        if console.is_terminal:
            with LiveDisplay(cells, console) as display:
                return run_cells(cells, folder, machine, display, stop)
        return run_cells(cells, folder, machine, PlainDisplay(cells, sys.stderr), stop)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say_standing(wanted: Sweep, cells: Sequence[Standing]) -> None:
    done = [cell for cell in cells if cell.done]
    _say(f"{wanted.name}: {wanted.title}: {len(cells)} cells, {len(cells) - len(done)} to run")
    if done:
        counts = Counter(cell.status for cell in done)
        text = ", ".join(f"{count} {status}" for status, count in counts.items())
        again = "nothing to train" if len(done) == len(cells) else "these are skipped"
        _say(f"good records are there already ({text}): {again}; FORCE=1 runs them anew")
    for cell in cells:
        if not cell.done and cell.status not in (NEW, FORCED):
            how = "goes on from its checkpoint" if cell.resume else "is run again"
            how = "is waited for" if cell.status == RUNNING else how
            _say(f"{cell.config.cell_id()}: {cell.status} ({cell.why}): {how}")


def _say_results(cells: Sequence[Standing], results: dict[str, str]) -> int:
    skipped = [cell.status for cell in cells if cell.done]
    counts = Counter([*results.values(), *skipped])
    _say("all cells: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    bad = len(cells) - counts["completed"] - counts["diverged"]
    if bad:
        _say(f"{bad} cells did not complete; the report says why; make sweep runs them again")
    return EXIT_CELL_FAILED if bad else 0


def _say(text: str) -> None:
    with suppress(OSError):  # a reader that is gone must not end a sweep
        print(f"[sweep] {text}", file=sys.stderr, flush=True)


def _machine(
    wanted: Sweep,
    data: Path,
    store: Path,
    *,
    at_once: int,
    stall_s: float,
    limit_s: float | None,
) -> Machine:
    """Equal core groups for all cells of a sweep, so that its times can be compared."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    most = max(config.gpus for config in wanted.configs)
    per_rank = wanted.cores_per_rank or max(1, len(cores) // most)
    return Machine(cores, per_rank, data.resolve(), store.resolve(), stall_s, limit_s, at_once)


def _launch_line(config: RunConfig, folder: Path, machine: Machine) -> list[str]:
    task = CellTask(
        cell=str(folder / config.cell_id()),
        data=str(machine.data),
        store=str(machine.store),
        python=sys.executable,
        cores=core_groups(config.gpus, machine.per_rank, machine.cores),
        resume=False,
        stall_s=machine.stall_s,
        limit_s=machine.limit_s,
        visible_gpus=None,
    )
    own = rank_environment(task, 0, attempt=1, supervisor=os.getpid(), root=ROOT)
    shown = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CORES")
    world = [f"HOROSCALE_{name}={own[f'HOROSCALE_{name}']}" for name in shown]
    return ["env", *world, *train_argv(task, 1)]


def _check_site(site: str) -> None:
    if site not in ("auto", "local"):
        raise ConfigError(f"unknown site {site!r}; known: auto, local")
    if site == "auto" and shutil.which("sinfo"):
        raise ConfigError(
            "Slurm is installed here, but this version runs sweeps on this machine only: "
            "say SITE=local to run them here"
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """Wrong requests and a refusing file system end with a message and exit code 2."""
    try:
        yield
    except ConfigError as error:
        _say(f"error: {error}")
        raise typer.Exit(EXIT_REQUEST) from error
    except BrokenPipeError:
        raise  # the reader of a plan has seen enough: typer ends without a word
    except OSError as error:
        _say(f"error: {error}. Free space or fix the permissions, then make sweep again")
        raise typer.Exit(EXIT_REQUEST) from error
    except Interrupted as error:
        ended = "all ranks were ended; make sweep goes on from here"
        if error.left:
            ended = f"could not be ended in time and may still run: {', '.join(error.left)}"
        _say(f"interrupted ({error}): {ended}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except KeyboardInterrupt:
        _say("interrupted; make sweep goes on from here")
        raise typer.Exit(EXIT_INTERRUPTED) from None


if __name__ == "__main__":
    app()
