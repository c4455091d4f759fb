"""Where cells stand, told from their folders alone, however these were left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobs.cell.missing_record import ATTEMPT_NAME
from jobs.cell.state import (
    BROKEN,
    FORCED,
    MAY_RUN,
    NEW,
    OTHERS,
    RUNNING,
    UNREADABLE,
    checked,
    lay_out,
    ready,
    recorded,
    stand,
)
from tests.builders import config, namesakes, record
from tests.unreadable import is_untouched, stale, unreadable
from train.config.run import RunConfig, load_config
from train.errors import ConfigError
from train.record.lock import hold
from train.record.run import GOOD, SweepManifest, read_record

ONE = config()
MANIFEST = SweepManifest(name="t", title="t", cells=(ONE.cell_id(),), techniques=("naive",))


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    lay_out([ONE], tmp_path, MANIFEST)
    return tmp_path / ONE.cell_id()


def put(cell: Path, status: str) -> None:
    (cell / "record.json").write_text(record(ONE, status=status).model_dump_json())


def begun(cell: Path, number: int = 1) -> None:
    (cell / "logs").mkdir(exist_ok=True)
    told = {"number": number, "started_at": "2026-01-01T00:00:00Z", "pid": 1}
    (cell / "logs" / ATTEMPT_NAME).write_text(json.dumps(told))


@pytest.mark.parametrize(
    "status", ["completed", "diverged", "failed", "timeout", "preempted", "cancelled", "lost"]
)
@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_is_done_and_what_is_gone_on_from(cell: Path, status: str, checkpoint: bool) -> None:
    assert stand(ONE, cell).status == NEW
    put(cell, status)
    if checkpoint:
        (cell / "checkpoint.npz").write_text("x")
    found = stand(ONE, cell)
    assert found.status == status
    assert found.done is (status in GOOD)
    assert found.resume is (checkpoint and not found.done)
    assert found.why == ("" if status == "completed" else "w")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": 2}', "\0", "é"])
def test_a_broken_record_is_named_and_left_alone(cell: Path, text: str) -> None:
    (cell / "record.json").write_bytes(text.encode("latin-1"))
    begun(cell)
    found = stand(ONE, cell)
    assert found.status == BROKEN and not found.done and not found.resume
    assert str(cell / "record.json") in found.why and "\n" not in found.why
    assert (cell / "record.json").read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize(
    ("before", "number", "attempts"),
    [
        ("", 1, ["lost"]),
        ("failed", 2, ["failed", "lost"]),
        # it was written; the supervisor was killed before it had tidied up
        ("failed", 1, ["failed"]),
        ("completed", 1, ["completed"]),
    ],
)
def test_a_killed_supervisors_start_is_lost_once_unless_it_has_its_record(
    cell: Path, before: str, number: int, attempts: list[str]
) -> None:
    if before:
        put(cell, before)
    begun(cell, number)
    (cell / "checkpoint.npz").write_text("x")
    for _ in range(2):
        found = stand(ONE, cell)
        lost = found.status == "lost"
        assert found.status == attempts[-1] and found.resume is not found.done
        assert ("without a record" in found.why) is lost
        assert [a.status for a in read_record(cell / "record.json").attempts] == attempts
        assert not (cell / "logs" / ATTEMPT_NAME).exists()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"number": 1, "started_at": "2026-01-01T00:00:00", "pid": 1}', "\ud800"]
)
def test_a_broken_attempt_file_is_no_attempt(cell: Path, text: str) -> None:
    (cell / "logs").mkdir()
    (cell / "logs" / ATTEMPT_NAME).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert stand(ONE, cell).status == NEW and not (cell / "record.json").exists()


def test_a_cell_that_runs_is_not_touched(cell: Path) -> None:
    begun(cell)
    with hold(cell):
        found = stand(ONE, cell)
        assert found.status == RUNNING
        assert f"process {os.getpid()} on {os.uname().nodename}" in found.why
        assert (cell / "logs" / ATTEMPT_NAME).exists()
    assert not (cell / "record.json").exists()


def test_lay_out_writes_what_is_missing_alone(cell: Path) -> None:
    file = cell / "config.json"
    assert load_config(file) == ONE
    assert SweepManifest.model_validate_json((cell.parent / "sweep.json").read_text()) == MANIFEST
    files = [file, cell.parent / "sweep.json"]
    before = [f.stat().st_mtime_ns for f in files]
    lay_out([ONE], cell.parent, MANIFEST)
    assert [f.stat().st_mtime_ns for f in files] == before


def other_versions(one: RunConfig) -> dict[str, str]:
    """The config as other versions write it: without a key, in another form, with another key."""
    keys = one.model_dump(mode="json")
    return {
        "older": one.model_dump_json(exclude_defaults=True),
        "compact": one.model_dump_json(),
        "newer": json.dumps({**keys, "colour": None}),
        "half": one.model_dump_json()[:100],
        "no text": "\udcff",
    }


@pytest.mark.parametrize("version", other_versions(ONE))
def test_a_config_that_is_there_is_replaced_only_before_its_cell_runs(
    cell: Path, version: str
) -> None:
    """Until then a job may read it with the code of its submission."""
    file, text = cell / "config.json", other_versions(ONE)[version]
    file.write_text(text, errors="surrogateescape")
    before = file.stat().st_ino, file.stat().st_mtime_ns
    reads = version in ("older", "compact")
    lay_out([ONE], cell.parent, MANIFEST)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == before
    with file.open(errors="surrogateescape") as reader, hold(cell):
        ready(ONE, cell, lambda: False)
        assert reader.read() == text, "a reader gets the old file or the new one, never a half"
    assert load_config(file) == ONE and (file.stat().st_ino == before[0]) == reads


def test_a_finished_cells_config_stays(cell: Path) -> None:
    put(cell, "completed")
    (cell / "config.json").write_text(other_versions(ONE)["newer"])
    with hold(cell):
        ready(ONE, cell, lambda: False)
    assert "colour" in (cell / "config.json").read_text()


def test_an_attempt_that_another_version_began_is_one(cell: Path) -> None:
    begun(cell)
    file = cell / "logs" / ATTEMPT_NAME
    file.write_text(json.dumps({**json.loads(file.read_text()), "colour": None}))
    assert recorded(ONE, cell).attempt is not None


def test_a_file_in_the_place_of_a_cell_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / ONE.cell_id()).write_text("x")
    with pytest.raises(ConfigError, match="is a file, expected the folder of a cell"):
        lay_out([ONE], tmp_path, MANIFEST)
    assert (tmp_path / ONE.cell_id()).read_text() == "x"


def test_the_record_of_a_namesake_is_an_error_that_only_force_passes(tmp_path: Path) -> None:
    """24 bits of a hash are equal now and then: the cell must not be skipped for it."""
    mine, other = namesakes()
    manifest = SweepManifest(name="t", title="t", cells=(mine.cell_id(),), techniques=("naive",))
    lay_out([other], tmp_path, manifest)
    cell = tmp_path / mine.cell_id()
    with pytest.raises(ConfigError, match=r"config\.json is of another config: found epochs 5446"):
        lay_out([mine], tmp_path, manifest)  # waiting or running, as yet without a record
    (cell / "record.json").write_text(record(other, epochs=()).model_dump_json())
    begun(cell)
    assert load_config(cell / "config.json") == other, "nothing is written on a refusal"
    lay_out([mine], tmp_path, manifest, force=True)
    with pytest.raises(ConfigError, match=r"record\.json is of another config: found epochs 5446"):
        checked([stand(mine, cell)])
    found = stand(mine, cell)
    assert found.status == OTHERS and not found.done and not found.resume
    assert checked([found], force=True)[0].status == FORCED
    assert read_record(cell / "record.json").config == other


ELSEWHERE = "job 77_0, process 7 on node9, boot 00000000-1111-2222-3333-444444444444, 0:45"


@pytest.mark.parametrize("at_work", [False, True])
def test_a_cell_that_may_run_on_another_machine_is_left_alone(cell: Path, at_work: bool) -> None:
    """Its lock can be got where locks end at the machine. Seen: `make sweep SITE=local` gave a
    live job's cell a record, and started a second run in its folder."""
    (cell / ".running").write_text(ELSEWHERE)
    if at_work:
        begun(cell)
    for _ in range(2):
        (found,) = checked([stand(ONE, cell)], force=True)
        assert found.status == MAY_RUN and found.left_alone and not found.to_run
        assert "job 77_0, process 7 on node9; " in found.why and "rm " in found.why
    assert not (cell / "record.json").exists() and (cell / ".running").read_text() == ELSEWHERE
    put(cell, "completed")
    assert stand(ONE, cell).done, "whoever signed it, it has its good record"


