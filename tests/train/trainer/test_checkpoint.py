"""A checkpoint brings everything back bit for bit, or is refused: never something in between."""

from __future__ import annotations

import dataclasses
import errno
import gc
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import config, epoch
from tests.train.conftest import SMALL_DISK_BYTES
from tests.unreadable import unreadable
from train.config.optimizer import Adam, Lamb, Sgd
from train.config.technique import Technique
from train.errors import Unreadable

pytestmark = pytest.mark.tf

OPTIMIZERS = {
    "sgd": Sgd(),
    "sgd_momentum": Sgd(momentum=0.9),
    "adam": Adam(),
    "lamb": Lamb(weight_decay=0.01),
}
PRINT = "f" * 64
CLASSES, SHAPE = 3, (4, 4, 1)


def of(optimizer: Any = None, **changes: Any):
    technique = Technique(name="t", base_lr=0.01, base_batch=8, optimizer=optimizer or Adam())
    return config(technique=technique, **changes)


@dataclasses.dataclass
class Training:
    """A small network with batch norm under the real step."""

    step: Any
    state: list[Any]

    def advance(self, first: int, last: int) -> None:
        for number in range(first, last):
            rng = np.random.default_rng([4, number])
            images = rng.integers(0, 256, (8, *SHAPE), dtype=np.uint8)
            labels = rng.integers(0, CLASSES, 8)
            self.step([(images, labels)], 0.01 * (1 + number), number)

    def values(self) -> list[np.ndarray]:
        return [variable.numpy().copy() for variable in self.state]


def training(optimizer: Any = None, *, width: int = 6, init: int = 0) -> Training:
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.optimizers import build_optimizer, optimizer_variables
    from train.step.train_step import TrainStep

    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(init)
    inputs = tf.keras.Input(SHAPE, dtype="uint8")
    x = layers.Flatten()(layers.Rescaling(1 / 255)(inputs))
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(layers.Dense(width)(x)))
    model = tf.keras.Model(inputs, layers.Dense(CLASSES)(x))
    optimizer = optimizer or Adam()
    made = build_optimizer(optimizer, model.trainable_variables)
    step = TrainStep(model, made, of(optimizer).technique, StepSeed(1), size=1)
    return Training(step, [*model.variables, *optimizer_variables(made)])


