"""How jobs stand that are asked about by their ids: what squeue and sacct print is put together.

Recorded answers are in transcripts/queue; the others are written by hand.
"""

from __future__ import annotations

import pytest

from jobs.slurm.client.run import Answer
from jobs.slurm.client.sacct import History, parse_sacct
from jobs.slurm.client.squeue import FIELD
from tests.jobs.slurm.client.clusters import SAID
from tests.jobs.slurm.fakes import FakeSlurm, squeue_text

COMMENT = "horoscale:r1:0"


def queue(*jobs: tuple[str, str]) -> Answer:
    """Id and state of jobs as squeue prints them."""
    return Answer(0, squeue_text(dict(jobs), nodes="n1", comment=COMMENT), "")


def accounts(*rows: tuple[str, ...]) -> Answer:
    """Id, state and exit code of jobs (reason, nodes) as sacct prints them."""
    text = "".join(FIELD.join([*row, "None", "n1"][:5]) + "\n" for row in rows)
    return Answer(0, text, "")


def test_the_controller_knows_exit_codes_where_no_accounts_are_kept(fake: FakeSlurm) -> None:
    """squeue prints a status of wait(2) before 23.02, and CODE:SIGNAL since."""
    jobs = {"3_0": (3, None), "3_1": (0, 53), "4": (127, None), "5": (0, 9), "6": (None, None)}
    fake.says("jobs", queue(*((job, "FAILED") for job in jobs)))
    lines = ("3                   0                   768", "3 1 53", "4 N/A 127:0", "5 N/A 0:9")
    fake.says("codes", Answer(0, "\n".join((*lines, "garbage")), ""))
    fake.put(
        "squeue", 'case "$*" in *--Format*) cat "$HERE/codes.out";; *) cat "$HERE/jobs.out";; esac'
    )
    found = History().endings(jobs)
    assert {job: (state.code, state.signal) for job, state in found.items()} == jobs
    assert fake.asked == ["squeue", "sacct", "squeue"]
    assert fake.calls()[-1][-3:] == [
        "--jobs=3,4,5,6", "--noheader", "--Format=ArrayJobID:20,ArrayTaskID:20,exit_code:20",
    ]  # fmt: skip


def test_without_the_database_the_controller_is_asked(fake: FakeSlurm) -> None:
    assert History().endings([]) == {} and fake.asked == [], "nothing asks nothing"
    words = (SAID / "sacct_database_down.err").read_text()
    fake.says("sacct", Answer(1, "", words))
    assert History().endings(["99999"]) == {}, "what nobody knows"
    fake.says("squeue", queue(("3_0", "TIMEOUT")))
    assert set(History().endings(["3_0", "99999"])) == {"3_0"}


def test_one_question_to_each_program_for_all_jobs(fake: FakeSlurm) -> None:
    """Also of elements that were cancelled before they started, which the queue forgets at once."""
    fake.says("sacct", Answer(0, (SAID / "sacct_ends.out").read_text(), ""))
    wanted = [*(f"63_{index}" for index in range(10)), "64", "65"]
    found = History().endings(wanted)
    assert set(found) == set(wanted) and fake.asked == ["squeue", "sacct"]
    assert fake.calls()[-1][-1] == "--jobs=63,64,65"
    assert (found["63_1"].state, found["63_1"].code, found["63_1"].nodes) == ("FAILED", 1, "n2")
    assert {found[f"63_{index}"].state for index in range(4, 10)} == {"CANCELLED"}
    assert (found["64"].signal, found["65"].state) == (9, "CANCELLED")


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("queued", "account", "state", "source"),
    [
        ("TIMEOUT", "RUNNING", "TIMEOUT", "squeue"),  # the accounts come late
        ("PENDING", "FAILED", "PENDING", "squeue"),  # requeued; the accounts know the start before
        ("RUNNING", "FAILED", "RUNNING", "squeue"),
        ("FAILED", "OUT_OF_MEMORY", "OUT_OF_MEMORY", "sacct"),
        ("", "RUNNING", "RUNNING", "sacct"),  # alive, but perhaps late: so it is told apart
        ("", "FAILED", "FAILED", "sacct"),
    ],
)
def test_the_controller_and_the_accounts(fake, listed, queued, account, state, source) -> None:
    """Whether a list, which is of a moment, says that the job ended, or lacks it."""
    if queued:
        fake.says("squeue", queue(("3_0", queued), ("3_1", "FAILED")))
    fake.says("sacct", accounts(("3_0", account, "1:0"), ("3_1", "FAILED", "1:0")))
    found = History().endings(*([["3_0"], []] if listed else [[], ["3_0"]]))
    assert {job: (one.state, one.source) for job, one in found.items()} == {"3_0": (state, source)}
    assert found["3_0"].comment == (COMMENT if queued else ""), "whose job it is"
    alive = queued in ("PENDING", "RUNNING")
    assert fake.asked == (["squeue"] if alive else ["squeue", "sacct"])


def test_forgotten_jobs_are_asked_about_less_and_less_often(fake: FakeSlurm) -> None:
    """Two hundred arrays, in one call, and never the jobs of the whole cluster."""
    fake.says("squeue", queue())
    fake.says("sacct", accounts(("100_0", "RUNNING", "0:0")))
    now = 0.0
    history = History(clock=lambda: now)
    gone = [f"{number}_0" for number in range(100, 300)]
    for at in range(0, 200, 3):
        now = at
        assert set(history.endings([], gone)) == {"100_0"}, "what was said last"
    assert fake.asked == ["squeue", "sacct"] * 3  # at 0, 60 and 180 s
    assert fake.calls()[-1][-1].startswith("--jobs=100,101")


def test_sacct_written_by_hand() -> None:
    """A step out of memory, elements that never started, who cancelled; a job that goes on."""
    answer = accounts(
        ("12_0", "FAILED", "1:0"),
        ("12_0.batch", "FAILED", "1:0"),
        ("12_0.0", "OUT_OF_MEMORY", "0:125"),
        ("12_[2-3,7-9:2%1]", "CANCELLED by 1000", "0:0", "None", "None assigned"),
        ("13", "RUNNING", "0:0"),
        ("13.0", "OUT_OF_MEMORY", "0:125"),
        ("14", "COMPLETED", "0:0"),
        ("14.0", "OUT_OF_MEMORY", "0:125"),
    )
    found = parse_sacct(answer.out)
    assert {job: state.state for job, state in found.items()} == {
        "12_0": "OUT_OF_MEMORY", **dict.fromkeys(("12_2", "12_3", "12_7", "12_9"), "CANCELLED"),
        "13": "RUNNING", "14": "COMPLETED",
    }  # fmt: skip
    assert found["12_2"].nodes == ""


def test_what_sacct_prints_besides_is_left_out() -> None:
    line = FIELD.join(["7", "TIMEOUT", "0:0", "None", "n1"])
    text = f"sacct: welcome\n12:01 o'clock\n{line}{FIELD}a new column\n8{FIELD}HIBERNATING\n"
    found = parse_sacct(text)
    assert (found["7"].state, found["7"].code, found["7"].nodes) == ("TIMEOUT", 0, "n1")
    assert not found["8"].ended and found.keys() == {"7", "8"}
