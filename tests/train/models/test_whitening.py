"""The first filters whiten what they see, and have the length of any others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.train.models.test_networks import build
from train.data.dataset import channel_statistics

pytestmark = pytest.mark.tf
SIDE = 32


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Smooth coloured noise: neighbouring pixels and channels agree, as in photographs."""
    rng = np.random.default_rng(5)
    rough = rng.normal(size=(40, SIDE + 8, SIDE + 8, 3)) + rng.normal(size=(40, 1, 1, 3))
    rough[..., 1] += rough[..., 0]
    smooth = sum(np.roll(rough, (i, j), (1, 2)) for i in range(4) for j in range(4))[:, 4:-4, 4:-4]
    return np.clip(128 + 12 * smooth, 0, 255).astype(np.uint8)


def whitened(images: np.ndarray, model: str = "resnet_mini"):
    from train.models.pixels import whitened_filters

    row = {"initialisation": "whitened", "standardise": True}
    used = np.arange(len(images))
    pixels = channel_statistics(images, used)
    net = build(model, images.shape[1:], 10, "batch_norm", row, pixels)
    before = net.get_layer("conv1").kernel.numpy()
    net.get_layer("conv1").kernel.assign(whitened_filters(net, images, used))
    return net, before


def test_outputs_of_the_first_layer_do_not_depend_on_each_other(images, monkeypatch) -> None:
    import tensorflow as tf

    monkeypatch.setattr("train.models.pixels._AT_ONCE", 15)  # of 40
    net, before = whitened(images)
    conv = net.get_layer("conv1")
    inside = net.get_layer("scale")(images)
    out = tf.nn.conv2d(inside, conv.kernel, 2, "VALID").numpy().reshape(-1, 64).astype(np.float64)
    np.testing.assert_allclose(out[:, :32], -out[:, 32:], atol=1e-5)
    covariance = np.cov(out[:, :32].T)
    spread = np.sqrt(np.diag(covariance))
    assert (np.diff(spread) < 1e-6).all()
    filters = conv.kernel.numpy()[..., :32].reshape(-1, 32)
    assert (np.abs(filters).max(axis=0) == filters.max(axis=0)).all(), "no sign is the library's"
    correlation = covariance / np.outer(spread, spread) - np.eye(32)
    assert np.abs(correlation).max() < 1e-4
    # what the usual start is like, or the line above would say nothing
    usual = tf.nn.conv2d(inside, before, 2, "VALID").numpy().reshape(-1, 64)
    assert np.abs(np.corrcoef(usual.T) - np.eye(64)).max() > 0.5


def test_every_filter_has_the_length_of_hes(images) -> None:
    net, before = whitened(images)
    lengths = [
        np.linalg.norm(kernel.reshape(147, 64), axis=0)
        for kernel in (before, net.get_layer("conv1").kernel.numpy())
    ]
    assert lengths[0].mean() == pytest.approx(np.sqrt(2), rel=0.05)
    np.testing.assert_allclose(lengths[1], np.sqrt(2), rtol=1e-6)


def test_a_small_patch_leaves_filters_as_drawn() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 1), np.uint8)
    net, before = whitened(grey, "cnn")
    kernel = net.get_layer("conv1").kernel.numpy()  # [3, 3, 1, 32]: nine directions, both ways
    np.testing.assert_array_equal(kernel[..., 18:], before[..., 18:])
    np.testing.assert_allclose(kernel[..., :9], -kernel[..., 9:18])


def test_constant_images_give_finite_filters() -> None:
    """Nothing varies, so every direction is as good: what matters is that training can begin."""
    from train.models.pixels import principal_patches

    found = principal_patches([np.ones((3, 8, 8, 1), np.float32)], (3, 3))
    np.testing.assert_allclose(found @ found.T, np.eye(9), atol=1e-9)
