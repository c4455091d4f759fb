"""Can what a record says it measured be true? Numbers beyond belief, times that contradict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from train.record.run import Classification, RunRecord, Spread

#: Counts beyond these cannot be, and sums over epochs would not fit into 64 bits.
_MOST, _MOST_BYTES = 10**13, 2**60
#: Clocks are set while a run goes on; seconds are counted by another clock than times are.
_SHARE, _SECONDS = 0.01, 1.0
_OF_AN_EPOCH = ("attempt", "steps", "images", "accumulation", "validation_images",
                "sampled_steps", "steps_per_call")  # fmt: skip
_OF_DATA = ("train_images", "train_images_available", "validation_images", "dropped_per_epoch")


def number_findings(record: RunRecord) -> Iterator[str]:
    """Counts and seconds that cannot be, whatever the config asks for."""
    if record.data is not None and not 1 <= record.data.classes <= _MOST:
        yield f"data of {record.data.classes} classes"
    bytes_moved = max([max(x.received_bytes, x.sent_bytes) for x in record.traffic], default=0)
    wrong = [what for what, number in _counts(record) if not 0 <= number <= _MOST]
    if wrong or bytes_moved > _MOST_BYTES:
        yield f"{(*wrong, 'bytes of traffic')[0]}: the number is below 0 or beyond all counts"
    for rank in record.steps or ():
        spreads = [(name, v) for name, v in rank.__dict__.items() if isinstance(v, Spread)]
        below = [name for name, v in spreads if min(v.mean, v.median, v.p05) < 0]
        ends = [(name, max(v.mean, v.median, v.p95)) for name, v in spreads]
        beyond = [name for name, end in (*ends, ("exposed_s", rank.exposed_s or 0)) if end > _MOST]
        if below or beyond:
            name = (*below, *beyond)[0]
            yield f"rank {rank.rank}: {name} is {'below 0' if below else 'beyond all times'}"
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


def measured_findings(record: RunRecord) -> Iterator[str]:
    """Times and matrices that contradict each other."""
    if record.classification is not None:
        yield from _class_findings(record.classification)
    for attempt in record.attempts:
        lasted = (attempt.ended_at - attempt.started_at).total_seconds()
        if lasted < 0:
            yield f"attempt {attempt.number} ended before it began"
            continue
        # epochs from before it resumed may be of a start that left no record
        spent = sum(
            epoch.train_s + epoch.eval_s
            for epoch in record.epochs
            if epoch.attempt == attempt.number and epoch.epoch > attempt.resumed_from_epoch
        )
        if spent > lasted * (1 + _SHARE) + _SECONDS:
            yield (
                f"the epochs of attempt {attempt.number} took {spent:,.0f} s, yet it lasted "
                f"{lasted:,.0f} s"
            )


def _counts(record: RunRecord) -> Iterator[tuple[str, int]]:
    for name in _OF_AN_EPOCH:
        yield f"{name} of an epoch", max([e.__dict__[name] for e in record.epochs], default=0)
    if record.data is not None:
        for name in _OF_DATA:
            yield f"data.{name}", getattr(record.data, name)
    if record.world is not None:
        yield "world.nodes", record.world.nodes
        yield "world.cores_per_rank", record.world.cores_per_rank
    if record.classification is not None:
        yield "classification.epoch", record.classification.epoch
    outcomes = () if record.target is None else (record.target, *record.target.held)
    for outcome in outcomes:
        for name in ("epoch", "steps", "images"):
            yield f"target.{name}", getattr(outcome, name) or 0
    for epoch in record.epochs:
        if epoch.noise is not None:
            for name in ("steps", "batch_small", "batch_big"):
                yield f"noise.{name} of an epoch", getattr(epoch.noise, name)


def _class_findings(found: Classification) -> Iterator[str]:
    classes = len(found.classes)
    if [len(line) for line in found.confusion] != [classes] * classes:
        yield f"its confusion matrix is not one of {classes} classes"
        return
    for score, line in zip(found.classes, found.confusion, strict=True):
        if min(line) < 0 or sum(line) != score.support or score.support > _MOST:
            yield (
                f"class {score.name}: {score.support:,} validation images, its row of the "
                f"confusion matrix has {sum(line):,}"
            )
            return


def _first(findings: Iterable[str]) -> list[str]:
    return list(findings)[:1]
