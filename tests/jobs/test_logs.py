"""`make logs`: the cell that is meant, and its logs with the first cause first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs import logs
from jobs.logs import find_cell, show
from tests.builders import config, record
from train.errors import ConfigError

CELLS = (
    "digits-cnn-lamb-g2-s0-aaaaaa",
    "digits-cnn-lamb-g2-s1-bbbbbb",
    "fashion_mnist-cnn-sgd-g1-s0-cccccc",
    "mnist-cnn-sgd-g1-s2-dddddd",
)
ONE = config(gpus=2)


@pytest.mark.parametrize(
    ("asked", "cell"), [(CELLS[0], 0), ("bbb", 1), ("fashion", 2), ("mnist", 3), ("s2", 3)]
)
def test_a_part_that_only_one_has_or_begins_with(asked: str, cell: int) -> None:
    assert find_cell(asked, CELLS) == CELLS[cell]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("s0", f"CELL=s0 is part of 2 cells' names, .*: {CELLS[0]}, {CELLS[2]}$"),
        ("resnet", f"of 0 cells' names, expected a part of one: {CELLS[0]}"),
        ("", "CELL= is part of 2004 .*and 1992 more$"),
    ],
)
def test_what_is_not_clear_is_refused_with_candidates(asked: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_cell(asked, [*CELLS, *(f"c{number}" for number in range(2000))])


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / ONE.cell_id()
    (folder / "logs").mkdir(parents=True)
    for rank in range(3):
        (folder / "logs" / f"rank-{rank}.log").write_text(f"begin\nlast of {rank}\n")
    return folder


def failed(cell: Path, rank: int, at: str, *, consequence: bool) -> None:
    error = {"what": "w", "where": "x", "what_to_do": "y", "rank": rank}
    told = {"at": at, "consequence": consequence, "error": error}
    (cell / "logs" / f"rank-{rank}.error.json").write_text(json.dumps(told))


def test_a_cell_that_failed(cell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 only says that a peer is gone, earlier than rank 2 says why."""
    monkeypatch.setattr(logs, "MAX_LINES", 1)
    failed(cell, 0, "2026-01-02T03:04:05+00:00", consequence=True)
    failed(cell, 2, "2026-01-02T03:04:06+00:00", consequence=False)
    (cell / "record.json").write_text(record(ONE, status="failed").model_dump_json())
    log = tmp_path / "7_0_0_log.out"
    log.write_text("[supervisor] started\n")
    (cell / "logs" / "srun.log").write_text("srun: error: node2: task 2: Killed\n")
    (cell / "logs" / "rank-1.log").write_bytes(b"\xff\xfe" * 1_000_000 + b"\nlast of 1")
    assert list(show(cell, log)) == [
        f"folder: {cell}",
        "record: failed at 2026-01-02 03:04:15 UTC (attempt 1, 2/2 epochs)",
        "  what:  w", "  where: x", "  to do: y",
        f"supervisor: {log}", "  | [supervisor] started",
        f"srun: {cell}/logs/srun.log", "  | srun: error: node2: task 2: Killed",
        f"rank 2: {cell}/logs/rank-2.log", "  | last of 2",
        f"rank 0: {cell}/logs/rank-0.log", "  | last of 0",
        f"rank 1: {cell}/logs/rank-1.log", "  | last of 1",
    ]  # fmt: skip


def test_a_cell_that_waits(tmp_path: Path) -> None:
    folder = tmp_path / ONE.cell_id()
    folder.mkdir()
    text = "\n".join(show(folder, tmp_path / "7_0_0_log.out"))
    assert "record: none yet" in text and "its job has not begun" in text
    assert "ranks: none has written a log yet" in text
    (folder / "record.json").write_text("{")
    assert "not JSON" in "\n".join(show(folder, None))
