"""The record of one cell, made in one place, however its last start ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from train.config.frozen import Frozen
from train.config.optimizer import Lamb, Larc, Lars
from train.config.run import RunConfig
from train.errors import read_whole
from train.record.cell_folder import EPOCHS_NAME, START_NAME, earlier_attempts, read_epochs
from train.record.measurements import (
    NO_ACCURACY,
    Classification,
    DataRecord,
    EpochRecord,
    LinkTraffic,
    RankSteps,
    Sharpness,
    TargetOutcome,
    Throughput,
    ThroughputSample,
)
from train.record.nulls import null_paths
from train.record.run import GOOD, Attempt, Provenance, RunError, RunRecord, Status, World


class Announcement(Frozen, extra="ignore"):  # keys of other versions are no fault
    """start.json: what rank 0 knows once the ranks have met."""

    world: World
    data: DataRecord
    provenance: Provenance


@dataclass(frozen=True)
class AttemptResult:
    """What a start leaves behind (the same on all ranks); names are those of the record."""

    error: RunError | None  # None: completed
    epochs: tuple[EpochRecord, ...]
    resumed_from: int
    steps: tuple[RankSteps, ...] | None = None
    weights_sha256: str | None = None
    traffic: tuple[LinkTraffic, ...] = ()
    classification: Classification | None = None
    target: TargetOutcome | None = None
    sharpness: Sharpness | None = None
    alarms: tuple[str, ...] = ()
    gradient_bytes: int | None = None
    adapted: tuple[str, ...] = ()
    #: epochs before the first that ran on the same devices and code as the last
    origin_from: int = 0


def ended_record(
    cell: Path, config: RunConfig, status: Status, error: RunError, *, started_at: datetime,
    ended_at: datetime,
) -> RunRecord:  # fmt: skip
    """Of a start that did not write its own, from the traces that it left.

    Raises:
        Unreadable: a trace, or the record of an earlier start, cannot be read now.
    """
    for trace in (cell / EPOCHS_NAME, cell / "logs" / START_NAME):
        read_whole(trace)
    epochs = read_epochs(cell)
    earlier = earlier_attempts(cell, config)
    # one that was killed by hand left epochs and no record
    number = max([len(earlier) + 1, *(epoch.attempt for epoch in epochs)])
    result = AttemptResult(error, epochs, sum(epoch.attempt < number for epoch in epochs))
    announced = None
    with suppress(OSError, ValueError):  # the ranks never met
        announced = Announcement.model_validate_json((cell / "logs" / START_NAME).read_bytes())
    return build_record(config, result, announced, status, number, earlier, started_at, ended_at)


def build_record(
    config: RunConfig, result: AttemptResult, announced: Announcement | None, status: Status,
    attempt: int, earlier: tuple[Attempt, ...], started_at: datetime, ended_at: datetime,
) -> RunRecord:  # fmt: skip
    """Of the start ``attempt``, after those that ``earlier`` counts."""
    this = Attempt(
        number=attempt, resumed_from_epoch=result.resumed_from, started_at=started_at,
        ended_at=ended_at, status=status,
    )  # fmt: skip
    attempts = (*earlier, this)
    known: dict[str, Any] = dict.fromkeys(("world", "data", "provenance", "throughput"))
    known |= vars(result)
    del known["resumed_from"], known["origin_from"]
    if announced:
        known["world"] = _with_interface(announced.world, result.traffic)
        known |= {"data": announced.data, "provenance": announced.provenance}
        known["alarms"] = (*filter(None, [_differences(announced.provenance)]), *result.alarms)
    if status in GOOD:
        known["throughput"] = throughput(result.epochs, result.origin_from)
    draft = RunRecord.model_construct(
        cell_id=config.cell_id(),
        status=status,
        config=config,
        why_no_overlap=config.technique.why_no_overlap,
        attempts=attempts,
        started_at=attempts[0].started_at,
        ended_at=attempts[-1].ended_at,
        missing={},
        **known,
    )
    nulls = null_paths(draft, whole=True)
    reasons = _reasons(config, draft.world, status)
    if status not in GOOD:
        unknown = f"the run ended as {status} before this was known"
        parts = {path for path in nulls if "." not in path} - {"why_no_overlap"}
        reasons = dict.fromkeys(parts, unknown) | reasons
    missing = {path: why for path in sorted(nulls) if (why := reasons.get(path, nulls[path]))}
    return RunRecord.model_validate({**draft.model_dump(), "missing": missing})


def _reasons(config: RunConfig, world: World | None, status: Status) -> dict[str, str]:
    """Those that depend on the run; all others stand next to the fields of the record."""
    technique = config.technique
    reasons: dict[str, str] = {}
    if world is not None:
        reasons["world.interface"] = _why_no_interface(world)
    if not config.shows_noise:
        reasons["epochs.noise"] = _why_no_noise(config)
    if not isinstance(technique.optimizer, Lamb | Larc | Lars):
        reasons["epochs.trust"] = f"optimizer {technique.optimizer.name} has no layer-wise factors"
    if status == "diverged":
        names = ("train_loss", "validation_loss", "validation_accuracy")
        reasons |= dict.fromkeys([f"epochs.{name}" for name in names], "diverged")
        reasons |= dict.fromkeys(["classification", "sharpness"], "diverged")
    if not config.labelled:
        reasons["epochs.validation_accuracy"] = NO_ACCURACY
        reasons["classification"] = "random labels: classes have no meaning"
    if config.target is None:
        reasons["target"] = "the config sets none"
    if config.sharpness_images is None:
        reasons["sharpness"] = "the config sets no sharpness_images"
    return reasons


def _why_no_noise(config: RunConfig) -> str:
    technique = config.technique
    if config.repeats:
        return "the ranks draw the same images (partition: same), so their gradients are one"
    if technique.reduction == "adasum":
        return "Adasum has no mean gradient to compare with"
    if technique.noise_batch is not None:
        return "the technique adds noise to the gradient"
    return "synchronised batch norm couples the ranks' gradients"


def _differences(provenance: Provenance) -> str:
    listed = "; ".join(
        f"{name} ({', '.join(f'{value}: {len(ranks)}' for value, ranks in values.items())})"
        for name, values in provenance.unequal.items()
    )
    return f"not equal on all ranks (value: number of ranks): {listed}" if listed else ""


def _with_interface(world: World, traffic: Sequence[LinkTraffic]) -> World:
    """Neither MPI nor NCCL shows which interface it uses: between nodes it is the one of rank 0's
    node that moved most both ways, as gradients do."""
    if world.interface is not None or world.nodes == 1:
        return world
    links = [t for t in traffic if t.host == world.hostnames[0] and t.interface != "lo"]
    most = max(links, key=lambda link: min(link.sent_bytes, link.received_bytes), default=None)
    return world.model_copy(update={"interface": most and most.interface})


def _why_no_interface(world: World) -> str:
    if world.size == 1 or world.data_plane == "tf.distribute":  # which names it for several
        return "one process talks to nobody"
    plane = "NCCL" if world.data_plane == "nccl" else "MPI"  # Gloo's is always named
    unread = ", and no counter of one was read" * (world.nodes > 1)
    return f"{plane} does not show which interface it uses{unread}"


def throughput(epochs: Sequence[EpochRecord], first: int = 0) -> Throughput:
    """Images really processed over the training seconds they took, all ranks together. Left out are
    the first epoch of each start, which pays for cold caches, and those with a suspension.

    first: epochs before the first that ran on the same devices and code as the last.
    """
    samples = tuple(
        ThroughputSample(epoch=epoch.epoch, images_per_s=epoch.usual_images / epoch.usual_s)
        for before, epoch in pairwise(epochs[first:])
        if before.attempt == epoch.attempt and not epoch.suspended_s
        if epoch.usual_images > 0 and epoch.usual_s > 0
    )
    kept = {sample.epoch for sample in samples}
    return Throughput(
        images_per_s=median(s.images_per_s for s in samples) if samples else None,
        samples=samples,
        left_out=tuple(epoch.epoch for epoch in epochs if epoch.epoch not in kept),
    )
