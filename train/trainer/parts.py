"""What a run is given on each process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from train.config.plan import RunPlan
from train.data.sampling import Indices
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
