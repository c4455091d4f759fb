"""What the graph of a forward pass shows of a network that is not ours: its range of pixels, what
it draws and writes, whether ranks built the same one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.train.models.test_own import GHOSTS, SYNC, config_of, flat, own, stored
from train.errors import ConfigError
from train.program.environment import environment_of

pytestmark = pytest.mark.tf
FROM_255 = "sees almost the same of all images, as if they came in .0, 255."
LEVELS = "tf.range(8.)[None, :, None, None] * 30 * tf.ones_like(x)"


STATE = """
OUTSIDE = tf.Variable(tf.zeros([8, 3]))
class State(L.Layer):
    def build(self, shape):
        self.kept = self.add_weight("kept", (8, 3), trainable=False)
    def call(self, x):
        mean = tf.reduce_mean(x, (1, 2))
        {write}
        return x
"""
LOOPS = """
class Cell(L.Layer):
    state_size = 3
    def __init__(self):
        super().__init__()
        self.drop = L.Dropout(0.5, name="drop")
    def call(self, x, states, training=None):
        y = self.drop(x + states[0], training=training)
        return y, [y]

class Mapped(Cell):
    def call(self, x, training=None):
        return tf.map_fn(lambda one: self.drop(one, training=training), x)

class Looped(Cell):
    def call(self, x, training=None):
        for _ in tf.range(3):
            x = self.drop(x, training=training)
        return x

class Cached(Cell):
    @tf.function
    def once(self, x):
        return self.drop(x, training=True)
    def call(self, x, training=None):
        return self.once(self.once(x)) if training else x
"""
CONSTANTS = """
import numpy as np
BASIS = {of}(np.random.default_rng().normal(size=(3, 64)), dtype=tf.float32)
class Basis(L.Layer):
    def call(self, x):
        return tf.sin(x @ BASIS)
"""
HIDDEN = """
class Plain:
    def __init__(self):
        self.dense = L.Dense(8, name="inner")
class Holder(L.Layer):
    def __init__(self):
        super().__init__()
        self.plain = Plain()
    def call(self, x):
        return self.plain.dense(x)
"""
RECOMPUTED = """
class Block(L.Layer):
    def __init__(self):
        super().__init__()
        self.dense, self.inner = L.Dense(4), L.{inner}
    def call(self, x, training=None):
        if not training:
            return self.inner(self.dense(x))
        return tf.recompute_grad(lambda x: self.inner(self.dense(x), training=True))(x)
