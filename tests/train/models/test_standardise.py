"""Channel statistics are exact, however the images are read."""

from __future__ import annotations

import numpy as np
import pytest

from train.models import standardise as pixels


@pytest.mark.parametrize("at_once", [1, 1000, 1 << 20])
def test_mean_and_deviation_of_each_channel_of_the_images_used(at_once: int, monkeypatch) -> None:
    monkeypatch.setattr(pixels, "_AT_ONCE", at_once)
    images = np.random.default_rng(0).integers(0, 256, (23, 8, 6, 3), dtype=np.uint8)
    images[..., 1] //= 9
    used = np.flatnonzero(np.arange(23) % 4)
    found = pixels.channel_statistics(images, used)
    exact = images[used].astype(np.float64) / 255
    np.testing.assert_allclose(found.mean, exact.mean((0, 1, 2)), rtol=1e-13)
    np.testing.assert_allclose(found.deviation, exact.std((0, 1, 2)), rtol=1e-12)
    assert isinstance(found.mean[0], float), "JSON can hold it"


def test_a_constant_channel_has_deviation_zero() -> None:
    images = np.full((4, 8, 8, 2), 7, np.uint8)
    assert pixels.channel_statistics(images, np.arange(4)).deviation == (0, 0)
