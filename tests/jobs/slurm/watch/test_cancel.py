"""Cancelling a sweep: few calls, whole arrays, and jobs that ended meanwhile are no error."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.slurm.client.run import Answer
from jobs.slurm.client.squeue import parse
from jobs.slurm.submissions import Array, RunNote
from jobs.slurm.watch import cancel as module
from jobs.slurm.watch.cancel import MAX_IDS, announce_cancel, cancel, jobs_of_sweep, last_cancel

SAID = Path(__file__).parent.parent / "transcripts" / "queue"


def queue(name: str):
    return parse((SAID / f"{name}.out").read_text())


def test_what_is_alive_of_a_sweep_by_array() -> None:
    """By noted ids and by comments; never by names, and never another sweep's."""
    array = Array(job_id="42", units=(("a",),), nodes=1, ranks_per_node=1, minutes=1)
    now, name = datetime.now(UTC), "dep, with|signs"
    note = RunNote(run="r9", site="s", job_name=name, submitted_at=now, arrays=(array,))
    assert jobs_of_sweep([note], queue("whole_queue_with_odd_names")) == {"42": 1}
    other = note.model_copy(update={"job_name": "n"})
    found = jobs_of_sweep([other], queue("whole_queue_with_odd_names"))
    assert found == {}, "an id alone, of a job with another name, script and comment"
    r1, r = (note.model_copy(update={"run": run}) for run in ("r1", "r"))
    assert jobs_of_sweep([r1], queue("array_throttled")) == {"38": 6}
    assert jobs_of_sweep([r], queue("array_throttled")) == {}
    anothers = note.model_copy(update={"arrays": (array.model_copy(update={"job_id": "38"}),)})
    assert jobs_of_sweep([anothers], queue("array_throttled")) == {}, "38 is of run r1 now"
    assert jobs_of_sweep([r1], queue("just_ended")) == {}


def test_one_call_for_all_arrays(monkeypatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(module, "run", lambda argv, **_: calls.append(argv) or Answer(0, "", ""))
    cancel(["10", "9", "9"])
    assert calls == [["scancel", "9", "10"]]
    cancel([str(number) for number in range(MAX_IDS + 1)])
    assert [len(argv) for argv in calls[1:]] == [MAX_IDS + 1, 2]


def test_each_cancel_is_told_from_the_last(tmp_path: Path) -> None:
    seen = [last_cancel(tmp_path)]
    for _ in range(2):
        announce_cancel(tmp_path)
        seen.append(last_cancel(tmp_path))
    assert seen[0] == "" and len(set(seen)) == 3


DENIED = "scancel: error: Kill job error on job id 62: Access/permission denied\n"
#: Both written by hand: 22.05.8 was silent about jobs that were over.
OVER = "scancel: error: Kill job error on job id 7: Job/step already completing or completed\n"
GONE = "scancel: error: Kill job error on job id 7: Invalid job id specified\n"


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [(Answer(0, "", ""), ""), (Answer(1, "", GONE + OVER), ""),
     (Answer(210, "", OVER + DENIED), DENIED.strip()),  # said so by 22.05.8
     (Answer(1, "not from this node", ""), "not from this node")],  # a site's wrapper
)  # fmt: skip
def test_only_true_refusals_are_told(monkeypatch, answer: Answer, complaint: str) -> None:
    monkeypatch.setattr(module, "run", lambda argv, **_: answer)
    assert cancel(["7"]) == complaint
