"""The train step's own parts, on one rank: each reaches the weights as its paper has it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.builders import row
from tests.invariants import Invariant
from tests.train.step.test_train_step import PROGRAMS, alone
from train.config.optimizer import Adam, Lamb, Sgd
from train.config.technique import Technique
from train.errors import ConfigError

pytestmark = pytest.mark.tf
CLASSES, SHAPE = 3, (4, 4, 1)
RATE = 0.05
Batches = list[tuple[np.ndarray, np.ndarray]]


def batches(count: int, size: int, seed: int = 0) -> Batches:
    """Images and labels; those of (1, n m) are those of (n, m) put together."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count * size, *SHAPE), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, count * size)
    return list(zip(np.split(images, count), np.split(labels, count), strict=True))


def together(steps: list[Batches]) -> Any:
    """The batches of some steps in one call."""
    from train.data.batches import Batches as Call

    return Call(*(np.array([[b[part] for b in own] for own in steps]) for part in (0, 1)))


def softmax(logits: Any) -> np.ndarray:
    powers = np.exp(np.asarray(logits, np.float64))
    return powers / powers.sum(axis=1, keepdims=True)


@dataclass
class Small:
    """A network of two dense layers under the real step."""

    model: Any
    step: Any
    measured: Any  # the same step in parts

    def weights(self) -> np.ndarray:
        return np.concatenate([v.numpy().ravel() for v in self.model.trainable_variables])

    def gradient(self, given: Batches) -> np.ndarray:
        """Of the plain mean loss, by a tape of its own."""
        import tensorflow as tf

        images, labels = (np.concatenate(parts) for parts in zip(*given, strict=True))
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.model(images))
            loss = tf.reduce_mean(losses) + sum(self.model.losses)
        found = tape.gradient(loss, self.model.trainable_variables)
        dense = [tf.convert_to_tensor(gradient) for gradient in found]
        return np.concatenate([tf.reshape(g, [-1]).numpy() for g in dense])

    def moved(self, given: Batches, rate: float = RATE, number: int = 0) -> tuple[Any, np.ndarray]:
        """What the step tells, and what it adds to the weights."""
        before = self.weights()
        result = self.measured(together([given]), rate, number)
        return result, self.weights() - before


def own_network(*, unused: bool = False) -> Any:
    """Rows of an embedding are added to those of the image; weights and outputs are penalised."""
    import tensorflow as tf

    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    inputs = tf.keras.Input(SHAPE, dtype="uint8")
    rows = layers.Reshape((4, 4))(layers.Rescaling(1 / 255)(inputs))
    places = tf.cast(tf.reduce_mean(rows, axis=2) * 5, tf.int32)  # which of five rows: some twice
    x = layers.Flatten()(rows + layers.Embedding(5, 4, name="places")(places))
    x = layers.Dense(6, activation="relu", kernel_regularizer="l2")(x)
    logits = layers.Dense(CLASSES, activity_regularizer="l2")(x)
    if unused:
        logits += tf.stop_gradient(layers.Dense(CLASSES, name="left_out")(x))
    return tf.keras.Model(inputs, logits)


def small(
    *, adascale: Any = None, brightness: float = 1 / 255, model: Any = None, **changes: Any
) -> Small:
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.optimizers.build import build_optimizer
    from train.step.back_end import OverRanks
    from train.step.loss_scale import LossScale, NoLossScale
    from train.step.measured import MeasuredStep
    from train.step.step import TrainStep

    fields = {"name": "t", "base_lr": RATE, "base_batch": 8, "optimizer": Sgd(), **changes}
    technique = Technique(**fields)
    if model is None:
        layers = tf.keras.layers
        tf.keras.utils.set_random_seed(0)
        inputs = tf.keras.Input(SHAPE, dtype="uint8")
        x = layers.Flatten()(layers.Rescaling(brightness)(inputs))
        policy = tf.keras.mixed_precision.Policy(technique.keras_policy)
        x = layers.Dense(6, activation="relu", dtype=policy)(x)
        model = tf.keras.Model(inputs, layers.Dense(CLASSES)(tf.cast(x, tf.float32)))
    optimizer = build_optimizer(technique.optimizer, model.trainable_variables)
    scale = LossScale() if technique.precision == "mixed_float16" else NoLossScale()
    ranks = OverRanks(technique, 1, scale)
    step = TrainStep(model, optimizer, technique, StepSeed(5), ranks, scale, adascale)
    return Small(model, step, MeasuredStep(step))


