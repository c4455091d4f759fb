"""What a run leaves for people and programs: report/ with one page, CSV, JUnit and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.figures import Figure, standalone
from analysis.interconnect.judge.finding import Finding, Verdict
from analysis.interconnect.load.collectives import collectives_frame, predicted_frame
from analysis.interconnect.load.facts import facts_frame
from analysis.interconnect.load.links import expected
from analysis.interconnect.load.run import Run, pairs_frame
from analysis.interconnect.show.figures import (
    bandwidth_figure,
    latency_figure,
    latency_heatmap,
    rate_heatmap,
)
from analysis.interconnect.show.junit import junit
from analysis.interconnect.show.tables import tables_of
from analysis.interconnect.show.terminal import typical_latency
from analysis.interconnect.show.words import bits, headline, lines, seen
from analysis.writing import csv_text, environment
from train.interconnect.collectives.record import WAYS
from train.record.atomic import write_atomically

VERDICT_NAME = "verdict.json"


def write_run(run: Run, verdict: Verdict, line_bits: float | None = None) -> Path:
    """Write verdict.json and report/ into the run's folder; the page's path.

    Raises:
        OSError: the folder cannot be written.
    """
    out = run.folder / "report"
    (out / "figures").mkdir(parents=True, exist_ok=True)
    figures, frames = figures_of(run, line_bits), frames_of(run)
    write_atomically(run.folder / VERDICT_NAME, verdict.model_dump_json(indent=1) + "\n")
    write_atomically(out / "junit.xml", junit(run, verdict))
    for name, frame in frames.items():
        write_atomically(out / f"{name}.csv", csv_text(frame))
    for figure in figures:
        write_atomically(out / "figures" / f"{figure.key}.svg", standalone(figure.svg or ""))
    page = out / "report.html"
    write_atomically(page, render(run, verdict, figures, [f"{name}.csv" for name in frames]))
    return page


def frames_of(run: Run) -> dict[str, pd.DataFrame]:
    """File name without its ending -> table, of what was measured."""
    frames: dict[str, pd.DataFrame] = {}
    if run.tournament is not None:
        frames["pairs"] = pairs_frame(run.tournament)
    if run.collectives is not None:
        frames["collectives"] = collectives_frame(run.collectives)
        for way in WAYS:
            frames[f"foretold_{way}"] = predicted_frame(run.collectives, way)
    if run.facts:
        frames["nodes"] = facts_frame(run.facts)
    return frames


def figures_of(run: Run, line_bits: float | None = None) -> list[Figure]:
    """line_bits: of the links, where it is known from elsewhere than the nodes."""
    figures = []
    pairs = run.tournament
    if pairs is not None and pairs.decision.middle is not None:
        frame = pairs_frame(pairs)
        frame = frame[frame["phase"] == "tournament"]
        names = in_switch_order([node.name for node in pairs.nodes], pairs.switches)
        figures += [
            rate_heatmap(frame, names, pairs.decision.middle), latency_heatmap(frame, names)
        ]  # fmt: skip
    if run.collectives is not None:
        frame, ranks = collectives_frame(run.collectives), len(run.collectives.ranks)
        likely = expected(run.facts, line_bits)
        figures.append(bandwidth_figure(frame, ranks, likely.levels if likely else []))
        figures.append(latency_figure(frame, ranks))
    return [figure for figure in figures if figure.svg is not None]


def in_switch_order(names: list[str], switches: dict[str, str]) -> list[str]:
    return sorted(names, key=lambda name: (switches.get(name, ""), names.index(name)))


def render(run: Run, verdict: Verdict, figures: list[Figure], files: Sequence[str] = ()) -> str:
    """files: beside the page, with all numbers. Everything that a record says is escaped."""
    return (
        environment()
        .get_template("interconnect.html.j2")
        .render(
            title=f"Interconnect: {verdict.status}",
            status=verdict.status,
            headline=headline(verdict),
            facts=facts(run, verdict),
            findings=[(_place(finding), finding) for finding in verdict.findings],
            lines=lines(verdict, run.name),
            figures=figures,
            tables=[(table, table.shown()) for table in tables_of(run)],
            files=files,
        )
    )


def facts(run: Run, verdict: Verdict) -> list[tuple[str, str]]:
    """Term and value of what the numbers rest on."""
    terms = [("Run", run.name)]
    if run.job is not None:
        terms += [("Job", f"{run.job.job} on {run.job.nodes}"), ("Image", run.job.image)]
    if run.tournament is None:
        return terms
    tournament = run.tournament
    streams = tournament.streams
    interfaces = ", ".join(sorted({node.interface for node in tournament.nodes}))
    terms += [
        ("Begun", f"{tournament.started_at:%Y-%m-%d %H:%M:%S} UTC, {tournament.seconds:.0f} s"),
        ("Nodes", f"{len(tournament.nodes)} over {interfaces}"),
        ("Measurements", f"{len(tournament.measurements)}, plain TCP, up to {tournament.company} "
         f"at the same time, {'one connection' if streams == 1 else f'{streams} connections'} "
         "each"),
    ]  # fmt: skip
    if verdict.middle is not None:
        terms.append(("Median, one way", bits(verdict.middle)))
    if (latency := typical_latency(tournament.measurements)) is not None:
        terms.append(("Median latency", f"{latency * 1e6:.3g} us"))
    if tournament.noise is not None:
        terms.append(("Noise of one pair", f"{tournament.noise.cv:.2%}"))
    if tournament.decision.across is not None:
        share = f"{tournament.decision.across:.2f} of those within one"
        terms.append(("Pairs across leaf switches", share))
    if verdict.visible is not None:
        terms.append(("Would have seen", "; ".join(seen(verdict))))
    return terms


def _place(finding: Finding) -> str:
    return " to ".join(finding.nodes) or "the run"
