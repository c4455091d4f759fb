"""Training images that change from epoch to epoch, each as a function of (seed, epoch, image).

Whatever rank and batch an image falls to, and after any resume, it is changed alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from train.config.schedule import CropFlip
from train.data.dataset import Pixels
from train.data.sampling import Indices

Words = npt.NDArray[np.uint64]

#: What a random number is for: each has a stream of its own.
_DOWN, _RIGHT, _FLIP, _CUT_DOWN, _CUT_RIGHT = range(5)


def augment(images: Pixels, positions: Indices, epoch: int, seed: int, how: CropFlip) -> Pixels:
    """Changed copies of ``images``, uint8 [b, H, W, C]. positions: of each image in the training
    set, int64 [b]; epoch: of the run; how: its crop is smaller than the images."""
    key = _mixed(np.uint64(seed), epoch)
    if how.crop:
        span = 2 * how.crop + 1
        down, right = (_below(span, key, positions, draw) for draw in (_DOWN, _RIGHT))
        changed = _cropped(images, how.crop, down, right)
    else:
        changed = images.copy()
    if how.flip != "none":
        mirrored = _mirrored(key, positions, epoch, seed, how)
        changed[mirrored] = changed[mirrored, :, ::-1]
    if how.cutout:
        _cut(changed, how.cutout, key, positions)
    return changed


def _mirrored(
    key: Words, positions: Indices, epoch: int, seed: int, how: CropFlip
) -> npt.NDArray[np.bool_]:
    """[b]; ``alternating``: by one coin per image, every second epoch the other way round."""
    if how.flip == "random":
        return _below(2, key, positions, _FLIP) == 1
    return (_below(2, _mixed(np.uint64(seed), 0), positions, _FLIP) + epoch) % 2 == 1


def _cropped(images: Pixels, crop: int, down: Indices, right: Indices) -> Pixels:
    """down, right: where the windows start, 0 to 2 ``crop``; each [b]."""
    count, height, width, channels = images.shape
    wide = np.pad(images, ((0, 0), (0, 0), (crop, crop), (0, 0)), mode="reflect")
    # every window of a row as a row of bytes, so that the copy below moves whole rows
    by_image, by_row, by_column, _ = wide.strides
    windows = as_strided(
        wide, (count, height, 2 * crop + 1, width * channels), (by_image, by_row, by_column, 1)
    )
    rows = np.abs(down[:, None] - crop + np.arange(height))  # above the first row
    rows = np.minimum(rows, 2 * (height - 1) - rows)  # below the last one
    chosen = windows[np.arange(count)[:, None], rows, right[:, None]]
    return chosen.reshape(images.shape)


def _cut(images: Pixels, side: int, key: Words, positions: Indices) -> None:
    """A square around a random pixel gets the image's mean colour; what lies outside is lost
    (DeVries and Taylor 2017, 1708.04552, section 3.2: images of mean 0, set to 0)."""
    count, height, width, channels = images.shape
    top = _below(height, key, positions, _CUT_DOWN) - side // 2
    left = _below(width, key, positions, _CUT_RIGHT) - side // 2
    columns = np.add.reduce(images.reshape(count, height, -1), axis=1, dtype=np.int64)
    sums = columns.reshape(count, width, channels).sum(axis=1)
    colours = np.rint(sums / (height * width)).astype(np.uint8)
    for image, colour, y, x in zip(images, colours, top.tolist(), left.tolist(), strict=True):
        image[max(0, y) : max(0, y + side), max(0, x) : max(0, x + side)] = colour


def _below(limit: int, key: Words, positions: Indices, draw: int) -> Indices:
    """Uniform on 0 .. limit - 1, [b]; the upper half of the word decides, to 2^-32."""
    word = _mixed(_mixed(key, draw), positions)
    return ((word >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)


def _mixed(key: Words | np.uint64, number: int | Indices) -> Words:
    """Random word number ``number`` of the stream ``key``: SplitMix64 of Steele, Lea and Flood 2014
    (OOPSLA, figure 17), which is a counter and a bijection, so different numbers never collide."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        word = np.asarray(number, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        word = word + key + np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))
