"""May this record be used in a comparison? Any doubt rejects it; nothing is repaired."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from statistics import median

from analysis.records.validate_measured import measured_findings
from train.config.plan import EpochPlan, RunPlan, left_over
from train.config.run import RunConfig
from train.errors import ConfigError
from train.record.run import DataRecord, EpochRecord, RunRecord, TargetOutcome
from train.record.target import outcome

#: Of a run's epochs; a text where there are none.
Plans = Sequence[EpochPlan] | str


def reason_for(record: RunRecord, path: str) -> str:
    """Why the value at a dotted path is null: the record's own words, or its parent's."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        reason = record.missing.get(".".join(parts[:end]))
        if reason:
            return reason
    return "the record gives no reason"


def rejections(record: RunRecord, cell_id: str) -> tuple[str, ...]:
    """Reasons why a completed or diverged record cannot be compared; empty when it can."""
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
    yield from measured_findings(record)
    plans = None if record.data is None else _planned(record.config, record.data)
    yield from _epoch_findings(record, plans)
    if record.status == "completed":
        yield from _completed_findings(record, plans)


def _epoch_findings(record: RunRecord, plans: Plans | None) -> Iterator[str]:
    data = record.data
    if [epoch.epoch for epoch in record.epochs] != list(range(1, len(record.epochs) + 1)):
        yield f"epochs are {[epoch.epoch for epoch in record.epochs]}, not 1, 2, 3, ..."
    yield from _first(
        f"epoch {e.epoch}: {e.images:,} images processed, yet {e.steps:,} steps x global batch "
        f"{e.global_batch:,} = {e.steps * e.global_batch:,}"
        for e in record.epochs
        if e.images != e.steps * e.global_batch
    )
    yield from _first(
        f"epoch {e.epoch}: {e.skipped_steps:,} of {e.steps:,} steps skipped"
        for e in record.epochs
        if e.skipped_steps > e.steps
    )
    if data is not None and plans is not None:
        yield from _plan_findings(record, data, plans)
        yield from _first(
            f"epoch {e.epoch}: accuracy over {e.validation_images:,} of "
            f"{data.validation_images:,} held-out images"
            for e in record.epochs
            if e.validation_accuracy is not None and e.validation_images != data.validation_images
        )


def _completed_findings(record: RunRecord, plans: Plans | None) -> Iterator[str]:
    config = record.config
    yield from _target_findings(record)
    if record.data is not None:
        dropped, rest = record.data.dropped_per_epoch, record.data.train_images
        # the first batch's: records from before growth was counted
        first = rest % config.global_batch
        left = first if isinstance(plans, str | None) else left_over(plans, rest)
        if dropped not in (first, left):
            yield (
                f"{dropped:,} images left over in a pass, {rest:,} training images and the "
                f"global batch {config.global_batch:,} leave {left:,}"
            )
    yield from _throughput_findings(record)
    if record.weights_sha256 is None:
        reason = reason_for(record, "weights_sha256")
        yield f"nothing shows that all ranks hold equal weights ({reason})"
    # the contract admits no NaN: a loss that was not finite arrives here as null
    reason = reason_for(record, "epochs.train_loss")
    yield from _first(
        f"epoch {e.epoch}: training loss is null ({reason})"
        for e in record.epochs
        if e.train_loss is None and (e.skipped_steps < e.steps or e is record.epochs[-1])
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
        if s.epoch not in epochs or not _is_rate_of(s.images_per_s, epochs[s.epoch])
    )


def _is_rate_of(images_per_s: float, epoch: EpochRecord) -> bool:
    """Of all its steps but those that were taken in parts."""
    return math.isclose(images_per_s * epoch.usual_s, epoch.usual_images, rel_tol=1e-6)


def _planned(config: RunConfig, data: DataRecord) -> Plans:
    """The epochs that the config asks for on these images; why there are none, as a text."""
    plans = _of_any_seed(config.model_copy(update={"seed": 0}), data.train_images)
    if plans is not None:
        return plans
    try:
        return RunPlan(config, data.train_images).epochs
    except ConfigError as error:
        return str(error)


@lru_cache(maxsize=64)
def _of_any_seed(config: RunConfig, train_images: int) -> tuple[EpochPlan, ...] | None:
    """A plan is the same for each seed; only what it says when there is none names the cell."""
    try:
        return RunPlan(config, train_images).epochs
    except ConfigError:
        return None


def _plan_findings(record: RunRecord, data: DataRecord, plans: Plans) -> Iterator[str]:
    """Epochs, batches and steps are those of the plan: every training image but the remainder that
    fills no global batch, larger batches where the batch grows, and with regime adaptation a last
    epoch that is cut short."""
    if isinstance(plans, str):
        yield f"its config cannot be run on its {data.train_images:,} training images: {plans}"
        return
    pairs = list(zip(record.epochs, plans, strict=False))
    # the epoch in which a run diverged may have been broken off
    whole = pairs if record.status == "completed" else pairs[:-1]
    yield from _first(
        f"epoch {e.epoch}: {e.steps:,} steps of {e.global_batch:,} images, the config asks for "
        f"{plan.steps:,} on {data.train_images:,} training images"
        for e, plan in whole
        if e.steps != plan.steps
    )
    yield from _first(
        f"epoch {e.epoch}: global batch {e.global_batch:,} of {e.accumulation} batches per rank, "
        f"the config asks for {plan.global_batch:,} of {plan.accumulation}"
        for e, plan in pairs
        if (e.global_batch, e.accumulation) != (plan.global_batch, plan.accumulation)
    )
    done, planned = len(record.epochs), len(plans)
    # a run with a target ends when it is met or hopeless
    short = not done or (done < planned and record.config.target is None)
    if done > planned or (short and record.status == "completed"):
        yield f"{done} of {planned} epochs, yet the status is {record.status}"


def _target_findings(record: RunRecord) -> Iterator[str]:
    """Reasons why a completed record contradicts itself about its target; none when it does not."""
    asked, found = record.config.target, record.target
    if asked is None:
        if found is not None:
            yield "it speaks of a target, the config sets none"
        return
    if found is None:
        yield "the config sets a target, the record does not say what came of it"
        return
    counted = outcome(record.epochs, asked, len(record.epochs))
    assert counted is not None, "no epoch is left, so that it is decided"
    if not _agree(found, counted):
        yield f"it says of its target: {_in_words(found)}; its epochs: {_in_words(counted)}"
    # older records do not tell of each accuracy
    told, again = ([(g.accuracy, g.goal, g.epoch) for g in own.held] for own in (found, counted))
    if told and told != again:
        yield f"it says that accuracies were held after epochs {told}, its epochs: {again}"


def _agree(found: TargetOutcome, counted: TargetOutcome) -> bool:
    same = all(getattr(found, name) == getattr(counted, name)
               for name in ("met", "epoch", "steps", "images"))  # fmt: skip
    return same and math.isclose(found.seconds or 0, counted.seconds or 0, rel_tol=1e-6)


def _in_words(found: TargetOutcome) -> str:
    if not found.met:
        return f"not met ({found.why})"
    effort = f"{found.steps} steps, {found.images} images, {found.seconds} s"
    return f"met after epoch {found.epoch} ({effort})"


def _first(findings: Iterable[str]) -> Iterator[str]:
    """The first finding of a kind and how many epochs share it: a run may have hundreds."""
    found = list(findings)
    if found:
        yield found[0] + (f" (and in {len(found) - 1} more epochs)" if len(found) > 1 else "")
