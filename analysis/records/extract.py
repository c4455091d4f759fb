"""From records to rows of plain values, record by record, so that no record has to be kept."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from statistics import fmean
from typing import Any

from analysis.records.columns import (
    CONFIG,
    MEASURED,
    NOISE,
    PARTS_OF_A_RANK,
    RUNS,
    SCORES,
    STEP_PARTS,
)
from analysis.records.lists import Alarms, Names, Versions, key
from analysis.records.validate import reason_for
from analysis.table import Column, Row
from train.config.run import RunConfig
from train.record.run import EpochRecord, RankSteps, RunRecord, Spread

#: Random labels: an accuracy there has no meaning, whatever a record says.
UNLABELLED = "synthetic"
UNLABELLED_WHY = "random labels: accuracy has no meaning"
OLDER_CLASSES = "older records do not have them"
OLDER_PARTS = "older records do not have all parts"
#: What is trained on what, for how long: rows that differ in it answer different questions.
WORKLOAD = ("dataset", "image_size", "model", "width", "shortcuts", "pretrained", "data_fraction",
             "validate_on", "partition", "target", "epochs", "epoch_images",
             "deterministic")  # fmt: skip
_ACCURACIES = ("train_accuracy", "validation_accuracy")
_ADD_UP = ("steps", "images", "skipped_steps", "sampled_steps", "train_s", "eval_s")
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
    return _row_of_any_seed(config.model_copy(update={"seed": 0})) | {"seed": config.seed}


@lru_cache(maxsize=256)
def _row_of_any_seed(config: RunConfig) -> Row:
    technique = config.technique
    settings = technique.model_dump_json()
    row = recorded({"config": config}, CONFIG) | {
        "settings": settings,
        "technique_settings": _short_hash(settings),
        "condition": _short_hash(config.model_dump_json(exclude={"seed"})),
        "condition_any_framework": _short_hash(
            config.model_dump_json(exclude={"seed", "framework"})
        ),
        "target": config.target and config.target.in_words(),
        "epoch_images": config.steps_per_epoch and config.steps_per_epoch * config.global_batch,
        # training accuracy is then of other images than the set's
        "changes_images": technique.augmentation.name != "as_they_are",
    }
    told = {name: None if row[name] is None else str(row[name]) for name in WORKLOAD}
    return row | {"workload": key(told)}


def run_row(record: RunRecord) -> Row:
    """Columns of RUNS but the labels; see :func:`config_row`."""
    config, data = record.config, record.data
    assert record.world is not None, "a record without a world is rejected"
    assert data is not None, "a record without data is rejected"
    row = recorded(record, _RECORDED)
    for column in _WHY:
        path = column.path.replace(".last", "")
        why = reason_for(record, path) if row[column.name] is None else None
        row[f"{column.name}_why"] = why
    if config.dataset == UNLABELLED:
        row |= dict.fromkeys(_ACCURACIES)
        row |= dict.fromkeys([f"{name}_why" for name in _ACCURACIES], UNLABELLED_WHY)
    hosts = record.world.hostnames
    return {
        **row,
        **config_row(config),
        **totals(record.epochs),
        **_timed(record),
        **_shares(record),
        **_step_parts(record),
        "chance": 1 / data.classes,
        "alarms": Alarms(record.alarms),
        "hosts": Names(sorted(set(hosts))),
        "first_host": next(iter(hosts), None),
        "versions": Versions(
            sorted(record.provenance.versions.items()) if record.provenance else ()
        ),
        "started_at": record.started_at.isoformat(),
        "ended_at": record.ended_at.isoformat(),
        "classification_why": _no_classes(record),
    }


def epoch_values(record: RunRecord) -> Iterator[tuple[str, list[Any]]]:
    """Columns of EPOCH_VALUES, each with its values in the order of the epochs."""
    rows = [epoch.__dict__ for epoch in record.epochs]
    steady = {sample.epoch for sample in record.throughput.samples} if record.throughput else ()
    yield "steady", [row["epoch"] in steady for row in rows]
    unlabelled = record.config.dataset == UNLABELLED
    nulls: list[Any] = [None] * len(rows)
    for column, name in _OF_EPOCH.items():
        known = not unlabelled or column not in _ACCURACIES
        yield column, [row[name] for row in rows] if known else nulls
    noises = [row["noise"] for row in rows]
    some = any(noise is not None for noise in noises)
    for column, name in _OF_NOISE.items():
        yield column, [getattr(noise, name, None) for noise in noises] if some else nulls
    yield "noise_censored", [noise and noise.interval == "censored" for noise in noises]


def rank_values(record: RunRecord) -> Iterator[tuple[str, list[Any]]]:
    """Columns of RANKS that are not its run's, each in the order of the ranks; medians of steps."""
    steps, hosts = record.steps or (), record.world.hostnames if record.world else ()
    yield "rank", [one.rank for one in steps]
    yield "host", [hosts[one.rank] if one.rank < len(hosts) else None for one in steps]
    local, seen = [], Counter[str]()
    for host in hosts:
        local.append(seen[host])
        seen[host] += 1
    yield "local_rank", [local[one.rank] if one.rank < len(hosts) else None for one in steps]
    yield "sampled", [one.sampled for one in steps]
    for column in PARTS_OF_A_RANK:
        values: list[Spread | float | None] = [getattr(one, column.name) for one in steps]
        yield column.name, [v.median if isinstance(v, Spread) else v for v in values]
    yield "outside_epochs_s", [_outside_epochs(record)] * len(steps)


