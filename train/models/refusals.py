"""Networks that would train something else than a cell's config states, or cannot be measured."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from train.config.checks import network_problem
from train.config.networks import APPLICATIONS, Feature
from train.config.run import RunConfig
from train.config.technique import Rows, first_problem
from train.models.layers import OwnNetwork, random_layers
from train.models.normalisation import batch_norms, plain_convolutions
from train.models.traced import are_bounded, range_problem, traced
from train.tensorflow_internals import DropoutRNNCellMixin, Functional, all_layers

L = tf.keras.layers
Policy = tf.keras.mixed_precision.Policy

#: Of a network, the shapes of the images and of the logits, and the cell.
_BUILT: Rows = (
    (lambda n, **_: not isinstance(n, tf.keras.Model) and type(n).__name__,
     "expected a Keras model, found {x}"),
    (lambda n, **_: type(n).call not in (Functional.call, tf.keras.Sequential.call),
     "a subclassed model shows no inputs and outputs: expected a functional or Sequential one"),
    (lambda n, **_: type(n).train_step is not tf.keras.Model.train_step,
     "its class has a train_step of its own, which is not called: expected a plain Keras model"),
    (lambda n, **_: (len(n.inputs), len(n.outputs)) != (1, 1) or not hasattr(n.output, "shape"),
     "it has {n.inputs} for inputs and {n.outputs} for outputs: expected one tensor each"),
    (lambda n, **_: not n.inputs[0].dtype.is_floating and n.inputs[0].dtype.name,
     "it takes {x}: expected float32 images in [0, 1], so leave dtype out of its Input"),
    (lambda n, images, **_: n.input_shape[0] is not None
     or not tf.TensorShape(n.input_shape).is_compatible_with(images),
     "it takes {n.input_shape}: expected {images}"),
    (lambda n, logits, **_: n.output_shape != logits,
     "it returns {n.output_shape}: expected logits {logits}"),
    (lambda n, **_: not n.trainable_variables, "it has no weights that are trained"),
    (lambda n, **_: _names(v for v in n.variables if v.dtype != tf.float32
                           and (v.trainable or v.dtype.is_floating)),
     "weights are to be float32, which {x} are not"),
    (lambda n, c, **_: _names(
        x for x in all_layers(n) if x.compute_dtype in ("float16", "bfloat16")
        and x.compute_dtype != Policy(c.technique.keras_policy).compute_dtype),
     "{x} compute in 16 bits, with precision {c.technique.precision}: leave their dtype out"),
    (lambda n, **_: _names(x for x in all_layers(n) if isinstance(x, L.SpectralNormalization)),
     "training changes the kernels of {x} by other means than gradients: leave it out"),
    (lambda n, **_: _names(x for x in batch_norms(n) if x.synchronized),
     "{x} have synchronized=True: leave it out, and choose a technique with sync_batch_norm"),
    (lambda n, c, **_: _replaces(c) and _names(
        x for x in batch_norms(n)
        if type(x) is not L.BatchNormalization or len(x.axis) > 1 or x.renorm
        or x.virtual_batch_size),
     "normalisation {c.technique.normalisation} takes the place of plain BatchNormalization over "
     "one axis, which {x} are not"),
    (lambda n, c, **_: network_problem(c, _features(n)), "{x}"),
)  # fmt: skip

#: Images, few enough for any memory, if ghosts do not need more.
_BATCH = 8
#: Of its graphs of a forward pass, in training (g) and in evaluation (e).
_TRAINED: Rows = (
    (lambda n, c, **_: c.pretrained and _names(
        x for x in all_layers(n)
        if isinstance(x, Functional) and x.name.startswith("efficientnetb")
        and sum(isinstance(part, L.Rescaling) for part in x.layers) < 2
        # of the published images; weights of one's own have none
        and any((part.adapt_variance.numpy() != 1).any() for part in x.layers
                if isinstance(part, L.Normalization))),
     "pretrained: the published weights of {x} were trained with a Rescaling behind Normalization "
     "that Keras builds with weights='imagenet' alone: use EfficientNetV2"),
    (lambda g, e, **_: g.state or e.state,
     "{x} draw from or keep a state that no checkpoint holds, or are in a tf.function, which hides "
     "what they write: use layers of Keras, outside of a tf.function"),
    (lambda g, e, **_: g.foreign or e.foreign,
     "{x} are no weights of the network, so they would neither be trained nor saved: make them in "
     "a layer (add_weight), and give layers to layers as attributes"),
    (lambda e, **_: _names(v.deref() for v in e.written),
     "evaluation changes {x}, so test images would change the network: leave training=True out"),
    (lambda n, **_: _names(
        x for x in random_layers(n)
        if getattr(x._random_generator, "_draws", 0)),  # last, in evaluation
     "evaluation draws at random in {x}, on each rank other numbers: leave training=True out"),
    (lambda g, n, **_: _names(
        v.deref() for v in g.written.keys() - {
            w.ref() for x in batch_norms(n) for w in (x.moving_mean, x.moving_variance)}),
     "training changes {x} by other means than gradients, which ranks can only have in common "
     "for the averages of BatchNormalization"),
    (lambda g, **_: g.again,
     "{x} act once more in the backward pass, with other numbers: leave tf.recompute_grad out"),
    (lambda n, e, c, shape, **_: not c.model.startswith(APPLICATIONS)
     and are_bounded(e.run, n.trainable_variables[-2:], shape),
     "it returns probabilities, from 0 to 1 whatever its weights: expected logits, so leave the "
     "last activation out"),
    (lambda g, n, c, **_: c.images_together == 1 and _names(
        x for x in batch_norms(n) if g.written[x.moving_mean.ref()] and x.inbound_nodes
        and (x.input_spec.ndim == 2 or x.moving_mean.shape.num_elements()
             == tf.TensorShape(getattr(x, "input_shape", None))[1:].num_elements())),
     "a batch of one image has one number per channel for {x}, which normalisation makes 0: use a "
     "batch_per_rank of 2 or more"),
    (lambda n, **_: _names(
        x for x in random_layers(n) if getattr(x._random_generator, "repeats", False)
        and not isinstance(x, DropoutRNNCellMixin)),  # it has one mask for all times on purpose
     "{x} draws in a loop or a tf.function, the same numbers each time: unroll it, or use the "
     "dropout of Keras' LSTM"),
    (lambda g, e, c, shape, **_: not c.model.startswith(APPLICATIONS)
     and range_problem(g, e, shape),
     "{x}, as if they came in [0, 255]: they come in [0, 1], so leave out what prepares them, or "
     "state this range (if it is inside a network of keras.applications, put Rescaling(255) in "
     "front of that)"),
    (lambda n, c, **_: _names(x for x in batch_norms(n) if getattr(x, "masked", False)),
     "normalisation {c.technique.normalisation} counts all positions, but {x} get a mask: say "
     "normalisation: batch_norm"),
    (lambda n, shape, **_: _names(
        x for x in batch_norms(n) if getattr(x, "rows", shape[0]) != shape[0]),
     "normalisation ghost_batch_norm: in {x} a row is not an image"),
    (lambda g, n, c, **_: _reestimates(c) and _names(
        x for x in batch_norms(n) if g.written[x.moving_mean.ref()] != 1),
     "bn_statistics reestimated: {x} are not called once in a forward pass of training"),
    (lambda n, c, **_: _reestimates(c) and not _replaces(c) and _names(
        x for x in batch_norms(n)
        if len(x.inbound_nodes) != 1 or None in x.input_shape[1:]),
     "bn_statistics reestimated: {x} are inside other layers, or for maps of any size"),
    (lambda g, n, c, **_: _replaces(c) and not any(
        g.written[x.moving_mean.ref()] for x in batch_norms(n)),
     "normalisation {c.technique.normalisation} changes nothing, because all BatchNormalization is "
     "called with training=False: leave that out, or say normalisation: batch_norm"),
)  # fmt: skip


def network_as_built_problem(
    network: Any, shape: tuple[int, ...], classes: int, config: RunConfig
) -> str | None:
    return first_problem(_BUILT, n=network, images=(None, *shape), logits=(None, classes), c=config)


def training_problem(network: OwnNetwork, shape: tuple[int, ...], config: RunConfig) -> str | None:
    """Of a network as ranks train it, which gets the sha256 of what it computes: ``digest``."""
    shape = (config.technique.ghost_batch or _BATCH, *shape)
    training, evaluation = (traced(network, shape, training=which) for which in (True, False))
    n = network.network
    n.digest = training.digest
    return first_problem(_TRAINED, g=training, e=evaluation, n=n, c=config, shape=shape)


def _names(things: Any) -> str:
    return ", ".join(thing.name for thing in things)


def _replaces(config: RunConfig) -> bool:
    return config.technique.normalisation in ("ghost_batch_norm", "sync_batch_norm")


def _reestimates(config: RunConfig) -> bool:
    return config.technique.bn_statistics == "reestimated"


def _features(network: tf.keras.Model) -> frozenset[Feature]:
    """What zero_gamma and whitened filters need is left out: they are for built-in networks."""
    has: dict[Feature, bool] = {
        "batch norm": bool(batch_norms(network)),
        "convolutions": bool(plain_convolutions(network)),
    }
    return frozenset(name for name, there in has.items() if there)
