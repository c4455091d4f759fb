"""May this record be used in a comparison? Any doubt rejects it; nothing is repaired."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median

from analysis.target_checks import target_findings
from train.record import GOOD, DataRecord, RunRecord


def reason_for(record: RunRecord, path: str) -> str:
    """Why the value at a dotted path is null: the record's own words, or its parent's."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        reason = record.missing.get(".".join(parts[:end]))
        if reason:
            return reason
    return "the record gives no reason"


def rejections(record: RunRecord, cell_id: str) -> tuple[str, ...]:
    """Reasons why a completed or diverged record cannot be compared; empty when it can.

    A record of any other status is not rejected but failed: it is listed elsewhere.
    """
    if record.status not in GOOD:
        return ()
    return tuple(_findings(record, cell_id))


def _findings(record: RunRecord, cell_id: str) -> Iterator[str]:
    if record.cell_id != cell_id:
        yield f"the record belongs to cell {record.cell_id}"
    for name in ("world", "data"):
        if getattr(record, name) is None:
            yield f"{name} is null ({reason_for(record, name)})"
    if record.world is not None and record.world.size != record.config.gpus:
        yield f"{record.world.size} ranks met, the config asks for {record.config.gpus}"
    if record.ended_at < record.started_at:
        yield "it ended before it started"
    yield from _epoch_findings(record)
    if record.status == "completed":
        yield from _completed_findings(record)


def _epoch_findings(record: RunRecord) -> Iterator[str]:
    config, data = record.config, record.data
    if [epoch.epoch for epoch in record.epochs] != list(range(1, len(record.epochs) + 1)):
        yield f"epochs are {[epoch.epoch for epoch in record.epochs]}, not 1, 2, 3, ..."
    yield from _first(
        f"epoch {e.epoch}: {e.images:,} images processed, yet {e.steps:,} steps x global batch "
        f"{e.global_batch:,} = {e.steps * e.global_batch:,}"
        for e in record.epochs
        if e.images != e.steps * e.global_batch
    )
    yield from _first(
        f"epoch {e.epoch}: global batch {e.global_batch:,}, the config asks for "
        f"{config.gpus} ranks x {config.batch_per_rank:,} images x {e.accumulation}"
        for e in record.epochs
        if e.global_batch != config.gpus * config.batch_per_rank * e.accumulation
    )
    yield from _accumulation_findings(record)
    yield from _first(
        f"epoch {e.epoch}: {e.skipped_steps:,} of {e.steps:,} steps skipped"
        for e in record.epochs
        if e.skipped_steps > e.steps
    )
    if data is not None:
        yield from _first(
            f"epoch {e.epoch}: accuracy over {e.validation_images:,} of "
            f"{data.validation_images:,} held-out images"
            for e in record.epochs
            if e.validation_accuracy is not None and e.validation_images != data.validation_images
        )


def _accumulation_findings(record: RunRecord) -> Iterator[str]:
    """Batches per step are the config's, in every epoch; growth multiplies them and never goes
    back."""
    asked, growth = record.config.accumulation, record.config.technique.batch_growth
    allowed = {asked}
    if growth.name == "grow":
        allowed = {asked * growth.factor**times for times in range(len(growth.milestones) + 1)}
    expected = " or ".join(str(times) for times in sorted(allowed))
    yield from _first(
        f"epoch {e.epoch}: {e.accumulation} batches accumulated, the config asks for {expected}"
        for e in record.epochs
        if e.accumulation not in allowed
    )
    yield from _first(
        f"epoch {later.epoch}: the batch shrinks from {before.global_batch:,} to "
        f"{later.global_batch:,}"
        for before, later in pairwise(record.epochs)
        if later.accumulation < before.accumulation
    )


def _completed_findings(record: RunRecord) -> Iterator[str]:
    config, done = record.config, len(record.epochs)
    planned = config.planned_epochs
    # a run with a target ends when it is met or hopeless
    if done > planned or not done or (done < planned and config.target is None):
        yield f"{done} of {planned} epochs, yet the status is completed"
    yield from target_findings(record)
    if record.data is not None:
        dropped, rest = record.data.dropped_per_epoch, record.data.train_images
        if dropped != rest % config.global_batch:
            yield (
                f"{dropped:,} images left over in an epoch, {rest:,} training images and the "
                f"global batch {config.global_batch:,} leave {rest % config.global_batch:,}"
            )
        yield from _first(_coverage_findings(record, record.data))
    yield from _throughput_findings(record)
    if record.weights_sha256 is None:
        reason = reason_for(record, "weights_sha256")
        yield f"nothing shows that all ranks hold equal weights ({reason})"
    # the contract admits no NaN: a loss that was not finite arrives here as null
    reason = reason_for(record, "epochs.train_loss")
    yield from _first(
        f"epoch {e.epoch}: training loss is null ({reason})"
        for e in record.epochs
        if e.train_loss is None
    )


def _throughput_findings(record: RunRecord) -> Iterator[str]:
    """The record's rate must be the median of its samples, and these what its epochs say."""
    if record.throughput is None or record.throughput.images_per_s is None:
        return
    told, samples = record.throughput.images_per_s, record.throughput.samples
    if not samples or not math.isclose(told, median(s.images_per_s for s in samples), rel_tol=1e-6):
        yield f"its {told:,.0f} images/s are not the median of its samples"
    epochs = {epoch.epoch: epoch for epoch in record.epochs}
    yield from _first(
        f"epoch {s.epoch}: sample of {s.images_per_s:,.0f} images/s is not its images / seconds"
        for s in samples
        if s.epoch not in epochs
        or not math.isclose(
            s.images_per_s * epochs[s.epoch].train_s, epochs[s.epoch].images, rel_tol=1e-6
        )
    )


def _coverage_findings(record: RunRecord, data: DataRecord) -> Iterator[str]:
    """A completed epoch is every training image but the remainder that fills no global batch."""
    for epoch in record.epochs:
        whole = data.train_images - data.train_images % epoch.global_batch
        if epoch.steps * epoch.global_batch != whole:
            yield (
                f"epoch {epoch.epoch}: its {epoch.steps:,} steps make "
                f"{epoch.steps * epoch.global_batch:,} of {data.train_images:,} training images, "
                f"{whole:,} fill whole batches of {epoch.global_batch:,}"
            )


def _first(findings: Iterable[str]) -> Iterator[str]:
    """The first finding of a kind and how many epochs share it: a run may have hundreds."""
    found = list(findings)
    if found:
        yield found[0] + (f" (and in {len(found) - 1} more epochs)" if len(found) > 1 else "")
