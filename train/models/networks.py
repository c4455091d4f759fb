"""The named networks. Input: uint8 images [N, H, W, C]; output: logits [N, classes], float32."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import tensorflow as tf

from train.config.datasets import place_of
from train.config.run import RunConfig
from train.config.technique import Technique
from train.data.dataset import ChannelStatistics
from train.distributed.communicator import ALONE, Ranks
from train.errors import ConfigError
from train.models.layers import StepSeed, seed_random_layers
from train.models.normalisation import batch_norms, replace_batch_norms
from train.models.own import Shape, load_by_first, own_network
from train.models.pixels import scaled
from train.tensorflow_internals import policy_scope

L = tf.keras.layers


def build_model(
    config: RunConfig, shape: Shape, classes: int, seed: StepSeed,
    pixels: ChannelStatistics | None = None, folder: Path = Path(), file: Path | None = None,
    ranks: Ranks = ALONE,
) -> tf.keras.Model:  # fmt: skip
    """Build ``config.model`` for images of ``shape``.

    Weights are drawn from ``config.seed``: equal on all ranks before the broadcast already. They
    and the logits are float32 in any precision. pixels: of the training images, for a technique
    that standardises. folder: of the data sets, where a relative path of pretrained weights begins.
    file: the copy of the file that ``config.model`` names, if it names one. ranks: the first one
    reads pretrained weights, and all get them; the replicas of a strategy get none here.

    Raises:
        ConfigError: the network or the weights file does not fit, or ``pixels`` are missing or
            cannot be divided by.
    """
    if config.runs_as_built:
        return own_network(config, shape, classes, seed, pixels, folder, file, ranks)
    tf.keras.utils.set_random_seed(config.seed)
    make = _LayerFactory(config.technique)
    with policy_scope(config.technique.keras_policy):
        if config.model == "resnet50":
            weights = place_of(config.pretrained, folder) if config.pretrained else None
            return _resnet50(shape, classes, config.technique, weights, ranks)
        images = tf.keras.Input(shape, dtype="uint8", name="images")
        x = scaled(images, config.technique, pixels)
        if config.model == "linear":  # softmax regression: the loss is convex
            features = L.Flatten()(x)
        elif config.model == "mlp":
            features = _mlp(x, make)
        elif config.model == "cnn":
            features = _cnn(x, make)
        else:
            features = _resnet_mini(x, make, config.width, shortcuts=config.shortcuts)
        logits = make.dense(classes, name="logits", dtype="float32")(features)
        model = tf.keras.Model(images, logits, name=config.model)
    replace_batch_norms(model, config.technique, config.gpus)
    seed_random_layers(model, seed)
    return model


class _LayerFactory:
    def __init__(self, technique: Technique) -> None:
        self.technique = technique
        # Glorot and Bengio 2010 as Keras has it; He et al. 2015 (1502.01852), equation 10
        he = technique.initialisation in ("he", "whitened")
        kernel = "he_normal" if he else "glorot_uniform"
        self.conv = partial(L.Conv2D, kernel_initializer=kernel)
        self.dense = partial(L.Dense, kernel_initializer=kernel)

    def normalise(self, x: tf.Tensor, name: str, *, last_of_branch: bool = False) -> tf.Tensor:
        """last_of_branch: of a residual branch, where ``zero_gamma`` starts gamma at 0, so that the
        block is its shortcut at first (Goyal et al. 2017, 1706.02677, section 5.1)."""
        if self.technique.normalisation == "none":
            return x
        gamma = "zeros" if last_of_branch and self.technique.zero_gamma else "ones"
        momentum = self.technique.bn_momentum
        return L.BatchNormalization(momentum=momentum, gamma_initializer=gamma, name=name)(x)


def _mlp(x: tf.Tensor, make: _LayerFactory) -> tf.Tensor:
    """The network in which batch norm was first shown (Ioffe and Szegedy 2015, 1502.03167, section
    4.1), up to its last dense layer: three times 100 sigmoids, normalised before the sigmoid."""
    x = L.Flatten()(x)
    for number in (1, 2, 3):
        x = make.normalise(make.dense(100, name=f"hidden{number}")(x), f"bn{number}")
        x = L.Activation("sigmoid", name=f"sigmoid{number}")(x)
    return x


def a_sigmoid_input(model: tf.keras.Model) -> tf.Tensor | None:
    """What the first sigmoid of the last hidden layer gets, [N]; None for networks without any."""
    return model.get_layer("sigmoid3").input[:, 0] if model.name == "mlp" else None


def _cnn(x: tf.Tensor, make: _LayerFactory) -> tf.Tensor:
    """The two-convolution network of the Fashion-MNIST notebook, up to its last dense layer."""
    x = make.conv(32, 3, name="conv1")(x)
    x = L.ReLU()(make.normalise(x, "bn1"))
    x = make.conv(64, 3, name="conv2")(x)
    x = L.ReLU()(make.normalise(x, "bn2"))
    x = L.MaxPooling2D(2)(x)
    x = L.Dropout(0.25)(x)
    x = make.dense(128, name="hidden")(L.Flatten()(x))
    x = L.ReLU()(make.normalise(x, "bn3"))
    return L.Dropout(0.5)(x)


def _resnet_mini(x: tf.Tensor, make: _LayerFactory, width: float, *, shortcuts: bool) -> tf.Tensor:
    """The small residual network of the CIFAR-10 notebook, up to its dense layer, which gets 2,048
    features of an image of 32x32. ``width`` multiplies all filters."""
    small = min(x.shape[1:3]) < 12
    first, second = (max(1, round(filters * width)) for filters in (64, 128))
    x = make.conv(first, 7, strides=2, name="conv1")(L.ZeroPadding2D(3)(x))
    x = L.ReLU()(make.normalise(x, "bn_conv1"))
    x = L.MaxPooling2D(3, strides=2, padding="same" if small else "valid")(x)
    x = _bottleneck(x, first, 1, make, "block2", shortcut=shortcuts)
    x = _bottleneck(x, second, 2, make, "block3", shortcut=shortcuts)
    return L.Flatten()(L.AveragePooling2D(2, padding="same")(x))


def _bottleneck(
    x: tf.Tensor, filters: int, stride: int, make: _LayerFactory, name: str, *, shortcut: bool
) -> tf.Tensor:
    """He et al. 2016 (1512.03385), figure 5 right, with a projection shortcut, or none at all."""
    projected = None
    if shortcut:
        projected = make.conv(4 * filters, 1, strides=stride, name=f"{name}_shortcut")(x)
        projected = make.normalise(projected, f"{name}_bn_shortcut")
    for index, (times, kernel, step) in enumerate(((1, 1, stride), (1, 3, 1), (4, 1, 1))):
        x = make.conv(
            times * filters, kernel, strides=step, padding="same", name=f"{name}_conv{index}"
        )(x)
        x = make.normalise(x, f"{name}_bn{index}", last_of_branch=shortcut and index == 2)
        if index < 2:
            x = L.ReLU()(x)
    return L.ReLU()(x if projected is None else L.Add()([x, projected]))


def _resnet50(
    shape: Shape, classes: int, technique: Technique, pretrained: Path | None, ranks: Ranks
) -> tf.keras.Model:
    """Keras' own with a new head. Its published weights expect BGR, and ImageNet's channel means
    subtracted."""
    inputs = tf.keras.Input(shape, dtype="uint8", name="images")
    x = tf.cast(inputs, tf.float32)[..., ::-1] - tf.constant([103.939, 116.779, 123.68])
    body = tf.keras.applications.ResNet50(include_top=False, weights=None, input_shape=shape)

    def read() -> None:
        try:
            body.load_weights(pretrained)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot load the pretrained weights {pretrained}: {error}. Expected Keras' "
                "ResNet-50 weights without the top "
                "(resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5)"
            ) from error

    if pretrained is not None and not tf.distribute.has_strategy():
        load_by_first(ranks, body, read)
    for layer in batch_norms(body):
        layer.momentum = technique.bn_momentum
    x = L.GlobalAveragePooling2D()(body(x))
    logits = L.Dense(classes, name="logits", dtype="float32")(x)
    return tf.keras.Model(inputs, logits, name="resnet50")
