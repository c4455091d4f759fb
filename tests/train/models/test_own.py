"""Networks that are not ours run as they were built, or are refused in one sentence."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import builders
from train.config.networks import NetworkSource
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError

pytestmark = pytest.mark.tf
SHAPE, CLASSES = (8, 8, 3), 4
IMAGES = np.random.default_rng(0).integers(0, 256, (4, *SHAPE), dtype=np.uint8)
HEAD = "import tensorflow as tf\nfrom tensorflow.keras import layers as L\n"
#: Nested networks whose layers have equal names, a layer without a config that has layers inside,
#: batch norm in unusual forms, one that is called twice, one that is frozen.
NESTED = """
class Block(L.Layer):
    def __init__(self, filters):
        super().__init__()
        self.conv = L.Conv1D(filters, 3, padding="same")
        self.norm = L.BatchNormalization(scale=False)
    def call(self, x, training=None):
        x = self.norm(self.conv(x), training=training)
        if tf.reduce_max(x) > 9:
            x = x / 2
        return x

def part(rank):
    x = inputs = L.Input((8, 8, 5))
    penalty = tf.keras.regularizers.L2(0.5)
    x = L.SeparableConv2D(5, 3, padding="same", name="conv", pointwise_regularizer=penalty)(x)
    x = L.BatchNormalization(name="norm", momentum=0.3, epsilon=0.02, center=False)(x)
    return tf.keras.Model(inputs, x, name=f"part{rank}")

def build(input_shape, classes):
    x = inputs = L.Input(input_shape)
    x = L.Conv2D(5, 3, padding="same", name="conv")(x)
    shared = L.BatchNormalization(name="norm", axis=1)
    x = shared(L.ReLU()(shared(x)))
    x = L.BatchNormalization(name="frozen", trainable=False)(x)
    x = part(2)(part(1)(x))
    x = L.BatchNormalization(name="maps3d")(L.Reshape((2, 4, 8, 5))(x))
    x = Block(6)(L.Reshape((64, 5))(x))
    x = L.BatchNormalization(name="vectors")(L.Flatten()(x))
    return tf.keras.Model(inputs, L.Dense(classes)(x))
"""
RANDOM = """
def build(input_shape, classes):
    x = inputs = L.Input(input_shape)
    drop = L.Dropout(0.5)
    x = drop(L.Concatenate()([drop(x), x]))
    x = L.SpatialDropout2D(0.3)(L.Dropout(0.2, noise_shape=(None, 1, 1, 1))(x))
    x = L.GaussianNoise(0.1)(L.GaussianDropout(0.1)(L.AlphaDropout(0.1)(x)))
    x = L.RandomFlip()(x)
    x = L.Reshape((64, 6))(x)
    x = L.MultiHeadAttention(2, 3, dropout=0.2)(x, x)
    return tf.keras.Model(inputs, L.Dense(classes)(L.Flatten()(x)))
