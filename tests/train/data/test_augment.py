"""Crops, mirror images and cut-outs are a pure function of (seed, epoch, image)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from train.config.schedule import CropFlip
from train.data.augment import augment

ALL = CropFlip(crop=2, flip="random", cutout=3)


def pictures(count: int, height: int = 6, width: int = 5, channels: int = 3) -> np.ndarray:
    """No two pixels of an image alike in the first channel, so that places can be told."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, height, width, channels), dtype=np.uint8)
    places = np.arange(height * width, dtype=np.uint8).reshape(height, width)
    images[..., 0] = places
    return images


def test_an_image_is_changed_alike_in_any_company() -> None:
    images, positions = pictures(40), np.random.default_rng(1).permutation(50_000)[:40]
    whole = augment(images, positions, 3, 7, ALL)
    order = np.random.default_rng(2).permutation(40)
    assert np.array_equal(augment(images[order], positions[order], 3, 7, ALL), whole[order])
    for part in (slice(0, 13), slice(13, 40)):
        assert np.array_equal(augment(images[part], positions[part], 3, 7, ALL), whole[part])


@pytest.mark.parametrize("how", [ALL, CropFlip(crop=2, flip="none"), CropFlip(flip="alternating")])
def test_seed_epoch_and_position_all_matter(how: CropFlip) -> None:
    images = np.repeat(pictures(1), 64, axis=0)
    positions = np.arange(64)
    base = augment(images, positions, 1, 7, how)
    assert not np.array_equal(base, augment(images, positions, 2, 7, how))
    assert not np.array_equal(base, augment(images, positions, 1, 8, how))
    assert not np.array_equal(base, augment(images, positions + 64, 1, 7, how))
    assert (base != base[0]).any(axis=(1, 2, 3)).sum() > 16, "images differ from each other"


def test_nothing_asked_nothing_changed_and_never_in_place() -> None:
    images = pictures(8)
    before = images.copy()
    off = augment(images, np.arange(8), 1, 0, CropFlip(crop=0, flip="none", cutout=0))
    assert np.array_equal(off, images) and not np.shares_memory(off, images)
    changed = augment(images, np.arange(8), 1, 0, ALL)
    assert np.array_equal(images, before)
    assert changed.shape == images.shape and changed.dtype == np.uint8


@pytest.mark.parametrize(("height", "width", "crop"), [(6, 5, 2), (6, 5, 4), (8, 8, 3)])
def test_crops_are_windows_of_the_reflected_image(height: int, width: int, crop: int) -> None:
    images = pictures(200, height, width)
    changed = augment(images, np.arange(200), 1, 0, CropFlip(crop=crop, flip="none"))
    border = ((crop, crop), (crop, crop), (0, 0))
    found = set()
    for image, window in zip(images, changed, strict=True):
        wide = np.pad(image, border, mode="reflect")
        places = [
            (y, x)
            for y in range(2 * crop + 1)
            for x in range(2 * crop + 1)
            if np.array_equal(wide[y : y + height, x : x + width], window)
        ]
        assert places  # two where a window is reflected as a whole
        found.update(places)
    assert len(found) > 0.8 * min(200, (2 * crop + 1) ** 2) ** 0.9


def test_every_window_is_as_likely() -> None:
    """Chi-square over the 25 offsets of 50,000 images, and over the pairs of two epochs."""
    image = pictures(1, 6, 6)
    count = 50_000
    images = np.broadcast_to(image, (count, 6, 6, 3))
    corners = []
    for epoch in (1, 2):
        changed = augment(images, np.arange(count), epoch, 5, CropFlip(crop=2, flip="none"))
        # the pixel at (2, 2), never reflected, is at place (y, x) of the old image
        place = changed[:, 2, 2, 0].astype(int)
        down, right = place // 6, place % 6
        corners.append(5 * down + right)
    for offsets in corners:
        assert stats.chisquare(np.bincount(offsets, minlength=25)).pvalue > 0.001
    pairs = np.bincount(25 * corners[0] + corners[1], minlength=625)
    assert stats.chisquare(pairs).pvalue > 0.001, "an epoch says nothing about the next"


def mirrored(images: np.ndarray, positions: np.ndarray, epoch: int, flip: str) -> np.ndarray:
    changed = augment(images, positions, epoch, 3, CropFlip(flip=flip))
    own = (changed == images).all(axis=(1, 2, 3))
    other = (changed == images[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (own ^ other).all()
    return other


def test_alternating_mirrors_half_of_the_images_every_second_epoch_and_random_any_half() -> None:
    images, positions = pictures(10_000), np.arange(10_000)
    by_epoch = [mirrored(images, positions, epoch, "alternating") for epoch in range(1, 6)]
    for now, then in pairwise(by_epoch):
        assert np.array_equal(now, ~then)
    free = [mirrored(images, positions, epoch, "random") for epoch in (1, 2)]
    for of_half in (by_epoch[0], *free, free[0] == free[1]):
        assert abs(of_half.mean() - 0.5) < 4 * (0.25 / 10_000) ** 0.5


def test_cut_outs_are_squares_of_the_mean_colour() -> None:
    images = pictures(2000, 8, 8)
    changed = augment(images, np.arange(2000), 1, 0, CropFlip(flip="none", cutout=3))
    centres = set()
    for image, after in zip(images, changed, strict=True):
        colour = np.rint(image.mean(axis=(0, 1))).astype(np.uint8)
        cut = (after == colour).all(axis=2)
        assert np.array_equal(after[~cut], image[~cut])
        rows, columns = np.flatnonzero(cut.any(axis=1)), np.flatnonzero(cut.any(axis=0))
        assert cut[np.ix_(rows, columns)].all() and rows.ptp() <= 2 and columns.ptp() <= 2
        # all of the square unless it hangs over the edge
        assert len(rows) == 3 or rows[0] == 0 or rows[-1] == 7
        assert len(columns) == 3 or columns[0] == 0 or columns[-1] == 7
        centres.add((rows[0], rows[-1], columns[0], columns[-1]))
    assert len(centres) == 64, "each pixel is the centre of some"
