"""Notes of runs: which job runs which cells, also when the login shell died half-way."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from jobs.slurm.notes import (
    PREFLIGHT,
    ArrayNote,
    RunNote,
    adopt,
    comment_of,
    jobs_of,
    read_notes,
    write_note,
)
from jobs.slurm.queue import JobState

NAME = "horoscale-t-01234567"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def array(*units: tuple[str, ...], job_id: str | None = None) -> ArrayNote:
    return ArrayNote(job_id=job_id, units=units, nodes=1, ranks_per_node=2, minutes=10)


def note(*arrays: ArrayNote, run: str = "r1", at: datetime = AT, **changes) -> RunNote:
    values = {"run": run, "site": "practice", "job_name": NAME, "submitted_at": at}
    return RunNote(**values, arrays=arrays, **changes)


def queued(job: str, *, comment: str = "", name: str = NAME, after_s: int = 1) -> JobState:
    when = datetime.fromtimestamp(AT.timestamp() + after_s).isoformat()
    return JobState(job, "PENDING", "Priority", None, "0:00", "", name, None, when, comment, job)


def queue(*jobs: JobState) -> dict[str, JobState]:
    return {job.job: job for job in jobs}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    later = note(array(("c",)), run="r0", at=AT.replace(year=2027), preflight_job="3")
    write_note(tmp_path, later)
    write_note(tmp_path, note(array(("a",), ("b", "c"), job_id="7")))
    notes, broken = read_notes(tmp_path)
    assert broken == [] and [n.run for n in notes] == ["r1", "r0"]
    assert notes[1] == later


def test_no_notes_yet(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "nowhere") == ([], [])


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"run": 1}', b"\xff\xfe"])
def test_a_broken_note_is_named_and_the_others_are_read(tmp_path: Path, raw: bytes) -> None:
    file = write_note(tmp_path, note(array(("a",), job_id="7")))
    (file.parent / "r0.json").write_bytes(raw)
    notes, broken = read_notes(tmp_path)
    assert [n.run for n in notes] == ["r1"]
    assert len(broken) == 1 and str(file.parent / "r0.json") in broken[0]


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ValidationError):
        RunNote.model_validate({**note(array(("a",))).model_dump(), "extra": 1})
    with pytest.raises(ValidationError):
        array()


def test_jobs_of_arrays_and_of_a_single_unit() -> None:
    one = note(array(("a",), ("b", "c"), job_id="7"), array(("d",), job_id="8"), array(("e",)))
    assert jobs_of([one]) == {"7_0": ("a",), "7_1": ("b", "c"), "8": ("d",)}


def test_a_comment_makes_adoption_certain() -> None:
    """Even where ids are out of order and another job of the same name waits."""
    left = note(array(("a",), ("b",), job_id="7"), array(("c",)), array(("d",), ("e",)))
    found, doubts = adopt(left, queue(
        queued("12_1", comment=comment_of("r1", 2)), queued("13", comment=comment_of("r1", 1)),
        queued("14", comment=comment_of("r2", 1)),
        queued("15", comment=comment_of("r1", PREFLIGHT)),
    ))  # fmt: skip
    assert [a.job_id for a in found.arrays] == ["7", "13", "12"] and doubts == []
    assert found.preflight_job == "15"


def test_without_comments_the_only_job_that_fits_is_adopted() -> None:
    left = note(array(("a",), ("b",), job_id="7"), array(("c",), ("d",)))
    jobs = queue(queued("7_0"), queued("7_1"), queued("9_0"), queued("9_1"))
    found, doubts = adopt(left, jobs)
    assert [a.job_id for a in found.arrays] == ["7", "9"] and doubts == []


@pytest.mark.parametrize(
    "jobs",
    [
        [queued("9_0"), queued("10_0")],  # two: which one?
        [queued("9_0"), queued("9_2")],  # more elements than the array has
        [queued("9")],  # a plain job, and the array has two units
    ],
)
def test_what_cannot_be_told_is_left_alone_and_named(jobs: list[JobState]) -> None:
    left = note(array(("c",), ("d",)))
    found, doubts = adopt(left, queue(*jobs))
    assert found == left
    assert len(doubts) == len({j.array for j in jobs}) and "make cancel" in doubts[0]


@pytest.mark.parametrize(
    "job",
    [
        queued("9_0", name="horoscale-t-76543210"),
        queued("9_0", after_s=-3600),
        queued("6_0"),  # before the last one whose id is known
        queued("9_0", comment=comment_of("r0", 0)),
    ],
)
def test_jobs_that_are_none_of_this_run(job: JobState) -> None:
    left = note(array(("a",), ("b",), job_id="7"), array(("c",), ("d",)))
    assert adopt(left, queue(job)) == (left, [])


def test_what_another_note_knows_is_not_adopted() -> None:
    left = note(array(("c",), ("d",)))
    other = note(array(("c",), ("d",), job_id="9"), run="r0")
    assert adopt(left, queue(queued("9_0")), [other]) == (left, [])


def test_a_complete_note_stays_as_it_is() -> None:
    whole = note(array(("a",), job_id="7"))
    assert adopt(whole, queue(queued("8"))) == (whole, [])
