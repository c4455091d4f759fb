"""Cancelling a sweep: few calls, whole arrays, and jobs that ended meanwhile are no error."""

from __future__ import annotations

import pytest

from jobs.slurm.client.run import Answer
from jobs.slurm.client.squeue import parse
from jobs.slurm.watch.cancel import MAX_IDS, cancel, jobs_of_sweep
from tests.jobs.slurm.client.clusters import SAID
from tests.jobs.slurm.fakes import FakeSlurm, note


def queue(name: str):
    return parse((SAID / f"{name}.out").read_text())


def test_what_is_alive_of_a_sweep_by_array() -> None:
    """By noted ids and by comments; never by names, and never another sweep's."""
    odd, throttled = queue("whole_queue_with_odd_names"), queue("array_throttled")
    named = note("a", job="42", run="r9", job_name="dep, with|signs")
    assert jobs_of_sweep([named], odd) == {"42": 1}
    other = note("a", job="42", run="r9")
    assert jobs_of_sweep([other], odd) == {}, "an id alone, of a job with another name"
    assert jobs_of_sweep([note("a", run="r1")], throttled) == {"38": 6}
    assert jobs_of_sweep([note("a", run="r")], throttled) == {}
    anothers = note("a", job="38", run="r9", job_name="horoscale-smoke-89abcdef")
    assert jobs_of_sweep([anothers], throttled) == {}, "38 is of run r1 now"
    assert jobs_of_sweep([note("a", run="r1")], queue("just_ended")) == {}


def test_one_call_for_all_arrays(fake: FakeSlurm) -> None:
    cancel(["10", "9", "9"])
    assert fake.calls() == [["scancel", "9", "10"]]
    cancel([str(number) for number in range(MAX_IDS + 1)])
    assert [len(argv) for argv in fake.calls()[1:]] == [MAX_IDS + 1, 2]


NOISE = "ERROR: ld.so: object 'x' from LD_PRELOAD cannot be preloaded: ignored.\n"
DENIED = "scancel: error: Kill job error on job id 62: Access/permission denied\n"
#: Both written by hand: 22.05.8 was silent about jobs that were over.
OVER = "scancel: error: Kill job error on job id 7: Job/step already completing or completed\n"
GONE = "scancel: error: Kill job error on job id 7: Invalid job id specified\n"


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [(Answer(0, "", ""), ""), (Answer(1, "", GONE + OVER), ""), (Answer(0, "", NOISE), ""),
     (Answer(1, "Welcome!", NOISE + GONE), ""),
     (Answer(210, "", NOISE + DENIED), NOISE + DENIED),
     (Answer(210, "", OVER + DENIED), OVER + DENIED),  # said so by 22.05.8
     (Answer(1, "not from this node", ""), "not from this node"),  # a site's wrapper
     (Answer(1, "", ""), "exit code 1")],
)  # fmt: skip
def test_only_true_refusals_are_told(fake, answer: Answer, complaint: str) -> None:
    fake.says("scancel", answer)
    assert cancel(["7"]) == " ".join(complaint.split())
