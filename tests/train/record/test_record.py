"""The output contract: honest nulls, strict reading, and good records that nothing replaces."""

from __future__ import annotations

import errno
import json

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from tests.builders import config, record
from tests.unreadable import Once, is_untouched, unreadable
from train.errors import READ_TRIES, NoRecord, Unreadable
from train.record.cell_folder import earlier_attempts
from train.record.measurements import ClassScore, LinkTraffic
from train.record.run import (
    RunError,
    RunRecord,
    read_record,
    write_record,
)

ERROR = RunError(what="loss is nan", where="epoch 1", what_to_do="lower the rate")


@pytest.mark.parametrize(
    ("part", "name", "number"),
    [
        (record().data, "classes", 0),
        (record().world, "nodes", 10**30),
        (LinkTraffic(host="a", interface="b", received_bytes=0, sent_bytes=0), "sent_bytes", 2**61),
        (ClassScore(name="cat", precision=None, recall=1, f1=1, support=9), "f1", 1.5),
    ],
)
def test_counts_and_shares_that_cannot_be_are_refused(part, name, number) -> None:
    """Sums of counts must fit into the 64 bits that tables give them."""
    with pytest.raises(ValidationError, match=name):
        type(part).model_validate(part.model_dump() | {name: number})


@pytest.mark.parametrize("kept", ["completed", "diverged"])
def test_a_good_record_is_replaced_only_when_told(tmp_path, kept) -> None:
    file = tmp_path / "record.json"
    good = record(status=kept, error=None if kept == "completed" else ERROR)
    write_record(file, good)
    failed = record(status="failed", error=ERROR)
    assert not write_record(file, failed) and read_record(file) == good
    assert write_record(file, failed, replace_good=True) and read_record(file) == failed


def test_a_failed_or_broken_record_is_replaced(tmp_path) -> None:
    file = tmp_path / "record.json"
    write_record(file, record(status="failed", error=ERROR))
    assert write_record(file, record())
    file.write_text(file.read_text()[:100])
    assert write_record(file, record())
    assert read_record(file).status == "completed"


def test_records_satisfy_their_exported_schema() -> None:
    validator = Draft202012Validator(RunRecord.model_json_schema())
    validator.validate(json.loads(record().model_dump_json()))
    broken = json.loads(record().model_dump_json())
    del broken["config"]
    assert list(validator.iter_errors(broken))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT])
def test_a_read_error_that_passes_is_not_noticed(tmp_path, monkeypatch, number) -> None:
    file = tmp_path / "record.json"
    write_record(file, record())
    Once(monkeypatch, "record.json", READ_TRIES - 1, number)
    assert read_record(file).status == "completed"


def test_a_read_error_that_stays_is_no_verdict_on_the_record(tmp_path) -> None:
    """A record that may be good is neither called broken nor replaced."""
    file = unreadable(tmp_path / "record.json")
    with pytest.raises(Unreadable, match=r"record\.json: cannot be read \(Input/output error\)"):
        read_record(file)
    for status in ("completed", "failed"):
        error = None if status == "completed" else ERROR
        with pytest.raises(Unreadable):
            write_record(file, record(status=status, error=error))
    with pytest.raises(Unreadable):
        earlier_attempts(tmp_path, config())  # else attempts would be counted from 1 again
    assert is_untouched(tmp_path, file)
    with pytest.raises(NoRecord):
        read_record(tmp_path / "absent" / "record.json")
