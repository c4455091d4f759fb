"""Notes of runs: which job runs which cells, also when the login shell died half-way."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.messages import NoAnswer
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import (
    Array,
    RunNote,
    adopt,
    is_anothers,
    job_name,
    read_notes,
    submitted_cells,
    write_note,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def array(*cells: str, job_id: str | None = None) -> Array:
    return Array(job_id=job_id, cells=cells, nodes=1, ranks_per_node=2, minutes=10)


def note(*arrays: Array, run: str = "r1", at: datetime = AT, **changes) -> RunNote:
    values = {"run": run, "site": "practice", "job_name": "n", "submitted_at": at}
    return RunNote(**values, arrays=arrays, **changes)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "nowhere") == []
    later = note(array("c"), run="r0", at=AT.replace(year=2027), preflight_job="3")
    write_note(tmp_path, later)
    file = write_note(tmp_path, note(array("a", "b", job_id="7")))
    file.write_text(file.read_text().replace("{", '{"key": "of an earlier version", ', 1))
    text = file.read_text().replace('"cells": [', '"units": [["a"], ["b"]], "old": [')
    file.write_text(text)
    notes = read_notes(tmp_path)
    assert notes[0].arrays[0].cells == ("a", "b"), "an earlier version noted a list for each job"
    assert [n.run for n in notes] == ["r1", "r0"], "the oldest first"
    assert notes[1] == later.model_copy(update={"user": os.getuid()}), "whose file it is"


#: Of an earlier version, which ran several cells in a job.
SEVERAL = b"""{"run": "r0", "site": "s", "job_name": "n", "submitted_at": "2026-01-02T03:04:05Z",
"arrays": [{"units": [["a", "b"]], "nodes": 1, "ranks_per_node": 1, "minutes": 9}]}"""


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b'{"run": 1}', b"\xff\xfe", SEVERAL,
     *(SEVERAL.replace(b'[["a", "b"]]', units) for units in (b"5", b"[1]", b'"ab"', b"[]"))],
)  # fmt: skip
def test_without_a_note_that_cannot_be_read_nothing_is_known(tmp_path: Path, raw: bytes) -> None:
    file = write_note(tmp_path, note(array("a", job_id="7"))).with_name("r0.json")
    for name in ("r0.json", "r2.json"):
        file.with_name(name).write_bytes(raw)
    files = f"{file}, {file.with_name('r2.json')}"
    with pytest.raises(NoAnswer, match=f"^{files}: not a note of a submission"):
        read_notes(tmp_path)


def test_a_note_that_goes_away_meanwhile_is_none(tmp_path: Path) -> None:
    """Another sweep's sbatch was refused: listed, and not there any more when it is read."""
    noted = note(array("a", job_id="7"))
    file = write_note(tmp_path, noted)
    file.with_name("gone.json").symlink_to(tmp_path / "nowhere")
    assert read_notes(tmp_path) == [noted.model_copy(update={"user": os.getuid()})]


def test_a_folder_of_notes_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / ".slurm").write_text("no folder")
    with pytest.raises(OSError, match="Not a directory"):
        read_notes(tmp_path)


def test_each_cell_is_known_by_its_last_job(tmp_path: Path) -> None:
    earlier = note(array("a", "b", "c", job_id="7"), array("d", job_id="8"), array("e"))
    later = note(array("c", job_id="9"), run="r2")
    preflight = note(array("preflight", job_id="6"), kind="preflight")
    jobs = submitted_cells(tmp_path, [earlier, preflight, later])
    assert {cell: job.job for cell, job in jobs.items()} == {
        "a": "7_0", "b": "7_1", "c": "9", "d": "8",
    }  # fmt: skip
    assert jobs["b"].log == tmp_path / ".submitit" / "r1-0" / "7_1_0_log.out"
    assert jobs["b"].cell == "b" and jobs["d"].part == "1"


def test_names_of_jobs_tell_sweep_folders_apart(tmp_path: Path) -> None:
    (tmp_path / "smoke").mkdir()
    (tmp_path / "link").symlink_to("smoke")
    assert job_name("smoke", tmp_path / "smoke") == job_name("smoke", tmp_path / "link")
    assert job_name("smoke", tmp_path / "smoke") != job_name("smoke", tmp_path / "other" / "smoke")
    assert job_name("a", Path("/results/a")) == "horoscale-a-17554ef4"


LEFT = note(array("a", "b", job_id="7"), array("c"), array("d", "e"))
SCRIPT = "/mnt/x/t/.submitit/{}/submission.sh"


@pytest.mark.parametrize(
    ("left", "jobs", "ids"),
    [
        # ids are out of order, and other jobs of the user wait
        (LEFT, [("12_1", "horoscale:r1:2"), ("13", "horoscale:r1:1"), ("14", "horoscale:r2:1")],
         ["7", "13", "12"]),
        (LEFT, [("9", ""), ("14", "horoscale:r2:1")], ["7", None, None]),
        (note(array("preflight"), kind="preflight"), [("9", "horoscale:r1:preflight")], ["9"]),
        # where a site keeps comments for itself, the batch script tells
        (LEFT, [("10", "", SCRIPT.format("r2-1")), ("9_0", "", SCRIPT.format("r1-1"))],
         ["7", "9", None]),
    ],
)  # fmt: skip
def test_ids_that_nobody_wrote_down_are_found_in_the_queue(left, jobs, ids) -> None:
    queue = {
        job: JobState(job, "PENDING", "Priority", None, "0:00", "", "renamed", *told)
        for job, *told in jobs
    }
    assert [array.job_id for array in adopt(left, queue).arrays] == ids


@pytest.mark.parametrize(
    ("comment", "anothers"),
    [("horoscale:r0:0", True), ("horoscale:r1:0", False), ("a site's own words", False)],
)
def test_an_id_that_is_another_jobs_now(comment: str, anothers: bool) -> None:
    assert is_anothers(JobState("7_0", "PENDING", comment=comment), "r1", "0") == anothers
