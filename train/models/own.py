"""A network that a researcher brings, or one of keras.applications, which runs as it was built.

Around it stand only the preparation of the images and a cast of the logits. In it only batch norm
changes, if the technique normalises by ghosts or over the ranks, and what random layers draw from.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import h5py
import tensorflow as tf
from keras.src.backend import RandomGenerator
from keras.src.engine.functional import Functional

from train.config.datasets import place_of
from train.config.networks import NetworkSource, parse_model, split_hash
from train.config.optimizer import Muon
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError, read_whole
from train.models.layers import (
    SeededGenerator,
    StepSeed,
    all_layers,
    graph,
    precision_of,
    seed_random_layers,
    stream_of,
)
from train.models.normalisation import (
    GhostBatchNormalization,
    SyncBatchNormalization,
    batch_norms,
    replace_batch_norms,
)
from train.models.standardise import ChannelStatistics, scaled

L = tf.keras.layers
Shape = tuple[int, int, int]  # height, width, channels
Builder = Callable[[Shape, int], Any]

_RANDOM = re.compile(
    r"Random|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial|Rng|Stateful(?!Partitioned)"
)
_WRITE = re.compile(r"Assign\w*Variable|ResourceScatter")
_PASSED_ON = ("Identity", "Cast", "Reshape", "Squeeze")


class OwnNetwork(L.Layer):
    """Holds a network, and begins each forward pass through it."""

    def __init__(self, network: tf.keras.Model, generators: list[SeededGenerator]) -> None:
        super().__init__(name="network", dtype="float32")
        self.network = network
        self._generators = tuple(generators)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        for generator in self._generators:
            generator.draws = 0
        return self.network(inputs, training=training)


def user_network(model: tf.keras.Model) -> tf.keras.Model:
    """What ``build`` returned, with the weights of ``model``; a network of ours is its own."""
    return next((one.network for one in model.layers if isinstance(one, OwnNetwork)), model)


def own_network(
    config: RunConfig,
    shape: Shape,
    classes: int,
    seed: StepSeed,
    size: int,
    pixels: ChannelStatistics | None,
    folder: Path,
    file: Path | None,
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
    with precision_of("float32"), _drawn_from(config.seed):
        builder = load_builder(source, file)
        # what the file itself may have set
        with precision_of(technique.precision), _code_of(label, file):
            network = builder(shape, classes)
            if isinstance(network, tf.keras.Sequential) and not network.built:
                network.build((None, *shape))
            _refuse(label, _of_structure(network, shape, classes, config))
            if config.pretrained is not None:
                _load_by_name(network, config.pretrained, folder)
            replace_batch_norms(network, technique, size)
            images = tf.keras.Input(shape, dtype="uint8", name="images")
            x = _prepared(source, images, technique, pixels)
            own = OwnNetwork(network, seed_random_layers(network, seed))
            logits = L.Activation("linear", dtype="float32", name="logits")(own(x))
            model = tf.keras.Model(images, logits, name="own_network")
            if not tf.distribute.has_strategy():  # the same network was made outside before
                _refuse(label, _of_pass(model, shape, config))
    return model


# --- from the name to the network ----------------------------------------------------------------


def load_builder(source: NetworkSource, file: Path | None) -> Builder:
    """The function that builds a network for (height, width, channels) and a number of classes.

    file: one module, run by itself: its folder is no place that it can import from.

    Raises:
        ConfigError: no such network, or the file is not the one that ``source`` names, or fails.
    """
    if source.kind == "applications":
        make = getattr(tf.keras.applications, source.name, None)
        if not callable(make):
            known = [name for name in dir(tf.keras.applications) if name[0].isupper()]
            raise ConfigError(
                f"keras.applications has no network {source.name}; known: {', '.join(known)}"
            )
        return lambda shape, classes: make(
            weights=None, input_shape=shape, classes=classes, classifier_activation=None
        )
    content = None if file is None else read_whole(file)
    if file is None or content is None:
        raise ConfigError(f"the network's file {source.file_name} is missing: expected {file}")
    if (found := hashlib.sha256(content).hexdigest()) != source.sha256:
        raise ConfigError(
            f"{file} has sha256 {found}, but the config names {source.file_name} with "
            f"{source.sha256}: give the file of this cell, or plan the sweep again"
        )
    module = ModuleType(f"own_network_{found[:12]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # where dataclasses and AutoGraph look it up
    with _code_of(source.file_name or "", file):
        exec(compile(content, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    build = getattr(module, source.name, None)
    if not callable(build):
        raise ConfigError(f"{source.file_name} has no function {source.name}(input_shape, classes)")
    return build


@contextmanager
def _code_of(label: str, file: Path | None) -> Iterator[None]:
    """An error of the network's code is an error of the request, at a line of its file."""
    try:
        yield
    except (ConfigError, MemoryError, tf.errors.ResourceExhaustedError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f"{label}, line {lines[-1]}" if lines else label
        alone = " (a network is one file)" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"{where}: {type(error).__name__}: {error}{alone}") from error


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """Every initialiser, also one with a seed of its own, draws what depends on ``seed``. What the
    network's code does to the global state of randomness ends with it."""
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
    content = read_whole(file := place_of(name, folder))
    if content is None or (found := hashlib.sha256(content).hexdigest()) != sha256:
        what = "is missing" if content is None else f"has sha256 {found}, expected {sha256}"
        raise ConfigError(f"pretrained: {file} {what}")
    try:
        with h5py.File(file) as opened:
            group = opened.get("model_weights", opened)
            stored = {key for key in group if group[key].attrs.get("weight_names", ())}
        loaded = 0
        for part in [network, *(x for x in all_layers(network) if isinstance(x, tf.keras.Model))]:
            fitting = [layer for layer in part.layers if layer.name in stored and layer.weights]
            if fitting:
                part.load_weights(file, by_name=True)
            loaded += len(fitting)
    except (OSError, ValueError) as error:
        raise ConfigError(f"pretrained: cannot load {file}: {error}") from error
    if not loaded:
        raise ConfigError(
            f"pretrained: {file} has weights of {', '.join(sorted(stored)[:8])}, ..., and the "
            "network has no layer of such a name"
        )


