"""What a run leaves for people and programs: report/ with one page, CSV, JUnit and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.interconnect.admin import lines
from analysis.interconnect.bandwidth import collectives_frame
from analysis.interconnect.curves import bandwidth_figure, latency_figure
from analysis.interconnect.expected import expected
from analysis.interconnect.finding import Finding
from analysis.interconnect.foretold import foretold_frame
from analysis.interconnect.heatmap import latency_heatmap, rate_heatmap
from analysis.interconnect.junit import junit
from analysis.interconnect.nodes import facts_frame
from analysis.interconnect.pairs import pairs_frame
from analysis.interconnect.run import Run
from analysis.interconnect.tables import tables_of
from analysis.interconnect.text import headline, seen, typical_latency
from analysis.interconnect.units import bits
from analysis.interconnect.verdict import Verdict
from analysis.plots import Figure, inline, standalone
from analysis.write import csv_text
from train.interconnect.collectives.record import WAYS
from train.record.atomic import write_atomically

VERDICT_NAME = "verdict.json"
_TEMPLATES = Path(__file__).parent.parent / "templates"


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
    found: dict[str, pd.DataFrame] = {}
    if run.tournament is not None:
        found["pairs"] = pairs_frame(run.tournament)
    if run.collectives is not None:
        found["collectives"] = collectives_frame(run.collectives)
        for way in WAYS:
            found[f"foretold_{way}"] = foretold_frame(run.collectives, way)
    if run.facts:
        found["nodes"] = facts_frame(run.facts)
    return found


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
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["inline_svg"] = _inline
    return environment.get_template("interconnect.html.j2").render(
        title=f"Interconnect: {verdict.status}",
        status=verdict.status,
        headline=headline(verdict),
        facts=facts(run, verdict),
        findings=[(_place(finding), finding) for finding in verdict.findings],
        lines=lines(verdict, run.name),
        figures=figures,
        tables=tables_of(run),
        files=files,
    )


def facts(run: Run, verdict: Verdict) -> list[tuple[str, str]]:
    """Term and value of what the numbers rest on."""
    found = [("Run", run.name)]
    if run.job is not None:
        found += [("Job", f"{run.job.job} on {run.job.nodes}"), ("Image", run.job.image)]
    if run.tournament is None:
        return found
    told = run.tournament
    interfaces = ", ".join(sorted({node.interface for node in told.nodes}))
    found += [
        ("Begun", f"{told.started_at:%Y-%m-%d %H:%M:%S} UTC, {told.seconds:.0f} s"),
        ("Nodes", f"{len(told.nodes)} over {interfaces}"),
        ("Measurements", f"{len(told.measurements)}, plain TCP, "
         + f"up to {told.company} at the same time, "
         + ("one connection each" if told.streams == 1 else f"{told.streams} connections each")),
    ]  # fmt: skip
    if verdict.middle is not None:
        found.append(("Median, one way", bits(verdict.middle)))
    if (latency := typical_latency(told.measurements)) is not None:
        found.append(("Median latency", f"{latency * 1e6:.3g} us"))
    if told.noise is not None:
        found.append(("Noise of one pair", f"{told.noise.cv:.2%}"))
    if told.decision.across is not None:
        share = f"{told.decision.across:.2f} of those within one"
        found.append(("Pairs across leaf switches", share))
    if verdict.visible is not None:
        found.append(("Would have seen", "; ".join(seen(verdict))))
    return found


def _place(finding: Finding) -> str:
    return " to ".join(finding.nodes) or "the run"


def _inline(figure: Figure) -> Markup:
    # the SVG is our own drawing; matplotlib escapes the texts in it
    return Markup(inline(figure.svg or "", figure.key, str(escape(figure.title))))  # noqa: S704
