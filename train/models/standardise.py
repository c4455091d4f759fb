"""Mean and deviation of each colour channel of the training images."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from train.data.dataset import Pixels
from train.data.sampling import Indices

_AT_ONCE = 1 << 20  # pixels, which become eight bytes each while they are counted


class ChannelStatistics(NamedTuple):
    """Per channel, of pixels from 0 to 1; the deviation is the root of the biased variance."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def channel_statistics(images: Pixels, used: Indices) -> ChannelStatistics:
    """Of those of uint8 images [N, H, W, C] that ``used`` names, at least one, read in parts.

    From how often each of the 256 values occurs, in whole numbers.
    """
    height, width, channels = images.shape[1:]
    counts = np.zeros((channels, 256), np.int64)
    step = max(1, _AT_ONCE // (height * width))
    for start in range(0, len(used), step):
        part = images[used[start : start + step]]
        for channel in range(channels):
            counts[channel] += np.bincount(part[..., channel].ravel(), minlength=256)
    values = np.arange(256)
    sums, squares = (counts @ values).tolist(), (counts @ values**2).tolist()
    number = len(used) * height * width
    # N sum x^2 - (sum x)^2 in Python's whole numbers: exact, and 0 for a constant channel
    spreads = [number * q - s * s for s, q in zip(sums, squares, strict=True)]
    return ChannelStatistics(
        mean=tuple(s / (255 * number) for s in sums),
        deviation=tuple(math.sqrt(spread) / (255 * number) for spread in spreads),
    )
