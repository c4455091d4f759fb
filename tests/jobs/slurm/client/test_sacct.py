"""How jobs ended, from what scontrol and sacct said on a real Slurm (see transcripts/queue)."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.slurm.client import sacct as history
from jobs.slurm.client import squeue as queue
from jobs.slurm.client.run import Answer, SlurmError
from jobs.slurm.client.sacct import Ending, History, parse_sacct, parse_scontrol
from jobs.slurm.client.squeue import ENDED, FIELD
from jobs.slurm.watch.endings import status_of

SAID = Path(__file__).parent.parent / "transcripts" / "queue"
OFF = Answer(1, "", (SAID / "sacct_accounting_off.err").read_text())
UNKNOWN = Answer(1, "", (SAID / "scontrol_unknown_job.err").read_text())
ENDS = Answer(0, (SAID / "scontrol_ends.out").read_text(), "")


def answered(monkeypatch: pytest.MonkeyPatch, **answers: Answer) -> list[list[str]]:
    asked: list[list[str]] = []

    def ask(argv: list[str], **_: object) -> Answer:
        asked.append(argv)
        return answers[argv[0]]

    monkeypatch.setattr(history, "ask", ask)
    return asked


def ending(state: str, **changes) -> Ending:
    values = {"job": "7_1", "state": state, "code": 0, "signal": None, "reason": "",
              "nodes": "node1", "out_of_memory": False, "source": "sacct"}  # fmt: skip
    return Ending(**(values | changes))


def test_scontrol_tells_elements_that_never_started_as_one_job() -> None:
    found = parse_scontrol((SAID / "scontrol_cancelled_array.out").read_text())
    states = {e.job: e.state for e in found}
    never = [2, 3, 4, 5, 6, 8, 10, 11, 12, *range(14, 30)]
    assert states == {f"49_{i}": "CANCELLED" for i in never} | {
        "49_0": "COMPLETING", "49_1": "COMPLETING",
    }  # fmt: skip
    assert {e.nodes for e in found} == {"", "n1"}


def test_scontrol_of_jobs_that_ended_in_many_ways() -> None:
    found = {e.reason + e.state: e for e in parse_scontrol(ENDS.out)}
    assert found["NonZeroExitCodeFAILED"].code == 3
    killed = found["JobLaunchFailureFAILED"]
    assert (killed.code, killed.signal) == (0, 9)
    assert status_of(killed) == ("lost", "its supervisor was ended by SIGKILL (on n1)")
    assert status_of(found["TimeLimitTIMEOUT"])[0] == "timeout"
    assert status_of(found["CANCELLED"])[0] == "cancelled"


def test_a_name_cannot_lie_about_the_state() -> None:
    """Written by hand: scontrol prints a job's name before its state."""
    line = ("JobId=5 JobName=x JobState=COMPLETED ExitCode=0:0 UserId=games(5) GroupId=games(60) "
            "JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=2:0 NodeList=n2 "
            "Command=/tmp/a JobState=TIMEOUT WorkDir=/tmp")  # fmt: skip
    (found,) = parse_scontrol(line)
    assert (found.state, found.code, found.nodes) == ("FAILED", 2, "n2")


def test_accounting_off_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answered(monkeypatch, sacct=OFF, scontrol=ENDS)
    told = History()
    known = [e.job for e in parse_scontrol(ENDS.out)]
    assert set(told.endings([known[0], "99999"])) == {known[0]}
    assert set(told.endings([known[1]])) == {known[1]}
    assert [argv[0] for argv in asked] == ["scontrol", "scontrol", "sacct", "scontrol"]


def test_one_sacct_for_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{a}_{i}{FIELD}FAILED{FIELD}1:0{FIELD}None{FIELD}n1" for a in (3, 4) for i in (0, 1)]
    asked = answered(monkeypatch, sacct=Answer(0, "\n".join(lines), ""), scontrol=UNKNOWN)
    assert set(History().endings(["3_0", "3_1", "4_1"])) == {"3_0", "3_1", "4_1"}
    assert [argv[-1] for argv in asked] == ["3", "4", "--jobs=3,4"]


