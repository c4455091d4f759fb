"""What was read of records before: columns of numbers and texts, never anything that is executed.

One file of numpy arrays for a sweep, one after the other, private to the user. It is used where it
was written by this version of the program and, record by record, where inode, size and time of the
file are the same; in any doubt the records are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.records.gather import TABLES, Gathered, gather
from analysis.records.lists import LISTS
from train.errors import is_private
from train.record.run import RECORD_NAME

#: Fewer records than this are read as quickly as the cache is.
WORTH_IT = 200
#: A file that changed this short a time ago may change again without its time showing it.
_SETTLED_NS = 2 * 10**9
#: Named as that of earlier versions, an archive, which it replaces.
FILE = Path("report", ".cache", "records.npz")
_PROGRAM = Path(__file__).parents[2]
_READERS = ("analysis/records", "train/record", "train/config")
#: Of records that the file system may show otherwise without a change of the file.
_NOT_KEPT = ("missing", "unreadable")
_NUMBERS = {"int64": "int64", "Int64": "int64", "Float64": "float64", "boolean": "bool"}
_NULLABLE = {"Int64": pd.arrays.IntegerArray, "Float64": pd.arrays.FloatingArray,
             "boolean": pd.arrays.BooleanArray}  # fmt: skip
Array = np.ndarray[Any, Any]
Stamp = tuple[int, int, int]


class Known(NamedTuple):
    """What the cache has of a sweep: a cell's row in the tables."""

    places: dict[str, int]
    tables: Gathered


def stamps(folder: Path, cells: Sequence[str]) -> dict[str, Stamp]:
    """Inode, size and time in ns of each record; a cell without one is left out."""
    found = {}
    for cell in cells:
        with contextlib.suppress(OSError):
            stat = (folder / cell / RECORD_NAME).stat()
            found[cell] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


def load(folder: Path, now: Mapping[str, Stamp]) -> Known:
    """What is known of records that are still those of ``now``; nothing in any doubt."""
    # whatever the file holds, reading it must not keep a report from being made
    with contextlib.suppress(Exception), (folder / FILE).open("rb") as file:
        read = partial(np.load, file, allow_pickle=False)
        if is_private(file.fileno()) and _text(read()) == _version():
            return _current(read, now)
    return Known({}, gather([]))


def store(
    folder: Path, cells: Sequence[str], read_at: Mapping[str, Stamp], tables: Gathered
) -> None:
    """Keep the tables, a row of ``cells`` each, with the stamps that the records had before they
    were read. Where nothing can be written, nothing is kept."""
    settled = time.time_ns() - _SETTLED_NS
    stamped = [
        read_at[cell] if cell in read_at and read_at[cell][2] < settled else (-1, -1, -1)
        for cell in cells
    ]
    with contextlib.suppress(OSError):
        path = folder / FILE
        path.parent.parent.mkdir(exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".records.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                for values in _arrays(cells, stamped, tables):
                    np.save(out, values, allow_pickle=False)
                out.flush()
                os.fsync(out.fileno())
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)


def _arrays(cells: Sequence[str], stamped: Sequence[Stamp], tables: Gathered) -> Iterator[Array]:
    yield _bytes(_version())
    yield _bytes(json.dumps(cells))
    yield np.array(stamped, dtype=np.int64)
    for name, columns in TABLES.items():
        for column, dtype in columns.items():
            yield from _packed(tables[name][column], dtype)


def _current(read: Callable[[], Array], now: Mapping[str, Stamp]) -> Known:
    """Of the arrays of _arrays that follow the version, in their order."""
    names, stamped = json.loads(_text(read())), read().tolist()
    tables = {
        name: pd.DataFrame(
            {c: _unpacked(read, c, dtype) for c, dtype in columns.items()}, copy=False
        )
        for name, columns in TABLES.items()
    }
    size = len(tables["cells"])
    for name, table in tables.items():
        rows = table["cell"].to_numpy() if name != "cells" else np.zeros(0)
        if len(rows) and not 0 <= rows.min() <= rows.max() < size:
            raise ValueError(f"{name}: rows of no cell")
    kept = ~tables["cells"]["kind"].isin(_NOT_KEPT)
    entries = zip(names, stamped, kept, strict=True)
    places = {
        cell: place
        for place, (cell, stamp, fine) in enumerate(entries)
        if fine and now.get(cell) == tuple(stamp)
    }
    return Known(places, tables)


def _version() -> str:
    """Of all that decides what the tables hold."""
    digest = hashlib.sha256(_bytes(json.dumps(TABLES)).tobytes())
    for folder in _READERS:
        for file in sorted((_PROGRAM / folder).glob("*.py")):
            digest.update(file.read_bytes())
    packages = ("numpy", "pandas", "pydantic")
    digest.update(repr([importlib.metadata.version(name) for name in packages]).encode())
    return digest.hexdigest()


def _packed(column: pd.Series[Any], dtype: str) -> Iterator[Array]:
    """Of texts and lists their codes, -1 for null, and what these mean; of numbers which are null,
    and the others."""
    if dtype in ("string", "object"):
        codes, texts = pd.factorize(column.array if dtype == "string" else column.to_numpy())
        yield _small(codes)
        yield _bytes(json.dumps(list(texts)))
        return
    null = column.isna().to_numpy(dtype=np.bool_)
    known = column[~null].to_numpy(dtype=_NUMBERS[dtype])
    yield null
    yield known if dtype == "Float64" else _small(known)


def _unpacked(read: Callable[[], Array], name: str, dtype: str) -> Any:
    first = read()
    if dtype == "object":
        kept = [LISTS[name](tuple(e) if isinstance(e, list) else e for e in one)
                for one in json.loads(_text(read()))]  # fmt: skip
        return pd.Series([*kept, None], dtype=object).array.take(first)
    if dtype == "string":
        texts = pd.array([*json.loads(_text(read())), None], dtype="string")
        return texts.take(first)  # -1 is the last one, null
    values = np.zeros(len(first), dtype=_NUMBERS[dtype])
    values[~first] = read()
    return _NULLABLE[dtype](values, first) if dtype in _NULLABLE else values


def _small(values: Array) -> Array:
    """In the smallest type that holds them: most are counts below a hundred."""
    if not len(values):
        return values.astype(np.int8)
    low, high = values.min(), values.max()
    return values.astype(np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high)))


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8)


def _text(values: Array) -> str:
    return values.tobytes().decode("utf-8")
