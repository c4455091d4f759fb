"""Tidy frames: one row per run, one row per run and epoch. A null is <NA> beside its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.checks import reason_for
from analysis.labels import contexts, key, target_text, technique_labels
from analysis.stats import Mean
from train.config.plan import RunPlan
from train.record.run import EpochRecord, RankSteps, RunRecord

#: Random labels: an accuracy there has no meaning, whatever a record says.
UNLABELLED = "synthetic"
UNLABELLED_WHY = "random labels: accuracy has no meaning"

_TEXT, _INT, _REAL, _BOOL = "string", "Int64", "Float64", "boolean"
RUN_COLUMNS: dict[str, str] = {
    "cell_id": _TEXT, "status": _TEXT, "technique": _TEXT, "technique_label": _TEXT,
    "context": _TEXT, "dataset": _TEXT, "image_size": _INT, "model": _TEXT, "pretrained": _TEXT,
    "data_fraction": _REAL, "validate_on": _TEXT, "partition": _TEXT, "framework": _TEXT,
    "target": _TEXT, "deterministic": _BOOL, "scaling": _TEXT, "gpus": _INT,
    "batch_per_rank": _INT, "accumulation": _INT,
    "global_batch": _INT, "global_batch_last": _INT, "epochs": _INT, "planned_epochs": _INT,
    "epochs_run": _INT, "changes_images": _BOOL, "label_smoothing": _REAL, "seed": _INT,
    "steps": _INT, "images": _INT, "train_loss": _REAL, "train_accuracy": _REAL,
    "train_accuracy_why": _TEXT, "validation_loss": _REAL, "validation_accuracy": _REAL,
    "validation_accuracy_why": _TEXT, "scored_accuracy": _REAL, "scored_accuracy_why": _TEXT,
    "chance": _REAL, "train_s": _REAL, "eval_s": _REAL, "end_to_end_s": _REAL, "attempts": _INT,
    "images_per_s": _REAL, "images_per_s_why": _TEXT, "communication_share": _REAL,
    "input_share": _REAL, "step_shares_why": _TEXT, "oversubscribed": _BOOL, "device_kind": _TEXT,
    "device": _TEXT, "cores_per_rank": _INT, "nodes": _INT, "hosts": _TEXT, "launcher": _TEXT,
    "controller": _TEXT, "data_plane": _TEXT, "interface": _TEXT, "git_commit": _TEXT,
    "git_dirty": _BOOL, "image_digest": _TEXT, "cpu": _TEXT, "gpu": _TEXT, "driver": _TEXT,
    "started_at": _TEXT, "ended_at": _TEXT, "technique_settings": _TEXT, "condition": _TEXT,
}  # fmt: skip
EPOCH_COLUMNS: dict[str, str] = {
    "cell_id": _TEXT, "status": _TEXT, "technique": _TEXT, "technique_label": _TEXT,
    "context": _TEXT, "gpus": _INT, "global_batch": _INT, "seed": _INT, "epoch": _INT,
    "attempt": _INT, "epoch_batch": _INT, "accumulation": _INT, "steps": _INT, "images": _INT,
    "train_s": _REAL, "eval_s": _REAL, "lr_first": _REAL, "lr_last": _REAL, "lr_mean": _REAL,
    "train_loss": _REAL, "train_accuracy": _REAL, "validation_loss": _REAL,
    "validation_accuracy": _REAL, "skipped_steps": _INT,
    "gradient_norm": _REAL, "gain": _REAL, "trust_median": _REAL, "trust_smallest": _REAL,
    "trust_largest": _REAL, "trust_clipped_share": _REAL,
}  # fmt: skip
_SORTED_BY = ("_place", "technique_label", "context", "gpus", "global_batch")


def frame(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    """Rows as a frame of nullable types; all columns are there even without a row."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype(dict(columns))