"""


def config_of(model: str, row: Any = None, **changes: Any) -> RunConfig:
    technique = builders.row(**(row or {}))
    return builders.config(model=model, technique=technique, **{"batch_per_rank": 4} | changes)


def own(
    folder: Path, body: str, row: Any = None, draws: Any = None, ranks: Any = None, **changes: Any
) -> Any:
    """A network of a file, as a rank makes it. draws: a StepSeed; ranks: a Ranks."""
    from train.distributed.communicator import ALONE
    from train.models.layers import StepSeed
    from train.models.networks import build_model

    file = folder / "copied.py"
    file.write_text(HEAD + body)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    config = config_of(f"net.py:build@{sha256}", row, **changes)
    return build_model(
        config, SHAPE, CLASSES, draws or StepSeed(7), None, folder, file, ranks or ALONE
    )


def plain(file: Path) -> Any:
    """What the file builds where nothing of this suite is."""
    spec = importlib.util.spec_from_file_location("plain", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build(SHAPE, CLASSES)


GHOSTS = {"normalisation": "ghost_batch_norm", "ghost_batch": 2}
SYNC = {"normalisation": "sync_batch_norm"}


def test_the_network_runs_as_built_and_plain_keras_loads_its_weights(tmp_path: Path) -> None:
    import tensorflow as tf

    from train.models.layers import user_network
    from train.tensorflow_internals import all_layers

    usual = own(tmp_path, NESTED, {"normalisation": "batch_norm"})
    assert usual.trainable_variables and sum(usual.losses) > 0.1, "a nested regulariser counts"
    for variable in usual.variables:
        variable.assign_add(tf.random.stateless_uniform(variable.shape, (1, 2)) / 4)
    reference = plain(tmp_path / "copied.py")
    user_network(usual).save_weights(tmp_path / "weights.h5")
    reference.load_weights(tmp_path / "weights.h5")
    expected = reference(IMAGES * np.float32(1 / 255)).numpy()
    for row, kind in ((GHOSTS, "Ghost"), (SYNC, "Sync"), ({}, "")):
        net = own(tmp_path, NESTED, row)
        assert [v.name for v in net.variables] == [v.name for v in usual.variables]
        net.set_weights(usual.get_weights())
        assert np.array_equal(net(IMAGES), expected)
        norms = {x.name: x for x in all_layers(net) if "BatchNorm" in type(x).__name__}
        kinds = {name: type(x).__name__ for name, x in norms.items()}
        assert kinds.pop("frozen") == "BatchNormalization"
        assert set(kinds.values()) == {f"{kind}BatchNormalization"} and len(kinds) == 4
        assert (norms["maps3d"].momentum, norms["maps3d"].epsilon) == (0.99, 1e-3)
        inner = next(x for x in all_layers(net) if x.name == "part2").get_layer("norm")
        assert (inner.momentum, inner.epsilon, inner.beta) == (0.3, 0.02, None)


@pytest.mark.parametrize("row", [{**GHOSTS, "ghost_batch": 4}, SYNC])
def test_one_ghost_and_one_rank_are_the_network_that_was_built(row: Any, tmp_path: Path) -> None:
    """Shared and frozen layers, maps in 3-D, sequences, other axes: outputs and averages, also
    those of :func:`reestimate_statistics`."""
    from train.trainer.batch_statistics import reestimate_statistics

    usual, changed = (own(tmp_path, NESTED, r) for r in ({"normalisation": "batch_norm"}, row))
    for _ in range(2):
        found, expected = changed(IMAGES, training=True), usual(IMAGES, training=True)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    once = NESTED.replace("shared(L.ReLU()(shared(x)))", "shared(x)").replace(
        "Block(6)", "L.ReLU()"
    )
    nets = [usual, changed]
    for again in ({"normalisation": "batch_norm"}, row):
        nets.append(own(tmp_path, once, {**again, "bn_statistics": "reestimated"}))
        reestimate_statistics(nets[-1], [IMAGES], 1)
    for one, other in (nets[:2], nets[2:]):
        for a, b in zip(one.variables, other.variables, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=a.name)
    averages = [v for v in nets[2].variables if "moving_mean" in v.name]
    frozen = [not v.numpy().any() for v in averages if "frozen" in v.name]
    assert frozen == [True] and len(averages) == 6


def test_all_draws_are_functions_of_seed_rank_and_step(tmp_path: Path) -> None:
    import tensorflow as tf

    from train.models.layers import StepSeed, graph

    ranks = [StepSeed(7), StepSeed(8)]
    nets = [own(tmp_path, RANDOM, draws=seed) for seed in ranks]

    def logits(rank: int, step: int) -> np.ndarray:
        ranks[rank].set_step(tf.constant(step))
        return graph(lambda images: nets[rank](images, training=True))(IMAGES).numpy()

    first = logits(0, 5)
    assert not np.array_equal(first, logits(0, 6))
    assert np.array_equal(first, logits(0, 5)), "as in a run that was resumed"
    assert not np.array_equal(first, logits(1, 5)), "another rank"
    assert np.array_equal(nets[0](IMAGES), nets[1](IMAGES))


def test_each_call_of_each_layer_draws_a_mask_of_its_own() -> None:
    import tensorflow as tf

    from train.models.layers import OwnNetwork, StepSeed, seed_random_layers

    L = tf.keras.layers
    inputs, drop = L.Input((64,)), L.Dropout(0.5)
    masked = [drop(inputs), drop(inputs), L.Dropout(0.5)(inputs)]
    net = tf.keras.Model(inputs, L.Concatenate()(masked))
    held = OwnNetwork(net, seed_random_layers(net, StepSeed(1)))
    both = [held(tf.ones((1, 64)), training=True).numpy() for _ in range(2)]
    assert np.array_equal(*both)
    assert len({mask.tobytes() for mask in np.split(both[0], 3, axis=1)}) == 3


SEEDED = """
tf.config.run_functions_eagerly(True)
tf.config.optimizer.set_jit("autoclustering")
tf.keras.backend.set_floatx("float64")
tf.config.experimental.enable_tensor_float_32_execution(False)
def build(input_shape, classes):
    tf.keras.utils.set_random_seed(1)
    kernel = tf.keras.initializers.HeNormal(seed=3)
    layers = [L.Conv2D(4, 3, kernel_initializer=kernel), L.Flatten(), L.Dense(classes)]
    tf.keras.backend.set_image_data_format("channels_first")
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return tf.keras.Sequential(layers)
"""


def test_weights_depend_on_the_seed_of_the_cell_alone(tmp_path: Path) -> None:
    """And neither what all code shares nor what is drawn afterwards depends on its code."""
    import tensorflow as tf

    from train.models.own import _SHARED

    before = [read() for read, _ in _SHARED]
    one, same, other = (own(tmp_path, SEEDED, seed=seed) for seed in (1, 1, 2))
    for kernel in (0, 2):
        assert np.array_equal(one.get_weights()[kernel], same.get_weights()[kernel])
        assert not np.array_equal(one.get_weights()[kernel], other.get_weights()[kernel])
    after = []
    for body in (SEEDED, NESTED):
        own(tmp_path, body)
        after.append((np.random.random(), float(tf.random.uniform([]))))
    assert after[0] == after[1]
    assert {v.dtype for v in one.variables} == {tf.float32}
    assert [read() for read, _ in _SHARED] == before


def test_mixed_precision_computes_in_half_and_keeps_the_rest(tmp_path: Path) -> None:
    from train.models.layers import user_network

    net = own(tmp_path, NESTED, {"precision": "mixed_float16", **GHOSTS})
    assert user_network(net).get_layer("conv").compute_dtype == "float16"
    assert net(IMAGES, training=True).dtype == "float32"
    assert {v.dtype.name for v in net.variables} == {"float32"}


#: Its inner convolution has the name and the shape of the outer one.
TRANSFER = """
def build(input_shape, classes):
    x = i = L.Input(input_shape)
    body = tf.keras.Model(i, L.Conv2D(3, 3, padding="same", name="conv")(x), name="body")
    x = j = L.Input(input_shape)
    x = L.Flatten()(body(L.Conv2D(3, 3, padding="same", name="conv")(x)))
    return tf.keras.Model(j, L.Dense(classes, name="head")(x))