# --- what is refused ------------------------------------------------------------------------------


def _refuse(label: str, rows: Iterator[tuple[object, str]]) -> None:
    """Rows of whether something is wrong, looked at in turn, and of what that is."""
    for wrong, text in rows:
        if wrong:
            raise ConfigError(f"{label}: {text}")


def _of_structure(
    network: Any, shape: Shape, classes: int, config: RunConfig
) -> Iterator[tuple[object, str]]:
    row = config.technique
    yield (
        not isinstance(network, tf.keras.Model),
        (f"expected a Keras model, found {type(network).__name__}"),
    )
    yield (
        type(network).call not in (Functional.call, tf.keras.Sequential.call),
        (
            "a subclassed model shows no inputs and outputs: expected a functional or Sequential model"
        ),
    )
    yield (
        len(network.inputs) != 1 or not hasattr(network.output, "shape"),
        (
            f"{len(network.inputs)} inputs and {len(network.outputs)} outputs: expected one tensor each"
        ),
    )
    taken, given = tuple(network.input_shape), tuple(network.output_shape)
    yield (
        taken[0] is not None or not tf.TensorShape(taken).is_compatible_with((None, *shape)),
        (f"it takes {taken}, and the images are {(None, *shape)}"),
    )
    yield given != (None, classes), f"it returns {given}: expected logits {(None, classes)}"
    variables = network.trainable_variables
    yield not variables, "it has no weights that are trained"
    other = [f"{v.name} {v.dtype.name}" for v in variables if v.dtype != tf.float32]
    yield other, f"weights are to be float32, found {', '.join(other)}"
    norms = batch_norms(network)
    together = [x.name for x in norms if x.synchronized]
    yield (
        together,
        (
            f"{together} have synchronized=True, which is a matter of the technique here: leave it out"
        ),
    )
    if row.normalisation in ("ghost_batch_norm", "sync_batch_norm"):
        exact = tf.keras.layers.BatchNormalization
        odd = [
            x.name for x in norms
            if type(x) is not exact or len(x.axis) > 1 or x.renorm or x.virtual_batch_size
        ]  # fmt: skip
        yield (
            odd,
            (
                f"normalisation {row.normalisation}: cannot take the place of {odd}, which are no plain "
                "BatchNormalization over one axis"
            ),
        )
    # network_problem


