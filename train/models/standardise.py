"""Pixels as networks get them, by mean and deviation of each channel of the training images."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from train.config.technique import Technique
from train.data.dataset import Pixels
from train.data.sampling import Indices
from train.errors import ConfigError

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


def scaled(images: tf.Tensor, technique: Technique, pixels: ChannelStatistics | None) -> tf.Tensor:
    """Pixels from 0 to 1, or with mean 0 and deviation 1 per channel; in float32."""
    if not technique.standardise:
        return tf.keras.layers.Rescaling(1 / 255, name="scale", dtype="float32")(images)
    channels = images.shape[-1]
    if pixels is None or len(pixels.mean) != channels or min(pixels.deviation) == 0:
        raise ConfigError(
            f"technique {technique.name} standardises the images, which needs mean and deviation "
            f"(not 0) of {channels} channels of the training images, found {pixels}: say "
            "standardise: false for images with a constant channel"
        )
    scale = [1 / (255 * deviation) for deviation in pixels.deviation]
    offset = [-mean / deviation for mean, deviation in zip(*pixels, strict=True)]
    return tf.keras.layers.Rescaling(scale, offset, name="scale", dtype="float32")(images)
