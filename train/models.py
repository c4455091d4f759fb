"""The named networks. Input: uint8 images [N, H, W, C]; output: logits [N, classes], float32."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from train.config import ConfigError, RunConfig
from train.layers import SeededDropout, StepSeed
from train.technique import Technique

L = tf.keras.layers


def build_model(
    config: RunConfig, shape: tuple[int, int, int], classes: int, seed: StepSeed
) -> tf.keras.Model:
    """Build ``config.model`` for images of ``shape`` (H, W, C).

    Weights are drawn from ``config.seed``: equal on all ranks before the broadcast already.

    Raises:
        ConfigError: the images are too small for the network, or the weights file does not fit.
    """
    tf.keras.utils.set_random_seed(config.seed)
    if config.model == "cnn":
        return _cnn(shape, classes, config.technique, seed)
    if config.model == "resnet_mini":
        return _resnet_mini(shape, classes, config.technique)
    return _resnet50(shape, classes, config.technique, config.pretrained)


def _normalise(x: tf.Tensor, technique: Technique, name: str) -> tf.Tensor:
    if technique.normalisation == "none":
        return x
    return L.BatchNormalization(momentum=technique.bn_momentum, name=name)(x)


def _cnn(
    shape: tuple[int, int, int], classes: int, technique: Technique, seed: StepSeed
) -> tf.keras.Model:
    """The two-convolution network of the Fashion-MNIST notebook.

    Conv 32 3x3, conv 64 3x3, max-pool 2, dropout 1/4, dense 128, dropout 1/2, dense. Where the
    technique normalises, batch norm stands between each of the three hidden layers and its ReLU.
    """
    if min(shape[:2]) < 6:
        raise ConfigError(f"cnn needs images of at least 6x6 pixels, found {shape[0]}x{shape[1]}")
    inputs = tf.keras.Input(shape, dtype="uint8", name="images")
    x = L.Rescaling(1 / 255, name="scale")(inputs)
    x = L.Conv2D(32, 3, name="conv1")(x)
    x = L.ReLU()(_normalise(x, technique, "bn1"))
    x = L.Conv2D(64, 3, name="conv2")(x)
    x = L.ReLU()(_normalise(x, technique, "bn2"))
    x = L.MaxPooling2D(2)(x)
    x = SeededDropout(0.25, 0, seed)(x)
    x = L.Dense(128, name="hidden")(L.Flatten()(x))
    x = L.ReLU()(_normalise(x, technique, "bn3"))
    x = SeededDropout(0.5, 1, seed)(x)
    return tf.keras.Model(inputs, L.Dense(classes, name="logits")(x), name="cnn")


def _resnet_mini(shape: tuple[int, int, int], classes: int, technique: Technique) -> tf.keras.Model:
    """The small residual network of the CIFAR-10 notebook: two bottleneck blocks.

    Pad 3, conv 64 7x7 stride 2, max-pool 3 stride 2, block (64, 64, 256) stride 1, block
    (128, 128, 512) stride 2, average-pool 2, dense on the flattened map (2,048 features at 32x32).
    """
    inputs = tf.keras.Input(shape, dtype="uint8", name="images")
    x = L.Rescaling(1 / 255, name="scale")(inputs)
    x = L.Conv2D(64, 7, strides=2, name="conv1")(L.ZeroPadding2D(3)(x))
    x = L.ReLU()(_normalise(x, technique, "bn_conv1"))
    x = L.MaxPooling2D(3, strides=2, padding="same" if min(shape[:2]) < 12 else "valid")(x)
    x = _bottleneck(x, (64, 64, 256), 1, technique, "block2")
    x = _bottleneck(x, (128, 128, 512), 2, technique, "block3")
    x = L.AveragePooling2D(2, padding="same")(x)
    return tf.keras.Model(
        inputs, L.Dense(classes, name="logits")(L.Flatten()(x)), name="resnet_mini"
    )


def _bottleneck(
    x: tf.Tensor, filters: tuple[int, int, int], stride: int, technique: Technique, name: str
) -> tf.Tensor:
    """He et al. 2016 (1512.03385), figure 5 right, with a projection shortcut."""
    shortcut = L.Conv2D(filters[2], 1, strides=stride, name=f"{name}_shortcut")(x)
    shortcut = _normalise(shortcut, technique, f"{name}_bn_shortcut")
    for index, (width, kernel, step) in enumerate(
        zip(filters, (1, 3, 1), (stride, 1, 1), strict=True)
    ):
        x = L.Conv2D(width, kernel, strides=step, padding="same", name=f"{name}_conv{index}")(x)
        x = _normalise(x, technique, f"{name}_bn{index}")
        if index < 2:
            x = L.ReLU()(x)
    return L.ReLU()(L.Add()([x, shortcut]))


def _resnet50(
    shape: tuple[int, int, int], classes: int, technique: Technique, pretrained: str | None
) -> tf.keras.Model:
    """ResNet-50 as Keras ships it (v1, with batch norm), global average pool, a new dense head.

    Input is prepared as its published weights expect: BGR, ImageNet's channel means subtracted.
    """
    if shape[2] != 3 or min(shape[:2]) < 32:
        raise ConfigError(
            f"resnet50 needs RGB images of at least 32x32 pixels, found {shape}: "
            "choose model cnn or resnet_mini, or a larger image_size"
        )
    if technique.normalisation != "batch_norm":
        raise ConfigError(
            f"resnet50 has batch norm built in, but technique {technique.name} has normalisation "
            f"{technique.normalisation}: choose a technique with batch_norm"
        )
    inputs = tf.keras.Input(shape, dtype="uint8", name="images")
    x = tf.cast(inputs, tf.float32)[..., ::-1] - tf.constant([103.939, 116.779, 123.68])
    body = tf.keras.applications.ResNet50(include_top=False, weights=None, input_shape=shape)
    if pretrained is not None:
        _load_weights(body, Path(pretrained))
    for layer in body.layers:
        if isinstance(layer, L.BatchNormalization):
            layer.momentum = technique.bn_momentum
    x = L.GlobalAveragePooling2D()(body(x))
    return tf.keras.Model(inputs, L.Dense(classes, name="logits")(x), name="resnet50")


def _load_weights(body: tf.keras.Model, file: Path) -> None:
    try:
        body.load_weights(file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot load the pretrained weights {file}: {error}. Expected Keras' ResNet-50 "
            "weights without the top (resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5)"
        ) from error
