"""The IDX format of MNIST: a header that says type and dimensions, then the bytes."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np

from train.data.archive import read_unpacked
from train.data.arrays import Pixels
from train.data.download import Remote
from train.data.errors import DataError

_LIMIT = 1 << 28  # bytes; the largest of the known files has 47 MB
_UINT8 = 8  # the type's code


def read_idx(path: Path, ndim: int, published: Remote | None = None) -> Pixels:
    """An uint8 array of ``ndim`` dimensions from an IDX file that may be compressed.

    ``published``: what must be in it, however it is compressed.

    The format (LeCun): two zero bytes, type, number of dimensions, then each dimension as a
    big-endian 32-bit integer, then the data in C order.

    Raises:
        DataError: truncated, damaged, another type or number of dimensions, more or fewer bytes
            than the dimensions say, or other content than was published.
    """
    content = read_unpacked(path, _LIMIT)
    head = content[:4]
    if head != bytes([0, 0, _UINT8, ndim]):
        raise DataError(
            f"{path}: starts with {head.hex(' ') or 'nothing'}, expected 00 00 08 {ndim:02x}: an "
            f"IDX file of bytes in {ndim} dimensions. Get the file anew."
        )
    start = 4 + 4 * ndim
    shape = tuple(
        int(n) for n in np.frombuffer(content[4:start], ">u4", len(content[4:start]) // 4)
    )
    expected = start + math.prod(shape)
    if len(shape) != ndim or len(content) != expected:
        raise DataError(
            f"{path}: {len(content):,} bytes found, {expected:,} expected for dimensions "
            f"{list(shape)}: truncated or altered. Get the file anew."
        )
    found = hashlib.sha256(content).hexdigest()
    if published is not None and found != published.inner:
        raise DataError(
            f"{path} holds other data than were published: sha256 of the IDX data found {found}, "
            f"expected {published.inner}. It was left as it is; delete it or replace it by the "
            f"file from {published.urls[0]}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
