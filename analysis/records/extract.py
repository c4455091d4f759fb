"""From records to rows of plain values, record by record, so that no record has to be kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from analysis.records.columns import MEASURED, SCORES
from analysis.records.labels import key, target_text
from analysis.records.step_columns import shares, step_parts
from analysis.records.validate import reason_for
from train.config.plan import RunPlan
from train.config.run import RunConfig
from train.record.run import EpochRecord, RunRecord

Row = dict[str, Any]
#: Random labels: an accuracy there has no meaning, whatever a record says.
UNLABELLED = "synthetic"
UNLABELLED_WHY = "random labels: accuracy has no meaning"
OLDER_CLASSES = "older records do not have them"
#: A config beyond this is one that no machine could run.
LARGEST_BATCH = 10**13
#: What is trained on what, for how long: rows that differ in it answer different questions.
_WORKLOAD = ("dataset", "image_size", "model", "width", "shortcuts", "pretrained", "data_fraction",
             "validate_on", "partition", "target", "epochs", "epoch_images",
             "deterministic")  # fmt: skip
_SAME_NAME = ("dataset", "image_size", "model", "width", "shortcuts", "pretrained", "data_fraction",
              "validate_on", "partition", "framework", "scaling", "gpus", "batch_per_rank",
              "accumulation", "global_batch", "epochs", "seed", "deterministic")  # fmt: skip
_OF_WORLD = ("oversubscribed", "device_kind", "device", "cores_per_rank", "nodes", "launcher",
             "controller", "data_plane", "interface")  # fmt: skip
_OF_DATA = ("order", "train_images", "train_images_available", "validation_images",
            "dropped_per_epoch", "classes")  # fmt: skip
_OF_PROVENANCE = (
    "git_commit", "git_dirty", "image_digest", "cpu", "gpu", "driver", "kernel", "slurm_job_id",
)  # fmt: skip
_ACCURACIES = ("train_accuracy", "validation_accuracy")
_ADD_UP = ("steps", "images", "skipped_steps", "sampled_steps", "train_s", "eval_s")
_RENAMED = {"epoch_batch": "global_batch"}
#: Column of the epochs frame, and the record's name of it.
OF_AN_EPOCH = tuple((column.name, _RENAMED.get(column.name, column.name)) for column in MEASURED)


def config_row(config: RunConfig) -> Row | None:
    """Columns of CONFIG but the labels, and ``settings``: those of the technique, as JSON; None for
    a config that no machine could run."""
    if config.global_batch > LARGEST_BATCH:
        return None
    technique = config.technique
    settings = technique.model_dump_json()
    row = {name: getattr(config, name) for name in _SAME_NAME}
    row |= {
        "technique": technique.name,
        "settings": settings,
        "technique_settings": _short_hash(settings),
        "condition": _short_hash(config.model_dump_json(exclude={"seed"})),
        "condition_any_framework": _short_hash(
            config.model_dump_json(exclude={"seed", "framework"})
        ),
        "target": target_text(config.target),
        "epoch_images": config.steps_per_epoch and config.steps_per_epoch * config.global_batch,
        # training accuracy is then of other images than the set's
        "changes_images": technique.augmentation.name != "as_they_are",
        "label_smoothing": technique.label_smoothing,
        "base_lr": technique.base_lr,
    }
    told = {name: None if row[name] is None else str(row[name]) for name in _WORKLOAD}
    return row | {"workload": key(told)}


def run_row(record: RunRecord) -> Row:
    """Columns of RUNS but the labels; see :func:`config_row`."""
    config, world, data = record.config, record.world, record.data
    assert world is not None, "a record without a world is rejected"
    assert data is not None, "a record without data is rejected"
    of_config = config_row(config)
    assert of_config is not None, "a batch larger than the data is rejected"
    source = record.provenance
    versions = source.versions if source else {}
    return {
        "cell_id": record.cell_id,
        "status": record.status,
        **of_config,
        "global_batch_last": record.epochs[-1].global_batch if record.epochs else None,
        "planned_epochs": _planned_epochs(config, data.train_images),
        **_learned(record),
        **_timed(record),
        **shares(record),
        **step_parts(record),
        "why_no_overlap": record.why_no_overlap,
        "gradient_bytes": record.gradient_bytes,
        "alarms": " | ".join(record.alarms) or None,
        **{name: getattr(world, name) for name in _OF_WORLD},
        "hosts": " ".join(sorted(set(world.hostnames))) or None,
        "first_host": next(iter(world.hostnames), None),
        "data_name": data.name,
        "data_fingerprint": data.fingerprint,
        **{name: getattr(data, name) for name in _OF_DATA},
        **{name: getattr(source, name, None) for name in _OF_PROVENANCE},
        "horovod": versions.get("horovod"),
        "tensorflow": versions.get("tensorflow"),
        "versions": key(versions) if source else None,
        "started_at": record.started_at.isoformat(),
        "ended_at": record.ended_at.isoformat(),
        "classification_why": _no_classes(record),
    }


def epoch_values(record: RunRecord) -> Iterator[tuple[str, list[Any]]]:
    """Columns of MEASURED and ``steady``, each with its values in the order of the epochs."""
    rows = [epoch.__dict__ for epoch in record.epochs]
    steady = {sample.epoch for sample in record.throughput.samples} if record.throughput else ()
    yield "steady", [row["epoch"] in steady for row in rows]
    unlabelled = record.config.dataset == UNLABELLED
    for column, name in OF_AN_EPOCH:
        if unlabelled and column in _ACCURACIES:
            yield column, [None] * len(rows)
        else:
            yield column, [row[name] for row in rows]


def noise_rows(record: RunRecord) -> Iterator[Row]:
    """Columns of NOISE of the epochs that measured it; ``at``: place of the epoch in its run."""
    for at, epoch in enumerate(record.epochs):
        if (noise := epoch.noise) is not None:
            told = {f"noise_{name}": value for name, value in noise.__dict__.items()}
            told["noise_censored"] = told.pop("noise_interval") == "censored"
            yield {"at": at, **told}


def trust_rows(record: RunRecord) -> Iterator[Row]:
    """Columns of TRUST of the epochs that have them; ``at``: place of the epoch in its run."""
    # elsewhere a factor cannot be held at 1, and a share of those that are says nothing
    clips = bool(getattr(record.config.technique.optimizer, "clip", False))
    for at, epoch in enumerate(record.epochs):
        if (trust := epoch.trust) is not None:
            told = {f"trust_{name}": v for name, v in trust.__dict__.items() if name != "layers"}
            if not clips:
                told["trust_clipped_share"] = None
            yield {"at": at, **told}


def class_rows(record: RunRecord) -> Iterator[Row]:
    """One per class of the last evaluation: columns of CLASSES that are not its run's."""
    found = record.classification
    if found is None:
        return
    predicted = [sum(column) for column in zip(*found.confusion, strict=True)]
    for place, score in enumerate(found.classes):
        row = {"epoch": found.epoch, "place": place, "class": score.name, "support": score.support,
               "predicted": predicted[place]}  # fmt: skip
        for name in SCORES:
            value = getattr(score, name)
            why = reason_for(record, f"classification.classes.{name}") if value is None else None
            row |= {name: value, f"{name}_why": why}
        yield row


