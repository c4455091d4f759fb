"""What a forward pass through a network does, as its graph shows it: what it draws and changes,
what its logits are, and what the weights get to see of an image."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from train.models.layers import OwnNetwork, random_layers
from train.tensorflow_internals import operation_definition

#: Operations that take a variable and leave it as it is. All others that take one write it.
_READS = {
    "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp",
    "DisableCopyOnRead",
}  # fmt: skip
#: Operations that TensorFlow counts among those with a state, but whose result has none.
_STATELESS = re.compile(
    "VarHandleOp|StatefulPartitionedCall|If|While|Case|Assert|Print(V2)?|CheckNumerics.*|"
    "StatelessRandomGetAlg|CudnnRNN.*|Horovod.*"
)


class Traced(NamedTuple):
    """A forward pass, in training or in evaluation."""

    state: str  # operations with one that is no variable, or that write one within a function
    written: Counter[Any]  # references of variables, and how often each is written
    foreign: str  # variables that the network does not have
    again: str  # layers that draw, and operations that write, in the backward pass of training
    run: Any  # the pass itself, a function of images: its logits
    # what is made of images without weights, and the layer that brings them together with some
    seen: list[tuple[str, tf.Tensor]]
    digest: str  # of all that the pass computes; of names none that the process counts


def traced(network: OwnNetwork, shape: tuple[int, ...], *, training: bool) -> Traced:
    """Of a batch of ``shape``."""
    spec = tf.TensorSpec(shape, tf.float32)
    run = tf.compat.v1.wrap_function(lambda x: network(x, training=training), [spec])
    whole = run.graph.as_graph_def()
    inside = [function.node_def for function in whole.library.function]
    measures = [v for metric in network.metrics for v in metric.variables]
    seeds = [generator._value() for generator in network._generators]
    handles = {id(held.handle): held for held in (*network.variables, *measures, *seeds)}
    owners = {held.name: handles.get(id(outside)) for outside, held in run.graph.captures}
    written = Counter[Any]()
    for operation in run.graph.get_operations():
        if _effect(operation.type) == "write":
            handle = next(x.name for x in operation.inputs if x.dtype == tf.resource)
            if (owner := owners.get(handle)) is not None:
                written[owner.ref()] += 1
    for measure in measures:  # of Keras' own, which nothing depends on
        written.pop(measure.ref(), None)
    trainable = {name for name, owner in owners.items() if owner is not None and owner.trainable}
    seen = _seen(run.graph, run.inputs[0].name, trainable)
    values = [value for value, _ in run.graph.captures if value.dtype != tf.resource]
    states = [x for x in whole.node if _effect(x.op) == "state"]
    states += [x for body in inside for x in body if _effect(x.op)]
    again = _again(network, run.graph, run.outputs, trainable) if training else ""
    return Traced(
        ", ".join(sorted({f"{x.name} ({x.op})" for x in states})),
        written,
        ", ".join(v.name for v in run.graph.variables if id(v.handle) not in handles),
        again,
        run,
        seen,
        _digest([whole.node, *inside], values),
    )


def _again(network: OwnNetwork, graph: Any, logits: Any, trainable: set[str]) -> str:
    """What the gradient calls once more, as that of tf.recompute_grad does."""
    layers, before = random_layers(network.network), [one._draws for one in network._generators]
    forward = len(graph.get_operations())
    with graph.as_default():
        tf.gradients(logits, [graph.get_tensor_by_name(name) for name in trainable])
    pairs = zip(layers, network._generators, before, strict=True)
    draws = [layer.name for layer, generator, count in pairs if generator._draws != count]
    writes = [x.name for x in graph.get_operations()[forward:] if _effect(x.type) == "write"]
    return ", ".join(draws + writes)


@lru_cache(None)
def _effect(operation: str) -> Literal["write", "state"] | None:
    """On a variable, or on a state of its own. Operations with a ``seed`` of their own have that,
    too: they draw other numbers in each call."""
    if (known := operation_definition(operation)) is None:  # a function, whose body is looked at
        return None
    if any(given.type == tf.resource.as_datatype_enum for given in known.input_arg):
        return None if operation in _READS else "write"
    stateful = known.is_stateful or any(attribute.name == "seed" for attribute in known.attr)
    return "state" if stateful and not _STATELESS.fullmatch(operation) else None


def _seen(graph: Any, images: str, trainable: set[str]) -> list[tuple[str, tf.Tensor]]:
    """Tensors that depend on the images and on no weights that can be trained, where an operation
    brings them together with such weights; each with the name of the operation's layer."""
    prepared, weighted, seen = {images}, set(trainable), dict[str, tuple[str, tf.Tensor]]()
    for operation in graph.get_operations():  # each after those that it depends on
        names = {tensor.name for tensor in operation.inputs}
        if names & weighted:
            weighted.update(tensor.name for tensor in operation.outputs)
            layer = operation.name.rpartition("/")[0].split("/", 2)[-1]  # network/NAME/LAYER/KIND
            numbers = (x for x in operation.inputs if x.dtype.is_floating)
            seen |= {x.name: (layer, x) for x in numbers if x.name in prepared - seen.keys()}
        elif names & prepared:
            prepared.update(tensor.name for tensor in operation.outputs)
    return list(seen.values())


