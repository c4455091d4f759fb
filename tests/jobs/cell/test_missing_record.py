"""Starts that left no record, as whoever finds them later settles them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.cell.missing_record import ATTEMPT_NAME, settle_lost
from tests.builders import config


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    attempt = {"number": 1, "started_at": "2026-01-01T00:00:00Z", "pid": 1}
    (tmp_path / "logs" / ATTEMPT_NAME).write_text(json.dumps(attempt))
    return tmp_path


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"number": 1, "started_at": "2026-01-01T00:00:00", "pid": 1}', "\ud800"],
)
def test_a_broken_attempt_file_is_no_attempt(begun: Path, text: str) -> None:
    (begun / "logs" / ATTEMPT_NAME).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert not settle_lost(begun, config())
    assert not (begun / "record.json").exists()


def test_a_start_is_settled_once_and_a_broken_record_stays_as_it_is(begun: Path) -> None:
    broken = '{"schema_version": 1, "status": "comple'
    (begun / "record.json").write_text(broken)
    assert not settle_lost(begun, config())
    assert (begun / "record.json").read_text() == broken
    (begun / "record.json").unlink()
    assert settle_lost(begun, config()) and not settle_lost(begun, config())
