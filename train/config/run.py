"""The input contract: RunConfig, everything that decides what one cell computes.

Not where it runs: a cell keeps its identity when it moves to another machine. No TensorFlow.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from train.config.consistency import CELL, IMAGES
from train.config.datasets import (
    ARRAYS_PREFIX,
    DATASETS,
    FOLDER_PREFIX,
    FOLDER_SIDE,
    check_dataset,
    dataset_slug,
    parse_arrays,
)
from train.config.frozen import Frozen
from train.config.networks import NETWORKS, model_slug, parse_model, split_hash
from train.config.technique import Technique, first_problem
from train.errors import ConfigError, read_whole

#: A plan has a row for each.
MOST_EPOCHS = 100_000


class Target(Frozen):
    """What a run is to reach, held at ``held_for`` evaluations in a row. It stops when that is met,
    or can no longer be met within ``within_s`` seconds of training and evaluation."""

    train_accuracy: float | None = Field(None, gt=0, le=1)  # running mean over an epoch
    validation_accuracy: float | None = Field(None, gt=0, le=1)
    held_for: int = Field(2, ge=1)
    within_s: float | None = Field(None, gt=0)

    def in_words(self) -> str:
        """Few words and no comma: it stands within lists."""
        asked = (("training", self.train_accuracy), ("validation", self.validation_accuracy))
        goals = " and ".join(f"{name} accuracy {goal:g}" for name, goal in asked if goal)
        held = f" ({self.held_for} evaluations in a row)" if self.held_for > 1 else ""
        return goals + held + (f" within {self.within_s:g} s" if self.within_s else "")


class RunConfig(Frozen):
    """One cell: what is trained on what, how, on how many ranks, from which seed."""

    # no field: copies, comparisons, hashes and dumps do not see it
    __slots__ = ("_cell_id",)

    schema_version: Literal[1] = 1
    dataset: str
    image_size: int | None = Field(None, ge=8, le=1024)  # side in pixels; folders only
    # ours, keras.applications.NAME or FILE.py:FUNCTION@SHA256; the last two run as built
    model: str
    width: float = Field(1.0, gt=0, le=16)  # resnet_mini only: multiplies its filters
    shortcuts: bool = True  # resnet_mini only: residual blocks, or the same without their shortcuts
    # file of Keras weights, for resnet50; for networks that run as built FILE@SHA256
    pretrained: str | None = None
    technique: Technique
    # who averages the gradients; the notebook's comparison of libraries for the same cell
    framework: Literal["horovod", "mirrored", "multi_worker_mirrored"] = "horovod"
    gpus: int = Field(ge=1)  # ranks: one per GPU, or per group of CPU cores where there is none
    scaling: Literal["weak", "strong"] = "weak"
    batch_per_rank: int = Field(ge=1)
    # batches whose gradients a rank adds up before each step: emulates that many times the ranks
    accumulation: int = Field(1, ge=1)
    epochs: int = Field(ge=1, le=MOST_EPOCHS)
    # None: a pass over the images. A run is evaluated after each epoch, so fewer steps show sooner
    # what it reached. A pass holds as many such epochs as are whole; then another order begins
    steps_per_epoch: int | None = Field(None, ge=1)
    seed: int = Field(ge=0, lt=2**31)
    data_fraction: float = Field(1.0, gt=0, le=1)
    # option 1 of the course: one permutation, cut into disjoint shards;
    # option 2: each rank draws its share from the whole set by itself ("whole", as earlier records
    # have it, gives rank 0 the orders of "partition");
    # same: the course's scripts, whose ranks all draw the same images, so that k ranks repeat one
    partition: Literal["partition", "independent", "whole", "same"] = "partition"
    # what accuracy is measured on: the published held-out images, or, to search for rates without
    # looking at these, a tenth of the training images, which is then left out of training
    validate_on: Literal["held_out", "train_part"] = "held_out"
    target: Target | None = None
    # training images on which the sharpness of the minimum is measured when the run has ended
    sharpness_images: int | None = Field(None, ge=1)
    # TensorFlow's deterministic operations: two runs are equal bit for bit, at the price of time
    deterministic: bool = True
    keep_weights: bool = False  # weights.h5 stays in the cell's folder

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, value: str) -> str:
        check_dataset(value)
        if value.startswith(ARRAYS_PREFIX) and parse_arrays(value)[1] is None:
            raise ValueError(
                f"dataset {value!r}: expected {value}@SHA256, with the hash that sha256sum prints "
                "(a sweep file needs none: jobs adds it)"
            )
        return value

    @field_validator("model")
    @classmethod
    def _known_model(cls, value: str) -> str:
        parse_model(value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        text, shape = first_problem(CELL, c=self, t=self.technique), self.image_shape
        if text := text or (self.image_problem(shape) if shape else None):
            raise ValueError(text)
        if self.runs_as_built and self.pretrained and not split_hash(self.pretrained)[1]:
            raise ValueError(f"pretrained: expected FILE@SHA256, found {self.pretrained}")
        return self

    def image_problem(self, shape: tuple[int, ...]) -> str | None:
        """Why the cell cannot train on images of this height, width and number of channels."""
        side = min(shape[:2])
        return first_problem(IMAGES, c=self, t=self.technique, shape=shape, side=side)

    @property
    def labelled(self) -> bool:
        """Whether labels have a meaning, and so accuracy."""
        return self.dataset != "synthetic"

    @property
    def runs_as_built(self) -> bool:
        """Whether the network is no network of ours, so that normalisation none and batch_norm
        both leave its layers as they are."""
        return self.model not in NETWORKS

    @property
    def global_batch(self) -> int:
        """Images per optimizer step over all ranks; where the batch grows, at the start."""
        return self.gpus * self.batch_per_rank * self.accumulation

    @property
    def images_together(self) -> int:
        """What batch normalisation takes its statistics of, unless ghosts divide it."""
        synchronised = self.technique.normalisation == "sync_batch_norm"
        return self.batch_per_rank * (self.gpus if synchronised else 1)

    @property
    def repeats(self) -> bool:
        """Whether the ranks of a step train on the same images, as the config asks."""
        return self.partition == "same" and self.gpus > 1

    @property
    def shows_noise(self) -> bool:
        """Whether the norms of a rank's gradient and of the mean say how noisy the gradient is."""
        technique = self.technique
        coupled = technique.reduction == "adasum" or technique.normalisation == "sync_batch_norm"
        return not (self.repeats or technique.noise_batch or coupled)

    @property
    def processes(self) -> int:
        """One per rank, but MirroredStrategy has all its replicas in one."""
        return 1 if self.framework == "mirrored" else self.gpus

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels of an image; None: only the file of arrays shows it."""
        if self.dataset in DATASETS:
            return DATASETS[self.dataset].shape
        side = self.image_size or FOLDER_SIDE
        return (side, side, 3) if self.dataset.startswith(FOLDER_PREFIX) else None

    def kept_to_validate(self, available: int) -> int:
        """Training images that are not trained on, but validated on.

        Raises:
            ConfigError: there are fewer than ten to take a tenth of.
        """
        if self.validate_on == "held_out":
            return 0
        if available < 10:
            raise ConfigError(
                f"validate_on: train_part takes a tenth of the training images, found {available}, "
                "expected at least 10: add images, or use validate_on: held_out"
            )
        return available // 10

    def cell_id(self) -> str:
        """Readable name plus a hash of the whole config: equal configs are equal cells."""
        name: str | None = getattr(self, "_cell_id", None)
        if name is None:
            what = f"{dataset_slug(self.dataset)}-{model_slug(self.model)}-{self.technique.name}"
            name = f"{what}-g{self.gpus}-s{self.seed}-{self.digest()[:6]}"
            object.__setattr__(self, "_cell_id", name)
        return name

    def digest(self) -> str:
        """sha256 of all that is not at its default, so that a field added later, whose default is
        what was done before, leaves every existing cell what it is."""
        chosen = {**_chosen(self), "schema_version": self.schema_version}
        text = json.dumps(chosen, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _chosen(model: BaseModel) -> dict[str, Any]:
    """What differs from the defaults; ``name`` always, since it says which kind a part is."""
    chosen: dict[str, Any] = {}
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if key != "name" and value == field.default:
            continue
        chosen[key] = _chosen(value) if isinstance(value, BaseModel) else value
    return chosen


def used_train_images(available: int, fraction: float) -> int:
    """Training images that a run with ``data_fraction`` uses (the 1e-9 absorbs 0.1 * 10 etc.)."""
    return int(available * fraction + 1e-9)


def load_config(path: Path) -> RunConfig:
    """Read and check one config.json.

    Raises:
        ConfigError: no such file, no JSON, or a key or value outside the contract.
        Unreadable: the file cannot be read now.
    """
    if (content := read_whole(path)) is None:
        raise ConfigError(f"cannot read the config {path}: No such file or directory")
    try:
        return RunConfig.model_validate_json(content)
    except ValidationError as error:
        raise ConfigError(f"{path} is not a valid config:\n{explain(error)}") from error


def explain(error: Exception) -> str:
    """The findings of pydantic, one line each: where, what, what was found."""
    if not isinstance(error, ValidationError):
        return f"  {error}"
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"]) or "(whole file)"
        text = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            text = "unknown key"  # where pydantic says "Extra inputs are not permitted"
        found = "" if item["type"] in ("missing", "value_error") else f" (found {item['input']!r})"
        lines.append(f"  {where}: {text}{found[:200]}")
    return "\n".join(lines)