"""


def layers(bodies: str, line: str, **parts: str) -> str:
    """A network of the layers of ``bodies``, with ``parts`` filled in."""
    return (bodies.format(**parts) if parts else bodies) + flat(line)


REFUSED = [
    # another range of pixels
    (flat("x = i / 255."), FROM_255),
    (flat("x = tf.keras.applications.resnet50.preprocess_input(x)"), FROM_255),  # minus about 110
    (flat("x = L.Concatenate()([L.Dense(2)(x), L.Dense(2, name='small')(x / 255.)])"),
     "small/Tensordot sees"),
    (flat("x = L.RandomBrightness(0.1)(x)"), "times as large in training, as if"),
    # a state that a forward pass writes, by any operation, whether or not the network knows of it
    (layers(STATE, "x = State()(x)", write="self.kept[:4].assign(mean)"),
     "evaluation changes .*state/"),
    (layers(STATE, "x = State()(x)", write="tf.raw_ops.ResourceApplyGradientDescent("
            "var=self.kept.handle, alpha=1., delta=self.kept)"), "evaluation changes .*state/"),
    (layers(STATE, "x = State()(x)", write="OUTSIDE.assign_add(tf.ones([8, 3]))"),
     "Variable:0 are no weights"),
    (layers(STATE, "x = State()(x)", write="tf.while_loop(lambda n: n < 2, lambda n: [n + tf.cast("
            "OUTSIDE[:4].assign(mean)[0, 0], 'int32') + 1], [0])"),
     "StridedSliceAssign.* keep a state"),
    # a draw that a loop repeats
    *((layers(LOOPS, f"x = {layer}(L.Reshape((64, 3))(x))"), r"drop draws in a loop or a tf\.func")
      for layer in ("L.RNN(Cell())", "Mapped()", "Looped()", "Cached()")),
    # variables that the network does not have: they were not trained, and in no file of weights
    (layers(CONSTANTS, "x = Basis()(x)", of="tf.Variable"), "Variable:0 are no weights"),
    (layers(HIDDEN, "x = Holder()(x)"), "holder/inner/kernel:0, holder/inner/bias:0 are no"),
    # what the backward pass calls again. Seen: the gradient was that of another mask
    (layers(RECOMPUTED, "x = Block()(x)", inner="Dropout(0.5, name='drop')"), "drop act once"),
    (layers(RECOMPUTED, "x = Block()(x)", inner="BatchNormalization()"),
     "AssignNewValue.* act once"),
    # probabilities in place of logits
    *((flat(made=made), "from 0 to 1 whatever its weights") for made in (
        "L.Dense(n, activation='softmax')(x)",
        "tf.nn.sigmoid(L.Dense(n)(x)) * 1.0",
        "L.Average()([L.Dense(n, activation='softmax')(x) for _ in range(2)])",
        "tf.clip_by_value(L.Dense(n, activation='softmax')(x), 1e-7, 1)",
        "L.Dropout(0.1)(L.Dense(n, activation='softmax')(x))",
        "tf.exp(tf.nn.log_softmax(L.Dense(n)(x)))",
        "L.Lambda(tf.function(tf.nn.softmax))(L.Dense(n)(x))",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("body", "text"), REFUSED)
def test_what_would_be_measured_wrong_is_refused(body: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        own(tmp_path, body)


def test_a_range_that_is_loaded_is_refused(tmp_path: Path) -> None:
    body = flat("x = L.Normalization(name='range')(x)", made="L.Dense(n, name='head')(x)")
    _, file = stored(tmp_path, body, scale=255.0)
    with pytest.raises(ConfigError, match=FROM_255):
        own(tmp_path, body, pretrained=file)


ACCEPTED = [
    # what ordinary networks do to pixels
    flat("x = L.RandomBrightness(0.2, value_range=(0, 1))(x)"),
    flat("x = L.RandomBrightness(0.2)(L.Rescaling(255)(x))"),
    flat("x = L.Rescaling(1 / 127.5, -1)(L.Rescaling(255)(x))"),
    flat("x = L.Normalization(mean=[0.485, 0.456, 0.406], variance=[0.05, 0.05, 0.05])(x)"),
    flat("x = L.BatchNormalization(scale=False, center=False)(L.Dropout(0.9)(x))"),
    flat(f"x = tf.concat([x, {LEVELS}], -1)"),  # positions of pixels
    flat("x = tf.concat([f(x, (1, 2)) for f in (tf.reduce_mean, tf.math.reduce_variance)], -1)"),
    # what ordinary layers keep is no state, nor is a measure that Keras keeps
    flat("x = L.LSTM(4, dropout=0.2, recurrent_dropout=0.2)(L.Reshape((64, 3))(x)); "
         "tf.debugging.assert_all_finite(x, ''); p = L.Embedding(4, 4)(tf.range(4)); "
         "x = L.Dot(1)([x, tf.ones_like(x) @ p])"),
    flat().replace("return tf", "m = tf")
    + "\n    m.add_metric(tf.reduce_mean(x), name='mean')\n    return m",
    # draws of their own, or one on purpose
    *(layers(LOOPS, f"x = {layer}(L.Reshape((4, 48))(x)[..., :3])") for layer in (
        "L.RNN(Cell(), unroll=True)", "L.GRU(3, dropout=0.2)",
        "L.RNN(L.LSTMCell(3, dropout=0.2))", "L.TimeDistributed(L.Dropout(0.2))",
    )),
    layers(RECOMPUTED, "x = Block()(x)", inner="ReLU()").replace(", training=True", ""),
    # small positive logits
    flat(made="L.Dense(n, kernel_initializer='zeros')(x)"),
    flat(made="L.Dense(n, kernel_initializer='zeros', "
         "bias_initializer=tf.constant_initializer(0.5))(x)"),
    flat(made="L.Dense(n, activation='relu')(L.Dense(9)(x))"),
    flat(made="L.ReLU()(L.BatchNormalization(scale=False)(L.Dense(n)(x)))"),
    flat(made="tf.nn.log_softmax(L.Dense(n)(x))"),
]  # fmt: skip


@pytest.mark.parametrize("body", ACCEPTED)
def test_what_ordinary_networks_do_is_accepted(body: str, tmp_path: Path) -> None:
    own(tmp_path, body)


@pytest.mark.parametrize("row", [GHOSTS, SYNC, {"normalisation": "batch_norm"}])
def test_a_first_batch_norm_over_little_contrast_is_accepted(row: Any, tmp_path: Path) -> None:
    """In training it sees the statistics of the images, too: 1/deviation can be large."""
    own(tmp_path, flat("x = L.BatchNormalization()(L.Reshape((64, 3))(x / 20))"), row)


def test_a_constant_of_any_size_is_part_of_the_network(tmp_path: Path) -> None:
    """Seen: two ranks trained with other random features."""
    from train.models.layers import network_digest

    body = layers(CONSTANTS, "x = Basis()(x)", of="tf.constant")
    one, other, fixed, same = (
        own(tmp_path, body.replace("rng()", f"rng({seed})")) for seed in ("", "", 1, 1)
    )
    assert network_digest(one) != network_digest(other)
    assert network_digest(fixed) == network_digest(same)


BRANCHES = """
def build(s, n):
    i = L.Input(s)
    x = L.Concatenate()([L.Dense(2, activation=a)(i) for a in {"relu", "tanh", "swish", "selu"}])
    x = L.LSTM(2)(L.Reshape((16, -1))(L.Conv2D(4, 1, groups=2)(x)))
    return tf.keras.Model(i, L.Dense(n)(L.Dropout(0.5)(x)))
