"""Command line: `python -m analysis report RESULTS_DIR` and `python -m analysis summary ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from analysis.load import SweepError, load_sweep
from analysis.report import Report, build_report
from analysis.terminal import console, print_brief, print_tables
from analysis.write import write_report

WRONG_REQUEST = 2
app = typer.Typer(
    help="Tables, figures and one page from the records of a sweep. Exit codes: 0 every planned "
    "cell is in the tables; 1 some are not; 2 there is no such sweep; 3 no usable record.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
ResultsDir = Annotated[
    Path, typer.Argument(metavar="RESULTS_DIR", help="results/<sweep>, with its sweep.json")
]


@app.command()
def report(results_dir: ResultsDir) -> None:
    """Write RESULTS_DIR/report/ and print a short summary with the paths."""
    built = _build(results_dir, draw=True)
    try:
        paths = write_report(built, results_dir)
    except OSError as error:
        _wrong(f"cannot write {error.filename or results_dir}: {error.strerror}")
    print_brief(built, paths, console())
    raise typer.Exit(built.exit_code)


@app.command()
def summary(results_dir: ResultsDir) -> None:
    """Print the tables here; write nothing."""
    built = _build(results_dir, draw=False)
    print_tables(built, console())
    raise typer.Exit(built.exit_code)


def _build(results_dir: Path, *, draw: bool) -> Report:
    try:
        return build_report(load_sweep(results_dir), draw=draw)
    except SweepError as error:
        _wrong(str(error))


def _wrong(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(WRONG_REQUEST)


if __name__ == "__main__":
    app(prog_name="python -m analysis")
