"""CIFAR-10 as published for Python: six pickled batches, read without running them.

A pickle is a program. The reader here knows the four names that an array needs, each bound to a
function of ours or of NumPy's array constructor; any other name ends the reading.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from train.data.dataset import Dataset, Labels, Pixels, cut, make_dataset
from train.data.sources.archive import tar_files
from train.data.sources.download import Remote, verify
from train.errors import DataError

NAME = "CIFAR-10"
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: Bytes that an archive may unpack to; the published pickles have 178 MB.
LIMIT = 1 << 30
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE = 32
_BROKEN = (
    pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, TypeError,
    ValueError, OverflowError, MemoryError,
)  # fmt: skip
_RECONSTRUCT: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]


def from_folder(folder: Path) -> Dataset:
    """The six batches as files of ``folder``.

    Raises:
        DataError: a file is no batch.
    """
    return _decode(lambda name: (folder / name).read_bytes(), folder)


def from_archive(archive: Path, remote: Remote) -> Dataset:
    """The six batches in the publisher's archive.

    Raises:
        DataError: another checksum than published, or something in it is no batch.
    """
    verify(archive, remote)
    found = {path.name: content for path, content in tar_files(archive, LIMIT)}
    missing = [name for name in BATCHES if name not in found]
    if missing:
        raise DataError(f"{archive}: {', '.join(missing)} not found in it; get the file anew.")
    return _decode(found.__getitem__, archive)


def _decode(read: Callable[[str], bytes], where: Path) -> Dataset:
    parts = [_batch(read(name), where / name) for name in BATCHES]
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    return make_dataset(NAME, CLASSES, *cut(images, labels, len(labels) - len(parts[-1][1])))


def _batch(content: bytes, path: Path) -> tuple[Pixels, Labels]:
    """Rows of 3,072 bytes, one plane for each colour -> [n, 32, 32, 3]."""
    found = read_pickle(content, path)
    if isinstance(found, dict):
        data, labels = (found.get(key, found.get(key.decode())) for key in (b"data", b"labels"))
        if (
            isinstance(data, np.ndarray)
            and data.dtype == np.uint8
            and data.shape[1:] == (3 * _SIDE * _SIDE,)
            and isinstance(labels, list)
            and all(isinstance(label, int) and 0 <= label < len(CLASSES) for label in labels)
        ):
            planes = data.reshape(-1, 3, _SIDE, _SIDE)
            return planes.transpose(0, 2, 3, 1), np.array(labels, np.int64)
    raise DataError(
        f"{path} is no CIFAR-10 batch: expected 'data', uint8 [n, 3072], and 'labels', a list of "
        "integers 0..9. Get the file anew."
    )


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in an old protocol; the codec's name is not the file's choice."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text encoding {encoding!r}")
    return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], Any] = {
    # NumPy renamed the module in 2.0; old files carry the old name
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module_name}.{global_name}, which no array needs"
            ) from None


def read_pickle(content: bytes, path: Path) -> object:
    """The value in ``content``; text of Python 2 comes as bytes.

    Raises:
        DataError: ``path`` holds no pickle, a truncated one, or one that asks for anything but
            plain values and arrays.
    """
    try:
        return _Reader(io.BytesIO(content), encoding="bytes").load()
    except _BROKEN as error:
        raise DataError(
            f"{path} is refused: {error}. Expected a pickle of plain values and NumPy arrays, as "
            "the publisher made it; get the file anew."
        ) from error