"""
#: Other code may have run before on a rank, which numbers functions, layers and tensors.
DIGEST = """
import sys
from pathlib import Path
import tensorflow as tf
from tests.train.models.test_own import own
from tests.train.models.test_traced import BRANCHES
from train.models.layers import user_network
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]) + 1)
for _ in range(int(sys.argv[1])):
    tf.random.uniform([]) + 1
    tf.function(lambda: tf.cond(tf.random.uniform([]) > 0, tf.zeros, tf.zeros))
    own(Path(sys.argv[2]), BRANCHES)
print(user_network(own(Path(sys.argv[2]), BRANCHES)).digest)
"""


def test_a_set_in_the_code_builds_one_network_on_all_ranks(tmp_path: Path) -> None:
    found = []
    for count in range(3):
        (folder := tmp_path / str(count)).mkdir()
        environment = environment_of("ranks", os.environ) | {"PYTHONPATH": str(Path.cwd())}
        code = [sys.executable, "-c", DIGEST, str(count), str(folder)]
        found.append(subprocess.check_output(code, env=environment, text=True))
    assert len(set(found)) == 1 and len(found[0]) == 65


def test_ranks_that_built_different_networks_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    """Their weights have equal names, shapes and values."""
    from train.models.layers import user_network
    from train.trainer import checks

    nets = [own(tmp_path, flat(f"x = tf.nn.{name}(L.Dense(2)(x))")) for name in ("relu", "tanh")]
    every = lambda mine: [(*mine[:-1], user_network(net).digest) for net in nets]  # noqa: E731
    runtime = SimpleNamespace(ranks=SimpleNamespace(allgather=every))
    monkeypatch.setattr(checks, "needed_bytes", lambda *_: {"training": 0})
    data, parts = SimpleNamespace(fingerprint=""), SimpleNamespace(model=nets[0])
    config = config_of(f"net.py:build@{'0' * 64}")
    with pytest.raises(ConfigError, match="net is another network on rank 1"):
        checks.check_nodes(config, data, parts, runtime)
    nets[1] = own(tmp_path, flat("x = tf.nn.relu(L.Dense(2)(x))"))
    checks.check_nodes(config, data, parts, runtime)