#: Attributes of operations that are of the process or the machine, beyond those with "_" in front.
_OF_THE_PROCESS = ("config", "config_proto", "executor_type", "shared_name", "container")


def _digest(bodies: Iterable[Any], values: Iterable[tf.Tensor]) -> str:
    """Equal for graphs that compute the same; ``bodies``: their nodes, and those of each function.
    Names of functions and of captured tensors (``values``) have numbers that the process counts."""
    texts = []
    for body in bodies:
        places = {node.name: place for place, node in enumerate(body)}
        text = ""
        for node in body:
            kept = [
                (key, value.SerializeToString(deterministic=True))
                for key, value in sorted(node.attr.items())
                if not (value.func.name or value.list.func or key.startswith("_"))
                and key not in _OF_THE_PROCESS
            ]
            inputs = [(places.get(x.lstrip("^").partition(":")[0]), x.rpartition(":")[2])
                      for x in node.input]  # fmt: skip
            inputs = [(place, end if end.isdigit() else "") for place, end in inputs]
            text += repr((node.op, inputs, kept))
        texts.append(text)
    digest = hashlib.sha256("".join(sorted(texts)).encode())
    for value in values:
        digest.update(tf.io.serialize_tensor(value).numpy())
    return digest.hexdigest()


#: The largest difference between two images, of the numbers' own size (or 1, that of pixels), that
#: is too small: pixels that are divided by 255 keep 1/255, those minus a mean of 0 to 255 no more.
_LEAST = 1 / 50
#: A random layer makes numbers this many times as large: for pixels of 0 to 255.
_MOST = 8


def range_problem(training: Traced, evaluation: Traced, shape: tuple[int, ...]) -> str:
    """What gets images as if they came in [0, 255], and how; measured with images in [0, 1]."""
    one, other = (_images(shape, seed) for seed in (0, 1))
    before, after = _sizes(evaluation, one, other), _sizes(training, one, other)
    if little := [name for (name, _), (change, _) in before.items() if change < _LEAST]:
        return f"{', '.join(little)} sees almost the same of all images"
    for key, (_, size) in after.items():
        usual = before.get(key, (0, size))[1]
        if size > _MOST * usual:
            return f"{key[0]} sees numbers {size / usual:.0f} times as large in training"
    return ""


def are_bounded(logits: Any, last: list[tf.Variable], shape: tuple[int, ...]) -> bool:
    """Whether logits are from 0 to 1, also if the ``last`` weights are far from the first ones: an
    ordinary network of few classes may begin with small and positive logits."""
    images, before = _images(shape, 0), [variable.numpy() for variable in last]
    found = []
    for far in (True, False):
        for variable, value in zip(last, before, strict=True):
            variable.assign(1000 * (value + 1) if far else value)
        found.append(np.asarray(logits(images), np.float32))
    return bool(found[1].any()) and all(x.min() >= 0 and x.max() <= 1 for x in found)


def _images(shape: tuple[int, ...], seed: int) -> tf.Tensor:
    """They differ in level, contrast and pixels."""
    draws = np.random.default_rng(seed)
    level, contrast = draws.random((2, shape[0], *(1 for _ in shape[1:])))
    return tf.constant((level + contrast * draws.random(shape)) / 2, tf.float32)


def _sizes(graph: Traced, one: tf.Tensor, other: tf.Tensor) -> dict[Any, tuple[float, float]]:
    """Of all seen that is not the same for both, as shapes are, by its operation and its own shape:
    the largest change from one to the other, and the root of the mean square."""
    see = graph.run.prune(graph.run.inputs[0], [tensor for _, tensor in graph.seen])
    sizes = {}
    for (name, _), *both in zip(graph.seen, see(one), see(other), strict=True):
        a, b = (np.asarray(numbers, np.float64) for numbers in both)
        change = np.max(np.abs(a - b) / np.maximum(1, np.maximum(np.abs(a), np.abs(b))), initial=0)
        if change:
            sizes[name, a.shape] = float(change), float(np.sqrt(np.mean(np.square(a))))
    return sizes
