"""A network that a researcher brings, or one of keras.applications, which runs as it was built.

Around it stand the preparation of the images and a cast of the logits. In it only batch norm by
ghosts or over the ranks changes, and what random layers draw from.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
import traceback
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import h5py
import tensorflow as tf

from train.config.datasets import place_of
from train.config.networks import NetworkSource, parse_model, split_hash
from train.config.run import RunConfig
from train.config.technique import Technique
from train.data.dataset import ChannelStatistics
from train.distributed.communicator import FirstFailed, Ranks
from train.errors import ConfigError, read_whole
from train.models.layers import OwnNetwork, StepSeed, seed_random_layers, stream_of
from train.models.normalisation import replace_batch_norms
from train.models.pixels import scaled
from train.models.refusals import network_as_built_problem, training_problem
from train.tensorflow_internals import (
    RandomGenerator,
    layers_within,
    load_attributes_from_hdf5_group,
    policy_scope,
)

T = TypeVar("T")
Shape = tuple[int, int, int]  # height, width, channels


def own_network(
    config: RunConfig, shape: Shape, classes: int, seed: StepSeed,
    pixels: ChannelStatistics | None, folder: Path, file: Path | None, ranks: Ranks,
) -> tf.keras.Model:  # fmt: skip
    """As :func:`train.models.networks.build_model`, whatever seeds the network's code sets."""
    source, technique = parse_model(config.model), config.technique
    label = source.file_name or config.model
    # under tf.distribute the same network was made outside of the strategy before
    known = tf.distribute.has_strategy()
    tf.keras.backend.reset_uids()  # layers without a name are counted from this network's first
    with _contained(config.seed):
        builder = _load_builder(source, file)
        # once more, since the file may have set another one
        with policy_scope(technique.keras_policy), _code_of(label, file):
            network = builder(shape, classes)
            if isinstance(network, tf.keras.Sequential) and not network.built:
                network.build((None, *shape))
            if text := network_as_built_problem(network, shape, classes, config):
                raise ConfigError(f"{label}: {text}")
            if config.pretrained is not None and not known:
                read = partial(_load_by_name, network, config.pretrained, folder)
                text = load_by_first(ranks, network, read)
                if ranks.rank == 0:
                    print(text, flush=True)
            replace_batch_norms(network, technique, config.gpus)
            images = tf.keras.Input(shape, dtype="uint8", name="images")
            own = OwnNetwork(network, seed_random_layers(network, seed))
            logits = own(_prepared(source, images, technique, pixels))
            logits = tf.keras.layers.Activation("linear", dtype="float32", name="logits")(logits)
            model = tf.keras.Model(images, logits, name="own_network")
            if not known and (text := training_problem(own, shape, config)):
                raise ConfigError(f"{label}: {text}")
    return model


def _prepared(
    source: NetworkSource, images: tf.Tensor, technique: Technique, pixels: ChannelStatistics | None
) -> tf.Tensor:
    """Pixels from 0 to 1, or standardised. Networks of keras.applications get what Keras itself
    prepares for them, be it 0 to 255; if standardised, of images with the mean 1/2 and the
    deviation 1/4 of that range, about those of photographs."""
    if source.file_name is not None:
        return scaled(images, technique, pixels)
    x = tf.cast(images, tf.float32)
    if technique.standardise:
        x = scaled(images, technique, pixels) * (255 / 4) + 255 / 2
    make = getattr(tf.keras.applications, source.name)
    return sys.modules[make.__module__].preprocess_input(x)


