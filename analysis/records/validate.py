"""May this record be used in a comparison? Any doubt rejects it; nothing is repaired."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from statistics import median

from analysis import fmt
from train.config.plan import EpochPlan, RunPlan
from train.config.run import RunConfig
from train.errors import ConfigError
from train.record.measurements import DataRecord, TargetOutcome
from train.record.run import GOOD, RunRecord
from train.record.target import Pursuit

#: Clocks are set while a run goes on; seconds are counted by another clock than times are.
_SHARE, _SECONDS = 0.01, 1.0
#: Of a clock that was set: TensorFlow is of 2015, and other times do not fit into every time zone.
_EARLIEST, _LATEST = datetime(2015, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)


def reason_for(record: RunRecord, path: str) -> str:
    """Why the value at a dotted path is null: the record's own words, or its parent's."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        reason = record.missing.get(".".join(parts[:end]))
        if reason:
            return reason
    return "the record gives no reason"


def rejections(record: RunRecord) -> tuple[str, ...]:
    """Reasons why a completed or diverged record cannot be compared; empty when it can."""
    return tuple(_findings(record))


def _findings(record: RunRecord) -> Iterator[str]:
    for name in ("world", "data"):
        if getattr(record, name) is None:
            yield f"{name} is null ({reason_for(record, name)})"
    if record.world is not None and record.world.size != record.config.gpus:
        yield f"{record.world.size} ranks met, the config asks for {record.config.gpus}"
    yield from _measured_findings(record)
    yield from _attempt_findings(record)
    yield from _epoch_findings(record)
    if record.data is not None:
        yield from _data_findings(record, record.data)
    if record.status == "completed":
        yield from _completed_findings(record)


def _measured_findings(record: RunRecord) -> Iterator[str]:
    """What cannot be, or contradicts what else the record says."""
    times = (record.started_at, record.ended_at)
    if off := [time.year for time in times if not _EARLIEST <= time < _LATEST]:
        yield f"a time in the year {off[0]}"
    yield from _first(
        f"rank {rank.rank}: a step of {rank.step_s.median:g} s"
        for rank in record.steps or ()
        if rank.step_s.median <= 0
    )
    yield from _first(
        f"epoch {e.epoch}: of {e.steps:,} steps, {e.skipped_steps:,} skipped and "
        f"{e.sampled_steps:,} sampled in {e.sampled_s:g} of {e.train_s:g} s"
        for e in record.epochs
        if max(e.skipped_steps, e.sampled_steps) > e.steps or e.sampled_s > e.train_s
    )
    if record.world is not None:
        nodes, hosts = record.world.nodes, len(set(record.world.hostnames))
        if nodes != hosts:
            yield f"its ranks met on {nodes:,} nodes, yet have the names of {hosts:,}"


def _attempt_findings(record: RunRecord) -> Iterator[str]:
    """A start that was killed may have left no record: what it trained has a number that no attempt
    has, or that of the next one, and lies before the epoch that the last start resumed from."""
    if not record.attempts:
        yield "it lists no attempt"
        return
    last = record.attempts[-1]
    yield from _first(
        f"epoch {e.epoch} is of attempt {e.attempt}, yet the last one, {last.number}, went on "
        f"after epoch {last.resumed_from_epoch}"
        for e in record.epochs
        if e.epoch > last.resumed_from_epoch and e.attempt != last.number
    )
    for attempt in record.attempts:
        if attempt.status not in GOOD:
            continue  # nobody noted what it resumed from; its number may be an earlier start's, too
        lasted = (attempt.ended_at - attempt.started_at).total_seconds()
        # epochs from before it resumed may be of a start that left no record
        spent = sum(
            e.train_s + e.eval_s + (e.suspended_s or 0.0)
            for e in record.epochs
            if e.attempt == attempt.number and e.epoch > attempt.resumed_from_epoch
        )
        if spent > lasted * (1 + _SHARE) + _SECONDS:
            yield (
                f"the epochs of attempt {attempt.number} took {spent:,.0f} s, yet it lasted "
                f"{lasted:,.0f} s"
            )


def _epoch_findings(record: RunRecord) -> Iterator[str]:
    if [epoch.epoch for epoch in record.epochs] != list(range(1, len(record.epochs) + 1)):
        yield f"epochs are {[epoch.epoch for epoch in record.epochs]}, not 1, 2, 3, ..."
    yield from _first(
        f"epoch {e.epoch}: {e.images:,} images processed, yet {e.steps:,} steps x global batch "
        f"{e.global_batch:,} = {e.steps * e.global_batch:,}"
        for e in record.epochs
        if e.images != e.steps * e.global_batch
    )


def _completed_findings(record: RunRecord) -> Iterator[str]:
    yield from _target_findings(record)
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
        # of all its steps but those that were taken in parts
        if (epoch := epochs.get(s.epoch)) is None
        or not math.isclose(s.images_per_s * epoch.usual_s, epoch.usual_images, rel_tol=1e-6)
    )


@lru_cache(maxsize=64)
def _planned(config: RunConfig, train_images: int) -> Sequence[EpochPlan]:
    """Raises ConfigError where the config cannot be run on so many images."""
    return RunPlan(config, train_images).epochs


def _data_findings(record: RunRecord, data: DataRecord) -> Iterator[str]:
    """Epochs, batches and steps are those of the plan: every training image but the remainder that
    fills no global batch, larger batches where the batch grows, and with regime adaptation a last
    epoch that is cut short."""
    yield from _first(
        f"epoch {e.epoch}: accuracy over {e.validation_images:,} of "
        f"{data.validation_images:,} held-out images"
        for e in record.epochs
        if e.validation_accuracy is not None and e.validation_images != data.validation_images
    )
    any_seed = record.config.model_copy(update={"seed": 0})
    try:
        plans = _planned(any_seed, data.train_images)
    except ConfigError as error:
        yield f"its config cannot be run on its {data.train_images:,} training images: {error}"
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
        yield f"{done} of {fmt.counted(planned, 'epoch')}, yet the status is {record.status}"


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
    counted = Pursuit(asked, len(record.epochs), record.epochs).outcome()
    assert counted is not None, "no epoch is left, so that it is decided"
    effort = [(own.met, own.epoch, own.steps, own.images) for own in (found, counted)]
    times = (found.seconds or 0.0, counted.seconds or 0.0)
    if effort[0] != effort[1] or not math.isclose(*times, rel_tol=1e-6):
        yield f"it says of its target: {_effort(found)}; its epochs: {_effort(counted)}"


def _effort(found: TargetOutcome) -> str:
    effort = f"{found.steps} steps, {found.images} images, {found.seconds} s"
    return f"met after epoch {found.epoch} ({effort})" if found.met else f"not met ({found.why})"


def _first(findings: Iterable[str]) -> Iterator[str]:
    """The first finding of a kind and how many epochs share it: a run may have hundreds."""
    found = list(findings)
    if found:
        more = fmt.counted(len(found) - 1, "more epoch")
        yield found[0] + (f" (and in {more})" if len(found) > 1 else "")
