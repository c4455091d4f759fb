"""Assemble one report from a sweep's folder: what is said, in which order, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.applied import applied_table, applied_view
from analysis.claims import claims_table, reference_technique
from analysis.claims_view import claims_view
from analysis.classification import (
    classes_frame,
    classification_table,
    classification_view,
    nothing_why,
)
from analysis.confusion import confusion_figure
from analysis.convergence import convergence_table
from analysis.curves import ACCURACY, ACCURACY_IN_TIME, LOSS, curves
from analysis.display import Table
from analysis.frames import epochs_frame, runs_frame
from analysis.frameworks import frameworks_table
from analysis.frameworks_view import frameworks_view
from analysis.larger_batch import larger_batch_table, larger_batch_view
from analysis.listings import problems_view, provenance_view
from analysis.load import KINDS, Problem, Sweep
from analysis.noise import noise_frame, noise_table, noise_view
from analysis.notices import notices
from analysis.plots import Figure, looks
from analysis.provenance import machines, provenance_rows
from analysis.scaling import scaling_table
from analysis.tables import convergence_view, scaling_view
from analysis.targets import targets_frame, targets_table, targets_view, with_clock
from analysis.throughput import throughput_figure
from analysis.trust import trust_table, trust_view
from train.record.run import RunRecord

ALL_GOOD, SOME_FAILED, UNDECIDED = 0, 1, 3


@dataclass(frozen=True)
class Tables:
    """The tables of the report, in its order."""

    convergence: Table
    scaling: Table
    claims: Table
    others: tuple[Table, ...]  # those that have something to say
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
    epochs = with_clock(epochs_frame(records, runs))
    scaling = scaling_table(runs, order)
    noise = noise_frame(records, runs)
    frames = {
        "runs": runs,
        "epochs": epochs,
        "convergence": convergence_table(runs, order, scaling),
        "scaling": scaling,
        "claims": claims_table(runs, order),
        "larger_batch": larger_batch_table(runs, order),
        "frameworks": frameworks_table(runs, order),
        "applied": applied_table(runs, epochs, order),
        "trust_ratios": trust_table(runs, epochs, order),
        "noise_scale": noise_table(noise, order),
        "noise_epochs": noise,
        "targets": targets_table(targets_frame(records, runs), order),
        "classification": classification_table(classes_frame(records, runs), order),
    }
    others = (
        larger_batch_view(frames["larger_batch"], runs),
        frameworks_view(frames["frameworks"], runs),
        targets_view(frames["targets"], runs),
        classification_view(frames["classification"], runs, nothing_why(records)),
        noise_view(frames["noise_scale"], runs),
        trust_view(frames["trust_ratios"], runs),
        applied_view(frames["applied"], runs),
    )
    tables = Tables(
        convergence=convergence_view(frames["convergence"], runs),
        scaling=scaling_view(scaling, runs),
        claims=claims_view(frames["claims"], runs, reference_technique(order)),
        others=tuple(table for table in others if table.rows),
        problems=problems_view(sweep.problems),
        provenance=provenance_view(provenance_rows(records)),
    )
    frames["cells_not_used"] = _as_frame(tables.problems)
    return Report(
        name=manifest.name,
        title=manifest.title,
        facts=_facts(sweep),
        warnings=notices(sweep, runs, scaling),
        tables=tables,
        figures=_figures(records, frames, order) if draw else (),
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


def _figures(
    records: Sequence[RunRecord], frames: Mapping[str, pd.DataFrame], order: Sequence[str]
) -> tuple[Figure, ...]:
    runs, epochs = frames["runs"], frames["epochs"]
    # the rows of the table are in the order of the manifest; so are colours and legends
    seen = looks(list(dict.fromkeys(frames["convergence"]["technique_label"])))
    no_accuracy = _reasons(runs["validation_accuracy_why"])
    classes = confusion_figure(records, runs, order, nothing_why(records))
    return (
        curves(epochs, ACCURACY, seen, no_accuracy),
        curves(epochs, ACCURACY_IN_TIME, seen, no_accuracy),
        curves(epochs, LOSS, seen, "no run has a training loss", _smoothed(runs)),
        throughput_figure(runs, seen, _reasons(runs["images_per_s_why"])),
        *((classes,) if len(classes.data) else ()),
    )


def _smoothed(runs: pd.DataFrame) -> str:
    """Whose loss has another floor than that of the others."""
    labels = runs.loc[runs["label_smoothing"] > 0, "technique_label"]
    names = ", ".join(dict.fromkeys(labels))
    return f"Against smoothed labels, so never near 0: {names}." if names else ""


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
