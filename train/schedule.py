"""The learning rate as a pure function of the step: scaling rule x warm-up x schedule."""

from __future__ import annotations

import math

from train.technique import Cosine, Step, Technique


def learning_rate(
    technique: Technique, global_batch: int, step: int, steps_per_epoch: int, epochs: int
) -> float:
    """Rate of optimizer step ``step`` (0-based) of ``steps_per_epoch * epochs``.

    Gradual warm-up (Goyal et al., section 2.2) climbs from the base rate to the peak by a constant
    amount per step and arrives at its last step. It depends on the batch, not on the number of
    ranks: where scaling leaves nothing to climb (the base batch itself) there is none. The cosine
    starts after the warm-up; milestones are counted from step 0.
    """
    peak = technique.peak_lr(global_batch)
    warmup = round(technique.warmup_epochs * steps_per_epoch)
    total = steps_per_epoch * epochs
    if step < warmup:
        start = min(technique.base_lr, peak)
        return start + (peak - start) * (step + 1) / warmup
    schedule = technique.schedule
    if isinstance(schedule, Step):
        passed = sum(step >= round(fraction * total) for fraction in schedule.milestones)
        return peak * schedule.factor**passed
    if isinstance(schedule, Cosine):
        progress = (step - warmup) / max(1, total - warmup)
        return peak * (
            schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * progress)) / 2
        )
    return peak