def test_noise_is_scaled_by_the_images_of_all_ranks() -> None:
    """s^2 = M / M0 - 1, M the global batch (1705.08741, section 4)."""
    step = small(noise_batch=8).step
    step.back_end.size = 2
    assert float(step.sigma(together([batches(3, 8)]))) == pytest.approx((2 * 3 * 8 / 8 - 1) ** 0.5)


@pytest.fixture
def eight_ranks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The reduction of equal gradients of so many ranks, as fp16 compression adds them up."""
    import tensorflow as tf

    from train.step import reduction

    monkeypatch.setattr(reduction, "allreduce_sum", lambda half, name: tf.add_n([half] * 8))
    monkeypatch.setattr(reduction, "allreduce_mean", lambda squares, name: squares)
    return reduction.reducer(row(compression="fp16"), 8)


# --- the loss ------------------------------------------------------------------------------------


def test_label_smoothing_is_in_the_loss_and_in_what_is_told_of_it() -> None:
    """Szegedy et al. 2016 (1512.00567), section 7: q' = (1 - e) q + e / K."""
    one, plain = small(label_smoothing=0.1), small()
    (images, labels), *_ = given = batches(1, 8)
    logits = one.model(images).numpy()
    logs = np.log(softmax(logits))
    wanted = 0.9 * np.eye(CLASSES)[labels] + 0.1 / CLASSES
    result, moved = one.moved(given)
    assert result.loss == pytest.approx(-(wanted * logs).sum(axis=1).mean(), rel=1e-6)
    assert result.correct == (logits.argmax(axis=1) == labels).sum()
    # with logits z the gradient along z is p - q', so that of the last bias is its mean
    expected = (np.exp(logs) - wanted).mean(axis=0)
    assert moved[-CLASSES:] == pytest.approx(-RATE * expected, rel=1e-4, abs=1e-8)
    assert not np.allclose(moved, plain.moved(given)[1], rtol=1e-3)


def test_sample_noise_of_zero_is_the_plain_step(invariant: Invariant) -> None:
    name = "T10 multiplicative noise"
    given = batches(1, 16)
    plain, zero, noisy = small(), small(noise_batch=16), small(noise_batch=2)
    results = [each.moved(given) for each in (plain, zero, noisy)]
    off = np.abs(results[1][1] - results[0][1]).max()
    invariant(name, "s = 0: the step is the plain one bit for bit", off, 0)
    told = [(result.loss, result.correct) for result, _ in results]
    off = max(abs(a - b) for a, b in zip(told[2], told[0], strict=True))
    invariant(name, "loss and hits that are told are those without weights", off, 0)
    assert np.abs(results[2][1] - results[0][1]).max() > 1e-3, "noise changes the step"


# --- the rate ------------------------------------------------------------------------------------


def test_clipping_is_by_the_norm_of_the_whole_gradient() -> None:
    given = batches(1, 8)
    clipped, loose = small(clip_norm=0.01), small(clip_norm=1e3)
    gradient = clipped.gradient(given)
    norm = float(np.linalg.norm(gradient))
    assert norm > 0.1
    result, moved = clipped.moved(given)
    assert moved == pytest.approx(-RATE * 0.01 * gradient / norm, rel=1e-3, abs=1e-7)
    assert result.gradient_sq == pytest.approx(norm**2, rel=1e-5)  # before clipping
    assert loose.moved(given)[1] == pytest.approx(-RATE * gradient, rel=1e-3, abs=1e-7)


def test_the_gain_of_adascale_reaches_the_optimizer() -> None:
    from train.step.adascale import AdaScale

    one = small(lr_scaling="adascale", adascale=AdaScale(4, 16, 4))
    first, _ = one.moved(batches(4, 4))
    assert first.gain == 1 and first.rate == RATE
    # Johnson et al. 2020 (2007.05105), Algorithm 1, from the norms of the first step
    trace = (first.small_sq - first.gradient_sq) / (1 / 4 - 1 / 16)
    true_sq = max(first.gradient_sq - trace / 16, 0)
    gain = (trace / 4 + true_sq) / (trace / 16 + true_sq)
    given = batches(4, 4, seed=1)
    gradient = one.gradient(given)
    second, moved = one.moved(given, number=1)
    assert 1.1 < gain <= 4
    assert second.gain == pytest.approx(gain, rel=1e-5)
    assert second.rate == pytest.approx(RATE * gain, rel=1e-5)
    assert moved == pytest.approx(-RATE * gain * gradient, rel=1e-3, abs=1e-6)
    assert one.step.last_rate == second.rate


