"""Cancelling a sweep: few calls, whole arrays, and jobs that ended meanwhile are no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.slurm import cancel as module
from jobs.slurm.cancel import MAX_IDS, alive, cancel, cancel_argvs
from jobs.slurm.commands import Answer
from jobs.slurm.queue import parse

SAID = Path(__file__).parent / "transcripts" / "queue"


def queue(name: str):
    return {job.job: job for job in parse((SAID / f"{name}.out").read_text())}


def test_what_is_alive_by_array() -> None:
    assert alive(queue("array_throttled")) == {"38": 6}
    assert alive(queue("just_ended")) == {}
    assert alive(queue("completing_and_cancelled")) == {}
    assert alive(queue("whole_queue_with_odd_names")) == {
        "38": 2, "42": 1, "43": 1, "44": 1, "45": 1,
    }  # fmt: skip


def test_one_call_for_all_arrays() -> None:
    assert cancel_argvs(["10", "9", "9"], "x", 5) == [["scancel", "9", "10"]]
    calls = cancel_argvs([str(number) for number in range(MAX_IDS + 1)], None, 5)
    assert [len(argv) for argv in calls] == [MAX_IDS + 1, 2]


def test_by_name_where_no_id_is_known() -> None:
    assert cancel_argvs([], "horoscale-t-0", 5) == [["scancel", "--user=5", "--name=horoscale-t-0"]]
    assert cancel_argvs([], "a,b", 5) == [] and cancel_argvs([], None, 5) == []


DENIED = "scancel: error: Kill job error on job id 62: Access/permission denied\n"
#: Both written by hand: 22.05.8 was silent about jobs that were over.
OVER = "scancel: error: Kill job error on job id 7: Job/step already completing or completed\n"
GONE = "scancel: error: Kill job error on job id 7: Invalid job id specified\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(0, "", ""), 0),
        (Answer(1, "", OVER), 0),
        (Answer(1, "", GONE + OVER), 0),
        (Answer(210, "", DENIED), 210),  # said so by 22.05.8
        (Answer(210, "", OVER + DENIED), 210),
    ],
)
def test_only_true_refusals_are_told(monkeypatch, answer: Answer, code: int) -> None:
    monkeypatch.setattr(module, "ask", lambda argv, **_: answer)
    told = cancel(["7"], None)
    assert told.code == code and ("denied" in told.err) == bool(code)
