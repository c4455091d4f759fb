"""Can what a record says it measured be true? Numbers beyond belief, times that contradict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise

from train.record.run import GOOD, Classification, EpochRecord, RunRecord, Spread

#: Clocks are set while a run goes on; seconds are counted by another clock than times are.
_SHARE, _SECONDS = 0.01, 1.0
#: Those of two machines may differ by this much: so long are credentials of munge valid.
_CLOCKS_DIFFER_S = 300.0
#: TensorFlow is of 2015.
_EARLIEST, _LATEST = datetime(2015, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
#: Losses are float32 numbers.
_LOSS = 2.0**128
#: Of a learning rate.
_FASTEST = 10**13


def measured_findings(record: RunRecord) -> Iterator[str]:
    """Seconds that cannot be, whatever the config asks for; times, nodes and matrices that
    contradict each other."""
    spent_s = taken_s(record.epochs)
    most_s = _allowed(spent_s)
    for rank in record.steps or ():
        spreads = [(name, v) for name, v in rank.__dict__.items() if isinstance(v, Spread)]
        below = [name for name, v in spreads if min(v.mean, v.median, v.p05) < 0]
        ends = [(name, max(v.mean * v.n, v.median, v.p95)) for name, v in spreads]
        beyond = [name for name, end in (*ends, ("exposed_s", rank.exposed_s or 0)) if end > most_s]
        if below or beyond:
            name = (*below, *beyond)[0]
            yield f"rank {rank.rank}: {name} is {'below 0' if below else 'beyond all training'}"
            break
    yield from _first(
        f"rank {rank.rank}: a step of {rank.step_s.median:g} s"
        for rank in record.steps or ()
        if rank.step_s.median == 0
    )
    yield from _first(
        f"epoch {e.epoch}: {e.sampled_s:g} s of sampled steps in {e.train_s:g} s of training"
        for e in record.epochs
        if e.sampled_s > e.train_s or e.sampled_steps > e.steps
    )

    if record.classification is not None:
        yield from _class_findings(record.classification)
    if record.world is not None:
        nodes, hosts = record.world.nodes, len(set(record.world.hostnames))
        if nodes != hosts:
            yield f"its ranks met on {nodes:,} nodes, yet have the names of {hosts:,}"
    yield from _first(
        f"epoch {e.epoch}: {wrong}" for e in record.epochs if (wrong := _cannot_be(e))
    )
    yield from _attempt_findings(record, spent_s)


def _attempt_findings(record: RunRecord, spent_s: float) -> Iterator[str]:
    """A start that was killed may have left no record: what it trained has a number that no attempt
    has, or that of the next one, and lies before the epoch that the last start resumed from."""
    if not record.attempts:
        yield "it lists no attempt"
        return
    times = [record.started_at, record.ended_at]
    times += [time for each in record.attempts for time in (each.started_at, each.ended_at)]
    if off := [time.year for time in times if not is_of_a_clock(time)]:
        yield f"a time in the year {off[0]}"
        return
    last, epochs = record.attempts[-1], len(record.epochs)
    if spent_s > _allowed((last.ended_at - _EARLIEST).total_seconds()):
        yield f"its epochs took {spent_s:,.0f} s, longer than TensorFlow exists"
    if last.resumed_from_epoch > epochs:
        yield f"the last attempt went on after epoch {last.resumed_from_epoch} of {epochs}"
    yield from _first(
        f"epoch {e.epoch} is of attempt {e.attempt}, yet the last one, {last.number}, went on "
        f"after epoch {last.resumed_from_epoch}"
        for e in record.epochs
        if e.epoch > last.resumed_from_epoch and e.attempt != last.number
    )
    yield from _first(
        f"attempt {after.number} follows attempt {before.number}, yet did not begin after it"
        for before, after in pairwise(record.attempts)
        if after.number <= before.number
        or (before.ended_at - after.started_at).total_seconds() > _CLOCKS_DIFFER_S
    )
    for attempt in record.attempts:
        lasted = (attempt.ended_at - attempt.started_at).total_seconds()
        if lasted < 0:
            yield f"attempt {attempt.number} ended before it began"
            continue
        if attempt.status not in GOOD:
            continue  # nobody noted what it resumed from; its number may be an earlier start's, too
        # epochs from before it resumed may be of a start that left no record
        spent = taken_s(
            epoch
            for epoch in record.epochs
            if epoch.attempt == attempt.number and epoch.epoch > attempt.resumed_from_epoch
        )
        if spent > _allowed(lasted):
            yield (
                f"the epochs of attempt {attempt.number} took {spent:,.0f} s, yet it lasted "
                f"{lasted:,.0f} s"
            )


def is_of_a_clock(time: datetime) -> bool:
    return _EARLIEST <= time < _LATEST


def taken_s(epochs: Iterable[EpochRecord]) -> float:
    """Training, evaluation, and what the ranks were suspended for."""
    return sum(epoch.train_s + epoch.eval_s + (epoch.suspended_s or 0.0) for epoch in epochs)


def _allowed(seconds: float) -> float:
    return seconds * (1 + _SHARE) + _SECONDS


def _cannot_be(epoch: EpochRecord) -> str | None:
    """What it says of its losses, gradients and factors that no training gives; None if nothing.

    Estimates that scatter about zero (``noise.trace``, ``noise.gradient_sq``) may be negative.
    """
    losses = (epoch.train_loss or 0.0, epoch.validation_loss or 0.0)
    if max(map(abs, losses)) >= _LOSS:
        return f"a loss of {max(losses, key=abs):g}"
    rates = (epoch.lr_first, epoch.lr_last, epoch.lr_mean or 0.0)
    if min(epoch.gradient_norm or 0.0, epoch.gain or 0.0, *rates) < 0 or max(rates) > _FASTEST:
        return "a gradient norm, gain or learning rate below 0, or a rate beyond all use"
    if (trust := epoch.trust) is not None and (
        not 0 <= trust.smallest <= trust.median <= trust.largest or min(trust.layers, default=0) < 0
    ):
        return f"trust ratios from {trust.smallest:g} to {trust.largest:g}"
    if (noise := epoch.noise) is not None:
        if noise.steps > epoch.steps or noise.batch_big < 2 * noise.batch_small:
            return (
                f"noise of {noise.steps:,} steps, batches of {noise.batch_small:,} and "
                f"{noise.batch_big:,} images"
            )
        low, high = noise.low or 0.0, noise.high
        if min(low, noise.b_simple or 0.0) < 0 or (high is not None and high < low):
            return f"a noise scale of {noise.b_simple} images, from {noise.low} to {noise.high}"
    return None


def _class_findings(found: Classification) -> Iterator[str]:
    classes = len(found.classes)
    if [len(line) for line in found.confusion] != [classes] * classes:
        yield f"its confusion matrix is not one of {classes} classes"
        return
    for score, line in zip(found.classes, found.confusion, strict=True):
        if sum(line) != score.support:
            yield (
                f"class {score.name}: {score.support:,} validation images, its row of the "
                f"confusion matrix has {sum(line):,}"
            )
            return


def _first(findings: Iterable[str]) -> list[str]:
    return list(findings)[:1]