def goal_rows(record: RunRecord) -> Iterator[Row]:
    """Columns of GOALS that are not its run's; none for a run without a target.

    A run whose record has no outcome, as one that diverged, did not meet its target.
    """
    if record.config.target is None:
        return
    found = record.target
    if found is None:
        yield {"met": False, "why": reason_for(record, "target")}
        return
    row: Row = found.model_dump(include={"met", "epoch", "steps", "images", "seconds", "why"})
    if found.epoch is not None:
        row["train_s"] = sum(e.train_s for e in record.epochs if e.epoch <= found.epoch)
    for goal in found.held:
        for part in ("epoch", "steps", "images", "seconds"):
            row[f"{goal.accuracy}_held_{part}"] = getattr(goal, part)
    yield row


def traffic_rows(record: RunRecord) -> list[Row]:
    return [link.model_dump() for link in record.traffic]


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def totals(epochs: Sequence[EpochRecord]) -> Row:
    """What these epochs come to."""
    return {
        "epochs_run": len(epochs),
        **{name: sum(getattr(epoch, name) for epoch in epochs) for name in _ADD_UP},
    }


def _learned(record: RunRecord) -> Row:
    """Counts and the values after the final epoch (never the best one)."""
    epochs = record.epochs
    last = epochs[-1] if epochs else None
    assert record.data is not None
    row: Row = {**totals(epochs), "chance": 1 / record.data.classes}
    for name in ("largest", "scaled"):
        row[f"sharpness_{name}"] = getattr(record.sharpness, name, None)
    for name in ("train_loss", "validation_loss", *_ACCURACIES):
        row[name] = getattr(last, name, None)
    for name in _ACCURACIES:
        why = reason_for(record, f"epochs.{name}") if row[name] is None else None
        if record.config.dataset == UNLABELLED:
            row[name], why = None, UNLABELLED_WHY
        row[f"{name}_why"] = why
    return row


def _timed(record: RunRecord) -> Row:
    attempts = record.attempts
    began = attempts[0].started_at if attempts else record.started_at
    ended = attempts[-1].ended_at if attempts else record.ended_at
    rate = record.throughput.images_per_s if record.throughput else None
    return {
        "end_to_end_s": sum(_seconds(a.started_at, a.ended_at) for a in attempts),
        "wall_s": _seconds(began, ended),
        "gap_s": sum(_seconds(a.ended_at, b.started_at) for a, b in pairwise(attempts)),
        "attempts": len(attempts),
        "images_per_s": rate,
        "images_per_s_why": (
            None if rate is not None else reason_for(record, "throughput.images_per_s")
        ),
    }


def _seconds(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()


def _no_classes(record: RunRecord) -> str | None:
    if record.classification is not None:
        return None
    if "classification" not in record.model_fields_set:
        return OLDER_CLASSES
    return reason_for(record, "classification")


def _planned_epochs(config: RunConfig, images: int) -> int:
    if not config.technique.regime_adaptation:
        return config.epochs
    return len(RunPlan(config, images).epochs)
