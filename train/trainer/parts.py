"""What a run is given on each process, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from train.config.plan import RunPlan
from train.data.sampling import Indices
from train.record.run import (
    Classification,
    EpochRecord,
    LinkTraffic,
    RankSteps,
    RunError,
    Sharpness,
    TargetOutcome,
)
from train.step.one_graph import OneGraphStep
from train.step.tf_distribute import EvaluationModel


@dataclass(frozen=True)
class Parts:
    """One process' parts of a cell."""

    plan: RunPlan
    used: Indices  # training images of this cell
    model: tf.keras.Model  # that is evaluated
    step: OneGraphStep
    state: list[Any]  # all that a checkpoint holds
    evaluation: EvaluationModel | None = None  # None: the model that is trained is evaluated


@dataclass(frozen=True)
class Trained:
    """What a run that came to its own end leaves behind (the same on all ranks)."""

    error: RunError | None  # None: completed; else why it counts as diverged
    epochs: tuple[EpochRecord, ...]
    resumed_from: int
    steps: tuple[RankSteps, ...] | None
    weights_sha256: str
    traffic: tuple[LinkTraffic, ...] = ()
    classification: Classification | None = None
    target: TargetOutcome | None = None
    sharpness: Sharpness | None = None
    alarms: tuple[str, ...] = ()
    gradient_bytes: int = 1  # of one rank and step, as they travel
    adapted: tuple[str, ...] = ()  # variables with rates of their own

    @property
    def reduced_bytes(self) -> int:
        """Gradients of one rank that this start had added up, as they travel."""
        return self.gradient_bytes * sum(e.steps for e in self.epochs[self.resumed_from :])
