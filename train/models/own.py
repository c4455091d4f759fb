"""A network that a researcher brings, or one of keras.applications, which runs as it was built.

Around it stand only the preparation of the images and a cast of the logits. In it only batch norm
changes, if the technique normalises by ghosts or over the ranks, and what random layers draw from.
"""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import tensorflow as tf

from train.config.datasets import place_of
from train.config.networks import NetworkSource, parse_model, split_hash
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError
from train.models.builder import Shape, checked_file, code_of, drawn_from, load_builder
from train.models.layers import (
    OwnNetwork,
    StepSeed,
    all_layers,
    precision_of,
    seed_random_layers,
    user_network,
)
from train.models.normalisation import replace_batch_norms
from train.models.refusals import network_as_built_problem, training_problem
from train.models.standardise import ChannelStatistics, scaled

__all__ = ["load_builder", "own_network", "user_network"]


def own_network(
    config: RunConfig,
    shape: Shape,
    classes: int,
    seed: StepSeed,
    size: int = 1,
    pixels: ChannelStatistics | None = None,
    folder: Path = Path(),
    file: Path | None = None,
) -> tf.keras.Model:
    """uint8 images in, float32 logits out. Weights depend on ``config.seed``, whatever seeds the
    network's code sets.

    folder: of the data sets, where a relative path of pretrained weights begins; file: the copy of
    the file that ``config.model`` names.

    Raises:
        ConfigError: the network's code fails, or the network is none that can be measured.
    """
    source, technique = parse_model(config.model), config.technique
    label = source.file_name or config.model
    tf.keras.backend.reset_uids()  # layers without a name are counted from this network's first
    with precision_of("float32"), drawn_from(config.seed):
        builder = load_builder(source, file)
        # once more, since the file may have set another one
        with precision_of(technique.keras_policy), code_of(label, file):
            network = builder(shape, classes)
            if isinstance(network, tf.keras.Sequential) and not network.built:
                network.build((None, *shape))
            if text := network_as_built_problem(network, shape, classes, config):
                raise ConfigError(f"{label}: {text}")
            if config.pretrained is not None:
                _load_by_name(network, config.pretrained, folder)
            replace_batch_norms(network, technique, size)
            images = tf.keras.Input(shape, dtype="uint8", name="images")
            own = OwnNetwork(network, seed_random_layers(network, seed))
            logits = own(_prepared(source, images, technique, pixels))
            logits = tf.keras.layers.Activation("linear", dtype="float32", name="logits")(logits)
            model = tf.keras.Model(images, logits, name="own_network")
            # under tf.distribute the same network was made outside of the strategy before
            known = tf.distribute.has_strategy()
            if not known and (text := training_problem(model, shape, config)):
                raise ConfigError(f"{label}: {text}")
    return model


def _prepared(
    source: NetworkSource, images: tf.Tensor, technique: Technique, pixels: ChannelStatistics | None
) -> tf.Tensor:
    """Pixels from 0 to 1, or standardised. Networks of keras.applications get what Keras itself
    prepares for them, be it 0 to 255; if standardised, of images with the mean 1/2 and the
    deviation 1/4 of that range, about those of photographs."""
    if source.kind == "file":
        return scaled(images, technique, pixels)
    x = tf.cast(images, tf.float32)
    if technique.standardise:
        x = scaled(images, technique, pixels) * (255 / 4) + 255 / 2
    make = getattr(tf.keras.applications, source.name)
    return sys.modules[make.__module__].preprocess_input(x)


def _load_by_name(network: tf.keras.Model, pretrained: str, folder: Path) -> None:
    """Into the layers of the network and of those within it.

    Raises:
        ConfigError: the file is missing or another one, or fits no layer.
    """
    name, sha256 = split_hash(pretrained)
    file = checked_file(place_of(name, folder), sha256)
    loaded = False
    try:
        with h5py.File(file) as opened:
            group = opened.get("model_weights", opened)
            stored = {key for key in group if len(group[key].attrs.get("weight_names", ()))}
        for part in (network, *all_layers(network)):
            if isinstance(part, tf.keras.Model) and stored & {
                layer.name for layer in part.layers if layer.weights
            }:
                part.load_weights(file, by_name=True)
                loaded = True
    except (OSError, ValueError) as error:
        raise ConfigError(f"pretrained: cannot load {file}: {error}") from error
    if not loaded:
        raise ConfigError(
            f"pretrained: no layer of the network has the name of one in {file}, which has "
            f"{', '.join(sorted(stored)[:8]) or 'no weights of layers'}"
        )