"""


def stored(folder: Path, body: str, name: str = "base.h5", scale: float = 1) -> tuple[Any, str]:
    """What plain Keras saves of the network of ``body``, with other weights, and ``pretrained``."""
    import tensorflow as tf

    (folder / "plain.py").write_text(HEAD + body)
    tf.keras.backend.clear_session()
    base = plain(folder / "plain.py")
    for n, variable in enumerate(base.variables):
        value = scale * tf.random.stateless_uniform(variable.shape, (1, n))
        variable.assign(tf.cast(value, variable.dtype))
    base.save_weights(folder / "saved.h5")
    (folder / "saved.h5").rename(folder / name)
    return base, f"{name}@{hashlib.sha256((folder / name).read_bytes()).hexdigest()}"


def same(found: Any, expected: Any) -> list[bool]:
    pairs = zip(found.get_weights(), expected.get_weights(), strict=True)
    return [np.array_equal(a, b) for a, b in pairs]


@pytest.mark.parametrize("name", ["base.h5", "base.weights.h5"])
def test_weights_are_loaded_by_the_names_of_layers(name: str, tmp_path: Path, capsys: Any) -> None:
    """Whatever the name of the file, for which Keras would choose another format."""
    from train.models.layers import user_network

    base, file = stored(tmp_path, TRANSFER, name)
    net = own(tmp_path, TRANSFER, pretrained=file)
    assert all(same(user_network(net), base)), "each from its own place"
    assert "pretrained: 3 of 3 layers" in capsys.readouterr().out
    other = own(tmp_path, TRANSFER.replace("head", "new"), pretrained=file)
    assert same(user_network(other), base) == [True] * 4 + [False] * 2


def test_rank_0_alone_reads_weights_and_all_check_the_network_that_has_them(tmp_path: Path) -> None:
    from train.distributed.communicator import Ranks
    from train.models.layers import network_digest, user_network

    sent: list[Any] = []

    class First(Ranks):
        def made_by_first(self, make: Any) -> Any:
            sent.append(make())
            return sent[0]

        def arrays_of_first(self, arrays: Any) -> Any:
            sent.append(arrays)
            return arrays

    class Second(Ranks):
        def made_by_first(self, make: Any) -> Any:
            return sent[0]

        def arrays_of_first(self, arrays: Any) -> Any:
            return sent[1]

    body = flat("x = L.Normalization(name='range')(L.Rescaling(1)(x))",
                made="L.Dense(n, name='head')(x)")  # fmt: skip
    base, file = stored(tmp_path, body)
    first = own(tmp_path, body, ranks=First(0, 2), pretrained=file)
    (tmp_path / "base.h5").unlink()
    second = own(tmp_path, body, ranks=Second(1, 2), pretrained=file)
    assert all(same(user_network(second), base))
    assert np.array_equal(first(IMAGES), second(IMAGES)), "Normalization has copies of its weights"
    assert network_digest(first) == network_digest(second) != network_digest(own(tmp_path, body))


BLOCK = """
class Block(L.Layer):
    def __init__(self):
        super().__init__(name="block")
        self.convs = [L.Conv2D(3, 3, padding="same") for _ in range(2)]
        self.norms = [L.BatchNormalization() for _ in range(2)]
    def call(self, x, training=None):
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x), training=training)
        return x