# --- accumulation --------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [Sgd(momentum=0.9), Adam(), Lamb()], ids=lambda o: o.name)
def test_accumulated_batches_are_one_large_batch(invariant: Invariant, optimizer: Any) -> None:
    parts, whole = small(optimizer=optimizer), small(optimizer=optimizer)
    start = parts.weights()
    for number in range(6):
        rate = 0.01 * (number + 1)
        results = [
            parts.moved(batches(4, 4, seed=number), rate, number)[0],
            whole.moved(batches(1, 16, seed=number), rate, number)[0],
        ]
        assert results[0].loss == pytest.approx(results[1].loss, rel=1e-5)
        assert results[0].correct == results[1].correct and results[0].images == 16
    off = np.abs(parts.weights() - whole.weights()).max()
    assert np.abs(parts.weights() - start).max() > 0.01
    name = f"T14 {optimizer.name}"
    invariant(name, "6 steps of 4 batches of 4 = 6 steps of one batch of 16", off, 1e-6)
    counted = int(parts.step.optimizer.iterations.numpy())
    invariant(name, "the optimizer's steps are the applied ones", abs(counted - 6), 0)


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_penalties_and_embeddings_are_in_the_gradient_and_not_in_the_loss(precision: str) -> None:
    """The loss that is reported is comparable with that of validation."""
    given, more = batches(4, 4), {"precision": precision}
    parts, whole = small(model=own_network(), **more), small(model=own_network(), **more)
    gradient = whole.gradient(given)
    ((images, labels),) = batches(1, 16)
    plain = -np.log(softmax(whole.model(images)))[np.arange(16), labels]
    assert sum(whole.model.losses) > 0.01
    for one, cut in ((parts, given), (whole, [(images, labels)])):
        (result,) = one.step(together([cut]), [RATE], 0)
        assert result.loss == pytest.approx(plain.mean(), rel=1e-5)
        assert result.gradient_sq == pytest.approx((gradient**2).sum(), rel=1e-4)
    assert parts.weights() == pytest.approx(whole.weights(), abs=1e-6)


def test_a_variable_without_a_gradient_is_refused_by_name() -> None:
    for take in (Small.moved, lambda one, cut: one.step(together([cut]), [RATE], 0)):
        with pytest.raises(
            ConfigError, match=r"2 of the network's 7 .*left_out/kernel:0, left_out"
        ):
            take(small(model=own_network(unused=True)), batches(1, 8))


def test_the_squares_of_an_accumulated_step_are_of_single_batches_and_of_their_mean(
    invariant: Invariant,
) -> None:
    """What the noise scale and AdaScale are made of, against gradients by a tape of its own."""
    one, given = small(), batches(3, 8)
    gradients = np.array([one.gradient([batch]) for batch in given])
    result, _ = one.moved(given)
    wanted = np.array([(gradients**2).sum(axis=1).mean(), (gradients.mean(axis=0) ** 2).sum()])
    found = np.array([result.small_sq, result.gradient_sq])
    off = float(np.abs(found / wanted - 1).max())
    invariant("T14 accumulation", "mean |g|^2 of 3 batches, |mean g|^2", off, 1e-5)
    assert wanted[0] > 1.1 * wanted[1]


def test_draws_of_accumulated_batches_never_repeat() -> None:
    """The first batch's seed is [stream, step], as without accumulation."""
    from train.models.layers import StepSeed, draw_number

    seen = set()
    steps, micros = (0, 1, 7, 2**20, 2**31 - 1), (0, 1, 2, 2047, 2048, 4096, 2**20)
    pairs = [(step, micro) for step in steps for micro in micros]
    for step, micro in pairs:
        seed = StepSeed(5)
        seed.set_step(draw_number(step, micro))
        seen.add(tuple(int(word) for word in seed.value.numpy()))
    assert len(seen) == len(pairs)
    assert {(5, 0), (5, 1), (5, 7), (5, 2**20), (5, 2**31 - 1)} <= seen


def test_every_accumulated_batch_has_noise_of_its_own() -> None:
    """One batch 64 times, with the same deviation as the batch alone: of one draw for all of them,
    noise would not average out, to an eighth."""
    (batch,) = batches(1, 8)
    plain, together, single = small(), small(noise_batch=64), small(noise_batch=1)
    _, without = plain.moved([batch])
    off = [
        float(np.linalg.norm(one.moved([batch] * times)[1] - without))
        for one, times in ((together, 64), (single, 1))
    ]
    assert 0 < off[0] < off[1] / 3


# --- overflow ------------------------------------------------------------------------------------


