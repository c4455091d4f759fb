"""Command line: `python -m analysis report RESULTS_DIR` and `python -m analysis summary ...`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from analysis.command import as_owner, report_folder, wrong, wrong_requests
from train.program.command_line import place, run
from train.program.environment import enter

if TYPE_CHECKING:
    from analysis.page.report import Report

app = typer.Typer(
    help="Answers, tables and one page from the records of a sweep. Exit codes: 0 every planned "
    "cell is in the tables; 1 some are not; 2 there is no such sweep; 3 no usable record.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
ResultsDirs = Annotated[
    list[Path],
    typer.Argument(
        parser=place, metavar="RESULTS_DIR...", help="results/<sweep>, one, or several as one"
    ),
]
ResultsDir = Annotated[
    Path,
    typer.Argument(
        parser=place, metavar="RESULTS_DIR", help="results/<sweep>, with its sweep.json"
    ),
]


@app.command()
def report(
    results_dirs: ResultsDirs,
    figures: Annotated[
        Literal["", "pdf", "png", "svg"],
        typer.Option("--figures", help="write each figure for a paper, too, its fonts embedded"),
    ] = "",
) -> None:
    """Write RESULTS_DIR/report/ (of several sweeps A+B/report/ next to the first) and print the
    answers with the paths."""
    for one in results_dirs:
        as_owner(one)
    results_dir = report_folder(results_dirs)
    # pandas and matplotlib take seconds to load
    from analysis.page.terminal import print_report  # noqa: PLC0415
    from analysis.page.write import write_report  # noqa: PLC0415
    from analysis.writing import console  # noqa: PLC0415

    built = _build(results_dirs, draw=True)
    with wrong_requests(writes=results_dir):
        paths = write_report(built, results_dir, figures or None)
    print_report(built, console(), paths)
    raise typer.Exit(built.exit_code)


@app.command()
def summary(results_dirs: ResultsDirs) -> None:
    """Print the tables here; write nothing."""
    from analysis.page.terminal import print_report  # noqa: PLC0415
    from analysis.writing import console  # noqa: PLC0415

    built = _build(results_dirs, draw=False)
    print_report(built, console())
    raise typer.Exit(built.exit_code)


@app.command()
def export(
    results_dirs: ResultsDirs,
    csv: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="DIR",
            help="the tidy tables: runs, epochs, ranks, ..., and columns.csv, which describes "
            "them; to a new folder, or that of an earlier export",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="DIR",
            help="scalars of each epoch as event files, a folder per cell",
        ),
    ] = None,
) -> None:
    """Write what was measured for other programs: as CSV, for TensorBoard, or both."""
    from analysis.page.report import exit_code  # noqa: PLC0415
    from analysis.several import frames_of, write_events, write_export  # noqa: PLC0415

    if csv is None and tensorboard is None:
        wrong("nothing to export: give --csv DIR, --tensorboard DIR or both")
    with wrong_requests(ValueError):
        frames, _ = frames_of(results_dirs)
    if csv is not None:
        with wrong_requests(ValueError, writes=csv):
            written = write_export(frames, csv)
        for path, rows in written.items():
            typer.echo(f"{path}: {rows:,} rows")
    if tensorboard is not None:
        with wrong_requests(ValueError, writes=tensorboard):
            runs = write_events(frames, tensorboard)
        typer.echo(f"{tensorboard}: {len(runs):,} runs; tensorboard --logdir shows them")
    raise typer.Exit(exit_code(frames))


@app.command()
def check(
    results_dir: ResultsDir,
    min_efficiency: Annotated[
        float | None, typer.Option(metavar="X", help="of each count above the smallest, as 0.8")
    ] = None,
    min_accuracy: Annotated[
        float | None, typer.Option(metavar="X", help="validation accuracy of each condition")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(parser=place, metavar="DIR", help="earlier results: nothing may be worse"),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(parser=place, metavar="FILE", help="write the verdicts as JUnit, too"),
    ] = None,
) -> None:
    """Judge by 95 % intervals: 0 all conditions pass, 1 some fail, 3 some are undecided."""
    from analysis import check as judge  # noqa: PLC0415
    from analysis.page.terminal import print_table  # noqa: PLC0415
    from analysis.records.load import SweepError, load_frames  # noqa: PLC0415
    from analysis.topics.comparisons import changes  # noqa: PLC0415
    from analysis.writing import console, junit_text, printable  # noqa: PLC0415
    from train.record.atomic import write_atomically  # noqa: PLC0415

    asked = {"efficiency": min_efficiency, "accuracy": min_accuracy}
    for what, least in asked.items():
        if least is not None and not 0 < least <= 1:
            wrong(f"--min-{what}: found {least:g}, expected a number above 0 and at most 1, as 0.8")
    least_of = {what: least for what, least in asked.items() if least is not None}
    if not least_of and baseline is None:
        wrong("nothing to check: give --min-efficiency X, --min-accuracy X or --baseline DIR")
    with wrong_requests(SweepError):
        frames = load_frames(results_dir, cache=False)
        before = load_frames(baseline, cache=False) if baseline is not None else None
    tables = [judge.table(frames, least_of)] if least_of else []
    if before is not None:
        tables.append(changes.table(before, frames))
    for found in tables:
        print_table(found, console())
        for sentence in judge.sentences(found):
            typer.echo(printable(sentence))
    if junit is not None:
        suites = [suite for found in tables for suite in judge.suites(found, frames)]
        with wrong_requests(writes=junit):
            write_atomically(junit, junit_text(suites))
    code = judge.exit_code(tables)
    typer.echo({0: "check: PASS", 1: "check: FAIL", 3: "check: UNDECIDED"}[code])
    raise typer.Exit(code)


RunDir = Annotated[
    Path,
    typer.Argument(parser=place, metavar="RUN_DIR", help="results/interconnect/<run>"),
]


@app.command()
def interconnect(
    run_dir: RunDir,
    baseline: Annotated[
        Path | None,
        typer.Option(
            parser=place, help="to compare with; default: baseline.json next to the runs, if there"
        ),
    ] = None,
    line: Annotated[
        str | None, typer.Option(help="rate of the links as sold, as 200mbit or 100gbit")
    ] = None,
    force: Annotated[
        bool, typer.Option(help="compare with a baseline of another environment, too")
    ] = False,
) -> None:
    """Judge one run of make interconnect: 0 PASS, 1 FAIL, 3 UNDECIDED, 2 there is no such run."""
    from analysis.interconnect.baseline import BASELINE_NAME, read_baseline  # noqa: PLC0415
    from analysis.interconnect.links import read_rate  # noqa: PLC0415
    from analysis.interconnect.report import show, write_run  # noqa: PLC0415
    from analysis.interconnect.run import load_run  # noqa: PLC0415
    from analysis.interconnect.verdict import judge  # noqa: PLC0415
    from analysis.writing import console  # noqa: PLC0415

    as_owner(run_dir)
    usual = run_dir.resolve().parent / BASELINE_NAME
    if baseline is None and usual.is_file():
        baseline = usual
    with wrong_requests(ValueError):
        run = load_run(run_dir)
        before = read_baseline(baseline) if baseline else None
        rate = read_rate(line) if line else None
    verdict = judge(run, before, force=force, line_bits=rate)
    with wrong_requests(writes=run_dir):
        page = write_run(run, verdict, rate)
    show(run, verdict, console())
    typer.echo(f"page, CSV and JUnit: {page}")
    raise typer.Exit({"PASS": 0, "FAIL": 1, "UNDECIDED": 3}[verdict.status])


@app.command("interconnect-baseline")
def interconnect_baseline(
    run_dir: RunDir,
    to: Annotated[
        Path | None,
        typer.Option(parser=place, help="file; default: baseline.json next to the runs"),
    ] = None,
    force: Annotated[bool, typer.Option(help="also of a run that did not pass")] = False,
) -> None:
    """Keep a good run as what later ones are compared with."""
    from analysis.interconnect import baseline  # noqa: PLC0415
    from analysis.interconnect.doubts import TWO_ALONE  # noqa: PLC0415
    from analysis.interconnect.finding import headline  # noqa: PLC0415
    from analysis.interconnect.run import RunError, load_run  # noqa: PLC0415
    from analysis.interconnect.verdict import judge  # noqa: PLC0415

    as_owner(run_dir)
    file = to or run_dir.resolve().parent / baseline.BASELINE_NAME
    with wrong_requests(RunError, writes=file):
        run = load_run(run_dir)
        if not force:  # by force the run itself and the earlier baseline are not looked at
            before = baseline.read_baseline(file) if file.is_file() else None
            verdict = judge(run, before)
            # another baseline may be wanted because the old one no longer fits
            doubts = {f.what for f in verdict.findings if f.weight == "open"}
            if verdict.status == "FAIL" or not doubts <= {TWO_ALONE, "baseline"}:
                wrong(
                    f"{run_dir}: found {verdict.status} ({headline(verdict)}), expected PASS: a "
                    "baseline is what a healthy network reached; fix it and measure again, or say "
                    "FORCE=1 (--force)"
                )
            if not run.facts:
                wrong(
                    f"{run_dir} has no preflight, so nothing would tell whether later runs meet "
                    "the same nodes: measure again with that phase, or say FORCE=1 (--force)"
                )
        kept = baseline.baseline_of(run)
        baseline.keep(kept, file)
    typer.echo(f"baseline of {len(kept.nodes)} nodes, {len(kept.pairs)} pairs: {file}")


def _build(results_dirs: Sequence[Path], *, draw: bool) -> Report:
    """``draw``: for files, next to which the cache is kept; without them nothing is written."""
    from analysis.records.load import SweepError  # noqa: PLC0415
    from analysis.several import report_of  # noqa: PLC0415

    with wrong_requests(SweepError):
        return report_of(results_dirs, draw=draw, cache=draw)


def main() -> None:
    enter("command", os.environ)
    app(prog_name="python -m analysis")


if __name__ == "__main__":
    run(main)