def _outside_epochs(record: RunRecord) -> float:
    last = record.attempts[-1]
    inside = sum(e.train_s + e.eval_s for e in record.epochs if e.attempt == last.number)
    return max(0.0, (last.ended_at - last.started_at).total_seconds() - inside)


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
    yield row


def traffic_rows(record: RunRecord) -> list[Row]:
    return [link.model_dump() for link in record.traffic]


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def totals(epochs: Sequence[EpochRecord]) -> Row:
    """What these epochs come to."""
    rows = [epoch.__dict__ for epoch in epochs]
    sums = {name: sum([row[name] for row in rows]) for name in _ADD_UP}
    rates = [row[name] for row in rows for name in _RATES if row[name] is not None]
    return {"epochs_run": len(epochs), **sums, "lr_peak": max(rates, default=None)}


def _timed(record: RunRecord) -> Row:
    attempts = record.attempts  # a record without one is rejected
    return {
        "end_to_end_s": sum(_seconds(a.started_at, a.ended_at) for a in attempts),
        "wall_s": _seconds(attempts[0].started_at, attempts[-1].ended_at),
        "attempts": len(attempts),
    }


def _seconds(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()


def _no_classes(record: RunRecord) -> str | None:
    if record.classification is not None:
        return None
    if "classification" not in record.model_fields_set:
        return OLDER_CLASSES
    return reason_for(record, "classification")


def _shares(record: RunRecord) -> Row:
    """Of the seconds of a step, all ranks together."""
    steps = record.steps or ()
    total = sum(rank.step_s.mean for rank in steps)
    # where steps were not sampled, nothing overlapped communication
    exposed = [r.communication_s.mean if r.sampled is None else r.exposed_s for r in steps]
    known = [seconds for seconds in exposed if seconds is not None]
    why: str | None = None
    if record.steps is None:
        why = reason_for(record, "steps")
    elif not total:
        why = "no time in any step"
    elif len(known) < len(steps):
        why = reason_for(record, "steps.exposed_s")
    return {
        "communication_share": sum(known) / total if why is None else None,
        "input_share": sum(rank.input_s.mean for rank in steps) / total if total else None,
        "step_shares_why": why,
    }


def _step_parts(record: RunRecord) -> Row:
    """Medians of steady-state steps, averaged over ranks."""
    ranks = record.steps
    if not ranks:
        return {"step_parts_why": reason_for(record, "steps") if ranks is None else "no rank"}
    row: Row = {"compute_fastest_s": min(rank.compute_s.median for rank in ranks)}
    reasons: list[str] = []
    for name in (column.name for column in STEP_PARTS if column.name not in row):
        values = [value for rank in ranks if (value := _part(rank, name)) is not None]
        row[name] = fmean(values) if len(values) == len(ranks) else None
        if row[name] is None:
            older = any(name not in rank.model_fields_set for rank in ranks)
            reasons.append(OLDER_PARTS if older else reason_for(record, f"steps.{name}"))
    return row | {"step_parts_why": "; ".join(dict.fromkeys(reasons)) or None}


def _part(rank: RankSteps, name: str) -> float | None:
    value: Spread | float | None = getattr(rank, name)
    if name == "exposed_s" and rank.sampled is None:
        value = rank.communication_s
    return value.median if isinstance(value, Spread) else value
