"""The two sets that are made on the spot: always the same, and honest about what they are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from train.config.datasets import DATASETS
from train.data.dataset import Dataset
from train.data.sources.digits_synthetic import decode_digits, decode_synthetic


@pytest.fixture(scope="module")
def made() -> Dataset:
    return decode_digits()


def test_digits_are_split_without_loss(made: Dataset) -> None:
    facts = DATASETS["digits"]
    assert made.train_x.shape == (facts.train_images, *facts.shape)
    assert made.validation_x.shape == (facts.validation_images, *facts.shape)
    found = sorted(image.tobytes() for x in (made.train_x, made.validation_x) for image in x)
    raw = load_digits().images
    scaled = np.floor(raw * 255 / 16 + 0.5).astype(np.uint8)  # .5 occurs once, at 8: 127.5
    assert found == sorted(image.tobytes() for image in scaled)
    assert (made.train_x.min(), made.train_x.max()) == (0, 255)


def test_digits_never_change(made: Dataset) -> None:
    """Written down: another split or scale would make old and new results incomparable."""
    assert made.fingerprint.startswith("82aeb6809fb2405f")


def test_synthetic_is_random() -> None:
    data = decode_synthetic()
    assert data.train_x.shape == (50_000, 32, 32, 3)
    counts = np.bincount(data.train_x[:2000].ravel(), minlength=256)
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < 350  # 255 degrees of freedom, sd 22.6
    assert (np.abs(np.bincount(data.train_y) - 5000) < 5 * np.sqrt(4500)).all()
    assert data.fingerprint.startswith("168f2bbf45c04149")