def build(input_shape, classes):
    x = i = L.Input(input_shape)
    block = Block()
    inner = tf.keras.Sequential([L.BatchNormalization(), L.BatchNormalization()], name="inner")
    x = inner(block(x))
    pass
    return tf.keras.Model(i, L.Dense(classes, name="head")(L.Flatten()(x)))
"""


@pytest.mark.parametrize(
    ("frozen", "where"),
    [("block", "file"), ("block.convs[0]", "cell"), ("inner.layers[0]", "file")],
)
def test_weights_are_loaded_whatever_was_trainable(frozen: str, where: str, tmp_path: Path) -> None:
    """Keras stores trainable weights first and loads by position. Seen: gamma became a variance."""
    bodies = dict.fromkeys(("file", "cell"), BLOCK)
    bodies[where] = BLOCK.replace("pass", f"{frozen}.trainable = False")
    # layers without a name are numbered from another one on
    base, file = stored(tmp_path, bodies["file"].replace("block =", "L.Conv2D(1, 1); block ="))
    net = own(tmp_path, bodies["cell"], pretrained=file)
    assert np.array_equal(net(IMAGES), base(IMAGES * np.float32(1 / 255)))


def test_an_inner_network_is_loaded_from_a_file_of_its_own(tmp_path: Path) -> None:
    from train.models.layers import user_network

    inner = TRANSFER.replace('body(L.Conv2D(3, 3, padding="same", name="conv")(x))', "body(x)")
    base, file = stored(tmp_path, inner.replace("body(x)", "body.layers[-1](x)"))
    net = own(tmp_path, inner.replace("head", "new"), pretrained=file)
    assert same(user_network(net), base)[:2] == [True, True]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (SEEDED, r"base\.h5 does not fit \(conv, .*: not in the network; "),
        (TRANSFER.replace("3, 3,", "3, 1,"), r"cannot load .*base\.h5: .*conv/kernel:0.* Shape"),
        (TRANSFER.replace("Conv2D(3, 3,", "Conv2D(3, 3, use_bias=False,"),
         r"it has conv/kernel:0, conv/bias:0 for conv/kernel:0"),
        (TRANSFER.replace('name="body"', 'name="rump"'),
         r"base\.h5 does not fit \(body.*: not in the network"),
        (TRANSFER.replace("(x)))", "(tf.keras.Sequential([L.Conv2D(3, 1, name='conv')])(x))))"),
         r"\(conv: several layers"),
        (TRANSFER.replace("x = j = L.Input(input_shape)",
                          "j = L.Input(input_shape); x = L.Conv2D(3, 1, name='more')(j)"),
         r"\(more: not in the file\): .* behind"),
    ],
)  # fmt: skip
def test_weights_that_fit_in_part_are_refused(body: str, text: str, tmp_path: Path) -> None:
    _, file = stored(tmp_path, TRANSFER)
    with pytest.raises(ConfigError, match=text):
        own(tmp_path, body, pretrained=file)


def test_the_only_layer_of_a_file_that_fits_nothing_is_named(tmp_path: Path) -> None:
    body = flat(made="L.Dense(n, name='body')(x)")
    _, file = stored(tmp_path, body)
    with pytest.raises(ConfigError, match=r"body: not in the network; rump: not in the file"):
        own(tmp_path, body.replace("body", "rump"), pretrained=file)


def test_other_files_are_no_weights(tmp_path: Path) -> None:
    base, _ = stored(tmp_path, TRANSFER)
    with pytest.raises(ConfigError, match=r"base\.h5 has the sha256"):
        own(tmp_path, TRANSFER, pretrained=f"base.h5@{'0' * 64}")
    base.save_weights(tmp_path / "new.weights.h5")
    base.save(tmp_path / "new.keras")
    base.save_weights(tmp_path / "checkpoint")
    for name in ("new.weights.h5", "new.keras", "checkpoint.index"):
        sha256 = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        with pytest.raises(ConfigError, match=r"another format, .* not in \.weights\.h5"):
            own(tmp_path, TRANSFER, pretrained=f"{name}@{sha256}")


def test_published_weights_of_efficient_nets_are_refused(tmp_path: Path) -> None:
    """Keras leaves out a Rescaling of theirs where it has not loaded them itself. Weights of a run
    of one's own have no statistics of images."""
    efficient = "tf.keras.applications.EfficientNetB0(False, None, L.Input(s))"
    body = flat(f"x = {efficient}(L.Rescaling(255)(x))")
    (tmp_path / "plain.py").write_text(HEAD + body)
    base = plain(tmp_path / "plain.py")
    norm = base.get_layer("efficientnetb0").get_layer("normalization")

    def saved() -> str:
        base.save_weights(tmp_path / "base.h5")
        return f"base.h5@{hashlib.sha256((tmp_path / 'base.h5').read_bytes()).hexdigest()}"

    own(tmp_path, body, pretrained=saved())
    norm.adapt_variance.assign([0.05, 0.05, 0.05])
    with pytest.raises(ConfigError, match="efficientnetb0 were trained with a Rescaling"):
        own(tmp_path, body, pretrained=saved())


