"""What was read of records before: columns of numbers and texts, never anything that is executed.

One file of numpy arrays for a sweep, one after the other, private to the user. It is used where it
was written by this version of the program and, record by record, where inode, size and time of the
file are the same; in any doubt the records are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.records.gather import TABLES, Gathered, array_of, gather, of_cells
from analysis.table import Names
from train.errors import is_private
from train.record.atomic import write_atomically
from train.record.cell_folder import file_mark
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
Array = np.ndarray[Any, Any]
Stamp = tuple[int, int, int]
_NONE: Stamp = (-1, -1, -1)


def stamps(folder: Path, cells: Sequence[str]) -> dict[str, Stamp]:
    """The mark of each record's file; a cell without one is left out."""
    marks = {cell: file_mark(folder / cell / RECORD_NAME) for cell in cells}
    return {cell: mark for cell, mark in marks.items() if mark is not None}


def load(folder: Path, now: Mapping[str, Stamp]) -> Gathered:
    """Tables of the records that are still those of ``now``; of none in any doubt."""
    # whatever the file holds, reading it must not keep a report from being made
    with contextlib.suppress(Exception), (folder / FILE).open("rb") as file:
        read = partial(np.load, file, allow_pickle=False)
        if is_private(file.fileno()) and _text(read()) == _version():
            return _current(read, now)
    return gather([])


def store(folder: Path, read_at: Mapping[str, Stamp], tables: Gathered) -> None:
    """Keep the tables, with the stamps that the records had before they were read. Where nothing
    can be written, nothing is kept."""
    settled = time.time_ns() - _SETTLED_NS
    found = (read_at.get(cell, _NONE) for cell in tables["cells"]["cell_id"])
    out = io.BytesIO()
    for values in _arrays([one if one[2] < settled else _NONE for one in found], tables):
        np.save(out, values, allow_pickle=False)
    path = folder / FILE
    with contextlib.suppress(OSError):
        path.parent.parent.mkdir(exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(path, out.getvalue(), mode=0o600)


def _arrays(stamped: Sequence[Stamp], tables: Gathered) -> Iterator[Array]:
    yield _bytes(_version())
    yield np.array(stamped, dtype=np.int64)
    for name, columns in TABLES.items():
        for column, dtype in columns.items():
            yield from _packed(tables[name][column], dtype)


def _current(read: Callable[[], Array], now: Mapping[str, Stamp]) -> Gathered:
    """Of the arrays of _arrays that follow the version, in their order."""
    stamped = read().tolist()
    tables = {
        name: pd.DataFrame({c: _unpacked(read, dtype) for c, dtype in columns.items()}, copy=False)
        for name, columns in TABLES.items()
    }
    cells = tables["cells"]
    entries = zip(cells["cell_id"], stamped, ~cells["kind"].isin(_NOT_KEPT), strict=True)
    same = [cell for cell, stamp, fine in entries if fine and now.get(cell) == tuple(stamp)]
    return of_cells(same, [tables])


def _version() -> str:
    """Of all that decides what the tables hold."""
    digest = hashlib.sha256()
    for folder in _READERS:
        for file in sorted((_PROGRAM / folder).glob("*.py")):
            digest.update(file.read_bytes())
    packages = ("numpy", "pandas", "pydantic")
    digest.update(repr([importlib.metadata.version(name) for name in packages]).encode())
    return digest.hexdigest()


def _packed(column: pd.Series[Any], dtype: str) -> Iterator[Array]:
    """Of texts and lists their codes, -1 for null, and what these mean; of numbers floats."""
    if dtype in ("string", "object"):
        codes, texts = pd.factorize(column.array if dtype == "string" else column.to_numpy())
        yield codes
        yield _bytes(json.dumps(list(texts)))
    else:
        yield column.to_numpy(np.float64, na_value=np.nan)


def _unpacked(read: Callable[[], Array], dtype: str) -> Any:
    if dtype not in ("string", "object"):
        return array_of(read(), dtype)
    codes, values = read(), json.loads(_text(read()))
    kept = values if dtype == "string" else [Names(entries) for entries in values]
    return array_of([*kept, None], dtype).take(codes)  # -1 is the last one, null


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8)


def _text(values: Array) -> str:
    return values.tobytes().decode("utf-8")
