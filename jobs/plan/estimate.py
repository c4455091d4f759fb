"""How long a cell will take, from the records of earlier ones; None with a reason when unknown.

Seconds = fixed cost + images to train / images per second + epochs x evaluation. The fixed cost is
what an earlier cell's wall time holds beyond these: start, compilation, the slow first epoch. A
cell with a target ends within its time, whatever the rest says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from statistics import median
from typing import NamedTuple

from train.config.plan import RunPlan
from train.config.run import RunConfig
from train.errors import RecordError, Unreadable
from train.record.run import RECORD_NAME, RunRecord, read_record
from train.record.summary import read_summary

#: Records that are read as a whole for one rate.
RECORDS_PER_KEY = 5


class RateKey(NamedTuple):
    """What decides how fast a cell runs, as far as a config says it."""

    work: tuple[str | int | float | None, ...]  # data set, network, framework, precision
    gpus: int
    normalisation: str


class Rate(NamedTuple):
    """Medians over earlier cells of one key."""

    images_per_s: float  # all ranks together, steady state
    fixed_s: float
    eval_s: float  # per epoch
    cells: int


class Estimate(NamedTuple):
    seconds: float | None
    source: str  # where the number is from, or why there is none


def rate_key(config: RunConfig) -> RateKey:
    data = config.dataset, config.image_size
    network = config.model, config.width, config.shortcuts
    work = (*data, *network, config.framework, config.technique.precision)
    return RateKey(work, config.gpus, config.technique.normalisation)


def known_rates(results: Path, configs: Iterable[RunConfig]) -> dict[RateKey, Rate]:
    """Rates that the times of ``configs`` can be estimated from: of the newest completed cells of
    each key under results/<sweep>/<cell>/. Unreadable records are skipped.

    Only cells that ran in one go: between two attempts the clock of the record runs on.
    """
    works = {rate_key(config).work for config in configs}
    records: dict[RateKey, list[tuple[datetime, Path]]] = {}
    for path in results.glob(f"*/*/{RECORD_NAME}") if works else ():
        with suppress(RecordError, Unreadable):  # a report names these; an estimate does without
            summary = read_summary(path)
            key = rate_key(summary.config)
            if summary.status == "completed" and len(summary.attempts) == 1 and key.work in works:
                records.setdefault(key, []).append((summary.ended_at, path))
    rates = {}
    for key, dated in records.items():
        samples = []
        for _, path in nlargest(RECORDS_PER_KEY, dated):
            with suppress(RecordError, Unreadable):
                samples += _samples(read_record(path))
        if samples:
            speeds, fixed, evaluations = zip(*samples, strict=True)
            rates[key] = Rate(median(speeds), median(fixed), median(evaluations), len(samples))
    return rates


def _samples(record: RunRecord) -> list[tuple[float, float, float]]:
    """images/s, fixed seconds, evaluation seconds per epoch; none where it has no steady rate."""
    rate = record.throughput.images_per_s if record.throughput else None
    if rate is None:
        return []
    wall = (record.ended_at - record.started_at).total_seconds()
    evaluation = sum(epoch.eval_s for epoch in record.epochs)
    training = sum(epoch.images for epoch in record.epochs) / rate
    return [(rate, max(0.0, wall - evaluation - training), evaluation / len(record.epochs))]


def estimate(plan: RunPlan, rates: Mapping[RateKey, Rate]) -> Estimate:
    """Seconds of one cell.

    From earlier cells with the same data set, network, framework, precision, ranks and
    normalisation; else, of those that share the first four, the nearest rank count, its rate scaled
    in proportion.
    """

    def distance(other: RateKey) -> tuple[float, bool, int]:
        ratio = abs(math.log(other.gpus / key.gpus))
        return ratio, other.normalisation != key.normalisation, other.gpus

    key = rate_key(plan.config)
    nearest = min((k for k in rates if k.work == key.work), key=distance, default=None)
    if nearest is None:
        return Estimate(None, "never run here")
    rate = rates[nearest]
    images = sum(epoch.steps * epoch.global_batch for epoch in plan.epochs)
    seconds = images * nearest.gpus / (rate.images_per_s * key.gpus)
    seconds += len(plan.epochs) * rate.eval_s
    if plan.config.target and plan.config.target.within_s is not None:
        seconds = min(seconds, plan.config.target.within_s)
    source = "1 earlier cell" if rate.cells == 1 else f"{rate.cells} earlier cells"
    source += " like it" if nearest == key else f" on gpus={nearest.gpus}"
    if nearest.normalisation != key.normalisation:
        source += f" with normalisation {nearest.normalisation}"
    if nearest.gpus != key.gpus:
        source += ", scaled in proportion"
    return Estimate(rate.fixed_s + seconds, source)
