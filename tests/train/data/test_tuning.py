"""Settings are searched without a look at the published held-out images."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tests.builders import config
from train.config.plan import plan_of
from train.data.dataset import Dataset, fingerprint, make_dataset
from train.data.sampling import for_tuning
from train.errors import ConfigError


def numbered(n: int) -> Dataset:
    """Each image shows its own number, so that it can be followed; three classes, unequal."""
    numbers = np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 1), np.uint8)
    labels = np.sort(np.arange(n) % 7 // 3)
    held_out = (np.full((9, 2, 2, 1), 255, np.uint8), np.arange(9) % 3)
    return make_dataset("numbered", list("abc"), (numbers, labels), held_out)


def test_no_published_held_out_image_is_left_and_none_is_in_both_parts() -> None:
    whole = numbered(203)
    found = for_tuning(whole, 20)
    parts = found.train_x[:], found.train_y, found.validation_x[:], found.validation_y
    trained, checked = (set(x[:, 0, 0, 0].tolist()) for x in parts[::2])
    assert 255 not in trained | checked
    assert not trained & checked
    assert trained | checked == set(range(203))
    copied = make_dataset("copied", "abc", parts[:2], parts[2:])
    assert fingerprint(found.arrays) == copied.fingerprint and found.train_x.shape == parts[0].shape


def test_images_that_are_mapped_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: each rank of a node kept all images in memory of its own."""
    monkeypatch.setattr("train.data.dataset._CHUNK", 1 << 20)
    whole = make_dataset("t", "ab", (np.zeros((4000, 64, 64, 1), np.uint8), np.arange(4000) % 2),
                         (np.zeros((1, 64, 64, 1), np.uint8), np.zeros(1)))  # fmt: skip
    tracemalloc.start()
    kept = for_tuning(whole, 400)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < whole.train_x.nbytes / 4 and len(kept.train_y) == 3600


def test_sizes_are_what_plans_count_with_and_classes_keep_their_shares() -> None:
    whole = numbered(203)
    found = for_tuning(whole, 20)
    of = config(validate_on="train_part")
    assert len(found.train_y) == plan_of(of, 203).used == 183
    shares = np.bincount(found.validation_y) / np.bincount(whole.train_y)
    assert np.all(np.abs(shares - 0.1) < 0.02)


def test_fewer_than_ten_images_have_no_tenth() -> None:
    with pytest.raises(ConfigError, match="found 9, expected at least 10"):
        plan_of(config(validate_on="train_part"), 9)