def _features(network: tf.keras.Model) -> frozenset[str]:
    """Residual branches are not known: no layer of a network says that it ends one."""
    has: dict[str, bool] = {
        "batch norm": bool(batch_norms(network)),
        "convolutions": any(
            len(v.shape) == 4 and "depthwise" not in v.name for v in network.trainable_variables
        ),
        "conv1": any(
            type(x) is L.Conv2D and x.name == "conv1" and x.groups == 1 for x in network.layers
        ),
    }
    return frozenset(name for name, there in has.items() if there)


def _of_pass(
    model: tf.keras.Model, shape: Shape, config: RunConfig
) -> Iterator[tuple[object, str]]:
    row, batch, network = config.technique, config.batch_per_rank, user_network(model)
    done = _forward_pass(model, (batch, *shape))
    yield (
        done.draws,
        (
            f"{', '.join(done.draws)} draws from TensorFlow's own random state, which no checkpoint "
            "holds: use layers of Keras, whose draws then depend on seed, rank and step"
        ),
    )
    norms = batch_norms(network)
    statistics = [v for x in norms for v in (x.moving_mean, x.moving_variance)]
    kept = {v.ref() for v in statistics}
    state = [ref.deref().name for ref in done.written if ref not in kept]
    yield (
        state or done.hidden_writes,
        (
            f"training changes {', '.join(state) or 'variables within a function'} besides gradients: "
            "the only such state that ranks can have in common is BatchNormalization's"
        ),
    )
    yield (
        done.last in ("Softmax", "Sigmoid"),
        (f"it ends in {done.last}: expected logits, so leave the last activation out"),
    )
    if row.normalisation == "ghost_batch_norm":
        mixed = [x.name for x in norms if getattr(x, "rows", batch) != batch]
        yield mixed, f"ghost_batch_norm: in {mixed} a row is not an image"
    if row.bn_statistics == "reestimated":
        times = {x.name: done.written[x.moving_mean.ref()] for x in norms}
        odd = [name for name, number in times.items() if number != 1]
        yield (
            odd,
            (f"bn_statistics reestimated: {odd} are not called once in a forward pass of training"),
        )
        ours = (GhostBatchNormalization, SyncBatchNormalization)
        inner = [x.name for x in norms if not isinstance(x, ours) and not _knows_its_map(x)]
        yield inner, f"bn_statistics reestimated: {inner} are inside other layers, or of any size"
    if isinstance(row.optimizer, Muon):
        yield (
            row.optimizer.fix_norm and not norms,
            (
                "optimizer muon: fix_norm needs BatchNormalization, which it does not have: say "
                "fix_norm: false"
            ),
        )


def _knows_its_map(layer: tf.keras.layers.Layer) -> bool:
    return len(layer.inbound_nodes) == 1 and None not in layer.input_shape[1:]


class _Pass(NamedTuple):
    """What the graph of a forward pass in training does."""

    draws: list[str]  # operations that draw from TensorFlow's own state
    written: Counter[Any]  # references of variables, and how often each is written
    hidden_writes: bool  # within functions that it calls
    last: str  # the operation that makes the logits


def _forward_pass(model: tf.keras.Model, shape: tuple[int, ...]) -> _Pass:
    """Of uint8 images of ``shape``."""
    run = graph(lambda images: model(images, training=True))
    traced = run.get_concrete_function(tf.TensorSpec(shape, tf.uint8)).graph
    owners = {
        inside.name: variable.ref()
        for outside, inside in traced.captures
        for variable in model.variables
        if variable.handle is outside
    }
    written = Counter(
        owners[op.inputs[0].name]
        for op in traced.get_operations()
        if _WRITE.match(op.type) and op.inputs[0].name in owners
    )
    whole = traced.as_graph_def()
    inner = [node for function in whole.library.function for node in function.node_def]
    draws = {node.name for node in [*whole.node, *inner] if _RANDOM.match(node.op)}
    last = traced.outputs[0].op
    while last.type in _PASSED_ON:
        last = last.inputs[0].op
    return _Pass(
        sorted(name.rpartition("/")[0] or name for name in draws),
        written,
        any(_WRITE.match(node.op) for node in inner),
        last.type,
    )
