"""What a sweep would do, cell by cell: its plan on the data, its time, what sets it apart.

Times are estimated from the records of earlier cells: fixed cost + images to train / images per
second + epochs x evaluation. The fixed cost is what an earlier cell's wall time holds beyond these:
start, compilation, the slow first epoch. A cell with a target ends within its time, whatever the
rest says.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from statistics import median
from typing import NamedTuple

from jobs.plan.differences import Settings, apart, condition_of
from train.config.plan import RunPlan, plan_of
from train.config.run import RunConfig
from train.errors import ConfigError, RecordError, Unreadable
from train.record.run import RECORD_NAME, RunRecord, read_record
from train.record.summary import read_summary

#: Records that are read as a whole for one rate.
RECORDS_PER_KEY = 5


class RateKey(NamedTuple):
    """What decides how fast a cell runs, as far as a config says it."""

    work: tuple[str | int | float | None, ...]
    gpus: int


class Rate(NamedTuple):
    """Medians over earlier cells of one key."""

    images_per_s: float  # all ranks together, steady state
    fixed_s: float
    eval_s: float  # per epoch
    cells: int


class Estimate(NamedTuple):
    seconds: float | None
    source: str  # where the number is from, or why there is none


@dataclass(frozen=True)
class PlanRow:
    """One cell of the plan."""

    cell_id: str
    plan: RunPlan  # shared by cells that differ in their seed only: its config may be another's
    time: Estimate
    apart: Settings  # settings that set it apart from others of the sweep


def plan_rows(
    configs: Sequence[RunConfig],
    images: Mapping[tuple[str, int | None], int],
    rates: Mapping[RateKey, Rate],
) -> tuple[PlanRow, ...]:
    """The rows of the plan, in the order of the configs.

    ``images``: (data set, image size) -> training images that there are.

    Raises:
        ConfigError: cells that the data is too small for, all of them in one message.
    """
    rows, wrong = [], []
    differing = apart(configs)
    planned: dict[Hashable, tuple[RunPlan, Estimate]] = {}
    for config in configs:
        condition = condition_of(config)
        try:
            if condition not in planned:
                plan = plan_of(config, images[config.dataset, config.image_size])
                planned[condition] = plan, estimate(plan, rates)
            cell_id = config.cell_id()
            rows.append(PlanRow(cell_id, *planned[condition], differing[cell_id]))
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        count = f"{len(wrong)} of {len(configs)} cells"
        raise ConfigError("\n  ".join([f"{count} cannot run on their data:", *wrong]))
    return tuple(rows)


def rate_key(config: RunConfig) -> RateKey:
    technique = config.technique
    data = config.dataset, config.image_size
    network = config.model, config.width, config.shortcuts, technique.normalisation
    return RateKey((*data, *network, config.framework, technique.precision), config.gpus)


def known_rates(
    results: Path,
    configs: Iterable[RunConfig],
    ran: Mapping[Path, Collection[str]] | None = None,
) -> dict[RateKey, Rate]:
    """Rates that the times of ``configs`` can be estimated from: of the newest completed cells of
    each key under results/<sweep>/<cell>/. Unreadable records are skipped.

    ``ran``: folder of a cell -> ids of Slurm jobs; only what these ran counts.

    Only cells that ran in one go: between two attempts the clock of the record runs on.
    """
    works = {rate_key(config).work for config in configs}
    records: dict[RateKey, list[tuple[datetime, Path]]] = {}
    for path in results.glob(f"*/*/{RECORD_NAME}") if works else ():
        if ran is not None and path.parent not in ran:
            continue
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
    nearest number of ranks, their rate scaled in proportion."""
    work, gpus = key = rate_key(plan.config)
    alike = [other for other in rates if other.work == work]
    if not alike:
        return Estimate(None, "never run here")
    nearest = min(alike, key=lambda other: (abs(math.log(other.gpus / gpus)), other.gpus))
    rate = rates[nearest]
    images = sum(epoch.steps * epoch.global_batch for epoch in plan.epochs)
    seconds = images * nearest.gpus / (rate.images_per_s * gpus) + len(plan.epochs) * rate.eval_s
    if plan.config.target and plan.config.target.within_s is not None:
        seconds = min(seconds, plan.config.target.within_s)
    cells = "1 earlier cell" if rate.cells == 1 else f"{rate.cells} earlier cells"
    how = "like it" if nearest == key else f"on gpus={nearest.gpus}, scaled in proportion"
    return Estimate(rate.fixed_s + seconds, f"{cells} {how}")
