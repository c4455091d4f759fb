"""What squeue said on a real Slurm (transcripts/queue/README.md says when), read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from jobs.slurm.client.run import Answer, SlurmError
from jobs.slurm.client.squeue import ENDED, FIELD, PENDING, START, JobState, parse, query
from tests.jobs.slurm.client.clusters import SAID
from tests.jobs.slurm.fakes import HEADER, FakeSlurm, squeue_text

ENDED_TEXT = HEADER + (SAID / "just_ended.out").read_text()
#: Of a site whose LD_PRELOAD names a library that is not there: at each program, with code 0.
NOISE = (
    "ERROR: ld.so: object '/opt/trace.so' from LD_PRELOAD cannot be preloaded (cannot open shared "
    "object file): ignored.\n"
)


def jobs(name: str) -> dict[str, JobState]:
    return parse((SAID / f"{name}.out").read_text())


def test_an_array_of_which_two_may_run() -> None:
    found = jobs("array_throttled")
    assert sorted(found) == [f"38_{index}" for index in range(6)]
    running, waiting = found["38_1"], found["38_2"]
    assert running == JobState(
        job="38_1", state="RUNNING", start=datetime(2026, 11, 21, 15, 36, 58, tzinfo=UTC),
        elapsed="0:01",
        nodes="n1", name="horoscale-smoke-89abcdef", comment="horoscale:r1:0",
    )  # fmt: skip
    assert waiting.waits and not waiting.ended and waiting.start is None
    assert (waiting.reason, waiting.nodes, waiting.array) == ("JobArrayTaskLimit", "", "38")


@pytest.fixture(autouse=True)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of this machine. The transcripts were recorded in UTC."""
    monkeypatch.setenv("TZ", getattr(request, "param", "UTC"))
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
@pytest.mark.parametrize(
    ("said", "utc"),
    [("1792886400", 0), ("1792890000", 1), ("2026-10-25T01:59:59", -1 / 3600),
     # the hour that comes twice, as a site's wrapper prints it: the later time counts, so nothing
     # is settled too early
     ("2026-10-25T02:00:00", 1), ("2026-10-25T03:00:00", 2), ("tomorrow", None),
     ("9" * 20, None)],
)  # fmt: skip
def test_times_at_the_change_of_the_clocks(fake: FakeSlurm, said: str, utc: float | None) -> None:
    """Slurm is asked for seconds since 1970: its local times lack a zone. An hour was lost, and a
    job that had just ended counted as over for long."""
    text = squeue_text({"7_0": "RUNNING"}).replace("N/A", said)
    fake.put("squeue", 'test "$SLURM_TIME_FORMAT" = %s && cat "$HERE/answer"')
    (fake.folder / "answer").write_text(text)
    midnight = datetime(2026, 10, 25, tzinfo=UTC)
    expected = None if utc is None else midnight + timedelta(hours=utc)
    assert query()["7_0"].start == expected


def test_names_with_commas_bars_and_newlines() -> None:
    found = jobs("whole_queue_with_odd_names")
    assert found["42"].name == "dep, with|signs" and found["43"].name == "two\nlines"
    assert found["44"].start == datetime(2026, 11, 21, 17, 36, 59, tzinfo=UTC)
    assert found["44"].waits
    assert found["13"].reason == "ReqNodeNotAvail, UnavailableNodes:n2"


def test_one_call_for_all_jobs_of_one_user(fake: FakeSlurm) -> None:
    assert query() == {}
    (asked,) = fake.calls()
    assert asked[:-1] == ["squeue", "--all", "--local", "--array", "--states=all",
                          f"--user={os.getuid()}"]  # fmt: skip
    columns = asked[-1].removeprefix(f"--format={START}").split(FIELD)
    assert all(len(column) == 2 and column[0] == "%" for column in columns), "as in old Slurm"


@pytest.mark.parametrize("arrays", [None, ["7"]])
def test_an_empty_queue_is_an_answer_whatever_is_printed_besides(fake, arrays) -> None:
    """Seen: without a job in the queue, the loader's ERROR was "Slurm gives no answer"."""
    for err in (NOISE, "tracer: error: connection refused, try again later\n",
                "squeue: error: plugin_load_from_file: spank_tracer.so\n"):  # fmt: skip
        for greeting in ("", "Welcome to Big!\n", "CLUSTER: big\n"):
            fake.says("squeue", Answer(0, greeting + HEADER, err))
            assert query(arrays=arrays) == {}
    fake.says("squeue", Answer(0, f"Welcome!\n{ENDED_TEXT}", NOISE))
    assert query(arrays=arrays) == parse(ENDED_TEXT)


def test_an_id_that_the_controller_does_not_know_is_left_out(fake: FakeSlurm) -> None:
    """Of one unknown id squeue says so, of several it lists the others (22.05.8)."""
    unknown = (SAID / "scontrol_unknown_job.err").read_text()
    for noise in ("", NOISE):
        fake.says("squeue", Answer(1, "", noise + unknown))
        assert query(arrays=["99999"]) == {}
    assert "--jobs=99999" in fake.calls()[0]
    fake.says("squeue", Answer(1, ENDED_TEXT, unknown))
    assert query(arrays=["99999", "7"]) == parse(ENDED_TEXT), "whatever else squeue says"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(0, HEADER, "squeue: error: Invalid user: 4242\n"),  # said so by 22.05.8, with code 0
        Answer(0, HEADER, f"{NOISE}squeue: error: Invalid user: 4242\n"),
        Answer(0, "", "ERROR: the list of jobs is being made\n"),  # of a site's wrapper
        Answer(0, "the list of jobs is being made\n", ""),
        Answer(1, ENDED_TEXT, "squeue: error: Invalid user: 4242\n"),
        Answer(1, "", "squeue: error: Invalid job state specified: all"),  # written by hand
    ],
)
@pytest.mark.parametrize("arrays", [None, ["7"]])
def test_a_refused_question_is_not_an_empty_queue(fake, answer: Answer, arrays) -> None:
    fake.says("squeue", answer)
    with pytest.raises(SlurmError, match=r"Invalid|being made"):
        query(arrays=arrays)


def test_answers_that_are_not_as_asked_for() -> None:
    """squeue prints the cluster's name where SLURM_CLUSTERS is set; written by hand."""
    assert parse(f"CLUSTER: big\n{ENDED_TEXT}") == parse(ENDED_TEXT)
    for line in (f"1{FIELD}2", f"x{FIELD * 9}RUNNING", f"1{FIELD}1{FIELD}N/A{FIELD}"):
        with pytest.raises(SlurmError, match="no id or no state of a job"):
            parse(f"{ENDED_TEXT}{START}{line}\n")


def test_a_job_without_some_columns_is_a_job() -> None:
    """Left out, it would be taken for gone. A state that we do not know counts as alive."""
    text = START + FIELD.join(["7", "7", "N/A", "HIBERNATING", "None", "N/A", "0:10"]) + "\n"
    (job,) = parse(text).values()
    assert (job.job, job.state, job.ended, job.comment) == ("7", "HIBERNATING", False, "")


def test_every_state_of_slurms_manual_waits_runs_or_has_ended() -> None:
    """squeue(1) of 22.05, JOB STATE CODES; those that cannot be produced here are in it, too."""
    manual = """BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL
        OUT_OF_MEMORY PENDING PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED
        RESIZING REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT"""
    runs = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING",
            "REVOKED"}  # fmt: skip
    assert set(manual.split()) - runs == PENDING | ENDED and not PENDING & ENDED
