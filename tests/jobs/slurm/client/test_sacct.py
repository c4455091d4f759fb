"""How jobs stand that are asked about by their ids: what squeue and sacct print is put together.

Recorded answers are in transcripts/queue; the others are written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from jobs.slurm.client import sacct, squeue
from jobs.slurm.client.run import Answer, SlurmError
from jobs.slurm.client.sacct import History, parse_sacct
from jobs.slurm.client.squeue import FIELD, START
from tests.jobs.slurm.client.clusters import SAID

OFF = Answer(1, "", (SAID / "sacct_accounting_off.err").read_text())
UNKNOWN = Answer(1, "", (SAID / "scontrol_unknown_job.err").read_text())


def row(job: str, state: str, comment: str = "(null)") -> str:
    """One job as squeue prints it."""
    array, _, index = job.partition("_")
    fields = [array, array, index or "N/A", state, "None", "N/A", "0:10", "n1", comment]
    return START + FIELD.join([*fields, "(null)", "name"]) + "\n"


def accounts(*rows: tuple[str, str, str]) -> Answer:
    """Id, state and exit code of jobs as sacct prints them."""
    return Answer(0, "".join(FIELD.join([*one, "None", "n1"]) + "\n" for one in rows), "")


@dataclass
class Programs:
    """In place of Slurm's programs; remembers what was run."""

    queue: Answer = UNKNOWN
    codes: str = ""
    accounts: Answer = OFF
    no_accounts: SlurmError | None = None
    asked: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)

    def run(self, argv: list[str], **_: object) -> Answer:
        self.argv = list(argv)
        codes = argv[-1].startswith("--Format")
        self.asked.append("codes" if codes else argv[0])
        if argv[0] == "sacct":
            if self.no_accounts:
                raise self.no_accounts
            return self.accounts
        return Answer(0, self.codes, "") if codes else self.queue


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    fakes = Programs()
    for module in (sacct, squeue):
        monkeypatch.setattr(module, "run", fakes.run)
    return fakes


def test_the_controller_knows_exit_codes_where_no_accounts_are_kept(programs: Programs) -> None:
    """squeue prints a status of wait(2) before 23.02, and CODE:SIGNAL since."""
    jobs = {"3_0": (3, None), "3_1": (0, 53), "4": (127, None), "5": (0, 9), "6": (None, None)}
    programs.queue = Answer(0, "".join(row(job, "FAILED") for job in jobs), "")
    lines = ("3                   0                   768", "3 1 53", "4 N/A 127:0", "5 N/A 0:9")
    programs.codes = "\n".join((*lines, "garbage"))
    found = History().endings(jobs)
    assert {job: (state.code, state.signal) for job, state in found.items()} == jobs
    assert programs.asked == ["squeue", "sacct", "codes"]
    assert programs.argv[-2:] == [
        "--jobs=3,4,5,6", "--Format=ArrayJobID:20,ArrayTaskID:20,exit_code:20",
    ]  # fmt: skip


def test_without_the_database_the_controller_is_asked(programs: Programs) -> None:
    words = (SAID / "sacct_database_down.err").read_text()
    programs.no_accounts = SlurmError("sacct", words, passing=True)
    programs.queue = Answer(0, row("3_0", "TIMEOUT"), "")
    assert set(History().endings(["3_0", "99999"])) == {"3_0"}


def test_one_question_to_each_program_for_all_jobs(programs: Programs) -> None:
    """Also of elements that were cancelled before they started, which the queue forgets at once."""
    programs.accounts = Answer(0, (SAID / "sacct_ends.out").read_text(), "")
    wanted = [*(f"63_{index}" for index in range(10)), "64", "65"]
    found = History().endings(wanted)
    assert set(found) == set(wanted) and programs.asked == ["squeue", "sacct"]
    assert programs.argv[-1] == "--jobs=63,64,65"
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
def test_the_controller_and_the_accounts(
    programs: Programs, listed: bool, queued: str, account: str, state: str, source: str
) -> None:
    """Whether a list, which is of a moment, says that the job ended, or lacks it."""
    if queued:
        programs.queue = Answer(0, row("3_0", queued) + row("3_1", "FAILED"), "")
    programs.accounts = accounts(("3_0", account, "1:0"), ("3_1", "FAILED", "1:0"))
    found = History().endings(*([["3_0"], []] if listed else [[], ["3_0"]]))
    assert {job: (one.state, one.source) for job, one in found.items()} == {"3_0": (state, source)}
    alive = queued in ("PENDING", "RUNNING")
    assert programs.asked == (["squeue"] if alive else ["squeue", "sacct"])


def test_forgotten_jobs_are_asked_about_less_and_less_often(programs: Programs) -> None:
    """Two hundred arrays, in one call, and never the jobs of the whole cluster."""
    programs.queue = Answer(0, "", "")
    now = 0.0
    history = History(clock=lambda: now)
    gone = [f"{number}_0" for number in range(100, 300)]
    for at in range(0, 200, 3):
        now = at
        assert history.endings([], gone) == {}
    assert programs.asked == ["squeue", "sacct"] * 3  # at 0, 60 and 180 s
    assert programs.argv[-1].startswith("--jobs=100,101")


def test_accounts_do_not_hide_whose_job_it_is(programs: Programs) -> None:
    programs.queue = Answer(0, row("9", "FAILED", "horoscale:other:0"), "")
    programs.accounts = accounts(("9", "FAILED", "3:0"))
    history = History()
    for _ in range(3):
        found = history.endings([], ["9"])["9"]
        assert (found.comment, found.code) == ("horoscale:other:0", 3)
    assert programs.asked == ["squeue", "sacct"]


def test_a_controller_that_refuses_is_not_one_that_forgot(programs: Programs) -> None:
    programs.queue = Answer(1, "", "slurm_load_jobs error: Access/permission denied")
    with pytest.raises(SlurmError, match="permission denied"):
        History().endings([], ["3_0"])


def test_what_nobody_knows_has_no_ending_and_nothing_asks_nothing(programs: Programs) -> None:
    assert History().endings([]) == {} and programs.asked == []
    assert History().endings(["99999"]) == {}


def test_sacct_written_by_hand() -> None:
    """A step out of memory, elements that never started, who cancelled; a job that goes on."""
    rows = [
        ("12_0", "FAILED", "1:0", "None", "node1"),
        ("12_0.batch", "FAILED", "1:0", "", "node1"),
        ("12_0.0", "OUT_OF_MEMORY", "0:125", "", "node1"),
        ("12_[2-3,7-9:2%1]", "CANCELLED by 1000", "0:0", "None", "None assigned"),
        ("13", "RUNNING", "0:0", "None", "node[1-2]"),
        ("13.0", "OUT_OF_MEMORY", "0:125", "", "node1"),
        ("14", "COMPLETED", "0:0", "None", "node1"),
        ("14.0", "OUT_OF_MEMORY", "0:125", "", "node1"),
    ]
    found = parse_sacct("\n".join(FIELD.join(one) for one in rows) + "\n")
    assert list(found) == ["12_0", "12_2", "12_3", "12_7", "12_9", "13", "14"]
    assert found["12_0"].state == "OUT_OF_MEMORY"
    assert (found["12_2"].state, found["12_2"].nodes) == ("CANCELLED", "")
    assert (found["13"].state, found["14"].state) == ("RUNNING", "COMPLETED")