def in_order(table: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """Rows by technique in the order of the manifest, then by what else tells rows apart."""
    place = {name: i for i, name in enumerate(techniques)}
    ranked = table.assign(_place=[place.get(name, len(place)) for name in table["technique"]])
    by = [name for name in _SORTED_BY if name in ranked]
    ordered = ranked.sort_values(by, kind="stable", key=_by_numbers)
    return ordered.drop(columns="_place").reset_index(drop=True)


def _by_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """Of a column of words, accumulation 4 before accumulation 16."""
    if column.name != "context":
        return column
    return column.str.replace(
        r"(\d+)(\.\d+)?", lambda found: found[1].zfill(12) + (found[2] or ""), regex=True
    )


def values(column: pd.Series[Any]) -> list[float]:
    """The numbers of a column, nulls left out."""
    return [float(value) for value in column.dropna()]


def why_incomplete(found: Mean, runs: int) -> str | None:
    """Why a mean has no interval, and how many of the runs it should be over lack the value."""
    lacking = f"{runs - found.n} of {runs} runs lack the value" if found.n < runs else None
    return "; ".join(text for text in (found.why, lacking) if text) or None


def runs_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """One row per usable run, in the order given; see RUN_COLUMNS."""
    labels = technique_labels(records)
    rows = [_run_row(record) for record in records]
    for row, context in zip(rows, contexts(rows), strict=True):
        row["technique_label"] = labels[row["technique_settings"]]
        row["context"] = context
    return frame(rows, RUN_COLUMNS)


def epochs_frame(records: Sequence[RunRecord], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run and epoch; ``runs`` is the frame of the same records.

    ``global_batch`` is the run's at its start, ``epoch_batch`` that of the epoch.
    """
    named = ("status", "technique", "technique_label", "context", "gpus", "global_batch", "seed")
    about = runs.set_index("cell_id")
    rows = []
    for record in records:
        run = {name: about.at[record.cell_id, name] for name in named}
        for epoch in record.epochs:
            row = _epoch_row(epoch)
            if not _clips(record):
                row |= {"trust_clipped_share": None}
            if record.config.dataset == UNLABELLED:
                row |= {"train_accuracy": None, "validation_accuracy": None}
            rows.append({"cell_id": record.cell_id, **row, **run})
    return frame(rows, EPOCH_COLUMNS)


def _clips(record: RunRecord) -> bool:
    """Whether a layer's factor can be held at 1; elsewhere a share of clipped ones says nothing."""
    return bool(getattr(record.config.technique.optimizer, "clip", False))


def _epoch_row(epoch: EpochRecord) -> dict[str, Any]:
    row = epoch.model_dump(exclude={"global_batch", "validation_images", "noise", "trust"})
    trust = epoch.trust.model_dump() if epoch.trust else {}
    return row | {"epoch_batch": epoch.global_batch} | {f"trust_{k}": v for k, v in trust.items()}


def _run_row(record: RunRecord) -> dict[str, Any]:
    config, world, data = record.config, record.world, record.data
    assert world is not None, "a record without a world is rejected"
    assert data is not None, "a record without data is rejected"
    asked = config.model_dump(mode="json")
    condition = {name: value for name, value in asked.items() if name != "seed"}
    same_name = ("dataset", "image_size", "model", "pretrained", "data_fraction", "validate_on",
                 "partition", "framework", "scaling", "gpus", "batch_per_rank", "accumulation",
                 "global_batch", "epochs", "seed", "deterministic")  # fmt: skip
    about_world = ("oversubscribed", "device_kind", "device", "cores_per_rank", "nodes",
                   "launcher", "controller", "data_plane", "interface")  # fmt: skip
    about_code = ("git_commit", "git_dirty", "image_digest", "cpu", "gpu", "driver")
    return {
        "cell_id": record.cell_id,
        "status": record.status,
        "technique": config.technique.name,
        "technique_settings": key(asked["technique"]),
        "condition": key(condition),
        "target": target_text(config.target),
        # training accuracy is then of other images than the set's
        "changes_images": config.technique.augmentation.name != "as_they_are",
        "label_smoothing": config.technique.label_smoothing,
        "global_batch_last": record.epochs[-1].global_batch if record.epochs else None,
        **{name: getattr(config, name) for name in same_name},
        "planned_epochs": len(RunPlan(config, data.train_images).epochs),
        **_learned(record, data.classes),
        **_timed(record),
        **{name: getattr(world, name) for name in about_world},
        "hosts": " ".join(sorted(set(world.hostnames))),
        **{name: getattr(record.provenance, name, None) for name in about_code},
        "started_at": record.started_at.isoformat(),
        "ended_at": record.ended_at.isoformat(),
    }


def _learned(record: RunRecord, classes: int) -> dict[str, Any]:
    """Counts and the values after the final epoch (never the best one)."""
    last = record.epochs[-1] if record.epochs else None
    chance = 1 / classes
    row: dict[str, Any] = {
        "epochs_run": len(record.epochs),
        "steps": sum(epoch.steps for epoch in record.epochs),
        "images": sum(epoch.images for epoch in record.epochs),
        "chance": chance,
    }
    for name in ("train_loss", "validation_loss", "train_accuracy", "validation_accuracy"):
        row[name] = getattr(last, name, None)
    for name in ("train_accuracy", "validation_accuracy"):
        why = reason_for(record, f"epochs.{name}") if row[name] is None else None
        if record.config.dataset == UNLABELLED:
            row[name], why = None, UNLABELLED_WHY
        row[f"{name}_why"] = why
    row["scored_accuracy"] = row["validation_accuracy"]
    row["scored_accuracy_why"] = row["validation_accuracy_why"]
    if record.status == "diverged":
        unlabelled = record.config.dataset == UNLABELLED
        row["scored_accuracy"] = None if unlabelled else chance
        row["scored_accuracy_why"] = UNLABELLED_WHY if unlabelled else None
    return row


def _exposed_s(rank: RankSteps) -> float | None:
    """Communication that a step waits for; where steps were not sampled, nothing overlapped it."""
    return rank.communication_s.mean if rank.sampled is None else rank.exposed_s


def _timed(record: RunRecord) -> dict[str, Any]:
    rate = record.throughput.images_per_s if record.throughput else None
    steps = record.steps or ()
    total = sum(rank.step_s.mean for rank in steps)
    exposed = [seconds for rank in steps if (seconds := _exposed_s(rank)) is not None]
    no_shares: str | None = None
    if record.steps is None:
        no_shares = reason_for(record, "steps")
    elif not total:
        no_shares = "no time in any step"
    elif len(exposed) < len(steps):
        no_shares = reason_for(record, "steps.exposed_s")
    return {
        "train_s": sum(epoch.train_s for epoch in record.epochs),
        "eval_s": sum(epoch.eval_s for epoch in record.epochs),
        # the time between an interruption and the next start is not the run's
        "end_to_end_s": sum(
            (attempt.ended_at - attempt.started_at).total_seconds() for attempt in record.attempts
        ),
        "attempts": len(record.attempts),
        "images_per_s": rate,
        "images_per_s_why": (
            None if rate is not None else reason_for(record, "throughput.images_per_s")
        ),
        "communication_share": sum(exposed) / total if no_shares is None else None,
        "input_share": sum(rank.input_s.mean for rank in steps) / total if total else None,
        "step_shares_why": no_shares,
    }
