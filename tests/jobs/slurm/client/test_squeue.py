"""What squeue said on a real Slurm (transcripts/queue/README.md says when), read."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.slurm.client import squeue as queue
from jobs.slurm.client.run import Answer, SlurmError
from jobs.slurm.client.squeue import (
    ENDED,
    FIELD,
    PENDING,
    RUNNING,
    START,
    JobState,
    parse,
    squeue_argv,
)

SAID = Path(__file__).parent.parent / "transcripts" / "queue"


def jobs(name: str) -> dict[str, JobState]:
    return {job.job: job for job in parse((SAID / f"{name}.out").read_text())}


def answered(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> list[list[str]]:
    """Let squeue answer so; returns what it was asked."""
    asked: list[list[str]] = []

    def ask(argv: list[str], **_: object) -> Answer:
        asked.append(argv)
        return answer

    monkeypatch.setattr(queue, "ask", ask)
    return asked


def test_an_array_of_which_two_may_run() -> None:
    found = jobs("array_throttled")
    assert sorted(found) == [f"38_{index}" for index in range(6)]
    running, waiting = found["38_1"], found["38_2"]
    assert running == JobState(
        job="38_1", state="RUNNING", reason="", start="2026-11-21T15:36:58", elapsed="0:01",
        nodes="n1", name="horoscale-smoke-89abcdef", comment="horoscale:r1:0",
    )  # fmt: skip
    assert waiting.waits and not waiting.ended and waiting.start is None
    assert (waiting.reason, waiting.nodes, waiting.array) == ("JobArrayTaskLimit", "", "38")


def test_jobs_that_just_ended_are_still_told() -> None:
    found = jobs("just_ended")
    assert all(job.ended for job in found.values()) and len(found) == 6
    assert [job for job, told in found.items() if told.state == "FAILED"] == ["38_1"]
    assert found["38_1"].reason == "NonZeroExitCode"


def test_a_cancelled_array_that_is_being_cleaned_up() -> None:
    found = jobs("completing_and_cancelled")
    assert {j for j, told in found.items() if not told.ended} == {"49_0", "49_1"}
    assert found["49_0"].state == "COMPLETING" and not found["49_0"].waits
    assert found["49_29"].state == "CANCELLED"


def test_elements_that_were_cancelled_one_by_one_before_they_started_are_gone_at_once() -> None:
    """So a job that is not in the queue may never have run, however young it is."""
    found = set(jobs("completing_and_cancelled"))
    assert {f"49_{index}" for index in range(30)} - found == {"49_7", "49_9", "49_13"}


def test_names_with_commas_bars_and_newlines() -> None:
    found = jobs("whole_queue_with_odd_names")
    assert found["42"].name == "dep, with|signs" and found["43"].name == "two\nlines"
    assert found["42"].reason == "DependencyNeverSatisfied"
    assert found["44"].start == "2026-11-21T17:36:59" and found["44"].waits
    assert found["14"].reason.startswith("Nodes required for job are DOWN, DRAINED or reserved")
    assert found["13"].reason == "ReqNodeNotAvail, UnavailableNodes:n2"


def test_one_call_for_all_jobs_of_one_user_whatever_their_names(monkeypatch) -> None:
    asked = answered(
        monkeypatch, Answer(0, (SAID / "whole_queue_with_odd_names.out").read_text(), "")
    )
    assert {"29", "42", "43"} <= set(queue.query(user=5)) and len(asked) == 1
    assert "--all" in asked[0] and "--states=all" in asked[0] and "--user=5" in asked[0]
    assert not any(token.startswith("--name") for token in asked[0])


def test_ids_that_the_controller_does_not_know_are_left_out(monkeypatch) -> None:
    """Of one unknown id squeue says so, of several it lists the others (22.05.8)."""
    asked = answered(monkeypatch, Answer(1, "", (SAID / "scontrol_unknown_job.err").read_text()))
    assert queue.query_ids(["99999"]) == {}
    assert "--jobs=99999" in asked[0]
    away = Answer(1, "", "slurm_load_jobs error: Unable to open job state file")  # by hand
    answered(monkeypatch, away)
    with pytest.raises(SlurmError, match="Unable to open"):
        queue.query_ids(["7"])


def test_two_sweeps_of_one_user_ask_once(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = answered(monkeypatch, Answer(0, (SAID / "just_ended.out").read_text(), ""))
    first = queue.shared_query()
    assert queue.shared_query(older_s=60) == first and len(asked) == 1
    assert queue.shared_query() == first and len(asked) == 2, "an answer of now was asked for"
    (file,) = (tmp_path / "horoscale").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text()[:-40])
    assert queue.shared_query(older_s=60) == first and len(asked) == 3, "half an answer is none"
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    queue.shared_query(older_s=60)
    assert len(asked) == 4, "another cluster's answer is none"


def test_a_home_without_room_is_no_trouble(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answered(monkeypatch, Answer(0, (SAID / "just_ended.out").read_text(), ""))

    def full(*_: object) -> int:
        raise OSError(122, "Disk quota exceeded")

    monkeypatch.setattr(queue.os, "pwrite", full)
    assert len(queue.shared_query(older_s=60)) == 6
    (tmp_path / "horoscale").rename(tmp_path / "aside")
    (tmp_path / "horoscale").write_text("no folder")
    assert len(queue.shared_query(older_s=60)) == 6


def test_an_empty_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, Answer(0, "", ""))
    assert queue.query(user=5) == {}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(0, "", "squeue: error: Invalid user: 4242\n"),  # said so by 22.05.8, with code 0
        Answer(1, "", "squeue: error: Invalid job state specified: all"),  # written by hand
    ],
)
def test_a_refused_question_is_not_an_empty_queue(monkeypatch, answer: Answer) -> None:
    answered(monkeypatch, answer)
    with pytest.raises(SlurmError, match="Invalid"):
        queue.query(user=4242)


def test_an_answer_in_another_format_is_no_answer() -> None:
    with pytest.raises(SlurmError, match=f"2 fields found, {len(queue._COLUMNS)} expected"):
        parse(f"{START}1{FIELD}2\n")


def test_a_line_that_names_the_cluster_is_no_job() -> None:
    """squeue prints it where SLURM_CLUSTERS is set; written by hand."""
    text = (SAID / "just_ended.out").read_text()
    assert parse(f"CLUSTER: big\n{text}") == parse(text)


def test_every_state_of_slurms_manual_is_in_one_table() -> None:
    """squeue(1) of 22.05, JOB STATE CODES; those that cannot be produced here are in it, too."""
    manual = """BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL
        OUT_OF_MEMORY PENDING PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED
        RESIZING REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT"""
    assert set(manual.split()) == PENDING | RUNNING | ENDED
    assert not PENDING & RUNNING and not ENDED & (PENDING | RUNNING)


def test_a_state_that_we_do_not_know_is_alive() -> None:
    fields = [
        "9",
        "9",
        "N/A",
        "EXPEDITING",
        "None",
        "N/A",
        "0:00",
        "",
        "(null)",
        "(null)",
        "x",
    ]
    (job,) = parse(START + FIELD.join(fields) + "\n")
    assert not job.ended and not job.waits and job.state == "EXPEDITING"


def test_the_format_uses_only_fields_of_old_slurm_too() -> None:
    assert squeue_argv(5)[-1] == "--format=" + START + FIELD.join(queue._COLUMNS)
    assert all(len(column) == 2 and column[0] == "%" for column in queue._COLUMNS)
