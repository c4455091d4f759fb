"""Read a pickle of plain values and NumPy arrays, and run nothing that it asks for.

A pickle is a program. This reader knows the four names that an array needs, each bound to a
function of ours or of NumPy's array constructor; any other name ends the reading.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from train.data.errors import DataError

_BROKEN = (
    pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, TypeError,
    ValueError, OverflowError, MemoryError,
)  # fmt: skip


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in an old protocol; the codec's name is not the file's choice."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text encoding {encoding!r}")
    return text.encode("latin-1")


_RECONSTRUCT: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]
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