def _load_builder(source: NetworkSource, file: Path | None) -> Callable[[Shape, int], Any]:
    """file: one module, whose folder is no place that it can import from."""
    if source.file_name is None:
        make = getattr(tf.keras.applications, source.name)
        return lambda shape, classes: make(
            weights=None, input_shape=shape, classes=classes, classifier_activation=None
        )
    assert file is not None, "the network of a file"
    content = _checked_content(file, source.sha256, "--model-file")
    module = ModuleType(f"own_network_{source.sha256}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # where dataclasses and AutoGraph look for it
    with _code_of(source.file_name, file):
        code = compile(content, str(file), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  (the network's code is what the cell is about)
    build = getattr(module, source.name, None)
    if not callable(build):
        raise ConfigError(
            f"{source.file_name} has no function {source.name}: expected "
            f"{source.name}(input_shape, classes)"
        )
    return build


def _checked_content(file: Path, sha256: str | None, option: str) -> bytes:
    """What ``file`` holds, if it has that hash. ``option``: of train, for another place."""
    content = read_whole(file)
    found = None if content is None else hashlib.sha256(content).hexdigest()
    if content is None or found != sha256:
        state = "is missing" if found is None else f"has the sha256 {found}"
        raise ConfigError(f"{file} {state}: the config names one with {sha256} (see {option})")
    return content


@contextmanager
def _code_of(label: str, file: Path | None) -> Iterator[None]:
    """An error of the network's code is an error of the request, at a line of its file."""
    try:
        yield
    except (ConfigError, FirstFailed, MemoryError, tf.errors.ResourceExhaustedError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f"{label}, line {lines[-1]}" if lines else label
        alone = " (a network is one file)" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"{where}: {type(error).__name__}: {error}{alone}") from error


#: How to read, and how to set, what all code in a process shares.
_SHARED: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (lambda: tf.keras.mixed_precision.global_policy().name,
     tf.keras.mixed_precision.set_global_policy),
    (tf.keras.backend.floatx, tf.keras.backend.set_floatx),
    (tf.keras.backend.image_data_format, tf.keras.backend.set_image_data_format),
    (tf.config.functions_run_eagerly, tf.config.run_functions_eagerly),
    (tf.config.optimizer.get_jit, tf.config.optimizer.set_jit),
    (tf.config.experimental.tensor_float_32_execution_enabled,
     tf.config.experimental.enable_tensor_float_32_execution),
)  # fmt: skip


@contextmanager
def _contained(seed: int) -> Iterator[None]:
    """Every initialiser, also one with a seed of its own, draws what depends on ``seed``. What the
    network's code does to global states ends with it."""
    before = [read() for read, _ in _SHARED]
    usual = RandomGenerator._create_seed

    def create(self: RandomGenerator, own: int | None) -> int:
        return stream_of(seed, usual(self, own))

    RandomGenerator._create_seed = create
    tf.keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        RandomGenerator._create_seed = usual
        tf.keras.utils.set_random_seed(seed)
        for (read, write), value in zip(_SHARED, before, strict=True):
            if read() != value:
                write(value)


def load_by_first(ranks: Ranks, network: tf.keras.Model, read: Callable[[], T]) -> T:
    """Collective: rank 0 reads weights into its network, and all get them. Returns what ``read``
    does, and raises what it raises, on all ranks."""
    result = ranks.made_by_first(read)
    # layers as Normalization make copies of their weights then
    network.set_weights(ranks.arrays_of_first(network.get_weights()))
    return result


def _load_by_name(network: tf.keras.Model, pretrained: str, folder: Path) -> str:
    """Into the layers of the network, and of the networks within it whose own name is not in the
    file; how many of them."""
    name, sha256 = split_hash(pretrained)
    file = place_of(name, folder)
    content = _checked_content(file, sha256, "--data")
    names, stored = load_attributes_from_hdf5_group, dict[str, dict[str, Any]]()
    try:
        with h5py.File(io.BytesIO(content)) as opened:
            group = opened.get("model_weights", opened)
            for key in names(group, "layer_names"):
                if saved := names(group[key], "weight_names"):
                    stored[key] = {name: group[key][name][()] for name in saved}
    except OSError as error:  # no HDF5, or damaged
        raise ConfigError(f"pretrained: {file} {_fit_problem([], [])} ({error})") from error
    places = list(dict.fromkeys(_places(network, stored)))
    if text := _fit_problem([layer.name for layer in places], list(stored)):
        raise ConfigError(f"pretrained: {file} {text}")
    loaded = [layer for layer in places if layer.name in stored]
    try:
        for layer in loaded:
            own = layer.trainable_weights + layer.non_trainable_weights
            for weight, name in _pairs(own, [*stored[layer.name]]):
                weight.assign(stored[layer.name][name])
    except ValueError as error:
        raise ConfigError(
            f"pretrained: cannot load {file}: {error} (a layer that is to start with random "
            "weights needs a name that is not in the file)"
        ) from error
    return f"pretrained: {len(loaded)} of {len(places)} layers"


def _pairs(weights: list[tf.Variable], stored: list[str]) -> list[tuple[tf.Variable, str]]:
    """Weights of a layer, each with its name in the file. By position only if names differ in more
    than the numbers that Keras gives to layers: Keras stores first what is trained."""
    own = [weight.name for weight in weights]
    if len(own) != len(stored):
        raise ValueError(f"it has {', '.join(stored)} for {', '.join(own)}")

    def order(name: str) -> str:
        return re.sub(r"\d+", lambda number: number[0].zfill(9), name)

    def kind(name: str) -> str:
        return re.sub(r"_\d+\b", "", name)

    named = sorted(weights, key=lambda weight: order(weight.name))
    pairs = list(zip(named, sorted(stored, key=order), strict=True))
    alike = all(kind(weight.name) == kind(name) for weight, name in pairs)
    return pairs if alike else list(zip(weights, stored, strict=True))


def _places(model: tf.keras.Model, stored: Container[str]) -> Iterator[tf.keras.layers.Layer]:
    """Layers with weights, in their order; a network whose name is stored is one of them."""
    for layer in model.layers:
        inner = () if layer.name in stored else _networks_of(layer)
        for part in inner:
            yield from _places(part, stored)
        if not inner and layer.weights:
            yield layer


def _networks_of(layer: tf.keras.layers.Layer) -> list[tf.keras.Model]:
    if isinstance(layer, tf.keras.Model):
        return [layer]
    return [model for one in layers_within(layer) for model in _networks_of(one)]


def _fit_problem(layers: list[str], stored: list[str]) -> str | None:
    if not stored:
        return (
            "is of another format, without names of layers: save it by Keras' save_weights under "
            "a name that ends in .h5, and not in .weights.h5"
        )
    places = [n for n, name in enumerate(layers) if name in stored]
    loaded = layers[: places[-1]] if places else layers
    findings = {
        "not in the network": [
            name for name in (stored[:-1] if places else stored) if name not in layers
        ],
        "several layers of the network": [name for name in stored if layers.count(name) > 1],
        "not in the file": [name for name in loaded if name not in stored],
    }
    found = [f"{', '.join(names[:8])}: {what}" for what, names in findings.items() if names]
    if not found:
        return None
    return (
        f"does not fit ({'; '.join(found)}): give each layer of the network its name in the file, "
        "whose last one may be left; only layers behind all that are loaded may be new"
    )
