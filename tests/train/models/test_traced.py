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
from train.environment import environment_of
from train.errors import ConfigError

pytestmark = pytest.mark.tf
FROM_255 = "sees almost the same of all images, as if they came in .0, 255."
LEVELS = "tf.range(8.)[None, :, None, None] * 30 * tf.ones_like(x)"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x = i / 255.", FROM_255),
        ("x = tf.keras.applications.resnet50.preprocess_input(x)", FROM_255),  # minus about 110
        (
            "x = L.Concatenate()([L.Dense(2)(x), L.Dense(2, name='small')(x / 255.)])",
            "small/Tensordot sees",
        ),
        ("x = L.RandomBrightness(0.1)(x)", "times as large in training, as if"),
    ],
)  # fmt: skip
def test_another_range_of_pixels_is_refused(line: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        own(tmp_path, flat(line))


def test_a_range_that_is_loaded_is_refused(tmp_path: Path) -> None:
    body = flat("x = L.Normalization(name='range')(x)", made="L.Dense(n, name='head')(x)")
    _, file = stored(tmp_path, body, scale=255.0)
    with pytest.raises(ConfigError, match=FROM_255):
        own(tmp_path, body, pretrained=file)


@pytest.mark.parametrize(
    "line",
    [
        "x = L.RandomBrightness(0.2, value_range=(0, 1))(x)",
        "x = L.RandomBrightness(0.2)(L.Rescaling(255)(x))",
        "x = L.Rescaling(1 / 127.5, -1)(L.Rescaling(255)(x))",
        "x = L.Normalization(mean=[0.485, 0.456, 0.406], variance=[0.05, 0.05, 0.05])(x)",
        "x = L.BatchNormalization(scale=False, center=False)(L.Dropout(0.9)(x))",
        f"x = tf.concat([x, {LEVELS}], -1)",  # positions of pixels
        "x = tf.concat([f(x, (1, 2)) for f in (tf.reduce_mean, tf.math.reduce_variance)], -1)",
    ],
)
def test_what_ordinary_networks_do_to_pixels_is_accepted(line: str, tmp_path: Path) -> None:
    own(tmp_path, flat(line))


@pytest.mark.parametrize("row", [GHOSTS, SYNC, {"normalisation": "batch_norm"}])
def test_a_first_batch_norm_over_little_contrast_is_accepted(row: Any, tmp_path: Path) -> None:
    """In training it sees the statistics of the images, too: 1/deviation can be large."""
    own(tmp_path, flat("x = L.BatchNormalization()(L.Reshape((64, 3))(x / 20))"), row)


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


@pytest.mark.parametrize(
    ("write", "text"),
    [
        ("self.kept[:4].assign(mean)", "evaluation changes .*state/"),
        (
            "tf.raw_ops.ResourceApplyGradientDescent("
            "var=self.kept.handle, alpha=1., delta=self.kept)",
            "evaluation changes .*state/",
        ),
        ("OUTSIDE.assign_add(tf.ones([8, 3]))", "Variable:0 are no weights"),
        (
            "tf.while_loop(lambda n: n < 2, lambda n: [n + tf.cast(OUTSIDE[:4].assign(mean)[0, 0], "
            "'int32') + 1], [0])",
            "StridedSliceAssign.* keep a state",
        ),
    ],
)
def test_a_state_that_a_forward_pass_writes_is_refused(
    write: str, text: str, tmp_path: Path
) -> None:
    """Whatever operation writes it, and whether or not the network knows of it."""
    with pytest.raises(ConfigError, match=text):
        own(tmp_path, STATE.format(write=write) + flat("x = State()(x)"))


def test_a_measure_that_keras_keeps_is_no_state(tmp_path: Path) -> None:
    body = flat(made="L.Dense(n)(x)").replace("return tf", "m = tf")
    own(tmp_path, f"{body}\n    m.add_metric(tf.reduce_mean(x), name='mean')\n    return m")


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


@pytest.mark.parametrize("layer", ["L.RNN(Cell())", "Mapped()", "Looped()", "Cached()"])
def test_a_draw_that_a_loop_repeats_is_refused(layer: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"drop draws in a loop or a tf\.function"):
        own(tmp_path, LOOPS + flat(f"x = {layer}(L.Reshape((64, 3))(x))"))


@pytest.mark.parametrize(
    "layer", ["L.RNN(Cell(), unroll=True)", "L.GRU(3, dropout=0.2)",
              "L.RNN(L.LSTMCell(3, dropout=0.2))", "L.TimeDistributed(L.Dropout(0.2))"],
)  # fmt: skip
def test_draws_of_their_own_or_one_on_purpose_are_accepted(layer: str, tmp_path: Path) -> None:
    own(tmp_path, LOOPS + flat(f"x = {layer}(L.Reshape((4, 48))(x)[..., :3])"))


CONSTANTS = """
import numpy as np
BASIS = {of}(np.random.default_rng().normal(size=(3, 64)), dtype=tf.float32)
class Basis(L.Layer):
    def call(self, x):
        return tf.sin(x @ BASIS)
"""


def test_a_constant_of_any_size_is_part_of_the_network(tmp_path: Path) -> None:
    """Seen: two ranks trained with other random features."""
    from train.models.layers import network_digest

    body = CONSTANTS.format(of="tf.constant") + flat("x = Basis()(x)")
    one, other, fixed, same = (
        own(tmp_path, body.replace("rng()", f"rng({seed})")) for seed in ("", "", 1, 1)
    )
    assert network_digest(one) != network_digest(other)
    assert network_digest(fixed) == network_digest(same)


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


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (CONSTANTS.format(of="tf.Variable") + flat("x = Basis()(x)"), "Variable:0 are no weights"),
        (HIDDEN + flat("x = Holder()(x)"), "holder/inner/kernel:0, holder/inner/bias:0 are no"),
    ],
)
def test_variables_that_the_network_does_not_have_are_refused(
    body: str, text: str, tmp_path: Path
) -> None:
    """They were not trained, and in no file of weights."""
    with pytest.raises(ConfigError, match=text):
        own(tmp_path, body)


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


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("Dropout(0.5, name='drop')", "drop act once"),
        ("BatchNormalization()", "AssignNewValue.* act once"),
    ],
)
def test_what_the_backward_pass_calls_again_is_refused(
    inner: str, text: str, tmp_path: Path
) -> None:
    """Seen: the gradient was that of another mask."""
    with pytest.raises(ConfigError, match=text):
        own(tmp_path, RECOMPUTED.format(inner=inner) + flat("x = Block()(x)"))
    own(
        tmp_path,
        RECOMPUTED.format(inner="ReLU()").replace(", training=True", "") + flat("x = Block()(x)"),
    )


