"""The time of a cell, estimated from the records of earlier cells.

Fixed cost + images to train / images per second + epochs x evaluation. The fixed cost is what an
earlier cell's wall time holds beyond these: start, compilation, the slow first epoch. A cell with a
target ends within its time, whatever the rest says.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from glob import glob
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

    work: tuple[str | int | float | None, ...]
    gpus: int
    batch_per_rank: int


class Rate(NamedTuple):
    """Medians over earlier cells of one key."""

    images_per_s: float  # all ranks together, steady state
    fixed_s: float
    eval_s: float  # per epoch
    cells: int


#: Completed cells by what decides how fast they ran: when they ended, and their records.
Completed = Mapping[RateKey, Sequence[tuple[datetime, Path]]]


class Estimate(NamedTuple):
    seconds: float | None
    source: str  # where the number is from, or why there is none


def rate_key(config: RunConfig) -> RateKey:
    technique = config.technique
    data = config.dataset, config.image_size
    norm = technique.normalisation
    if config.runs_as_built and norm == "none":
        norm = "batch_norm"  # which changes no layer, either
    network = config.model, config.width, config.shortcuts, norm
    work = (*data, *network, config.framework, technique.precision)
    return RateKey(work, config.gpus, config.batch_per_rank)


def completed_cells(results: Path, configs: Iterable[RunConfig]) -> Completed:
    """The completed cells under results/<sweep>/<cell>/ that do the work of ``configs``: when they
    ended, and their records. Unreadable ones are skipped.

    Only cells that ran in one go: between two attempts the clock of the record runs on.
    """
    works = {rate_key(config).work for config in configs}
    records: dict[RateKey, list[tuple[datetime, Path]]] = {}
    # Path.glob fails where one folder cannot be listed
    for name in glob(f"*/*/{RECORD_NAME}", root_dir=results) if works else ():  # noqa: PTH207
        path = results / name
        with suppress(RecordError, Unreadable):  # a report names these; an estimate does without
            summary = read_summary(path)
            key = rate_key(summary.config)
            if summary.status == "completed" and len(summary.attempts) == 1 and key.work in works:
                records.setdefault(key, []).append((summary.ended_at, path))
    return records


def known_rates(
    completed: Completed, ran: Mapping[Path, Collection[str]] | None = None
) -> dict[RateKey, Rate]:
    """The rates of the newest cells of each key.

    ``ran``: folder of a cell -> ids of Slurm jobs; only what these ran counts.
    """
    rates = {}
    for key, found in completed.items():
        dated = [(at, path) for at, path in found if ran is None or path.parent in ran]
        samples = []
        for _, path in nlargest(RECORDS_PER_KEY, dated):
            with suppress(RecordError, Unreadable):
                record = read_record(path)
                job = record.provenance and record.provenance.slurm_job_id
                if ran is None or job in ran[path.parent]:
                    samples += _samples(record)
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
    """Seconds of one cell, from earlier cells that did the same work on as many ranks; else on the
    nearest number of ranks, their rate scaled in proportion. Of these, from the nearest batch."""
    work, gpus, batch = key = rate_key(plan.config)
    alike = [other for other in rates if other.work == work]
    if not alike:
        return Estimate(None, "never run here")
    nearest = min(
        alike,
        key=lambda other: (
            abs(math.log(other.gpus / gpus)),
            other.gpus,
            abs(math.log(other.batch_per_rank / batch)),
        ),
    )
    rate = rates[nearest]
    images = sum(epoch.steps * epoch.global_batch for epoch in plan.epochs)
    seconds = images * nearest.gpus / (rate.images_per_s * gpus) + len(plan.epochs) * rate.eval_s
    if plan.config.target and plan.config.target.within_s is not None:
        seconds = min(seconds, plan.config.target.within_s)
    cells = "1 earlier cell" if rate.cells == 1 else f"{rate.cells} earlier cells"
    how = "like it" if nearest == key else f"with batch_per_rank={nearest.batch_per_rank}"
    if nearest.gpus != gpus:
        how = f"on gpus={nearest.gpus}, scaled in proportion"
    return Estimate(rate.fixed_s + seconds, f"{cells} {how}")
