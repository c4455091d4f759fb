"""From records to rows of plain values, record by record, so that no record has to be kept."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import fmean
from typing import Any

from analysis.records.columns import (
    CONFIG,
    GOALS,
    MEASURED,
    NOISE,
    PARTS_OF_A_RANK,
    RUNS,
    SCORES,
)
from analysis.records.labels import key
from analysis.records.validate import reason_for
from analysis.table import Column, Names, Row
from train.config.run import RunConfig
from train.record.measurements import EpochRecord, RankSteps, Spread
from train.record.run import Attempt, RunRecord

#: Random labels: an accuracy there has no meaning, whatever a record says.
UNLABELLED_WHY = "random labels: accuracy has no meaning"
#: Column -> its values, in the order of the epochs, classes or ranks.
Values = dict[str, list[Any]]
OLDER_PARTS = "older records do not have all parts"
#: What is trained on what, for how long: rows that differ in it answer different questions.
WORKLOAD = ("dataset", "image_size", "model", "width", "shortcuts", "pretrained", "data_fraction",
             "validate_on", "partition", "target", "epochs", "epoch_images",
             "deterministic")  # fmt: skip
_ACCURACIES = ("train_accuracy", "validation_accuracy")
_ADD_UP = ("steps", "images", "skipped_steps", "train_s", "eval_s")
_RATES = ("lr_first", "lr_last", "lr_mean")


#: Columns of a run that are not its config's, and those that say why one of them is null.
_RECORDED = [column for column in RUNS if column.path and column not in CONFIG]
_WHY = [c for c in _RECORDED if f"{c.name}_why" in {column.name for column in RUNS}]
#: Column of the epochs frame, and an epoch's name of it.
_OF_EPOCH = {column.name: column.path.removeprefix("epochs.") for column in MEASURED}
#: Likewise of the noise that some epochs have.
_OF_NOISE = {column.name: column.path.rpartition(".")[2] for column in NOISE if column.path}


def recorded(record: Any, columns: Iterable[Column]) -> Row:
    """The columns that have a path, of one record."""
    return {column.name: _value_at(record, column.path) for column in columns if column.path}


def _value_at(found: Any, path: str) -> Any:
    """None where a part of the path is null, or a list of which the last is wanted is empty."""
    for part in path.split("."):
        if part == "last":
            found = found[-1] if found else None
        elif isinstance(found, dict):
            found = found.get(part)
        elif found is not None:
            found = getattr(found, part)
    return found


def config_row(config: RunConfig) -> Row:
    """Columns of CONFIG but the labels, and ``settings``: those of the technique, as JSON."""
    # weights that stay change no number, and are often kept of one seed
    alike = config.model_copy(update={"seed": 0, "keep_weights": False})
    return _row_of_any_seed(alike) | {"seed": config.seed}


@lru_cache(maxsize=256)
def _row_of_any_seed(config: RunConfig) -> Row:
    technique = config.technique
    settings = technique.model_dump_json()
    row = recorded({"config": config}, CONFIG) | {
        "settings": settings,
        "technique_settings": _short_hash(settings),
        "condition": _short_hash(config.model_dump_json(exclude={"seed"})),
        "target": config.target and config.target.in_words(),
        "epoch_images": config.steps_per_epoch and config.steps_per_epoch * config.global_batch,
        # training accuracy is then of other images than the set's
        "changes_images": technique.augmentation.name != "as_they_are",
    }
    told = {name: None if row[name] is None else str(row[name]) for name in WORKLOAD}
    return row | {"workload": key(told)}


def run_row(record: RunRecord) -> Row:
    """Columns of RUNS but the labels; see :func:`config_row`."""
    config = record.config
    assert record.world is not None, "a record without a world is rejected"
    row = recorded(record, _RECORDED)
    for column in _WHY:
        path = column.path.replace(".last", "")
        why = reason_for(record, path) if row[column.name] is None else None
        row[f"{column.name}_why"] = why
    if not config.labelled:
        row |= dict.fromkeys(_ACCURACIES)
        row |= dict.fromkeys([f"{name}_why" for name in _ACCURACIES], UNLABELLED_WHY)
    hosts = record.world.hostnames
    return {
        **row,
        **config_row(config),
        **totals(record.epochs),
        "end_to_end_s": sum(_seconds(each) for each in record.attempts),
        "attempts": len(record.attempts),
        **_step_parts(record),
        "alarms": Names(record.alarms),
        "hosts": Names(sorted(set(hosts))),
        "first_host": next(iter(hosts), None),
        "versions": key(record.provenance.versions) if record.provenance else None,
        "started_at": record.started_at.isoformat(),
        "ended_at": record.ended_at.isoformat(),
    }


def epoch_values(record: RunRecord) -> Values:
    rows = [epoch.__dict__ for epoch in record.epochs]
    steady = {sample.epoch for sample in record.throughput.samples} if record.throughput else ()
    found: Values = {
        "steady": [row["epoch"] in steady for row in rows],
        "images_per_s": [e.images / e.train_s if e.train_s else None for e in record.epochs],
        "train_s_so_far": [*accumulate(row["train_s"] for row in rows)],
        "seconds_so_far": [*accumulate(row["train_s"] + row["eval_s"] for row in rows)],
    }
    labelled = record.config.labelled
    nulls: list[Any] = [None] * len(rows)
    for column, name in _OF_EPOCH.items():
        known = labelled or column not in _ACCURACIES
        found[column] = [row[name] for row in rows] if known else nulls
    noises = [row["noise"] for row in rows]
    some = any(noise is not None for noise in noises)
    for column, name in _OF_NOISE.items():
        found[column] = [getattr(noise, name, None) for noise in noises] if some else nulls
    found["noise_censored"] = [noise and noise.interval == "censored" for noise in noises]
    return found


def rank_values(record: RunRecord) -> Values:
    """Of the steps their medians."""
    steps, hosts = record.steps or (), record.world.hostnames if record.world else ()
    seen = Counter[str]()
    local = []
    for host in hosts:
        local.append(seen[host])
        seen[host] += 1
    found: Values = {
        "rank": [one.rank for one in steps],
        "host": [hosts[one.rank] if one.rank < len(hosts) else None for one in steps],
        "local_rank": [local[one.rank] if one.rank < len(hosts) else None for one in steps],
        "sampled": [one.sampled for one in steps],
        "outside_epochs_s": [_outside_epochs(record)] * len(steps),
    }
    for column in PARTS_OF_A_RANK:
        found[column.name] = [_median(one, column.name) for one in steps]
    return found


def _outside_epochs(record: RunRecord) -> float:
    last = record.attempts[-1]
    inside = sum(e.train_s + e.eval_s for e in record.epochs if e.attempt == last.number)
    return max(0.0, _seconds(last) - inside)


def _seconds(attempt: Attempt) -> float:
    return (attempt.ended_at - attempt.started_at).total_seconds()


def class_values(record: RunRecord) -> Values:
    """Of the classes of the last evaluation."""
    epoch = record.classification.epoch if record.classification else None
    scores = record.classification.classes if record.classification else ()
    found: Values = {
        "epoch": [epoch] * len(scores),
        "place": [*range(len(scores))],
        "class": [score.name for score in scores],
        "support": [score.support for score in scores],
    }
    for name in SCORES:
        found[name] = [getattr(score, name) for score in scores]
        why = reason_for(record, f"classification.classes.{name}")
        found[f"{name}_why"] = [why if value is None else None for value in found[name]]
    return found


def goal_values(record: RunRecord) -> Values:
    """None for a run without a target.

    A run whose record has no outcome, as one that diverged, did not meet its target.
    """
    if record.config.target is None:
        return {column.name: [] for column in GOALS}
    found = record.target
    row: Row = {"met": False, "why": reason_for(record, "target")}
    if found is not None:
        row = dict(found)
        if found.epoch is not None:
            row["train_s"] = sum(e.train_s for e in record.epochs if e.epoch <= found.epoch)
    return {column.name: [row.get(column.name)] for column in GOALS}


#: What a usable record has for each frame of OWN.
VALUES: dict[str, Callable[[RunRecord], Values]] = {
    "epochs": epoch_values, "classes": class_values, "goals": goal_values, "ranks": rank_values,
}  # fmt: skip


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def totals(epochs: Sequence[EpochRecord]) -> Row:
    """What these epochs come to."""
    rows = [epoch.__dict__ for epoch in epochs]
    sums = {name: sum([row[name] for row in rows]) for name in _ADD_UP}
    rates = [row[name] for row in rows for name in _RATES if row[name] is not None]
    return {"epochs_run": len(epochs), **sums, "lr_peak": max(rates, default=None)}


def _step_parts(record: RunRecord) -> Row:
    """Medians of steady-state steps, averaged over ranks."""
    ranks = record.steps
    if not ranks:
        return {"step_parts_why": reason_for(record, "steps") if ranks is None else "no rank"}
    row: Row = {"compute_fastest_s": min(rank.compute_s.median for rank in ranks)}
    reasons: list[str] = []
    for name in (column.name for column in PARTS_OF_A_RANK):
        values = [_median(rank, name) for rank in ranks]
        if name == "exposed_s":  # nothing overlaps the steps of older records
            values = [_median(rank, "communication_s") if rank.sampled is None else value
                      for rank, value in zip(ranks, values, strict=True)]  # fmt: skip
        row[name] = None if None in values else fmean(values)
        if row[name] is None:
            older = any(name not in rank.model_fields_set for rank in ranks)
            reasons.append(OLDER_PARTS if older else reason_for(record, f"steps.{name}"))
    return row | {"step_parts_why": "; ".join(dict.fromkeys(reasons)) or None}


def _median(rank: RankSteps, part: str) -> Any:
    value: Spread | float | None = getattr(rank, part)
    return value.median if isinstance(value, Spread) else value
