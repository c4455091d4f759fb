"""What each step of a run uses: the learning rate, the batch, the epoch; checked against the data.

Steps are optimizer steps, however many batches are accumulated for one, from 0 over the whole run.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from train.config.checks import PLAN, new_cell_problem
from train.config.datasets import DATASETS
from train.config.run import MOST_EPOCHS, RunConfig, used_train_images
from train.config.schedule import Grow, StepDecay
from train.config.technique import first_problem
from train.errors import ConfigError


@dataclass(frozen=True)
class EpochPlan:
    """One epoch: how many whole steps of how many images."""

    number: int  # from 0
    accumulation: int
    global_batch: int
    steps: int
    first_step: int
    rate_factor: float  # what growth that came to its end multiplies the rate by
    per_pass: int = 1  # epochs in a pass over the images

    @property
    def pass_number(self) -> int:
        return self.number // self.per_pass

    @property
    def first_of_pass(self) -> int:
        """The epoch's first step, from the beginning of its pass."""
        return self.number % self.per_pass * self.steps


@dataclass(frozen=True)
class RunPlan:
    """The schedule of one cell on ``used`` training images."""

    config: RunConfig
    used: int

    @cached_property
    def epochs(self) -> tuple[EpochPlan, ...]:
        """With regime adaptation as many as have the steps of the base batch, the last cut short.

        Raises:
            ConfigError: an epoch would have no step, or the batch grows beyond the data.
        """
        config = self.config
        left = self.base_steps if config.technique.regime_adaptation else None
        plans: list[EpochPlan] = []
        first = 0
        for number in count():
            if number >= config.epochs if left is None else left == 0:
                break
            if number == MOST_EPOCHS:
                raise ConfigError(
                    f"regime_adaptation would take more than {MOST_EPOCHS:,} epochs for the "
                    f"{self.base_steps:,} steps of base_batch {config.technique.base_batch}: use "
                    "fewer epochs, or a larger base_batch"
                )
            times, factor = self._growth(number)
            batch = config.global_batch * times
            steps = self.used // batch
            if steps == 0:
                shard = self.used // config.gpus
                smaller = f"a batch of at most {shard}, " if shard else ""
                raise ConfigError(
                    f"batch_per_rank x accumulation, {config.batch_per_rank} x "
                    f"{config.accumulation}, is more than the shard of a rank ({self.used:,} "
                    f"training images / {config.gpus} ranks = {shard:,}), so an epoch would have "
                    f"0 steps: use {smaller}fewer ranks or more data (data_fraction)"
                )
            per_pass = 1
            if asked := config.steps_per_epoch:
                if asked > steps:
                    raise ConfigError(
                        f"steps_per_epoch {asked:,} is more than a pass over the {self.used:,} "
                        f"training images has: use at most {steps:,}"
                    )
                steps, per_pass = asked, steps // asked
            if left is not None:
                steps = min(steps, left)
                left -= steps
            grown = config.accumulation * times
            plans.append(EpochPlan(number, grown, batch, steps, first, factor, per_pass))
            first += steps
        return tuple(plans)

    @cached_property
    def total_steps(self) -> int:
        last = self.epochs[-1]
        return last.first_step + last.steps

    @cached_property
    def left_over(self) -> int:
        """Images of a pass that fill no global batch, or no epoch of ``steps_per_epoch``: of the
        epoch with the most, since a batch that grows leaves more."""
        together = self.config.steps_per_epoch or 1
        return max(self.used % (together * epoch.global_batch) for epoch in self.epochs)

    @cached_property
    def base_steps(self) -> int:
        """Steps that the batch which the base rate belongs to would take in the run's epochs.

        Raises:
            ConfigError: that batch is larger than the data, so the number would be 0.
        """
        config, base = self.config, self.config.technique.base_batch
        if base > self.used:
            raise ConfigError(
                f"base_batch {base:,} is more than the {self.used:,} training images, so it has no "
                f"steps to go by: use at most {self.used:,}"
            )
        return config.epochs * (self.used // base)

    @cached_property
    def warmup_steps(self) -> int:
        """Whole steps of the climb; half an epoch is half of its steps."""
        return round(self.step_at(self.config.technique.warmup_epochs))

    def epoch_of(self, step: int) -> EpochPlan:
        return self.epochs[bisect_right(self.epochs, step, key=lambda e: e.first_step) - 1]

    def rate(self, clock: float) -> float:
        """Learning rate of the step at ``clock``: its number, or what AdaScale has made of it.

        Gradual warm-up (Goyal et al. 2017, 1706.02677, section 2.2) climbs by a constant amount
        per step and arrives at the peak with its last one.
        """
        technique = self.config.technique
        peak = technique.peak_lr(self.config.global_batch)
        warmup = self.warmup_steps
        if clock < warmup:
            start = min(technique.base_lr, peak) if technique.warmup_from == "base" else 0.0
            return start + (peak - start) * (clock + 1) / warmup
        progress = min(1.0, (clock - warmup) / max(1, self.horizon - warmup))
        step, schedule, passed = min(self.total_steps - 1, int(clock)), technique.schedule, 0
        if isinstance(schedule, StepDecay):
            passed = sum(clock >= self.milestone(schedule, m) for m in schedule.milestones)
        return peak * schedule.share(progress, passed) * self.epoch_of(step).rate_factor

    def milestone(self, schedule: StepDecay, milestone: float) -> int:
        """First step that a milestone changes."""
        if schedule.unit == "epochs":
            return round(self.step_at(milestone))
        return round(milestone * self.horizon)

    @cached_property
    def horizon(self) -> int:
        """Where the schedule ends on its clock. AdaScale's counts steps of the base batch (Johnson
        et al. 2020, 2007.05105, section 3); a run whose gain stays below the ratio of the batches
        ends before its schedule does. Regime adaptation takes that many steps."""
        return self.base_steps if self._in_base_steps else self.total_steps

    @property
    def _in_base_steps(self) -> bool:
        technique = self.config.technique
        return technique.regime_adaptation or technique.lr_scaling == "adascale"

    def step_at(self, epochs: float) -> float:
        """Clock after a number of epochs, whole or not; where it counts the base batch's steps,
        epochs are the base batch's, too, so that they fall on the same update."""
        if self._in_base_steps:
            return epochs * self.base_steps / self.config.epochs
        whole = min(int(epochs), len(self.epochs) - 1)
        plan = self.epochs[whole]
        return plan.first_step + (epochs - whole) * plan.steps

    def _growth(self, epoch: int) -> tuple[int, float]:
        """By what the batch is multiplied in an epoch, and the rate by what it could not grow."""
        growth, times, factor = self.config.technique.batch_growth, 1, 1.0
        if isinstance(growth, Grow):
            largest = self._largest(growth)
            for start in growth.epochs(self.config.epochs):
                if epoch < start:
                    break
                if self.config.global_batch * times * growth.factor <= largest:
                    times *= growth.factor
                else:
                    factor /= growth.factor
        return times, factor

    def _largest(self, growth: Grow) -> int:
        """Where growth stops, images; the first growth must be possible."""
        first = self.config.global_batch * growth.factor
        largest = self.used // 10 if growth.largest is None else growth.largest
        if largest > self.used:
            raise ConfigError(
                f"batch_growth.largest {largest:,} is more than the {self.used:,} training "
                f"images: use at most {self.used // 10:,}, a tenth"
            )
        if first > largest:
            default = " (a tenth of the training images)" if growth.largest is None else ""
            raise ConfigError(
                f"batch_growth: the first growth, from {self.config.global_batch:,} to {first:,}, "
                f"passes the largest batch {largest:,}{default}, so the batch would never grow: "
                f"use a smaller batch or factor, or a larger 'largest' (at most {self.used:,})"
            )
        return largest


def plan_of(config: RunConfig, available: int) -> RunPlan:
    """The plan of a cell that is to be trained on ``available`` training images, checked.

    Raises:
        ConfigError: it cannot be, or would train something other than it says.
    """
    return checked_plan(config, available - config.kept_to_validate(available))


def checked_plan(config: RunConfig, trainable: int) -> RunPlan:
    """The same, and raises the same, if the images to validate on are taken away already."""
    plan = RunPlan(config, used_train_images(trainable, config.data_fraction))
    try:
        plan.rate(plan.total_steps - 1)  # computing all that a rate needs is the check
        text = new_cell_problem(config)
        text = text or first_problem(PLAN, p=plan, c=config, t=config.technique)
    except ConfigError as error:
        text = str(error)
    if text:
        raise ConfigError(f"cell {config.cell_id()}: {text}")
    return plan


def epochs_to_train(config: RunConfig) -> int | None:
    """Epochs of the run; with regime adaptation None for cells that cannot run, and for images of
    which no number is published."""
    if not config.technique.regime_adaptation:
        return config.epochs
    facts = DATASETS.get(config.dataset)
    try:
        return None if facts is None else len(plan_of(config, facts.train_images).epochs)
    except ConfigError:
        return None


def most_epochs(config: RunConfig) -> int:
    """No fewer than the run has, whatever its data: n images fill at least half of n/B batches."""
    bound = 2 * config.epochs * config.global_batch / config.technique.base_batch
    return epochs_to_train(config) or math.ceil(bound)
