"""How long a cell will take, from the records of earlier ones; None with a reason when unknown.

Seconds = fixed cost + images to train / images per second + epochs x evaluation. The fixed cost is
what an earlier cell's wall time holds beyond these: start, compilation, the slow first epoch. A
cell with a target ends within its time, whatever the rest says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from train.config.run import RunConfig
from train.errors import Unreadable
from train.record.run import RECORD_NAME, RecordError, RunRecord, read_record


class RateKey(NamedTuple):
    """What decides how fast a cell runs, as far as a config says it."""

    dataset: str
    image_size: int | None
    model: str
    width: float
    shortcuts: bool
    framework: str
    precision: str
    gpus: int
    normalisation: str


@dataclass(frozen=True)
class Rate:
    """Medians over earlier cells of one key."""

    images_per_s: float  # all ranks together, steady state
    fixed_s: float
    eval_s: float  # per epoch
    cells: int


Rates = Mapping[RateKey, Rate]


@dataclass(frozen=True)
class Estimate:
    seconds: float | None
    source: str  # where the number is from, or why there is none


def rate_key(config: RunConfig) -> RateKey:
    return RateKey(
        config.dataset,
        config.image_size,
        config.model,
        config.width,
        config.shortcuts,
        config.framework,
        config.technique.precision,
        config.gpus,
        config.technique.normalisation,
    )


def known_rates(results: Path) -> dict[RateKey, Rate]:
    """Rates of all completed cells under results/<sweep>/<cell>/; unreadable records are skipped.

    Only cells that ran in one go: between two attempts the clock of the record runs on.
    """
    found: dict[RateKey, list[tuple[float, float, float]]] = {}
    for record in _records(results):
        sample = _sample(record)
        if sample is not None:
            found.setdefault(rate_key(record.config), []).append(sample)
    return {key: _medians(samples) for key, samples in found.items()}


def _medians(samples: Sequence[tuple[float, float, float]]) -> Rate:
    rates, fixed, evaluation = zip(*samples, strict=True)
    return Rate(median(rates), median(fixed), median(evaluation), cells=len(samples))


def _records(results: Path) -> Iterator[RunRecord]:
    for path in sorted(results.glob(f"*/*/{RECORD_NAME}")):
        try:
            yield read_record(path)
        except (RecordError, Unreadable):
            continue  # a report names these; an estimate does without


def _sample(record: RunRecord) -> tuple[float, float, float] | None:
    """images/s, fixed seconds, evaluation seconds per epoch; None when it has no steady rate."""
    rate = record.throughput.images_per_s if record.throughput else None
    if record.status != "completed" or rate is None or len(record.attempts) != 1:
        return None
    wall = (record.ended_at - record.started_at).total_seconds()
    evaluation = sum(epoch.eval_s for epoch in record.epochs)
    training = sum(epoch.images for epoch in record.epochs) / rate
    return rate, max(0.0, wall - evaluation - training), evaluation / len(record.epochs)


def estimate(config: RunConfig, images: int, epochs: int, rates: Rates) -> Estimate:
    """Seconds of one cell that trains on ``images`` images in all, in ``epochs`` epochs.

    From earlier cells with the same data set, network, framework, precision, ranks and
    normalisation; else, of those that share the first four, the nearest rank count, its rate scaled
    in proportion.
    """
    key = rate_key(config)
    limit = config.target.within_s if config.target else None
    if key in rates:
        rate = rates[key]
        return Estimate(_seconds(rate, 1.0, images, epochs, limit), f"{_cells(rate)} like it")
    others = [other for other in rates if other[:-2] == key[:-2]]
    if not others:
        return Estimate(None, "never run here")
    nearest = min(others, key=lambda other: _distance(key, other))
    rate = rates[nearest]
    change = (
        ""
        if nearest.normalisation == key.normalisation
        else (f" with normalisation {nearest.normalisation}")
    )
    source = f"{_cells(rate)} on gpus={nearest.gpus}{change}"
    if nearest.gpus != key.gpus:
        source += ", scaled in proportion"
    factor = key.gpus / nearest.gpus
    return Estimate(_seconds(rate, factor, images, epochs, limit), source)


def _distance(key: RateKey, other: RateKey) -> tuple[float, bool, int]:
    ratio = abs(math.log(other.gpus / key.gpus))
    return ratio, other.normalisation != key.normalisation, other.gpus


def _seconds(rate: Rate, factor: float, images: int, epochs: int, limit: float | None) -> float:
    work = images / (rate.images_per_s * factor) + epochs * rate.eval_s
    return rate.fixed_s + (work if limit is None else min(work, limit))


def _cells(rate: Rate) -> str:
    return f"{rate.cells} earlier cell{'s' if rate.cells > 1 else ''}"