def test_networks_of_keras_get_the_range_that_they_expect() -> None:
    import tensorflow as tf

    from train.data.dataset import channel_statistics
    from train.models.own import _prepared

    row = builders.row()
    images = tf.constant(IMAGES)

    def seen(name: str, technique: Technique = row) -> np.ndarray:
        pixels = channel_statistics(IMAGES, np.arange(4))
        source = NetworkSource(name)
        return np.asarray(_prepared(source, images, technique, pixels))

    assert np.array_equal(seen("EfficientNetB0"), IMAGES)
    np.testing.assert_allclose(seen("MobileNetV2"), IMAGES / 127.5 - 1, atol=1e-6)
    bgr = IMAGES[..., ::-1] - np.array([103.939, 116.779, 123.68])
    np.testing.assert_allclose(seen("VGG16"), bgr, atol=1e-4)
    moved = seen("MobileNetV3Small", row.model_copy(update={"standardise": True}))
    np.testing.assert_allclose(moved.mean((0, 1, 2)), 127.5, atol=1e-3)
    np.testing.assert_allclose(moved.std((0, 1, 2)), 63.75, atol=1e-3)


def flat(
    line: str = "pass", given: str = "L.Input(s)", start: str = "i", made: str = "L.Dense(n)(x)"
) -> str:
    return (
        f"def build(s, n):\n    x = i = {given}\n    {line}\n    x = L.Flatten()(x)\n"
        f"    return tf.keras.Model({start}, {made})"
    )


