"""A pickle may hold arrays and plain values; what it asks to run is not run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from train.data.sources.cifar_pickles import read_pickle
from train.errors import DataError

WHERE = Path("batch")


class Runs:
    """Reduces to a call."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_and_plain_values_come_back(protocol: int) -> None:
    value = {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [1, 2], "x": None}
    found = read_pickle(pickle.dumps(value, protocol), WHERE)
    assert isinstance(found, dict)
    assert np.array_equal(found.pop(b"data"), value.pop(b"data"))
    assert found == value


def test_batches_of_python_2_come_back() -> None:
    """Bytes of protocol 2 as NumPy under Python 2 wrote them: old module path, byte strings."""
    content = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
        b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01"
        b"\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x03\x01\x02\xff"
        b"tbU\x06labelsq\x08]q\x09K\x07au."
    )
    found = read_pickle(content, WHERE)
    assert isinstance(found, dict)
    assert found[b"data"].tolist() == [[1, 2, 255]]
    assert found[b"labels"] == [7]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("function", [os.system, eval, exec, open, getattr, os.mkdir])
def test_nothing_is_run(tmp_path: Path, function: object, protocol: int) -> None:
    mark = tmp_path / "ran"
    content = pickle.dumps({b"data": Runs(function, str(mark))}, protocol)
    with pytest.raises(DataError, match="which no array needs"):
        read_pickle(content, WHERE)
    assert not mark.exists()


def test_the_pickle_would_have_run(tmp_path: Path) -> None:
    """The attack of the test above is real."""
    mark = tmp_path / "ran"
    pickle.loads(pickle.dumps(Runs(os.mkdir, str(mark))))
    assert mark.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickle.dumps([1, 2, 3])[:-3], pickle.dumps(np.zeros(100))[:60]],
)
def test_damage_is_told(content: bytes) -> None:
    with pytest.raises(DataError, match="batch is refused"):
        read_pickle(content, WHERE)


def test_codec_is_not_the_files_choice() -> None:
    content = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R."
    with pytest.raises(DataError, match="text encoding 'zlib'"):
        read_pickle(content, WHERE)
