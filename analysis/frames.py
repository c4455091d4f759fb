"""Tidy frames: one row per run, one row per run and epoch. A null is <NA> beside its reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.checks import reason_for
from analysis.stats import Mean
from train.record import RunRecord

#: Random labels: an accuracy there has no meaning, whatever a record says.
UNLABELLED = "synthetic"
UNLABELLED_WHY = "random labels: accuracy has no meaning"

_TEXT, _INT, _REAL, _BOOL = "string", "Int64", "Float64", "boolean"
RUN_COLUMNS: dict[str, str] = {
    "cell_id": _TEXT, "status": _TEXT, "technique": _TEXT, "technique_label": _TEXT,
    "context": _TEXT, "dataset": _TEXT, "image_size": _INT, "model": _TEXT, "pretrained": _TEXT,
    "data_fraction": _REAL, "partition": _TEXT, "scaling": _TEXT, "gpus": _INT,
    "batch_per_rank": _INT, "global_batch": _INT, "epochs": _INT, "epochs_run": _INT,
    "seed": _INT, "steps": _INT, "images": _INT, "train_loss": _REAL, "train_accuracy": _REAL,
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
    "attempt": _INT, "steps": _INT, "images": _INT, "train_s": _REAL, "eval_s": _REAL,
    "lr_first": _REAL, "lr_last": _REAL, "train_loss": _REAL, "train_accuracy": _REAL,
    "validation_loss": _REAL, "validation_accuracy": _REAL,
}  # fmt: skip
_SORTED_BY = ("_place", "technique_label", "context", "gpus", "global_batch")
#: What may differ between rows of one table, beyond technique, ranks and batch.
_CONTEXT = {
    "dataset": "{}", "model": "{}", "image_size": "{} px", "pretrained": "from {}",
    "scaling": "{} scaling", "epochs": "{} epochs", "data_fraction": "{:.4g} of the data",
    "partition": "order: {}",
}  # fmt: skip


def frame(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    """Rows as a frame of nullable types; all columns are there even without a row."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype(dict(columns))


def in_order(table: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """Rows by technique in the order of the manifest, then by what else tells rows apart."""
    place = {name: i for i, name in enumerate(techniques)}
    ranked = table.assign(_place=[place.get(name, len(place)) for name in table["technique"]])
    by = [name for name in _SORTED_BY if name in ranked]
    return ranked.sort_values(by, kind="stable").drop(columns="_place").reset_index(drop=True)


def values(column: pd.Series[Any]) -> list[float]:
    """The numbers of a column, nulls left out."""
    return [float(value) for value in column.dropna()]


def why_incomplete(found: Mean, runs: int) -> str | None:
    """Why a mean has no interval, and how many of the runs it should be over lack the value."""
    lacking = f"{runs - found.n} of {runs} runs lack the value" if found.n < runs else None
    return "; ".join(text for text in (found.why, lacking) if text) or None


def key(parts: Mapping[str, Any]) -> str:
    """Canonical text of some settings, to group by."""
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


def runs_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """One row per usable run, in the order given; see RUN_COLUMNS."""
    labels = _technique_labels(records)
    rows = [_run_row(record) for record in records]
    contexts = _contexts(rows)
    for row, context in zip(rows, contexts, strict=True):
        row["technique_label"] = labels[row["technique_settings"]]
        row["context"] = context
    return frame(rows, RUN_COLUMNS)


def epochs_frame(records: Sequence[RunRecord], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run and epoch; ``runs`` is the frame of the same records."""
    named = ("status", "technique", "technique_label", "context", "gpus", "global_batch", "seed")
    about = runs.set_index("cell_id")
    rows = []
    for record in records:
        run = {name: about.at[record.cell_id, name] for name in named}
        for epoch in record.epochs:
            row = epoch.model_dump(exclude={"global_batch", "validation_images"})
            if record.config.dataset == UNLABELLED:
                row |= {"train_accuracy": None, "validation_accuracy": None}
            rows.append({"cell_id": record.cell_id, **run, **row})
    return frame(rows, EPOCH_COLUMNS)


def without_scaling(context: str) -> str:
    """A context for where the scaling mode is said elsewhere."""
    return ", ".join(part for part in context.split(", ") if not part.endswith(" scaling"))


def _run_row(record: RunRecord) -> dict[str, Any]:
    config, world, data = record.config, record.world, record.data
    assert world is not None, "a record without a world is rejected"
    assert data is not None, "a record without data is rejected"
    asked = config.model_dump(mode="json")
    condition = {name: value for name, value in asked.items() if name != "seed"}
    same_name = ("dataset", "image_size", "model", "pretrained", "data_fraction", "partition",
                 "scaling", "gpus", "batch_per_rank", "epochs", "seed")  # fmt: skip
    about_world = ("oversubscribed", "device_kind", "device", "cores_per_rank", "nodes",
                   "launcher", "controller", "data_plane", "interface")  # fmt: skip
    about_code = ("git_commit", "git_dirty", "image_digest", "cpu", "gpu", "driver")
    return {
        "cell_id": record.cell_id,
        "status": record.status,
        "technique": config.technique.name,
        "technique_settings": key(asked["technique"]),
        "condition": key(condition),
        "global_batch": config.global_batch,
        **{name: getattr(config, name) for name in same_name},
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


def _timed(record: RunRecord) -> dict[str, Any]:
    rate = record.throughput.images_per_s if record.throughput else None
    steps = record.steps or ()
    total = sum(rank.step_s.mean for rank in steps)
    no_shares = reason_for(record, "steps") if record.steps is None else "no time in any step"
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
        "communication_share": (
            sum(rank.communication_s.mean for rank in steps) / total if total else None
        ),
        "input_share": sum(rank.input_s.mean for rank in steps) / total if total else None,
        "step_shares_why": None if total else no_shares,
    }


def _technique_labels(records: Iterable[RunRecord]) -> dict[str, str]:
    """Settings -> name; with what differs where one name stands for several settings."""
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        settings = record.config.technique.model_dump(mode="json")
        by_name.setdefault(settings["name"], {})[key(settings)] = _flat(settings)
    labels = {}
    for name, variants in by_name.items():
        fields = sorted({field for flat in variants.values() for field in flat})
        differing = [
            field
            for field in fields
            if len({key({"": flat.get(field)}) for flat in variants.values()}) > 1
        ]
        for settings_key, flat in variants.items():
            found = ", ".join(f"{field}={flat[field]}" for field in differing if field in flat)
            labels[settings_key] = f"{name} ({found})" if found else name
    return labels


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _contexts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Per row: the settings that differ somewhere in the sweep, in words; empty where none do."""
    varying = [name for name in _CONTEXT if len({row[name] for row in rows}) > 1]
    return [
        ", ".join(_CONTEXT[name].format(row[name]) for name in varying if row[name] is not None)
        for row in rows
    ]
