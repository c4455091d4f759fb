"""What networks take from the training images: pixels by mean and deviation of each channel, and
first filters that whiten what they see, the principal components of the images' patches.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.technique import Technique
from train.data.dataset import ChannelStatistics, ChosenImages, Pixels
from train.data.sampling import Indices
from train.errors import ConfigError

_WHITENED_BY = 2000  # images of the training set, evenly spaced
_PLACES = 16  # along each side of an image, at most
_AT_ONCE = 200  # images whose patches are held at a time


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


def whitened_filters(
    model: tf.keras.Model, images: Pixels | ChosenImages, used: Indices
) -> npt.NDArray[np.float32]:
    """Filters of ``conv1``, [h, w, C, n]: principal components of what it sees, and opposites.

    Each component c gives the filters c and -c, since the ReLU behind keeps one half of each: with
    batch norm between them a whitening of the patch (Page 2019, "How to train your ResNet", part 8;
    Jordan 2024, 2404.00498, who keep theirs fixed). Those beyond twice the patch's numbers stay.

    images: uint8 [N, H, W, C], the training set; used: sorted indices of those that the run trains
    on, of which evenly spaced ones are looked at, whatever the seed.
    """
    layer, seen = model.get_layer("conv1"), model.get_layer("scale")  # padding may stand between
    chosen = used[np.linspace(0, len(used) - 1, min(len(used), _WHITENED_BY)).astype(np.int64)]
    scaled = [
        seen(images[chosen[start : start + _AT_ONCE]]).numpy().astype(np.float32)
        for start in range(0, len(chosen), _AT_ONCE)
    ]
    height, width, channels, filters = layer.kernel.shape
    components = principal_patches(scaled, (height, width))[: filters // 2]
    # the length that He's rule gives a filter: variance 2/n for each of its n numbers
    pair = math.sqrt(2) * np.concatenate([components, -components])
    kernel = layer.kernel.numpy()
    kernel[..., : len(pair)] = np.moveaxis(pair.reshape(-1, height, width, channels), 0, -1)
    return np.asarray(kernel)


def principal_patches(
    batches: list[npt.NDArray[np.float32]], size: tuple[int, int]
) -> npt.NDArray[np.float64]:
    """Unit vectors [h w C, h w C], a row each, by falling variance of the patches along them.

    batches: [N, H, W, C] each. size: h, w of a patch, up to 16 x 16 places of every image. A row's
    largest number is positive: an eigenvector's sign is the library's choice.
    """
    length = size[0] * size[1] * batches[0].shape[-1]
    count, total, products = 0, np.zeros(length), np.zeros((length, length))
    window = np.lib.stride_tricks.sliding_window_view
    for images in batches:
        # one axis at a time: NumPy's types know no more. [N, places, places, C, h, w]
        views = window(window(images, size[0], axis=1), size[1], axis=2)
        down, across = (-(-places // _PLACES) for places in views.shape[1:3])
        # [N, places, places, h, w, C]: the order of a kernel's numbers
        chosen = np.moveaxis(views[:, ::down, ::across], 3, -1)
        patches = chosen.reshape(-1, length).astype(np.float64)
        count += len(patches)
        total += patches.sum(axis=0)
        products += patches.T @ patches
    mean = total / count
    _, vectors = np.linalg.eigh(products / count - np.outer(mean, mean))
    rows = vectors.T[::-1]
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    return rows * np.sign(largest)
