"""The parts of a record that hold measurements. Part of the output contract; see run.py."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from train.config.consistency import MOST_IMAGES
from train.config.frozen import Frozen
from train.record.nulls import Why

#: Larger ones cannot be, and sums of them would not fit into 64 bits.
Count = Annotated[int, Field(ge=0, le=MOST_IMAGES)]
Positive = Annotated[Count, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]

NO_ACCURACY = Why("random labels: accuracy has no meaning")
_NOT_FINITE = Why("not a finite number in that epoch")
_OLDER = Why("an epoch of an older version of this suite")
_CENSORED = Why(
    "see epochs.noise.interval: censored, as the interval of the squared gradient covers zero, or "
    "fewer than 3 steps"
)
_ALONE = Why("one rank alone, or ranks of tf.distribute")
_UNMET = Why("the target was not met (target.why)")
_NEVER = Why("this accuracy was never held for as long")
#: Of the classes of a confusion matrix: that of 1,000 would be a million numbers in each record.
MOST_CLASSES = 100


class DataRecord(Frozen):
    name: str
    fingerprint: str  # sha256 over the arrays in memory
    train_images: Count  # after data_fraction
    train_images_available: Count
    validation_images: Count
    classes: Positive
    # remainder of a pass that fills no global batch or epoch; where the batch grows, the largest
    dropped_per_epoch: Count
    order: str  # which of the course's options drew the batches


class Spread(Frozen):
    """Distribution of n samples (seconds, unless the field's name says otherwise)."""

    n: Positive
    mean: float
    median: float
    p05: float
    p95: float


class NoiseScale(Frozen):
    """Gradient noise of one epoch (McCandlish et al. 2018, 1812.06162, appendix A).

    From the mean squared norm of the gradients of ``batch_small`` images and the squared norm of
    their mean over ``batch_big``; both scalars are averaged over the epoch's steps, then divided.
    """

    steps: Positive
    batch_small: Positive
    batch_big: Positive
    trace: float  # S: estimate of the trace of the per-image gradient covariance
    gradient_sq: float  # G2: estimate of the squared norm of the true gradient; noisy, may be < 0
    # censored: the interval of G2 covers zero, so b_simple is above low, if that has a number;
    # too_few_steps: there is no interval, and no value without one
    interval: Literal["measured", "censored", "too_few_steps"] = "measured"
    b_simple: Annotated[float | None, _CENSORED]  # S / G2, images; only where measured
    low: Annotated[float | None, _CENSORED]  # 95 % block-bootstrap interval of b_simple
    high: Annotated[float | None, _CENSORED]


class TrustRatios(Frozen):
    """By what layer-wise optimizers multiplied the rate, over the adapted variables and steps."""

    median: float
    smallest: float
    largest: float
    clipped_share: Share  # of (variable, step) where LARC kept the plain rate
    # medians over steps, one for each of the record's adapted variables
    layers: tuple[float, ...] = ()


class EpochRecord(Frozen):
    """One epoch. Seconds are wall time, of training on rank 0, of evaluation on the rank that took
    longest: without what ranks were suspended for and what the suite does for itself, as making
    graphs, comparing weights, and what a sampled step takes longer than the others."""

    epoch: Positive
    attempt: Positive  # which start of the program ran it
    global_batch: Positive
    steps: Positive
    images: Positive  # really processed, all ranks
    train_s: float = Field(ge=0)
    eval_s: float = Field(ge=0)
    lr_first: float
    lr_last: float
    # mean per image, without skipped steps whose own loss had overflowed (accuracy keeps them)
    train_loss: Annotated[float | None, _NOT_FINITE]
    # mean over the epoch's batches while weights change: the metric of the background documents
    train_accuracy: Annotated[Share | None, NO_ACCURACY]
    validation_loss: Annotated[float | None, _NOT_FINITE]
    validation_accuracy: Annotated[Share | None, Why("the epoch was not evaluated")]
    validation_images: Count
    # over the steps that were applied, so without the skipped
    lr_mean: Annotated[float | None, _OLDER] = None
    accumulation: Positive = 1  # batches per rank and step
    skipped_steps: Count = 0  # a number overflowed in half precision: no update
    # of the reduced gradient: mean over the epoch's steps
    gradient_norm: Annotated[float | None, _NOT_FINITE] = None
    noise: Annotated[
        NoiseScale | None,
        Why("one batch per step: there is nothing to compare it with, or no step was finite"),
    ] = None
    trust: Annotated[TrustRatios | None, Why("no step's layer-wise factors were numbers")] = None
    # AdaScale's, mean over the epoch's steps
    gain: Annotated[float | None, Why("not AdaScale")] = None
    # 15th, 50th and 85th percentile over the validation images of what the first sigmoid of the
    # last hidden layer gets (1502.03167, figure 1); empty for networks without one, or where one of
    # these numbers is not finite
    sigmoid_input: tuple[float, ...] = ()
    # stopped, frozen or asleep: the rank that was so for the longest; not in the seconds above, and
    # the epoch is not in the throughput
    suspended_s: Annotated[float | None, _OLDER] = Field(None, ge=0)
    # steps that were taken in parts, to measure them; left out of the throughput
    sampled_steps: Count = 0
    sampled_s: float = Field(0.0, ge=0)  # of train_s: at most what as many other steps take
    steps_per_call: Positive = 1  # of the other steps, at most

    @property
    def usual_images(self) -> int:
        """Of the steps that were not sampled, all ranks together."""
        return self.images - self.sampled_steps * self.global_batch

    @property
    def usual_s(self) -> float:
        """Training seconds of these steps."""
        return self.train_s - self.sampled_s


class RankSteps(Frozen):
    """Steady-state step times of one rank in seconds, without the first epoch of a start, or if it
    is the only one, without its first step; the last 65,536 of each kind.

    One step of each epoch (of epochs of one step, every second one) is ``sampled``: its parts are
    taken one after the other. These steps have ``compute_s`` (forward, backward, update), its part
    ``update_s``, and ``communication_s`` (the all-reduce, with the waiting for slower ranks; 0 in a
    world of one). All others, in which communication overlaps the backward pass, have ``step_s``
    and its part ``input_s`` (waiting for the batch); steps of one call have equal shares of it.
    ``exposed_s`` is communication that overlaps no computing: by how much the other steps of an
    epoch last longer than the sampled one computes (medians over the epoch's steps and over
    epochs), at most the median of ``communication_s``. 1 - ``exposed_s`` / ``communication_s`` is
    the overlap.

    ``waiting_s`` is the part of ``communication_s`` before the slowest rank was there: an
    all-reduce of four bytes before that of the gradients shows it without a shared clock.
    ``negotiation_s`` is that of a second one, the price of any message. No other time has them.

    In records without ``sampled`` every step was taken in parts, and ``step_s`` = ``input_s`` +
    ``compute_s`` + ``communication_s``.
    """

    rank: int = Field(ge=0)
    step_s: Spread
    input_s: Spread
    compute_s: Spread
    communication_s: Spread
    update_s: Spread | None = None  # of compute_s, the optimizer's part
    sampled: int | None = Field(None, ge=1)  # steps
    exposed_s: Annotated[
        float | None,
        Why(
            "other steps were no longer than what a sampled one computes, or no epoch has both, as "
            "epochs of one step"
        ),
    ] = Field(None, ge=0)
    waiting_s: Annotated[Spread | None, _ALONE] = None
    negotiation_s: Annotated[Spread | None, _ALONE] = None


class ThroughputSample(Frozen):
    epoch: int = Field(ge=1)
    images_per_s: float = Field(gt=0)


class Throughput(Frozen):
    """Images really processed per second of training, all ranks together, steady state."""

    # median of the samples
    images_per_s: Annotated[
        float | None,
        Why("no epoch with other than sampled steps after the first one of a start"),
    ]
    samples: tuple[ThroughputSample, ...]  # one per steady epoch
    # epochs that are not steady: the first after each start, and those with a suspension
    left_out: tuple[int, ...]


class LinkTraffic(Frozen):
    """Bytes through one network interface of one node, from the first training step of the last
    start to the end of its training. Of InfiniBand ports, what their hardware counted."""

    host: str
    interface: str  # lo, eth0, or an InfiniBand port as mlx5_0:1
    received_bytes: int = Field(ge=0, le=2**60)
    sent_bytes: int = Field(ge=0, le=2**60)


class ClassScore(Frozen):
    """One class of the validation images; null where nothing was predicted or nothing is there."""

    name: str
    precision: Annotated[Share | None, Why("no validation image was predicted to be of this class")]
    recall: Annotated[Share | None, Why("no validation image is of this class")]
    f1: Annotated[
        Share | None, Why("no validation image is, or was predicted to be, of this class")
    ]
    support: Count


class Classification(Frozen):
    """What the last evaluation said of each class, over all ranks."""

    epoch: Positive
    classes: tuple[ClassScore, ...]
    # images; row: true class, column: predicted class
    confusion: Annotated[
        tuple[tuple[Count, ...], ...] | None, Why(f"more than {MOST_CLASSES} classes")
    ]


class Sharpness(Frozen):
    """Largest eigenvalue of the Hessian where a run ended (train/trainer/sharpness.py).

    ``scaled``: by the norms of the filters, which batch norm makes arbitrary. An eigenvalue lies
    within the error of each.
    """

    images: int = Field(ge=1)
    largest: float
    largest_error: float = Field(ge=0)
    scaled: float
    scaled_error: float = Field(ge=0)


class GoalHeld(Frozen):
    """When one accuracy of the target was first held for as many evaluations as it asks, also if
    that was too late or the other one never was; null: never."""

    accuracy: Literal["train", "validation"]
    goal: float
    epoch: Annotated[Count | None, _NEVER]  # of the last of those evaluations
    steps: Annotated[Count | None, _NEVER]
    images: Annotated[Count | None, _NEVER]
    seconds: Annotated[float | None, _NEVER]


class TargetOutcome(Frozen):
    """When the config's target was first held for as many evaluations as it asks, in time."""

    met: bool
    epoch: Annotated[Count | None, _UNMET]  # of the last of those evaluations
    steps: Annotated[Count | None, _UNMET]
    images: Annotated[Count | None, _UNMET]
    # of training and evaluation, all starts together, until then
    seconds: Annotated[float | None, _UNMET]
    why: str  # met; hopeless, with the numbers; or the epochs ended first
    held: tuple[GoalHeld, ...] = ()  # each accuracy that is asked for, by itself
