"""The networks are those that the background documents describe: parameters and shapes."""

from __future__ import annotations

import numpy as np
import pytest

from train.config import ConfigError, RunConfig
from train.technique import Technique

pytestmark = pytest.mark.tf


def build(model: str, shape: tuple[int, int, int], classes: int, norm: str, **changes: object):
    from train.layers import StepSeed
    from train.models import build_model

    technique = Technique(name="t", base_lr=0.1, base_batch=1, normalisation=norm)
    config = RunConfig(
        dataset="cifar10", model=model, technique=technique, gpus=1, batch_per_rank=4, epochs=1,
        seed=0, **changes,
    )  # fmt: skip
    seed = StepSeed(7)
    return build_model(config, shape, classes, seed), seed


# by hand: conv k*k*in*out + out, dense in*out + out, batch norm 4 per channel
CNN = 320 + 18_496 + (12 * 12 * 64 * 128 + 128) + 1_290
MINI = 9_472 + (4_160 + 36_928 + 16_640 + 16_640) + (32_896 + 147_584 + 66_048 + 131_584) + 20_490
MINI_NORMALISED_CHANNELS = 64 + (64 + 64 + 256 + 256) + (128 + 128 + 512 + 512)


@pytest.mark.parametrize(
    ("model", "shape", "classes", "norm", "parameters"),
    [
        ("cnn", (28, 28, 1), 10, "none", CNN),
        ("cnn", (28, 28, 1), 10, "batch_norm", CNN + 4 * (32 + 64 + 128)),
        ("resnet_mini", (32, 32, 3), 10, "none", MINI),
        ("resnet_mini", (32, 32, 3), 10, "batch_norm", MINI + 4 * MINI_NORMALISED_CHANNELS),
        ("resnet50", (64, 64, 3), 11, "batch_norm", 23_587_712 + 2_048 * 11 + 11),
    ],
)
def test_parameters_and_output(model, shape, classes, norm, parameters) -> None:
    net, _ = build(model, shape, classes, norm)
    assert net.count_params() == parameters
    out = net(np.zeros((3, *shape), np.uint8))
    assert out.shape == (3, classes) and out.dtype == "float32"


def test_first_dense_layer_sees_2048_features() -> None:
    net, _ = build("resnet_mini", (32, 32, 3), 10, "none")
    assert net.get_layer("logits").kernel.shape == (2048, 10)


def test_same_seed_same_weights_other_seed_other_weights() -> None:
    def weights(seed: int):
        from train.layers import StepSeed
        from train.models import build_model

        technique = Technique(name="t", base_lr=0.1, base_batch=1)
        config = RunConfig(
            dataset="digits", model="cnn", technique=technique, gpus=1, batch_per_rank=4,
            epochs=1, seed=seed,
        )  # fmt: skip
        return build_model(config, (8, 8, 1), 10, StepSeed(1)).get_weights()[0]

    assert np.array_equal(weights(1), weights(1))
    assert not np.array_equal(weights(1), weights(2))


def test_dropout_is_a_function_of_stream_step_and_layer() -> None:
    import tensorflow as tf

    from train.layers import SeededDropout, StepSeed

    ones = tf.ones((64, 64))

    def mask(stream: int, step: int, index: int) -> np.ndarray:
        seed = StepSeed(stream)
        seed.set_step(tf.constant(step))
        return SeededDropout(0.25, index, seed)(ones, training=True).numpy()

    base = mask(1, 5, 0)
    assert np.array_equal(base, mask(1, 5, 0))
    for other in (mask(2, 5, 0), mask(1, 6, 0), mask(1, 5, 1)):
        assert not np.array_equal(base, other)
    kept = base[base > 0]
    assert kept == pytest.approx(1 / 0.75)  # inverted dropout keeps the expectation
    assert abs(len(kept) / base.size - 0.75) < 5 * (0.75 * 0.25 / base.size) ** 0.5
    assert np.array_equal(SeededDropout(0.25, 0, StepSeed(1))(ones), ones)


@pytest.mark.parametrize(
    ("model", "shape", "norm", "words"),
    [
        ("cnn", (4, 4, 1), "none", "at least 6x6"),
        ("resnet50", (28, 28, 1), "batch_norm", "at least 32x32"),
        ("resnet50", (64, 64, 3), "none", "batch norm built in"),
    ],
)
def test_unsuitable_images_or_techniques_are_refused(model, shape, norm, words) -> None:
    with pytest.raises(ConfigError, match=words):
        build(model, shape, 10, norm)


def test_a_weights_file_that_does_not_fit_is_named(tmp_path) -> None:
    file = tmp_path / "weights.h5"
    file.write_bytes(b"no weights")
    with pytest.raises(ConfigError, match=r"weights\.h5"):
        build("resnet50", (64, 64, 3), 2, "batch_norm", pretrained=str(file))
