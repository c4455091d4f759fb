"""The networks are those that the background documents describe: parameters and shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tests import builders
from train.config.consistency import last_map_side
from train.config.networks import NETWORKS, smallest_side
from train.errors import ConfigError

pytestmark = pytest.mark.tf


def build(
    model: str, shape: tuple[int, int, int], classes: int, norm: str,
    row: dict[str, object] | None = None, pixels: object = None, **changes: object,
):  # fmt: skip
    from train.models.layers import StepSeed
    from train.models.networks import build_model

    technique = builders.row(normalisation=norm, **(row or {}))
    config = builders.config(dataset="cifar10", model=model, technique=technique, **changes)
    return build_model(config, shape, classes, StepSeed(7), pixels)


# by hand: conv k*k*in*out + out, dense in*out + out, batch norm 4 per channel
CNN = 320 + 18_496 + (12 * 12 * 64 * 128 + 128) + 1_290
MLP = (784 * 100 + 100) + 2 * (100 * 100 + 100) + (100 * 10 + 10)
MINI = 9_472 + (4_160 + 36_928 + 16_640 + 16_640) + (32_896 + 147_584 + 66_048 + 131_584) + 20_490
MINI_NORMALISED_CHANNELS = 64 + (64 + 64 + 256 + 256) + (128 + 128 + 512 + 512)


@pytest.mark.parametrize(
    ("model", "shape", "classes", "norm", "parameters"),
    [
        ("linear", (8, 8, 1), 10, "none", 64 * 10 + 10),
        ("mlp", (28, 28, 1), 10, "none", MLP),
        ("mlp", (28, 28, 1), 10, "batch_norm", MLP + 4 * 300),
        ("cnn", (28, 28, 1), 10, "none", CNN),
        ("cnn", (28, 28, 1), 10, "batch_norm", CNN + 4 * (32 + 64 + 128)),
        ("resnet_mini", (32, 32, 3), 10, "none", MINI),
        ("resnet_mini", (32, 32, 3), 10, "batch_norm", MINI + 4 * MINI_NORMALISED_CHANNELS),
        ("resnet50", (64, 64, 3), 11, "batch_norm", 23_587_712 + 2_048 * 11 + 11),
    ],
)
def test_parameters_and_output(model, shape, classes, norm, parameters) -> None:
    net = build(model, shape, classes, norm)
    assert net.count_params() == parameters
    out = net(np.zeros((3, *shape), np.uint8))
    assert out.shape == (3, classes) and out.dtype == "float32"


def test_linear_is_softmax_regression_on_the_pixels() -> None:
    net = build("linear", (2, 2, 1), 3, "none")
    weights, bias = (variable.numpy() for variable in net.trainable_variables)
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
    np.testing.assert_allclose(net(images), images.reshape(2, 4) / 255 @ weights + bias, rtol=1e-5)


def test_what_a_sigmoid_gets_is_normalised_and_is_watched() -> None:
    import tensorflow as tf

    from train.models.networks import a_sigmoid_input

    net = build("mlp", (4, 4, 1), 3, "batch_norm")
    images = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 1), np.uint8)
    watched = tf.keras.Model(net.input, a_sigmoid_input(net))(images, training=True).numpy()
    assert watched.shape == (50,)
    assert abs(watched.mean()) < 1e-5 and watched.std() == pytest.approx(1, abs=0.05)
    plain = build("mlp", (4, 4, 1), 3, "none")
    before = tf.keras.Model(plain.input, plain.get_layer("sigmoid2").output)(images)
    weights, bias = plain.get_layer("hidden3").get_weights()
    found = tf.keras.Model(plain.input, a_sigmoid_input(plain))(images)
    np.testing.assert_allclose(found, (before @ weights + bias)[:, 0], rtol=1e-5)
    assert a_sigmoid_input(build("linear", (4, 4, 1), 3, "none")) is None


def test_width_multiplies_the_filters_and_shortcuts_can_be_left_out() -> None:
    usual = build("resnet_mini", (32, 32, 3), 10, "batch_norm")
    half = build("resnet_mini", (32, 32, 3), 10, "batch_norm", width=0.5)
    for layer in half.layers:
        if "conv" in layer.name and hasattr(layer, "filters"):
            assert layer.filters == usual.get_layer(layer.name).filters // 2
    assert half.get_layer("logits").kernel.shape[0] == 1024
    plain = build("resnet_mini", (32, 32, 3), 10, "batch_norm", shortcuts=False)
    left = {layer.name for layer in usual.layers} - {layer.name for layer in plain.layers}
    assert {name for name in left if name.startswith("block")} == {
        "block2_shortcut", "block2_bn_shortcut", "block3_shortcut", "block3_bn_shortcut",
    }  # fmt: skip
    assert plain(np.zeros((2, 32, 32, 3), np.uint8)).shape == (2, 10)


def test_without_a_shortcut_no_branch_starts_at_zero() -> None:
    """Nothing would be left of the image, nor of any gradient."""
    row = {"zero_gamma": True}
    net = build("resnet_mini", (16, 16, 3), 4, "batch_norm", row, shortcuts=False)
    images = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), np.uint8)
    assert np.ptp(net(images, training=True), axis=0).min() > 1e-3


@pytest.mark.parametrize(
    ("model", "side"),
    [
        *(("resnet_mini", side) for side in (8, 9, 12, 13, 16, 32)),
        ("resnet50", 32),
        ("resnet50", 33),
    ],
)
def test_the_side_of_the_last_map_is_known_without_the_network(model: str, side: int) -> None:
    """What the plan goes by where it refuses batches of one image."""
    net = build(model, (side, side, 3), 4, "batch_norm")
    last = net.get_layer("resnet50" if model == "resnet50" else "block3_bn2")
    assert last.output_shape[1:3] == (last_map_side(model, side),) * 2


@pytest.mark.parametrize("model", sorted(NETWORKS.keys() - {"resnet50"}))
def test_the_smallest_images_are_those_of_which_the_layers_leave_something(model: str) -> None:
    side, kind = smallest_side(model), "none" if model == "linear" else "batch_norm"
    build(model, (side, side + 3, 3), 4, kind)
    if side > 1:
        with pytest.raises(ValueError, match=r"[Ii]nput size|Negative dimension"):
            build(model, (side + 3, side - 1, 3), 4, kind)


def test_same_seed_same_weights_other_seed_other_weights() -> None:
    one, same, other = (
        build("cnn", (8, 8, 1), 10, "none", seed=seed).get_weights()[0] for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_a_weights_file_that_does_not_fit_is_named(tmp_path) -> None:
    file = tmp_path / "weights.h5"
    file.write_bytes(b"no weights")
    with pytest.raises(ConfigError, match=r"weights\.h5"):
        build("resnet50", (64, 64, 3), 2, "batch_norm", pretrained=str(file))


def test_zero_gamma_starts_each_residual_branch_at_zero() -> None:
    usual = build("resnet_mini", (16, 16, 3), 4, "batch_norm")
    net = build("resnet_mini", (16, 16, 3), 4, "batch_norm", {"zero_gamma": True})
    zero = {v.name for v in net.variables if "gamma" in v.name and not v.numpy().any()}
    assert zero == {"block2_bn2/gamma:0", "block3_bn2/gamma:0"}
    for own, other in zip(net.variables, usual.variables, strict=True):
        assert own.name in zero or np.array_equal(own, other), own.name


def test_he_initialisation_of_every_kernel() -> None:
    """He et al. 2015 (1502.01852): deviation sqrt(2 / inputs); Glorot's differs where it counts."""
    he = build("resnet_mini", (32, 32, 3), 10, "none", {"initialisation": "he"})
    kernels = [v.numpy() for v in he.variables if "kernel" in v.name]
    assert len(kernels) == 10
    for kernel in kernels:
        expected = (2 / np.prod(kernel.shape[:-1])) ** 0.5
        # Keras cuts the normal off at two deviations; the error of a deviation is below this
        assert abs(kernel.std() / expected - 1) < 4 / (2 * kernel.size) ** 0.5
    glorot = build("resnet_mini", (32, 32, 3), 10, "none")
    shortcut = glorot.get_layer("block2_shortcut").kernel.numpy()
    assert shortcut.std() == pytest.approx((2 / (64 + 256)) ** 0.5, rel=0.02)