@pytest.mark.parametrize(
    "made",
    [
        "L.Dense(n, activation='softmax')(x)",
        "tf.nn.sigmoid(L.Dense(n)(x)) * 1.0",
        "L.Average()([L.Dense(n, activation='softmax')(x) for _ in range(2)])",
        "tf.clip_by_value(L.Dense(n, activation='softmax')(x), 1e-7, 1)",
        "L.Dropout(0.1)(L.Dense(n, activation='softmax')(x))",
        "tf.exp(tf.nn.log_softmax(L.Dense(n)(x)))",
        "L.Lambda(tf.function(tf.nn.softmax))(L.Dense(n)(x))",
    ],
)
def test_probabilities_are_no_logits(made: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="from 0 to 1 whatever its weights"):
        own(tmp_path, flat(made=made))


@pytest.mark.parametrize(
    "made",
    [
        "L.Dense(n, kernel_initializer='zeros')(x)",
        "L.Dense(n, kernel_initializer='zeros', bias_initializer=tf.constant_initializer(0.5))(x)",
        "L.Dense(n, activation='relu')(L.Dense(9)(x))",
        "tf.nn.log_softmax(L.Dense(n)(x))",
    ],
)
def test_small_positive_logits_are_logits(made: str, tmp_path: Path) -> None:
    own(tmp_path, flat(made=made))


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
    ranks = SimpleNamespace(allgather=every)
    monkeypatch.setattr(checks, "needed_bytes", lambda *_: {"training": 0})
    data, parts = SimpleNamespace(fingerprint=""), SimpleNamespace(model=nets[0])
    config = config_of(f"net.py:build@{'0' * 64}")
    with pytest.raises(ConfigError, match="net is another network on rank 1"):
        checks.check_nodes(config, data, parts, None, ranks)
    nets[1] = own(tmp_path, flat("x = tf.nn.relu(L.Dense(2)(x))"))
    checks.check_nodes(config, data, parts, None, ranks)