MASKED = flat("x = L.BatchNormalization(name='bn')(L.Masking()(L.Reshape((64, 3))(x)))")
MUON = {"normalisation": "batch_norm", "optimizer": {"name": "muon"}}
AGAIN = {**GHOSTS, "bn_statistics": "reestimated"}


@pytest.mark.parametrize(
    ("body", "row", "text"),
    [
        ("build = 3", {}, "has no function build"),
        ("def build(s, n):\n    return n", {}, "expected a Keras model, found int"),
        ("class N(tf.keras.Model):\n    def call(self, x): return x\ndef build(s, n): return N()",
         {}, "a subclassed model"),
        ("class N(tf.keras.Model):\n    def train_step(self, data): ...\n"
         + flat().replace("tf.keras.Model", "N"), {}, "a train_step of its own"),
        (flat(start="[i, L.Input(s)]"), {}, "one tensor each"),
        (flat(made="{'a': L.Dense(n)(x)}"), {}, "one tensor each"),
        (flat(given="L.Input((9, 9, 3))"), {}, r"it takes \(None, 9"),
        (flat(given="L.Input(s, dtype='uint8')"), {}, "takes uint8: .* leave dtype out"),
        (flat("x = tf.keras.Sequential([L.Rescaling(1 / 127.5, -1, name='r')])(x)"), {},
         r"dense sees almost the same of all images, .* \[0, 1\]"),
        (flat("x = tf.keras.applications.EfficientNetB0(False, None, x)(x)"), {},
         "stem_conv sees .* Rescaling.255. in front"),
        (flat(given="L.Input(s, 4)"), {}, r"it takes \(4, 8"),
        (flat(made="L.Dense(n + 1)(x)"), {}, r"it returns \(None, 5\)"),
        (flat(made="x[:, :n]"), {}, "no weights"),
        (flat(made="L.Dense(n, dtype='float64')(x)"), {}, "float32, which"),
        (flat("x = L.Dense(4, dtype='bfloat16', trainable=False, name='half')(x)"), {},
         "float32, which half/kernel:0, half/bias:0 are not"),
        (flat("x = L.Dense(4, dtype='mixed_float16', name='half')(x)"), {},
         "half compute in 16 bits, with precision float32"),
        (flat("x = L.Dense(4, dtype='mixed_float16', name='half')(x)"),
         {"precision": "mixed_bfloat16"}, "half compute in 16 bits, with precision mixed_bfloat16"),
        (flat("x = L.Lambda(lambda x: tf.nn.fractional_max_pool(x, [1, 1.5, 1.5, 1])[0])(x)"), {},
         "FractionalMaxPool .* no checkpoint holds"),
        (flat("x = tf.ensure_shape(tf.numpy_function(abs, [x], x.dtype), x.shape)"), {},
         "PyFunc .* no checkpoint holds"),
        (flat("x = L.BatchNormalization(name='bn')(x, training=True)"), {},
         "evaluation changes bn/moving_mean"),
        (flat("x = L.Dropout(0.5, name='drop')(x, training=True)"), {},
         "evaluation draws at random in drop, "),
        (MASKED, GHOSTS, "bn get a mask"),
        (MASKED, SYNC, "bn get a mask"),
        (flat("x = L.BatchNormalization(synchronized=True)(x)"), {}, "synchronized=True"),
        (flat("x = L.SpectralNormalization(L.Conv2D(2, 3))(x)"), {},
         "training changes the kernels of spectral_normalization by other"),
        (flat("x = tf.compat.v1.keras.layers.BatchNormalization()(x)"), {}, "moving_mean.* means"),
        (flat(), GHOSTS, "does not have"),
        (flat(), {"normalisation": "batch_norm", "bn_statistics": "reestimated"},
         "bn_statistics as given needs"),
        (flat("x = L.BatchNormalization(trainable=False)(x)"), SYNC, "does not have"),
        (flat("x = L.BatchNormalization(axis=[1, 3])(x)"), GHOSTS, "over one axis"),
        (flat("x = L.TimeDistributed(L.BatchNormalization(name='bn'))(x)"), GHOSTS,
         "in bn a row is not an image"),
        (flat("b = L.BatchNormalization(name='bn'); x = b(b(x))"), AGAIN, "bn are not called once"),
        (flat("x = L.BatchNormalization()(L.Conv2DTranspose(2, 3)(x))"), MUON, "orthogonalises"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(body: str, row: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"net\.py\W.*{text}"):
        own(tmp_path, body, row)


@pytest.mark.parametrize(
    "before",
    ["L.GlobalAveragePooling2D()(x)", "L.GlobalAveragePooling2D(keepdims=True)(x)",
     "L.MaxPooling2D(8)(x)", "L.Reshape((192, 1, 1))(x)"],
)  # fmt: skip
def test_batches_of_one_number_per_channel_are_refused(before: str, tmp_path: Path) -> None:
    """What is normalised is then 0, whatever the image was."""
    axis = 1 if "Reshape" in before else -1
    body = flat(f"x = L.BatchNormalization(axis={axis}, name='bn')({before})")
    for row in ({}, SYNC):
        with pytest.raises(ConfigError, match=r"one number per channel for bn, .* of 2 or more"):
            own(tmp_path, body, row, batch_per_rank=1)
    own(tmp_path, body, SYNC, batch_per_rank=2)
    own(tmp_path, flat("x = L.BatchNormalization()(x)"), batch_per_rank=1)
    own(tmp_path, body.replace(f"({before})", f"({before}, training=False)"), batch_per_rank=1)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("1 / 0", r"net\.py, line 3: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(2)", "line 3: SystemExit: 2"),
        ("def build(:", "line 3: SyntaxError"),
        ("import neighbour", r"line 3: ModuleNotFoundError: .* \(a network is one file\)"),
        ("def build(s, n):\n    x = L.Input(s)\n    return x.nothing", "line 5: AttributeError"),
        (flat("x = L.Lambda(lambda x: x if tf.reduce_sum(x) > 0 else -x)(x)"), "line 5:"),
    ],
)
def test_an_error_of_its_code_has_the_line(body: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("")
    with pytest.raises(ConfigError, match=text):
        own(tmp_path, body)


def test_the_file_is_the_one_that_the_config_names(tmp_path: Path) -> None:
    from train.models.own import _load_builder

    source = NetworkSource("build", "net.py", "0" * 64)
    with pytest.raises(ConfigError, match=r"gone\.py is missing: .* --model-file"):
        _load_builder(source, tmp_path / "gone.py")
    (tmp_path / "other.py").write_text("")
    with pytest.raises(ConfigError, match=r"other\.py has the sha256 e3b0"):
        _load_builder(source, tmp_path / "other.py")


FINE_TUNED = """
def build(s, n):
    i = L.Input(s)
    parts = [L.Conv2D(5, 3, name="still"), L.BatchNormalization(), L.ReLU()]
    x = L.Flatten()(tf.keras.Sequential(parts)(i, training=False))
    return tf.keras.Model(i, L.Dense(n)(x))
"""


@pytest.mark.parametrize(
    ("row", "text"),
    [(GHOSTS, "changes nothing"), (SYNC, "changes nothing"), (MUON, r"fix_norm: false")],
)
def test_batch_norm_that_runs_as_in_evaluation_is_none(row: Any, text: str, tmp_path: Path) -> None:
    """Keras' own way to train the rest of a network that was trained before."""
    for body in (FINE_TUNED, FINE_TUNED.replace("training=False", "False")):
        with pytest.raises(ConfigError, match=text):
            optimized(own(tmp_path, body, row), row)
    own(tmp_path, FINE_TUNED, {"normalisation": "batch_norm"})


POSITIONS = """
class Position(L.Layer):
    def build(self, shape):
        self.weight = self.add_weight("position", (1, *shape[1:]), initializer="random_normal")
    def call(self, x):
        return x + self.weight

def build(s, n):
    i = L.Input(s)
    shared = L.Conv2D(5, 1, name="twice")
    x = L.BatchNormalization()(L.Conv2D(5, 3, name="normalised")(i))
    x = Position()(L.BatchNormalization()(shared(shared(x))))
    x = L.Multiply()([x, L.Conv2D(5, 1, activation="sigmoid", name="excite")(x)])
    x = L.BatchNormalization()(L.Conv2DTranspose(4, 3)(x))
    x = L.BatchNormalization()(L.DepthwiseConv2D(1)(L.Conv2D(4, 3, groups=2)(x)))
    x = L.BatchNormalization(trainable=False)(L.Conv2D(4, 3, name="frozen")(x))
    inner = tf.keras.Sequential([L.Conv2D(4, 1, name="inner"), L.BatchNormalization(), L.ReLU()])
    return tf.keras.Model(i, L.Dense(n)(L.Flatten()(inner(x))))
"""


def optimized(net: Any, row: Any) -> set[str]:
    """Layers whose kernels Muon orthogonalises."""
    from train.models.layers import user_network
    from train.models.normalisation import muon_kernels
    from train.step.optimizers.build import build_optimizer

    muon = config_of(f"net.py:build@{'0' * 64}", row).technique.optimizer
    kernels = muon_kernels(user_network(net), muon)
    optimizer = build_optimizer(muon, net.trainable_variables, kernels)
    chosen = [v.name for v in net.trainable_variables if optimizer._orthogonalises(v)]
    return {name.split("/")[0] for name in chosen}


def test_muon_orthogonalises_convolutions_whose_length_normalisation_takes_away(
    tmp_path: Path,
) -> None:
    rows = (
        (True, {"normalised", "inner"}),
        (False, {"normalised", "inner", "twice", "excite", "frozen"}),
    )
    for fix_norm, expected in rows:
        row = {**MUON, "optimizer": {"name": "muon", "fix_norm": fix_norm}}
        assert optimized(own(tmp_path, POSITIONS, row), row) == expected


@pytest.mark.parametrize("fix_norm", [True, False])
def test_muon_is_for_networks_of_matrices_too(fix_norm: bool, tmp_path: Path) -> None:
    """Seen: refused with the advice to say what the row already said."""
    row = {**MUON, "optimizer": {"name": "muon", "fix_norm": fix_norm, "dense": True}}
    body = flat("x = L.Dense(8, name='hidden')(x)", made="L.Dense(n, name='head')(x)")
    assert optimized(own(tmp_path, body, row), row) == {"hidden", "head"}
    fixed = flat("x = L.SeparableConv2D(4, 3)(x)", made="L.Conv1D(n, 6)(x[..., None])[:, 0]")
    with pytest.raises(ConfigError, match="nothing: ") as refused:
        optimized(own(tmp_path, fixed.replace("x = L.Flatten()(x)", "x = x[:, 0, :, 0]"), row), row)
    assert ("fix_norm" in str(refused.value)) == fix_norm and "dense" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["MobileNetV2", "EfficientNetB0", "ResNet50V2", "DenseNet121", "ConvNeXtTiny",
             "MobileNetV3Small"],
)  # fmt: skip
def test_networks_of_keras_are_theirs_to_the_bit(name: str, tmp_path: Path) -> None:
    import tensorflow as tf

    from train.models.layers import StepSeed, user_network
    from train.models.networks import build_model

    make = getattr(tf.keras.applications, name)
    prepare = importlib.import_module(make.__module__).preprocess_input
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    shape = {"input_shape": (32, 32, 3), "classes": CLASSES, "weights": None}
    reference = make(**shape, classifier_activation=None)
    norms = [x for x in reference.layers if isinstance(x, tf.keras.layers.BatchNormalization)]
    for row in (GHOSTS, SYNC) if norms else ({},):
        config = config_of(f"keras.applications.{name}", row, dataset="cifar10")
        net = build_model(config, (32, 32, 3), CLASSES, StepSeed(1))
        user_network(net).save_weights(tmp_path / "weights.h5")
        reference.load_weights(tmp_path / "weights.h5")
        assert np.array_equal(net(images), reference(prepare(images.astype(np.float32))))
