"""Assemble one report from a sweep's folder: what is said, in which order, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.claims import claims_table, reference_technique
from analysis.convergence import convergence_table
from analysis.curves import ACCURACY, LOSS, curves
from analysis.display import Table
from analysis.frames import epochs_frame, runs_frame
from analysis.listings import problems_view, provenance_view
from analysis.load import KINDS, Problem, Sweep
from analysis.plots import Figure, looks
from analysis.provenance import machines, mixtures, provenance_rows
from analysis.scaling import SHARED_CORES, scaling_table
from analysis.tables import claims_view, convergence_view, scaling_view
from analysis.throughput import throughput_figure
from train.record import RunRecord

ALL_GOOD, SOME_FAILED, UNDECIDED = 0, 1, 3
NOTHING = "No planned cell has a usable record: nothing can be compared or concluded."


@dataclass(frozen=True)
class Tables:
    """The tables of the report, in its order."""

    convergence: Table
    scaling: Table
    claims: Table
    problems: Table
    provenance: Table


@dataclass(frozen=True)
class Report:
    """Everything that the page, the text and the terminal show."""

    name: str
    title: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    tables: Tables
    figures: tuple[Figure, ...]
    frames: dict[str, pd.DataFrame]  # file name without .csv -> frame
    problems: tuple[Problem, ...]
    unplanned: tuple[str, ...]
    counts: str
    exit_code: int


def build_report(sweep: Sweep, *, draw: bool = True) -> Report:
    """The same folder gives the same report. ``draw``: with figures, which take seconds."""
    records, manifest = sweep.records, sweep.manifest
    order = [*manifest.techniques]
    order += sorted({r.config.technique.name for r in records} - set(order))
    runs = runs_frame(records)
    frames = {
        "runs": runs,
        "convergence": convergence_table(runs, order),
        "scaling": scaling_table(runs, order),
        "claims": claims_table(runs, order),
    }
    tables = Tables(
        convergence=convergence_view(frames["convergence"], runs),
        scaling=scaling_view(frames["scaling"], runs),
        claims=claims_view(frames["claims"], runs, reference_technique(order)),
        problems=problems_view(sweep.problems),
        provenance=provenance_view(provenance_rows(records)),
    )
    frames["cells_not_used"] = _as_frame(tables.problems)
    return Report(
        name=manifest.name,
        title=manifest.title,
        facts=_facts(sweep),
        warnings=_warnings(sweep, runs, frames["scaling"]),
        tables=tables,
        figures=_figures(records, runs, frames["convergence"]) if draw else (),
        frames=frames,
        problems=sweep.problems,
        unplanned=sweep.unplanned,
        counts=_counts(sweep),
        exit_code=_exit_code(sweep),
    )


def _exit_code(sweep: Sweep) -> int:
    if not sweep.records:
        return UNDECIDED
    return SOME_FAILED if sweep.problems else ALL_GOOD


def _counts(sweep: Sweep) -> str:
    planned = len(sweep.records) + len(sweep.problems)
    kinds = [(kind, sum(p.kind == kind for p in sweep.problems)) for kind in KINDS]
    counted = [(status, sweep.count(status)) for status in ("completed", "diverged")] + kinds
    return f"{planned} planned: " + ", ".join(f"{n} {name}" for name, n in counted)


def _facts(sweep: Sweep) -> tuple[tuple[str, str], ...]:
    records = sweep.records
    facts = [("sweep", sweep.manifest.name), ("cells", _counts(sweep))]
    if not records:
        return tuple(facts)
    facts += [("machine", line) for line in machines(records)]
    facts += [("data", line) for line in _distinct(map(_data, records))]
    facts.append(("model", ", ".join(_distinct(r.config.model for r in records))))
    first = min(record.started_at for record in records)
    last = max(record.ended_at for record in records)
    facts.append(("dates", f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} {first:%Z}"))
    commits = _distinct(_commit(record) for record in records)
    facts.append(("git commit", ", ".join(commits)))
    return tuple(facts)


def _too_good(scaling: pd.DataFrame) -> list[str]:
    """A rank that is faster among others than alone: rather a disturbed baseline than a wonder."""
    above = scaling[scaling["efficiency"].fillna(0) > 1.02]
    rows = [f"{row.technique} at {row.gpus} ranks" for row in above.itertuples()]
    if not rows:
        return []
    return [
        f"Efficiency above 1 ({', '.join(rows)}): the runs on fewer ranks were slowed by something "
        "(other load on the machine, most often). Measure again on a quiet machine."
    ]


def _warnings(sweep: Sweep, runs: pd.DataFrame, scaling: pd.DataFrame) -> tuple[str, ...]:
    warnings = [] if sweep.records else [NOTHING]
    if sweep.problems:
        warnings.append(
            f"{len(sweep.problems)} planned cell(s) are in no table: see “Cells not in the "
            "tables”. Rows may have fewer runs than planned."
        )
    if runs["oversubscribed"].any():
        warnings.append(f"In some runs {SHARED_CORES}.")
    warnings += _too_good(scaling)
    if sweep.unplanned:
        warnings.append(
            f"{len(sweep.unplanned)} record(s) in the folder are not in the present plan and are "
            f"not used: {', '.join(sweep.unplanned)}."
        )
    return (*warnings, *mixtures(sweep.records))


def _figures(
    records: Sequence[RunRecord], runs: pd.DataFrame, convergence: pd.DataFrame
) -> tuple[Figure, ...]:
    epochs = epochs_frame(records, runs)
    # the rows of the table are in the order of the manifest; so are colours and legends
    seen = looks(list(dict.fromkeys(convergence["technique_label"])))
    return (
        curves(epochs, ACCURACY, seen, _reasons(runs["validation_accuracy_why"])),
        curves(epochs, LOSS, seen, "no run has a training loss"),
        throughput_figure(runs, seen, _reasons(runs["images_per_s_why"])),
    )


def _reasons(column: pd.Series[str]) -> str:
    return "; ".join(dict.fromkeys(column.dropna())) or "no usable run"


def _data(record: RunRecord) -> str:
    data = record.data
    assert data is not None, "a record without data is rejected"
    return (
        f"{data.name}: {data.train_images:,} of {data.train_images_available:,} training images, "
        f"{data.validation_images:,} validation images, {data.classes} classes"
    )


def _commit(record: RunRecord) -> str:
    source = record.provenance
    if source is None or source.git_commit is None:
        return "not recorded"
    return source.git_commit[:12] + (" with uncommitted changes" if source.git_dirty else "")


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _as_frame(table: Table) -> pd.DataFrame:
    heads = [column.head.replace(" ", "_") for column in table.columns]
    return pd.DataFrame(list(table.rows), columns=heads, dtype="string")