@pytest.mark.parametrize("calls", [("stat",), ("open",), ("stat", "open", "iterdir", "mkdir")])
def test_a_folder_that_cannot_be_used_is_left_alone(
    cell: Path, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...]
) -> None:
    """Also where only its checkpoint cannot be seen: a start without it would remove it."""
    put(cell, "timeout")
    stale(monkeypatch, cell, calls=calls)
    lay_out([ONE], cell.parent, MANIFEST)
    found = stand(ONE, cell)
    assert found.status == UNREADABLE and "Stale file handle" in found.why
    assert found.why.endswith("then make sweep again")


@pytest.mark.parametrize("name", [".running", "logs", "no room"])
def test_a_killed_start_that_cannot_be_settled_is_left_alone(
    cell: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    begun(cell)
    stale(monkeypatch, cell / name, calls=("open", "iterdir"))
    if name == "no room":
        monkeypatch.setattr("jobs.cell.missing_record.write_record", full)
    assert stand(ONE, cell).status == UNREADABLE
    assert (cell / "logs" / ATTEMPT_NAME).exists()


FILES = ("record.json", "config.json", f"logs/{ATTEMPT_NAME}")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("force", [False, True])
def test_a_cell_that_cannot_be_read_is_left_alone(cell: Path, name: str, force: bool) -> None:
    """Whatever the file holds: it is no proof that the cell is new, done, lost or another's."""
    if name != "record.json":
        (cell / "record.json").unlink(missing_ok=True)
    file = unreadable(cell / name)
    lay_out([ONE], cell.parent, MANIFEST, force=force)
    (found,) = checked([stand(ONE, cell)], force=force)
    assert found.status == UNREADABLE and not (found.done or found.to_run or found.resume)
    assert str(file) in found.why and "Input/output error" in found.why
    assert found.why.endswith("then make sweep again")
    assert is_untouched(cell, file)


@pytest.mark.parametrize("name", FILES)
def test_a_good_record_counts_whatever_else_cannot_be_read(cell: Path, name: str) -> None:
    put(cell, "completed")
    if name != "record.json":
        unreadable(cell / name)
        assert recorded(ONE, cell).done