def equal(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def progress(last_rate: float | None = 0.04):
    from train.trainer.checkpoint import Progress

    done = (epoch(1, of()), epoch(2, of(), validation_loss=None))
    return Progress(
        epochs=done, last_rate=last_rate, position=2.5, adascale=(0.5,), skipped_in_a_row=3,
        alarms=("same",), image="ab12", oversubscribed=True,
    )  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.npz"


def saved(file: Path, **changes: Any) -> Training:
    """A checkpoint of a run with Adam."""
    from train.trainer.checkpoint import save

    run = training()
    run.advance(0, 2)
    save(file, of(**changes), PRINT, run.state, progress())
    return run


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_run_goes_on_as_if_never_interrupted(file: Path, name: str) -> None:
    """Weights, batch-norm statistics and slots; with momentum correction under a rising rate."""
    from train.trainer.checkpoint import restore, save

    optimizer = OPTIMIZERS[name]
    straight = training(optimizer)
    straight.advance(0, 4)
    save(file, of(optimizer), PRINT, straight.state, progress(last_rate=0.01 * 4))
    at_save = straight.values()
    straight.advance(4, 8)

    resumed = training(optimizer, init=1)  # other weights: all must come from the file
    assert not equal(resumed.values(), at_save)
    found = restore(file, of(optimizer), PRINT, resumed.state)
    assert found == progress(0.04)
    assert equal(resumed.values(), at_save)
    resumed.step.last_rate = found.last_rate
    resumed.advance(4, 8)
    assert equal(resumed.values(), straight.values())
    assert not list(file.parent.glob(".*")), "no temporary file is left"


def test_a_run_none_of_whose_steps_was_applied_is_kept_too(file: Path) -> None:
    from train.trainer.checkpoint import restore, save

    run = training()
    save(file, of(), PRINT, run.state, progress(last_rate=None))
    assert restore(file, of(), PRINT, run.state) == progress(last_rate=None)


def test_the_optimizers_state_is_what_makes_it_exact(file: Path) -> None:
    """Had the slots not been in the file, the test above would see it."""
    from train.trainer.checkpoint import restore

    straight = saved(file)
    resumed = training()
    restore(file, of(), PRINT, resumed.state)
    for variable in resumed.step.optimizer.variables():
        variable.assign(np.zeros_like(variable.numpy()))
    straight.advance(2, 3)
    resumed.advance(2, 3)
    assert not equal(resumed.values(), straight.values())


@pytest.mark.parametrize(
    ("changes", "fingerprint"),
    [({"seed": 1}, PRINT), ({"gpus": 2}, PRINT), ({"optimizer": Sgd()}, PRINT), ({}, "0" * 64)],
)
def test_another_config_or_data_set_is_refused(file: Path, changes, fingerprint) -> None:
    from train.trainer.checkpoint import restore

    saved(file)
    fresh = training(init=1)
    before = fresh.values()
    assert restore(file, of(**changes), fingerprint, fresh.state) is None
    assert equal(fresh.values(), before), "nothing was loaded"


def test_other_shapes_or_another_number_of_variables_are_refused(file: Path) -> None:
    from train.trainer.checkpoint import restore

    saved(file)
    wide = training(width=7)
    before = wide.values()
    assert restore(file, of(), PRINT, wide.state) is None
    assert equal(wide.values(), before)
    same = training()
    assert restore(file, of(), PRINT, same.state[:-1]) is None
    assert restore(file, of(), PRINT, [*same.state, same.state[-1]]) is None


def test_no_file_is_no_checkpoint(file: Path) -> None:
    from train.trainer.checkpoint import restore

    assert restore(file, of(), PRINT, training().state) is None


def test_a_checkpoint_that_cannot_be_read_now_is_no_reason_to_begin_anew(file: Path) -> None:
    """The first epoch of a run that began anew would replace it."""
    from train.trainer.checkpoint import restore

    unreadable(file)
    with pytest.raises(Unreadable, match="have its disk"):
        restore(file, of(), PRINT, training().state)


def test_a_file_cut_anywhere_is_refused_and_loads_nothing(file: Path) -> None:
    from train.trainer.checkpoint import restore

    saved(file)
    whole = file.read_bytes()
    fresh = training(init=1)
    before = fresh.values()
    cuts = [0, 1, 10, len(whole) // 2, len(whole) - 1, *range(7, len(whole), 97)]
    for cut in cuts:
        file.write_bytes(whole[:cut])
        assert restore(file, of(), PRINT, fresh.state) is None, f"cut at {cut} of {len(whole)}"
    assert equal(fresh.values(), before)


def test_a_damaged_byte_anywhere_loads_nothing_wrong(file: Path) -> None:
    """Refused, or (a byte that carries nothing, like a time stamp) exactly what was saved."""
    from train.trainer.checkpoint import restore

    right = saved(file).values()
    whole = bytearray(file.read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    fresh = training(init=1)
    before = fresh.values()
    for place in rng.choice(len(whole), 300, replace=False):
        damaged = whole.copy()
        damaged[place] ^= int(rng.integers(1, 256))
        file.write_bytes(damaged)
        if restore(file, of(), PRINT, fresh.state) is None:
            refused += 1
            assert equal(fresh.values(), before), f"byte {place}: refused, yet loaded"
        else:
            assert equal(fresh.values(), right), f"byte {place}: loaded something else"
            for variable, value in zip(fresh.state, before, strict=True):
                variable.assign(value)
    assert refused > 150


@pytest.mark.parametrize(
    "damage",
    [
        lambda meta: meta["epochs"][0].pop("train_s"),  # written by another version of the code
        lambda meta: meta.update(epochs=None),
        lambda meta: meta.pop("last_rate"),
        lambda meta: meta.update(last_rate="fast"),
        lambda meta: meta.pop("identity"),
    ],
)
def test_a_history_that_cannot_be_read_is_refused_and_loads_nothing(file: Path, damage) -> None:
    from train.trainer.checkpoint import restore

    saved(file)
    change_meta(file, damage)
    fresh = training(init=1)
    before = fresh.values()
    assert restore(file, of(), PRINT, fresh.state) is None
    assert equal(fresh.values(), before)


def change_meta(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with np.load(file) as stored:
        arrays = dict(stored)
    meta = json.loads(arrays["meta"].tobytes())
    change(meta)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(file, **arrays)


def test_a_checkpoint_from_before_alarms_were_kept_has_none(file: Path) -> None:
    from train.trainer.checkpoint import restore

    run = saved(file)
    change_meta(file, lambda meta: meta.pop("alarms"))
    assert restore(file, of(), PRINT, run.state) == progress().model_copy(update={"alarms": ()})


def test_a_pickle_in_the_file_is_never_loaded(file: Path) -> None:
    from train.trainer.checkpoint import restore

    saved(file)
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(file) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in (kept | {"v0.npy": pickled.getvalue()}).items():
            archive.writestr(name, content)
    assert restore(file, of(), PRINT, training().state) is None


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(small_disk: Path) -> None:
    """Nor a half-open archive, which would complain at some later time from its destructor."""
    import tensorflow as tf

    from train.trainer.checkpoint import restore, save

    file = small_disk / "checkpoint.npz"
    right = saved(file).values()
    large = tf.Variable(np.zeros(SMALL_DISK_BYTES // 4, np.float32))
    with pytest.raises(OSError) as full:
        save(file, of(), PRINT, [large], progress())
    assert full.value.errno == errno.ENOSPC
    full.value.__traceback__ = full.value.__context__ = None
    del full
    gc.collect()
    assert [path.name for path in small_disk.iterdir()] == ["checkpoint.npz"]
    again = training(init=1)
    assert restore(file, of(), PRINT, again.state) is not None
    assert equal(again.values(), right)


def test_what_a_killed_writer_left_is_cleared_away_by_the_next(file: Path) -> None:
    (file.parent / ".checkpoint.npz.4711.tmp").write_bytes(bytes(1000))
    saved(file)
    assert [path.name for path in file.parent.iterdir()] == ["checkpoint.npz"]
