"""What a start leaves on disk, whole or torn."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import config, epoch
from train.record.atomic import append_line
from train.record.cell_folder import (
    EPOCHS_NAME,
    TAIL_BYTES,
    TAIL_LINES,
    RankFailure,
    rank_file,
    read_epochs,
    read_failures,
    read_last_epoch,
    tail_of,
)
from train.record.measurements import TrustRatios
from train.record.run import RunError

OF = config(epochs=5)


@settings(max_examples=30)
@given(cut=st.integers(0, 100_000), zeros=st.booleans())
def test_a_torn_last_line_is_left_out(tmp_path_factory, cut: int, zeros: bool) -> None:
    """Cut anywhere, as a kill does, or followed by zeros, as a power cut leaves a file."""
    cell = tmp_path_factory.mktemp("cell")
    epochs = [epoch(n + 1, OF) for n in range(3)]
    text = "".join(e.model_dump_json() + "\n" for e in epochs)
    cut %= len(text)
    (cell / EPOCHS_NAME).write_bytes(text[:cut].encode() + bytes(512 * zeros))
    found = read_epochs(cell)
    # a line that lacks nothing but its end is whole
    whole = text[:cut].count("\n") + (not zeros and text[cut] == "\n")
    assert list(found) == epochs[:whole]


def test_the_last_epoch_of_a_large_network_is_read(cell: Path) -> None:
    """A layer-wise optimizer writes a number for each of its variables."""
    trust = TrustRatios(
        median=1, smallest=1, largest=1, clipped_share=0, layers=(0.12345678901234567,) * 1000
    )
    for number in (1, 2):
        append_line(cell / EPOCHS_NAME, epoch(number, OF, trust=trust).model_dump_json())
    last = read_last_epoch(cell)
    assert last is not None and last.epoch == 2


def test_nothing_after_a_broken_line_is_believed(cell: Path) -> None:
    lines = [epoch(1, OF).model_dump_json(), "{", epoch(3, OF).model_dump_json()]
    (cell / EPOCHS_NAME).write_text("\n".join(lines) + "\n")
    assert [e.epoch for e in read_epochs(cell)] == [1]


def test_no_epochs_file_and_one_that_is_no_text_are_no_epochs(cell: Path) -> None:
    assert read_epochs(cell) == ()
    (cell / EPOCHS_NAME).write_bytes(b"\xff\xfe\x00")
    assert read_epochs(cell) == ()


def failure(cell: Path, rank: int, second: int, *, consequence: bool = False) -> None:
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    error = RunError(what=f"rank {rank}", where="x", what_to_do="y", rank=rank)
    left = RankFailure(at=at, consequence=consequence, error=error)
    rank_file(cell, rank, "error.json").write_text(left.model_dump_json())


def test_failures_come_in_the_order_of_time(cell: Path) -> None:
    failure(cell, 0, 9, consequence=True)
    failure(cell, 1, 3)
    failure(cell, 10, 5)
    found = read_failures(cell)
    assert [f.error.rank for f in found] == [1, 10, 0]
    assert [f.consequence for f in found] == [False, False, True]


@pytest.mark.parametrize("text", ["", '{"at": "yesterday", "error": {}}'])
def test_an_unreadable_failure_does_not_hide_the_others(cell: Path, text: str) -> None:
    failure(cell, 0, 1)
    rank_file(cell, 1, "error.json").write_text(text)
    assert [f.error.rank for f in read_failures(cell)] == [0]


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        out.truncate(3 * 2**30)  # sparse: it takes no room
        out.seek(0, os.SEEK_END)
        out.write(b"\n\xff broken\n" + b"\n".join(b"line %d" % n for n in range(30)))
    began = time.process_time()
    assert tail_of(log) == tuple(f"line {n}" for n in range(30 - TAIL_LINES, 30))
    assert time.process_time() - began < 1
    log.write_bytes(b"x" * 10 * TAIL_BYTES)
    assert [len(line) for line in tail_of(log)] == [TAIL_BYTES]
