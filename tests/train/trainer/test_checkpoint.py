"""A checkpoint brings everything back bit for bit, or is refused: never something in between."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import config, epoch
from tests.unreadable import unreadable
from train.errors import Unreadable
from train.record.cell_folder import EPOCHS_NAME

pytestmark = pytest.mark.tf

PRINT = "f" * 64
NAMES = ("a/kernel", "a/bias", "b/kernel", "b/bias", "m")


def state(fill: float | None = None, names: tuple[str, ...] = NAMES) -> list[Any]:
    """Two layers of equal shapes and a number; random, or full of one number."""
    import tensorflow as tf

    rng = np.random.default_rng(5)
    shapes = [(3, 2), (2,), (3, 2), (2,), ()]
    values = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return [
        tf.Variable(value if fill is None else np.full_like(value, fill), name=name)
        for value, name in zip(values, names, strict=False)
    ]


def values(variables: list[Any]) -> list[Any]:
    return [variable.numpy().tolist() for variable in variables]


EPOCHS = [epoch(1, config()), epoch(2, config(), validation_loss=None)]


def progress() -> Any:
    from train.step.adascale import AdaScale
    from train.trainer.checkpoint import Origin, Progress

    return Progress(
        last=EPOCHS[1], last_rate=0.04, position=2.5, adascale=AdaScale(4, 8, 4, 3, 0.1, 0.3),
        skipped_in_a_row=3,
        alarms=("same",), oversubscribed=True, origin_from=1,
        origin=Origin(device="A", ranks=1, nodes=1, commit="c1", image=""),
    )  # fmt: skip


def saved(folder: Path, names: tuple[str, ...] = NAMES) -> Path:
    """A checkpoint of the state after the second epoch, whose line is not written yet."""
    from train.trainer.checkpoint import save

    (folder / EPOCHS_NAME).write_text(f"{EPOCHS[0].model_dump_json()}\n")
    save(folder / "checkpoint.npz", config(), PRINT, state(names=names), progress())
    return folder / "checkpoint.npz"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return saved(tmp_path)


def restore(file: Path, into: list[Any], of: Any = None, fingerprint: str = PRINT) -> Any:
    from train.trainer.checkpoint import restore

    return restore(file, of or config(), fingerprint, into)


def refused(file: Path, into: list[Any] | None = None, **given: Any) -> bool:
    """Whether it is, and nothing was loaded."""
    fresh = into or state(7)
    before = values(fresh)
    return restore(file, fresh, **given) is None and values(fresh) == before


def test_all_comes_back(file: Path) -> None:
    fresh = state(7)
    assert restore(file, fresh) == (progress(), EPOCHS)
    assert values(fresh) == values(state())
    assert {path.name for path in file.parent.iterdir()} == {file.name, EPOCHS_NAME}


def test_what_another_process_is_writing_stays(file: Path) -> None:
    """Before, a second process removed the temporary file of a live one."""
    (other := file.with_name(f".{file.name}.0123456789ab.tmp")).touch()
    saved(file.parent)
    assert other.exists()


def test_it_goes_with_the_epochs_before_it(file: Path) -> None:
    """They are in a file of their own, or many epochs would write each of them many times."""
    lines, first = file.parent / EPOCHS_NAME, EPOCHS[0].model_dump_json()
    later = [one.model_dump_json() for one in (*EPOCHS, epoch(3, config()))]
    lines.write_text("\n".join(later))  # the third broke off
    assert restore(file, state(7)) == (progress(), EPOCHS)
    for text in ("", first[:-9], EPOCHS[1].model_dump_json()):
        lines.write_text(text)
        assert refused(file), text
    unreadable(lines)
    with pytest.raises(Unreadable):
        restore(file, state())


def test_variables_of_equal_shape_that_change_places_get_their_own_values(file: Path) -> None:
    """Before, the place in the list decided, so a kernel got another one's."""
    fresh = state(7)
    swapped = [fresh[2], fresh[3], fresh[0], fresh[1], fresh[4]]
    assert restore(file, swapped)
    assert values(fresh) == values(state())


def test_equal_names_are_told_apart_by_their_order(tmp_path: Path) -> None:
    names = ("k", "b", "k", "b", "m")
    fresh = state(7, names)
    assert restore(saved(tmp_path, names), fresh) and values(fresh) == values(state())


@pytest.mark.parametrize(
    "given",
    [{"of": config(seed=1)}, {"of": config(gpus=2)}, {"fingerprint": "0" * 64}],
)
def test_another_config_or_data_set_is_refused(file: Path, given: dict[str, Any]) -> None:
    assert refused(file, **given)


def test_other_variables_are_refused(file: Path) -> None:
    import tensorflow as tf

    own = state(7)
    assert refused(file, own[:-1]) and refused(file, [*own, tf.Variable(1.0, name="n")])
    assert refused(file, state(7, (*NAMES[:-1], "renamed")))
    assert refused(file, [*own[:-1], tf.Variable([1.0], name="m")]), "another shape"


def test_a_checkpoint_that_cannot_be_read_now_is_no_reason_to_begin_again(file: Path) -> None:
    """The first epoch of a run that began again would replace it."""
    unreadable(file)
    with pytest.raises(Unreadable, match="have its disk"):
        restore(file, state())


def test_a_damaged_file_loads_nothing_wrong(file: Path) -> None:
    """Cut anywhere: refused. With another byte: refused, or (a byte that carries nothing, like a
    time stamp) exactly what was saved."""
    content = bytearray(file.read_bytes())
    for cut in [0, 1, 10, len(content) - 1, *range(7, len(content), 197)]:
        file.write_bytes(content[:cut])
        assert refused(file), f"cut at {cut} of {len(content)}"
    rng = np.random.default_rng(0)
    count = 0
    for place in rng.choice(len(content), 200, replace=False):
        damaged = content.copy()
        damaged[place] ^= int(rng.integers(1, 256))
        file.write_bytes(damaged)
        fresh = state(7)
        if restore(file, fresh) is None:
            count += 1
            assert values(fresh) == values(state(7)), f"byte {place}: refused, yet loaded"
        else:
            assert values(fresh) == values(state()), f"byte {place}: loaded something else"
    assert count > 100


def test_a_history_of_another_version_of_the_code_is_refused(file: Path) -> None:
    with np.load(file) as stored:
        arrays = dict(stored)
    progress = json.loads(arrays["progress"].tobytes())
    del progress["last"]["train_s"]
    arrays["progress"] = np.frombuffer(json.dumps(progress).encode(), np.uint8)
    np.savez(file, **arrays)
    assert refused(file)


def test_a_pickle_in_the_file_is_never_loaded(file: Path) -> None:
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(file) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in (kept | {"m:0.npy": pickled.getvalue()}).items():
            archive.writestr(name, content)
    assert refused(file)
