"""What the cache gives is what the records say now; in any doubt they are read anew."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from analysis.records import cache, load
from analysis.records.columns import FRAMES
from analysis.records.frames import Frames
from tests.analysis.many import many
from tests.analysis.samples import mixed_sweep, rich_sweep

FILE = Path("report", ".cache", "records.npz")


def settle(folder: Path, cell: str = "*") -> None:
    """As if its records were written an hour ago."""
    for file in folder.glob(f"{cell}/record.json"):
        stat = file.stat()
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns - 3600 * 10**9))


def assert_same(found: Frames, wanted: Frames) -> None:
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(found, name), getattr(wanted, name), obj=name)
    for name in ("folder", "name", "title", "techniques", "problems", "unplanned"):
        assert getattr(found, name) == getattr(wanted, name)


class Reading:
    """Which records are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cells: list[str] = []
        read = load.read_cells

        def watched(folder, cells):
            self.cells = list(cells)
            return read(folder, cells)

        monkeypatch.setattr(load, "read_cells", watched)

    def of(self, folder: Path) -> tuple[Frames, list[str]]:
        """With the cache; beside it, the records that were read."""
        self.cells = []
        found, read = load.load_frames(folder), self.cells
        assert_same(found, load.load_frames(folder, cache=False))
        return found, read


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    monkeypatch.setattr(cache, "WORTH_IT", 1)
    monkeypatch.setattr(cache, "_SETTLED_NS", 1800 * 10**9)  # more than a test may take
    return Reading(monkeypatch)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    folder = many(tmp_path / "s", 3, 2, epochs=3)
    settle(folder)
    return folder


@pytest.mark.parametrize("made", [mixed_sweep, rich_sweep])
def test_frames_come_out_of_the_cache_as_they_went_in(made, tmp_path, reading) -> None:
    folder = made(tmp_path / "s")
    settle(folder)
    found, cells = reading.of(folder)
    assert cells == list(found.planned["cell_id"])
    not_kept = [one.cell_id for one in found.problems if one.kind in ("missing", "unreadable")]
    assert reading.of(folder)[1] == not_kept


def test_only_what_changed_is_read_anew(sweep: Path, reading: Reading) -> None:
    _, cells = reading.of(sweep)
    changed = sweep / cells[3] / "record.json"
    changed.write_text(changed.read_text().replace('"interface": "lo"', '"interface": "eth0"'))
    settle(sweep, cells[3])
    # whose inode is another, while size and time are not
    other = sweep / cells[1] / "record.json"
    stat, text = other.stat(), other.read_text()
    other.rename(other.with_name("old"))
    other.write_text(text)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    found = load.load_frames(sweep)
    assert reading.cells == [cells[1], cells[3]]
    assert found.runs["interface"][3] == "eth0"


def test_a_cell_that_comes_or_goes(sweep: Path, reading: Reading) -> None:
    _, cells = reading.of(sweep)
    (sweep / cells[0] / "record.json").unlink()
    found, read = reading.of(sweep)
    assert read == [cells[0]] and found.problems[0].kind == "missing"
    manifest = json.loads((sweep / "sweep.json").read_text())
    manifest["cells"] = cells[:0:-1]
    (sweep / "sweep.json").write_text(json.dumps(manifest))
    found, read = reading.of(sweep)
    assert read == [] and list(found.runs["cell_id"]) == cells[:0:-1]
    assert found.unplanned == ()


def test_a_record_that_was_just_written_is_not_kept(sweep: Path, reading: Reading) -> None:
    """It may change again before the clock of its file system goes on."""
    _, cells = reading.of(sweep)
    file = sweep / cells[2] / "record.json"
    file.write_text(file.read_text())
    for _ in range(2):
        assert reading.of(sweep)[1] == [cells[2]]


EXPLODED: list[int] = []


def _explode() -> None:
    EXPLODED.append(1)


class _Bomb:
    def __reduce__(self):
        return _explode, ()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1000]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(pickle.dumps(_Bomb())),
        lambda file: file.write_bytes(
            file.read_bytes().replace(cache._version().encode(), b"0" * 64)
        ),
        lambda file: file.chmod(0o666),
    ],
    ids=["cut", "empty", "pickle", "version", "not private"],
)
def test_a_cache_in_doubt_is_not_used(spoil, sweep: Path, reading: Reading) -> None:
    _, cells = reading.of(sweep)
    spoil(sweep / FILE)
    assert reading.of(sweep)[1] == cells
    assert reading.of(sweep)[1] == []
    assert not EXPLODED, "something in the file was executed"


def test_the_cache_is_private_and_not_needed(sweep: Path, reading: Reading) -> None:
    _, cells = reading.of(sweep)
    assert (sweep / FILE).stat().st_mode & 0o777 == 0o600
    assert (sweep / FILE).parent.stat().st_mode & 0o777 == 0o700
    for file in (sweep / FILE).parent.iterdir():
        assert file.name == FILE.name, "nothing is left under a temporary name"
        file.unlink()
    (sweep / FILE).parent.rmdir()
    (sweep / FILE).parent.write_text("in its place")
    assert reading.of(sweep)[1] == cells