def test_an_overflow_in_half_precision_skips_the_step_and_halves_the_loss_scale(
    invariant: Invariant,
) -> None:
    one = small(precision="mixed_float16", optimizer=Lamb())
    given, scale = batches(1, 8), one.step.loss_scale.scale
    applied, moved = one.moved(given, 0.5 * RATE)
    assert np.abs(moved).max() > 0 and not applied.skipped and len(one.step.trust_factors) == 1
    slots = [v.numpy().copy() for v in one.step.optimizer.variables()]
    scale.assign(2.0**60)
    result, moved = one.moved(given, RATE, 1)
    assert not moved.any() and result.skipped and not result.applied
    assert len(one.step.trust_factors) == 1
    assert not math.isfinite(result.small_sq)
    assert float(scale) == 2.0**59
    after = [v.numpy() for v in one.step.optimizer.variables()]
    assert all(np.array_equal(a, b) for a, b in zip(slots, after, strict=True))
    assert one.step.last_rate == 0.5 * RATE, "momentum correction starts from the last applied"
    skipped = applied.skipped + result.skipped
    invariant("T15 loss scale", "overflows of own gradients not counted", 1 - skipped, 0)


def test_an_overflow_on_the_wire_skips_the_step(eight_ranks: Any, invariant: Invariant) -> None:
    one = small(compression="fp16", brightness=1e4)
    one.step.back_end._reduced = eight_ranks
    (images, labels), *_ = batches(1, 8)
    results = []
    for number in range(4):
        bright = images if number % 2 else images * np.uint8(0)
        results.append(one.moved([(bright, labels)], number=number))
    flags = [result.skipped for result, _ in results]
    missed = sum(a != b for a, b in zip(flags, [False, True] * 2, strict=True))
    invariant("T15 fp16", "sums of 8 ranks beyond fp16: steps not told apart", missed, 0)
    assert [moved.any() for _, moved in results] == [True, False] * 2
    assert all(math.isfinite(result.small_sq) for result, _ in results)
    assert math.isinf(results[1][0].gradient_sq)


def test_what_the_loss_scale_saved_survives_float16_on_the_wire(
    eight_ranks: Any, invariant: Invariant
) -> None:
    """Horovod compresses what a loss-scale optimizer has scaled; and a sum that overflows is the
    scale's fault then, also where every rank's own gradient was finite."""
    import tensorflow as tf

    one = small(compression="fp16", precision="mixed_float16")
    one.step.back_end._reduced = eight_ranks
    tiny = np.float32([1e-9, -3e-7, 0.01])
    (found,), _ = one.step.back_end.reduce([tf.constant(tiny)], [tf.constant(1.0)])
    worst = np.abs(found.numpy() / tiny - 1).max()
    invariant("T15 fp16", "a gradient of 1e-9 survives under a loss scale, error", worst, 4e-3)

    given, scale = batches(1, 8), one.step.loss_scale.scale
    scale.assign(65_504 / float(np.abs(one.gradient(given)).max()) / 2.7)  # once, not eight times
    before = float(scale)
    result, moved = one.moved(given, number=1)
    assert result.skipped and not moved.any() and math.isfinite(result.small_sq)
    assert float(scale) == before / 2
    assert one.moved(given, number=2)[0].skipped and one.moved(given, number=3)[1].any()


def test_what_is_no_number_in_float32_is_no_overflow_and_has_no_trust_ratios() -> None:
    """The run has diverged, as the host sees when the call is over."""
    one = small(optimizer=Lamb(), brightness=math.inf)
    results = one.step(together([batches(1, 8)] * 2), [RATE] * 2, 0)
    assert not any(result.skipped or result.applied for result in results)
    assert not len(one.step.trust_factors[0]) and one.step.last_rate is None


# --- precision -----------------------------------------------------------------------------------


def test_one_real_step_in_each_precision() -> None:
    """In a process of its own, started as a rank is: bfloat16 needs its environment from there."""
    found = alone([str(PROGRAMS / "precisions.py")])
    assert set(found) == {"float32", "mixed_float16", "mixed_bfloat16"}
    exact = found["float32"]
    for precision, bound in (("float32", 0), ("mixed_float16", 5e-3), ("mixed_bfloat16", 5e-2)):
        told = found[precision]
        assert told["moved"] > 1e-4 and told["types"] == ["float32"], precision
        assert not told["skipped"]
        assert abs(told["loss"] / exact["loss"] - 1) <= bound, precision
        assert abs(told["norm"] / exact["norm"] - 1) <= 4 * bound, precision
    assert len({json.dumps(told) for told in found.values()}) == 3, "they are computed differently"