def test_sacct_of_jobs_that_ended_in_many_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of elements that were cancelled before they started, which the queue forgets at once."""
    accounts = Answer(0, (SAID / "sacct_ends.out").read_text(), "")
    asked = answered(monkeypatch, sacct=accounts, scontrol=UNKNOWN)
    wanted = [*(f"63_{index}" for index in range(10)), "64", "65"]
    found = History().endings(wanted)
    assert set(found) == set(wanted) and [argv[0] for argv in asked].count("sacct") == 1
    told = {job: status_of(ending) for job, ending in found.items()}
    assert told["63_1"] == ("failed", "its batch script ended with exit code 1 (on n2)")
    assert {told[f"63_{index}"][0] for index in range(4, 10)} == {"cancelled"}
    assert told["64"] == ("lost", "its supervisor was ended by SIGKILL (on n1)")
    assert told["65"] == ("cancelled", "it was cancelled, by scancel or by the site")


def test_accounts_that_come_late_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """sacct still takes the job for running; the controller knows better."""
    (late, *_) = (e.job for e in parse_scontrol(ENDS.out) if e.state == "TIMEOUT")
    row = FIELD.join([late, "RUNNING", "0:0", "None", "n1"])
    asked = answered(monkeypatch, sacct=Answer(0, row + "\n", ""), scontrol=ENDS)
    assert History().endings([late])[late].state == "TIMEOUT"
    assert [argv[0] for argv in asked] == ["scontrol", "sacct"]


def test_a_job_of_the_list_that_was_requeued_meanwhile_is_alive(monkeypatch) -> None:
    """A list is of a moment, and the accounts tell of the start before."""
    text = "JobId=9 ArrayJobId=3 ArrayTaskId=0 JobName=x UserId=a(1) JobState=PENDING Reason=None"
    row = FIELD.join(["3_0", "FAILED", "1:0", "None", "n1"])
    answered(monkeypatch, scontrol=Answer(0, text + "\n", ""), sacct=Answer(0, row + "\n", ""))
    found = History().endings(["3_0"])
    assert found["3_0"].state == "PENDING" and not found["3_0"].over


@pytest.mark.parametrize("passing", [True, False])
def test_without_the_database_the_controller_is_asked(monkeypatch, passing: bool) -> None:
    """``passing``: the database is away; else there is no sacct at all, which is remembered."""
    words = (SAID / "sacct_database_down.err").read_text()
    asked = []

    def ask(argv: list[str], **_: object) -> Answer:
        asked.append(argv[0])
        if argv[0] == "sacct":
            raise SlurmError("sacct", words, passing=passing)
        return ENDS

    monkeypatch.setattr(history, "ask", ask)
    told = History()
    (job, *_) = (e.job for e in parse_scontrol(ENDS.out))
    assert set(told.endings([job])) == {job} == set(told.endings([job]))
    assert asked == ["scontrol", "sacct"] * 2 if passing else ["scontrol", "sacct", "scontrol"]


def test_many_forgotten_arrays_cost_one_squeue_and_not_again_soon(monkeypatch) -> None:
    """Never `scontrol show job` of the whole cluster."""
    asked = answered(monkeypatch, sacct=OFF)
    monkeypatch.setattr(queue, "ask", lambda argv, **_: asked.append(argv) or Answer(0, "", ""))
    now = [0.0]
    told = History(clock=lambda: now[0])
    gone = [f"{number}_0" for number in range(100, 300)]
    for at in range(0, 200, 3):
        now[0] = at
        assert told.endings([], gone) == {}
    assert [argv[0] for argv in asked] == ["squeue", "sacct", "squeue", "squeue"]  # 0, 60, 180 s
    assert "--jobs=100,101" in " ".join(asked[0])
    asked.clear()
    told.endings(gone)
    assert [argv[0] for argv in asked] == ["squeue"], "that they ended is asked in one call, too"


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_job_that_the_list_lacks_is_asked_about_by_its_id(monkeypatch, state: str) -> None:
    text = f"JobId=9 ArrayJobId=3 ArrayTaskId=0 JobName=x UserId=a(1) JobState={state} Reason=None"
    asked = answered(monkeypatch, scontrol=Answer(0, text + "\n", ""))
    found = History().endings([], ["3_0"])
    assert found["3_0"].state == state and not found["3_0"].over
    assert [argv[-1] for argv in asked] == ["3"], "the accounts are not asked"


def test_accounts_do_not_hide_whose_job_it_is(monkeypatch) -> None:
    text = ("JobId=9 JobName=x UserId=a(1) JobState=FAILED Reason=None Comment=horoscale:other:0 "
            "ExitCode=3:0 NodeList=n1")  # fmt: skip
    row = FIELD.join(["9", "FAILED", "3:0", "None", "n1"])
    asked = answered(monkeypatch, scontrol=Answer(0, text, ""), sacct=Answer(0, row, ""))
    told = History()
    for _ in range(3):
        assert told.endings([], ["9"])["9"].comment == "horoscale:other:0"
    assert [argv[0] for argv in asked] == ["scontrol", "sacct"]


def test_a_controller_that_refuses_is_not_one_that_forgot(monkeypatch) -> None:
    refused = Answer(1, "", "slurm_load_jobs error: Access/permission denied")  # by hand
    answered(monkeypatch, scontrol=refused, sacct=OFF)
    with pytest.raises(SlurmError, match="permission denied"):
        History().endings([], ["3_0"])


def test_a_job_that_slurm_forgot_has_no_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, sacct=OFF, scontrol=UNKNOWN)
    assert History().endings(["99999"]) == {}


def test_a_job_that_is_not_over_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (SAID / "scontrol_cancelled_array.out").read_text()
    answered(monkeypatch, sacct=OFF, scontrol=Answer(0, text, ""))
    found = History().endings(["49_0", "49_29"])
    assert not found["49_0"].over
    assert status_of(found["49_29"]) == (
        "cancelled", "it was cancelled, by scancel or by the site",
    )  # fmt: skip


def test_no_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(argv: list[str], **_: object) -> Answer:
        raise SlurmError("sacct", "Socket timed out", passing=True)

    monkeypatch.setattr(history, "ask", ask)
    with pytest.raises(SlurmError):
        History().endings(["1"])


def test_nothing_to_ask_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answered(monkeypatch)
    assert History().endings([]) == {} and asked == []


def test_sacct_written_by_hand() -> None:
    """A step out of memory, a requeued element, elements that never started, who cancelled."""
    rows = [
        ("12_0", "FAILED", "1:0", "None", "node1"),
        ("12_0.batch", "FAILED", "1:0", "", "node1"),
        ("12_0.0", "OUT_OF_MEMORY", "0:125", "", "node1"),
        ("12_[2-3%1]", "CANCELLED by 1000", "0:0", "None", "None assigned"),
        ("13", "NODE_FAIL", "1:0", "None", "node[1-2]"),
    ]
    found = {e.job: e for e in parse_sacct("\n".join(FIELD.join(row) for row in rows) + "\n")}
    assert list(found) == ["12_0", "12_2", "12_3", "13"]
    assert status_of(found["12_0"]) == (
        "failed", "it used more memory than it had asked for, and was ended (on node1)",
    )  # fmt: skip
    assert (found["12_2"].state, found["12_2"].nodes) == ("CANCELLED", "")
    assert status_of(found["13"])[0] == "lost"


@pytest.mark.parametrize(
    ("state", "status"),
    [("CANCELLED", "cancelled"), ("TIMEOUT", "timeout"), ("DEADLINE", "timeout"),
     ("PREEMPTED", "preempted"), ("NODE_FAIL", "lost"), ("BOOT_FAIL", "lost"),
     ("COMPLETED", "lost"), ("REVOKED", "lost")],
)  # fmt: skip
def test_status_of_states(state: str, status: str) -> None:
    assert status_of(ending(state))[0] == status


def test_every_end_has_a_status_and_a_sentence() -> None:
    for state in ENDED:
        status, text = status_of(ending(state, code=None))
        assert status not in ("completed", "diverged") and text


def test_a_failed_batch_script_says_its_code() -> None:
    found = status_of(ending("FAILED", code=3, reason="NonZeroExitCode"))
    assert found == ("failed", "its batch script ended with exit code 3 (on node1)")


@pytest.mark.parametrize(
    ("code", "signal", "words"),
    [(0, 53, "does not see the results folder"), (66, None, "does not see the results folder"),
     (127, None, "found no Python"), (126, None, "may not run the Python")],
)  # fmt: skip
def test_ends_before_the_supervisor_say_what_is_so(code: int, signal, words: str) -> None:
    """Seen: results on a node's own /tmp read "ended by signal 53"."""
    status, text = status_of(ending("FAILED", code=code, signal=signal))
    assert status == "failed" and words in text and "signal 53" not in text
