"""Networks that would train something else than a cell's config states, or cannot be measured."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras.src.engine.functional import Functional
from tensorflow.python.framework import op_def_registry

from train.config.checks import network_problem
from train.config.networks import Feature
from train.config.optimizer import Muon
from train.config.run import RunConfig
from train.config.technique import Rows, first_problem
from train.models.layers import all_layers, graph, user_network
from train.models.normalisation import batch_norms, muon_kernels

L = tf.keras.layers

#: Of a network, the shapes of the images and of the logits, and the cell.
_BUILT: Rows = (
    (lambda n, **_: not isinstance(n, tf.keras.Model) and type(n).__name__,
     "expected a Keras model, found {x}"),
    (lambda n, **_: type(n).call not in (Functional.call, tf.keras.Sequential.call),
     "a subclassed model shows no inputs and outputs: expected a functional or Sequential one"),
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
    (lambda n, **_: _names(v for v in n.trainable_variables if v.dtype != tf.float32),
     "weights are to be float32, which {x} are not"),
    (lambda n, c, **_: not c.model.startswith("keras.applications.") and _names(_divide(n)),
     "{x} divide the images as if they came in [0, 255]: they come in [0, 1], so leave it out (if "
     "it is inside a network of keras.applications, put Rescaling(255) in front of that)"),
    (lambda n, **_: _names(x for x in batch_norms(n) if x.synchronized),
     "{x} have synchronized=True: leave it out, and choose a technique with sync_batch_norm"),
    (lambda n, c, **_: _replaces(c) and _names(
        x for x in batch_norms(n)
        if type(x) is not L.BatchNormalization or len(x.axis) > 1 or x.renorm
        or x.virtual_batch_size),
     "normalisation {c.technique.normalisation} takes the place of plain BatchNormalization over "
     "one axis, which {x} are not"),
    (lambda n, c, **_: network_problem(c, _features(n)), "{x}"),
    (lambda n, c, **_: isinstance(c.technique.optimizer, Muon)
     and not muon_kernels(n, c.technique.optimizer),
     "optimizer muon: fix_norm needs a Conv2D without activation and with nothing but "
     "BatchNormalization behind it, which it does not have: say fix_norm: false"),
)  # fmt: skip

#: Of its graphs of a forward pass, in training (g) and in evaluation (e).
_TRAINED: Rows = (
    (lambda g, e, **_: g.draws or e.draws,
     "{x} draw from or keep a state that no checkpoint holds: use layers of Keras instead"),
    (lambda e, **_: e.hidden_writes or _names(v.deref() for v in e.written),
     "evaluation changes {x}, so test images would change the network: leave training=True out"),
    (lambda g, n, **_: g.hidden_writes or _names(
        v.deref() for v in g.written.keys() - {
            w.ref() for x in batch_norms(n) for w in (x.moving_mean, x.moving_variance)}),
     "training changes {x} by other means than gradients, which ranks can only have in common "
     "for the averages of BatchNormalization"),
    (lambda g, **_: g.last in ("Softmax", "Sigmoid"),
     "it ends in {g.last}: expected logits, so leave the last activation out"),
    (lambda n, c, **_: _names(x for x in batch_norms(n) if getattr(x, "masked", False)),
     "normalisation {c.technique.normalisation} counts all positions, but {x} get a mask: say "
     "normalisation: batch_norm"),
    (lambda n, c, **_: _names(
        x for x in batch_norms(n) if getattr(x, "rows", c.batch_per_rank) != c.batch_per_rank),
     "normalisation ghost_batch_norm: in {x} a row is not an image"),
    (lambda g, n, c, **_: _reestimates(c) and _names(
        x for x in batch_norms(n) if g.written[x.moving_mean.ref()] != 1),
     "bn_statistics reestimated: {x} are not called once in a forward pass of training"),
    (lambda n, c, **_: _reestimates(c) and not _replaces(c) and _names(
        x for x in batch_norms(n)
        if len(x.inbound_nodes) != 1 or None in x.input_shape[1:]),
     "bn_statistics reestimated: {x} are inside other layers, or for maps of any size"),
)  # fmt: skip


def network_as_built_problem(
    network: Any, shape: tuple[int, ...], classes: int, config: RunConfig
) -> str | None:
    return first_problem(_BUILT, n=network, images=(None, *shape), logits=(None, classes), c=config)


def training_problem(
    model: tf.keras.Model, shape: tuple[int, ...], config: RunConfig
) -> str | None:
    """``model`` holds the network, and takes uint8 images of ``shape``."""
    shape = (config.batch_per_rank, *shape)
    trained, evaluated = (_graph_of(model, shape, training=training) for training in (True, False))
    return first_problem(_TRAINED, g=trained, e=evaluated, n=user_network(model), c=config)


def _names(things: Any) -> str:
    return ", ".join(thing.name for thing in things)


def _divide(network: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """Layers for pixels up to 255; none if another multiplies by so much before."""
    layers = list(all_layers(network))
    scales = [(x, np.abs(x.scale)) for x in layers if isinstance(x, L.Rescaling)]
    if any(np.max(scale) >= 64 for _, scale in scales):
        return []
    given = [x for x in layers if isinstance(x, L.Normalization) and x.input_mean is not None]
    return [
        *(x for x, scale in scales if np.max(scale) <= 1 / 64),
        *(x for x in given if np.max(np.abs(x.input_mean)) > 1),
    ]


def _replaces(config: RunConfig) -> bool:
    return config.technique.normalisation in ("ghost_batch_norm", "sync_batch_norm")


def _reestimates(config: RunConfig) -> bool:
    return config.technique.bn_statistics == "reestimated"


def _features(network: tf.keras.Model) -> frozenset[Feature]:
    """No layer says that it ends a residual branch."""
    plain = [x for x in all_layers(network) if type(x) is L.Conv2D and x.groups == 1]
    has: dict[Feature, bool] = {
        "batch norm": bool(batch_norms(network)),
        "convolutions": any(x.trainable for x in plain),
        "conv1": any(x.name == "conv1" and x in network.layers for x in plain),
    }
    return frozenset(name for name, there in has.items() if there)


class _Graph(NamedTuple):
    draws: str  # operations with a state that is no variable
    written: Counter[Any]  # references of variables, and how often each is written
    hidden_writes: str  # functions within that write variables
    last: str  # the operation that makes the logits


#: Operations that TensorFlow counts among those with a state, but whose result has none, or only
#: that of variables.
_STATELESS = re.compile(
    "(Read|Assign.*)VariableOp|VarHandleOp|VarIsInitializedOp|VariableShape|DisableCopyOnRead|"
    "Resource(Gather|Scatter|StridedSlice).*|StatefulPartitionedCall|If|While|Case|Assert|"
    "Print(V2)?|CheckNumerics.*|StatelessRandomGetAlg|CudnnRNN.*|Horovod.*"
)
_WRITE = re.compile("Assign.*Variable|ResourceScatter")
_PASSED_ON = ("Identity", "Cast", "Reshape", "Squeeze")


def _has_state(operation: str) -> bool:
    """Or draws: those with a ``seed`` of their own draw other numbers in each call."""
    if (known := op_def_registry.get(operation)) is None:  # a function, whose body is looked at
        return False
    stateful = known.is_stateful or any(attribute.name == "seed" for attribute in known.attr)
    return stateful and not _STATELESS.fullmatch(operation)


def _graph_of(model: tf.keras.Model, shape: tuple[int, ...], *, training: bool) -> _Graph:
    run = graph(lambda images: model(images, training=training))
    traced = run.get_concrete_function(tf.TensorSpec(shape, tf.uint8)).graph
    handles = {id(variable.handle): variable.ref() for variable in model.variables}
    owners = {inside.name: handles.get(id(outside)) for outside, inside in traced.captures}
    targets = [op.inputs[0].name for op in traced.get_operations() if _WRITE.match(op.type)]
    whole = traced.as_graph_def()
    inner = [(f.signature.name, node) for f in whole.library.function for node in f.node_def]
    nodes = [*whole.node, *(node for _, node in inner)]
    last = traced.outputs[0].op
    while last.type in _PASSED_ON:
        last = last.inputs[0].op
    return _Graph(
        ", ".join(sorted({f"{node.name} ({node.op})" for node in nodes if _has_state(node.op)})),
        Counter(owners[name] for name in targets if owners.get(name) is not None),
        ", ".join(sorted({name for name, node in inner if _WRITE.match(node.op)})),
        last.type,
    )