@pytest.mark.parametrize("at_once", [1, 1000, 1 << 20])
def test_mean_and_deviation_of_each_channel_of_the_images_used(at_once: int, monkeypatch) -> None:
    """Exact, however the images are read; a constant channel has the deviation 0."""
    from train.data import dataset

    monkeypatch.setattr(dataset, "_PIXELS_AT_ONCE", at_once)
    images = np.random.default_rng(0).integers(0, 256, (23, 8, 6, 3), dtype=np.uint8)
    images[..., 1] = 7
    used = np.flatnonzero(np.arange(23) % 4)
    found = dataset.channel_statistics(images, used)
    exact = images[used].astype(np.float64) / 255
    np.testing.assert_allclose(found.mean, exact.mean((0, 1, 2)), rtol=1e-13)
    np.testing.assert_allclose(found.deviation, exact.std((0, 1, 2)), rtol=1e-12, atol=1e-15)
    assert found.deviation[1] == 0 and isinstance(found.mean[0], float), "JSON can hold it"


def test_standardised_images_have_mean_0_and_deviation_1() -> None:
    from train.data.dataset import channel_statistics

    images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    images[..., 1] //= 7
    pixels = channel_statistics(images, np.arange(50))
    net = build("resnet_mini", (8, 8, 3), 4, "none", {"standardise": True}, pixels)
    seen = net.get_layer("scale")(images).numpy().astype(np.float64)
    np.testing.assert_allclose(seen.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std((0, 1, 2)), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("mean", "deviation"), [(None, None), ((0.5,), (0.2,)), ((0.5,) * 3, (0.2, 0.0, 0.2))]
)
def test_standardising_needs_the_images_statistics(mean, deviation) -> None:
    from train.data.dataset import ChannelStatistics

    pixels = None if mean is None else ChannelStatistics(mean, deviation)
    with pytest.raises(ConfigError, match=r"mean and deviation \(not 0\) of 3 channels"):
        build("cnn", (8, 8, 3), 4, "none", {"standardise": True}, pixels)


@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("norm", ["none", "batch_norm", "ghost_batch_norm", "sync_batch_norm"])
def test_mixed_precision_keeps_weights_pixels_and_logits_in_float32(norm, precision) -> None:
    import tensorflow as tf

    row = {"precision": precision, **({"ghost_batch": 2} if norm == "ghost_batch_norm" else {})}
    for model in ("cnn", "resnet_mini"):
        net = build(model, (12, 12, 3), 4, norm, row)
        usual = build(model, (12, 12, 3), 4, norm, {**row, "precision": "float32"})
        assert tf.keras.mixed_precision.global_policy().name == "float32", "as it was"
        for own, other in zip(net.variables, usual.variables, strict=True):
            assert own.dtype == tf.float32 and np.array_equal(own, other)
        computed = {layer.name: layer.compute_dtype for layer in net.layers}
        assert computed["conv1"] == precision.removeprefix("mixed_")
        assert computed["scale"] == computed["logits"] == net.output.dtype == "float32"
