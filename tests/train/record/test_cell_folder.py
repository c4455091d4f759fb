"""The record of a start that could not write its own, from whatever it left on disk."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import BEGAN, config, epoch, record
from train.record.atomic import append_line
from train.record.cell_folder import (
    EPOCHS_NAME,
    START_NAME,
    TAIL_BYTES,
    TAIL_LINES,
    earlier_attempts,
    ended_record,
    rank_file,
    read_epochs,
    read_failures,
    tail_of,
)
from train.record.run import RECORD_NAME, RunError, RunRecord, null_paths, read_record, write_record

OF = config(epochs=5)
ERROR = RunError(what="killed", where="rank 1", what_to_do="look there")
ENDED = BEGAN + timedelta(seconds=30)


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def announce(cell: Path, **more: Any) -> RunRecord:
    """What rank 0 announces once the ranks have met."""
    whole = record(OF)
    told = {
        "attempt": 1,
        "world": whole.world.model_dump(mode="json"),
        "data": whole.data.model_dump(mode="json"),
        "provenance": whole.provenance.model_dump(mode="json"),
    }
    (cell / "logs" / START_NAME).write_text(json.dumps(told | more))
    return whole


def end(cell: Path, status: str = "failed", began: datetime = BEGAN) -> RunRecord:
    return ended_record(
        cell, OF, status, ERROR, started_at=began, ended_at=began + timedelta(seconds=30)
    )


def test_a_start_that_left_nothing_still_leaves_a_record(cell: Path) -> None:
    found = end(cell, "lost")
    assert found.status == "lost" and found.error == ERROR
    assert found.world is None and found.data is None and found.epochs == ()
    assert (found.started_at, found.ended_at) == (BEGAN, ENDED)
    assert set(found.missing) == set(null_paths(found))
    unknown = {path: why for path, why in found.missing.items() if path != "why_no_overlap"}
    assert all("ended as lost before this was known" in why for why in unknown.values())
    assert write_record(cell / RECORD_NAME, found)
    assert read_record(cell / RECORD_NAME) == found


def test_what_was_announced_and_measured_is_kept(cell: Path) -> None:
    whole = announce(cell)
    for number in (1, 2):
        append_line(cell / EPOCHS_NAME, epoch(number, OF).model_dump_json())
    found = end(cell)
    assert (found.world, found.data, found.provenance) == (
        whole.world, whole.data, whole.provenance,
    )  # fmt: skip
    assert [e.epoch for e in found.epochs] == [1, 2]
    assert found.steps is None and "steps" in found.missing


def test_a_null_that_was_known_to_be_null_keeps_its_own_reason(cell: Path) -> None:
    """No GPU there is no matter of when the run ended."""
    announce(cell, reasons={"provenance.gpu": "no GPU on this machine"})
    found = end(cell)
    assert found.missing["provenance.gpu"] == "no GPU on this machine"
    assert "before this was known" in found.missing["weights_sha256"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '{"world": 1}', '{"world": null, "data": null, "provenance": null}'],
)
def test_an_unreadable_announcement_is_none(cell: Path, text: str) -> None:
    (cell / "logs" / START_NAME).write_text(text)
    found = end(cell)
    assert found.world is None and "world" in found.missing


@pytest.mark.parametrize("reasons", [None, [], "x", {"provenance.gpu": None}])
def test_odd_reasons_do_not_cost_the_record(cell: Path, reasons: object) -> None:
    announce(cell, reasons=reasons)
    found = end(cell)
    assert set(found.missing) == set(null_paths(found)) and all(found.missing.values())


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


def test_nothing_after_a_broken_line_is_believed(cell: Path) -> None:
    lines = [epoch(1, OF).model_dump_json(), "{", epoch(3, OF).model_dump_json()]
    (cell / EPOCHS_NAME).write_text("\n".join(lines) + "\n")
    assert [e.epoch for e in read_epochs(cell)] == [1]


def test_no_epochs_file_and_one_that_is_no_text_are_no_epochs(cell: Path) -> None:
    assert read_epochs(cell) == ()
    (cell / EPOCHS_NAME).write_bytes(b"\xff\xfe\x00")
    assert read_epochs(cell) == ()


def test_attempts_accumulate_and_the_record_begins_with_the_first(cell: Path) -> None:
    write_record(cell / RECORD_NAME, end(cell, "timeout"))
    for number, attempt in ((1, 1), (2, 1), (3, 2)):
        append_line(cell / EPOCHS_NAME, epoch(number, OF, attempt=attempt).model_dump_json())
    later = BEGAN + timedelta(hours=1)
    second = end(cell, "preempted", later)
    assert [(a.number, a.status) for a in second.attempts] == [(1, "timeout"), (2, "preempted")]
    assert second.attempts[1].resumed_from_epoch == 2
    assert second.attempts[0].resumed_from_epoch == 0
    assert second.started_at == BEGAN and second.ended_at == later + timedelta(seconds=30)
    write_record(cell / RECORD_NAME, second)
    assert [a.number for a in end(cell).attempts] == [1, 2, 3]


def test_a_broken_earlier_record_counts_no_attempts(cell: Path) -> None:
    (cell / RECORD_NAME).write_text('{"schema_version": 1, "atte')
    assert earlier_attempts(cell) == ()
    assert [a.number for a in end(cell).attempts] == [1]


@given(
    accuracy=st.one_of(st.none(), st.floats(0, 1)), loss=st.one_of(st.none(), st.floats(0, 9)),
    status=st.sampled_from(["failed", "timeout", "preempted", "cancelled", "lost"]),
    announced=st.booleans(), count=st.integers(0, 3),
)  # fmt: skip
def test_every_null_is_explained(
    tmp_path_factory, accuracy, loss, status, announced, count
) -> None:
    cell = tmp_path_factory.mktemp("cell")
    (cell / "logs").mkdir()
    if announced:
        announce(cell)
    for number in range(1, count + 1):
        line = epoch(number, OF, validation_accuracy=accuracy, train_loss=loss)
        append_line(cell / EPOCHS_NAME, line.model_dump_json())
    found = end(cell, status)
    assert len(found.epochs) == count
    assert set(null_paths(found)) == set(found.missing)
    assert all(found.missing.values())


def failure(cell: Path, rank: int, second: int, *, consequence: bool = False) -> None:
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC).isoformat()
    error = RunError(what=f"rank {rank}", where="x", what_to_do="y", rank=rank)
    told = {"at": at, "consequence": consequence, "error": error.model_dump(mode="json")}
    rank_file(cell, rank, "error.json").write_text(json.dumps(told))


def test_failures_come_in_the_order_of_time(cell: Path) -> None:
    failure(cell, 0, 9, consequence=True)
    failure(cell, 1, 3)
    failure(cell, 10, 5)
    found = read_failures(cell)
    assert [f.error.rank for f in found] == [1, 10, 0]
    assert [f.consequence for f in found] == [False, False, True]


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "1", '{"at": "yesterday", "error": {}}'])
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
