"""One call of sbatch: whatever it prints, and whenever its caller dies, the job can be found."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.cell.state import FORCED, recorded
from jobs.config.site import NodeLayout, Site
from jobs.slurm import submit as module
from jobs.slurm.client.reasons import is_submit_limit
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.client.squeue import FIELD, START, query
from jobs.slurm.submissions import Array, RunNote, adopt, read_notes
from jobs.slurm.submit import job_in, submit_cells, submit_preflight
from tests.builders import record
from tests.jobs.slurm.fakes import CLOSING, FakeSlurm, cells, context


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("17\n", ("17", None)),
        ("17;big\n", ("17", "big")),
        ("Submitted batch job 17\n", ("17", None)),
        ("Submitted batch job 17 on cluster big\n", ("17", "big")),
        ("tracer: object 12 ignored\n17\n", ("17", None)),
        ("Welcome to Big!\nYour budget: 1,200.5 hours until 2026-12-31.\n17\n", ("17", None)),
        ("-> job 17 accepted (partition gpu2, v22.05)\n", ("17", None)),
        ('{"job_id": 17}', ("17", None)),
        ("loading tools/3.1\nSubmitted batch job 17\n42 jobs of yours wait\n", ("17", None)),
        ("done", None),
        ("job 17 and job 18\n", None),
        ("Balance: 1200 hours\n", None),
        ("Max time per job: 24 hours\n", None),
        ("Your allocation ends in 3 days, nothing was submitted\n", None),
        ("17\n18\n", None),
        ("0\n", None),
    ],
)
def test_any_output_with_one_number_of_a_job_is_an_answer(text, job) -> None:
    assert job_in(text) == job


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0)


def sbatch(fake: FakeSlurm, script: str) -> None:
    """From now on; LISTED makes squeue show the job 101."""
    listed = f"""
comment=$(sed -n 's/^#SBATCH --comment=//p' "$2"); command=$2
LISTED() {{ printf '{START}%s' 101 101 N/A PENDING None N/A 0:00 '' \\
  "$comment" "$command" renamed | sed 's/{START}/{FIELD}/g; s/^{FIELD}/{START}/' \\
  >> "$HERE/queue"; }}
"""
    fake.put("sbatch", listed + script)


def submit(sweep: Path, status: str = "new") -> str:
    for one in cells(3, ranks=1):
        (sweep / one.cell_id()).mkdir(exist_ok=True)
    states = [
        replace(recorded(one, sweep / one.cell_id()), status=status) for one in cells(3, ranks=1)
    ]
    array = Array(cells=[cell.name for cell in states], nodes=1, ranks_per_node=1, minutes=9)
    return submit_cells(context(sweep), array, states, None)


def note_of(sweep: Path) -> RunNote:
    (note,) = read_notes(sweep)
    return note


@pytest.mark.parametrize(
    "script",
    [
        "LISTED; echo done",  # a wrapper with words of its own, or none
        "LISTED; echo jobs 3 and 4",
        "LISTED; echo 1500; exit 1",  # a wrapper that failed
        "LISTED; echo Submitted batch job 1500; exit 1",
        f"LISTED; echo '{CLOSING}Socket timed out on send/recv operation' >&2; exit 1",
        "comment='(null)'; LISTED; echo done",  # at a site that keeps comments for itself
    ],
)
def test_what_sbatch_does_not_say_the_queue_does(tmp_path, fake, script) -> None:
    sbatch(fake, script)
    assert submit(tmp_path) == note_of(tmp_path).arrays[0].job_id == "101"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo done", "it ended well, but printed no job id"),
        # a wrapper whose own work failed after sbatch
        ("echo Submitted batch job 17; echo 'slurm_update error: Access denied' >&2; exit 1",
         "Access denied"),
        (f"""rm "$HERE/queue"; echo '{CLOSING}Connection timed out' >&2; exit 1""",
         "whether it was submitted all the same is not known"),
        ("kill -KILL $$", "a signal ended it"),  # a login node short of memory
        ("sh -c 'kill -KILL $$'; exit $?", "a signal ended it"),  # under a site's wrapper
        ("exec timeout 0.1 sleep 9", "a time limit ended it"),
        # through a wrapper that adds to each line
        *((rf"printf '{before}{CLOSING}Connection timed out{after}\n' >&2; exit 1", "timed out")
          for before, after in (("[12:00] real-", ""), (r"\033[31m", r"\033[0m"))),
        *((f"echo '{CLOSING}{text}' >&2; exit 1", re.escape(text)) for text in (
            "Unable to contact slurm controller (receive failure)",
            "Zero Bytes were transmitted or received", "Connection reset by peer",
        )),
    ],
)  # fmt: skip
def test_what_may_be_in_the_queue_keeps_its_note(tmp_path, fake, script, words) -> None:
    sbatch(fake, script)
    with pytest.raises(SlurmError, match=words) as caught:
        submit(tmp_path)
    note = note_of(tmp_path)
    assert caught.value.passing and not caught.value.refused
    assert note.arrays[0].job_id is None, "a later look finds it by its comment"


def test_nodes_that_the_site_file_excludes_stay_so(tmp_path: Path, fake: FakeSlurm) -> None:
    """The preflight and a node's failure recommend to keep a bad node out in that way."""
    site = Site(ranks_per_node=1, sbatch={"exclude": "n9,n[1-2]"})
    array = Array(cells=["a"], nodes=1, ranks_per_node=1, minutes=9)
    submit_cells(context(tmp_path, site), array, [], None)
    (script,) = tmp_path.glob(".submitit/*/submission.sh")
    assert "#SBATCH --exclude=n9,n[1-2]\n" in script.read_text().replace("'", "")


def no_folder_goes(*_, ignore_errors: bool = False) -> None:
    """As rmtree, where a file system keeps a file that is still open elsewhere."""
    if not ignore_errors:
        raise OSError(39, "Directory not empty")


def test_a_refusal_leaves_nothing(tmp_path, fake, monkeypatch) -> None:
    """A sweep that waits for room would leave a note and a folder for each try; a note that stays
    would hold its cells, so it goes whatever becomes of the folder."""
    sbatch(fake, "echo 'Welcome!' >&2; echo 'sbatch: error: Invalid account' >&2; exit 1")
    words = r"^sbatch: Welcome! sbatch: error: Invalid account$"
    with pytest.raises(SlurmError, match=words) as caught:
        submit(tmp_path)
    assert caught.value.refused and not caught.value.passing
    assert read_notes(tmp_path) == [] and not list((tmp_path / ".submitit").iterdir())
    monkeypatch.setattr(module.shutil, "rmtree", no_folder_goes)
    with pytest.raises(SlurmError, match="Invalid account"):
        submit(tmp_path)
    assert read_notes(tmp_path) == []


@pytest.mark.parametrize(
    "script",
    [
        "echo 'lua: name a project' >&2; echo 'sbatch: error: Batch job submission failed'",
        "echo 'lua: name a project'; echo 'sbatch: error: Batch job submission failed' >&2",
        "echo 'lua: name a project; tracer: timed out'; echo 4711; "
        "echo 'sbatch: error: Batch job submission failed' >&2",  # a number of the wrapper's own
        "echo 'lua: name a project'",  # of a wrapper, which called no sbatch
        "echo 'lua: name a project'; echo 1500",
    ],
)
def test_the_reason_of_a_refusal_may_stand_on_either_stream(tmp_path, fake, script) -> None:
    """And a greeting is no reason: neither a busy controller nor a limit on jobs."""
    greeting = "echo 'busy? try again later. You may submit at most 50 jobs (max submit)' >&2"
    sbatch(fake, f"{greeting}; {script}; exit 1")
    with pytest.raises(SlurmError, match=r"at most 50 jobs.*name a project") as caught:
        submit(tmp_path)
    if "Batch job" in script:
        assert caught.value.refused and not caught.value.passing
        assert not is_submit_limit(caught.value.came)


@pytest.mark.parametrize("ends", [f"; echo '{CLOSING}Unspecified error' >&2", ""])
@pytest.mark.parametrize(
    "line",
    [
        "Project X has no GPU hours left. Buy hours, then try again later.",
        "Your Kerberos ticket has timed out: run kinit",
        "Socket timed out on send/recv operation",
        "licence server: Connection refused",
        "Unable to contact slurm controller (connect failure)",
        "QOSMaxSubmitJobPerUserLimit",
        "limit AssocMaxSubmitJobLimit of 0 jobs (Job violates accounting/QOS policy)",
        "Job dependency problem",
    ],
)
def test_lines_of_a_sites_plugin_decide_nothing(tmp_path, fake, line, ends) -> None:
    """sbatch prints them as its own. Seen: 95 calls of sbatch in 100 s, and cells that stayed
    unclear for minutes."""
    sbatch(fake, f"echo 'sbatch: error: {line}' >&2{ends}; exit 1")
    with pytest.raises(SlurmError, match=re.escape(line)) as caught:
        submit(tmp_path)
    assert caught.value.refused and is_lasting(caught.value)
    assert not re.search("Limit|dependency|policy", caught.value.came)


def test_where_there_is_no_sbatch_nothing_waits_for_an_answer(tmp_path, fake, monkeypatch) -> None:
    """Its cells counted as submitted, perhaps, and were tried again every four minutes for ever."""
    (fake.folder / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(fake.folder))
    with pytest.raises(SlurmError, match="cannot be started here") as caught:
        submit(tmp_path)
    assert caught.value.refused and is_lasting(caught.value)
    assert read_notes(tmp_path) == []


def test_a_preflight_that_is_refused_leaves_nothing(tmp_path: Path, fake: FakeSlurm) -> None:
    """A sweep that waits for room left a folder of reports for each try."""
    sbatch(fake, "echo 'sbatch: error: AssocGrpSubmitJobsLimit' >&2; exit 1")
    with pytest.raises(SlurmError, match="AssocGrpSubmitJobsLimit"):
        submit_preflight(context(tmp_path / "t"), NodeLayout(1, 1))
    assert not list(tmp_path.glob("preflight/*")) and read_notes(tmp_path / "t") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_while_sbatch_runs_orphans_nothing(tmp_path, fake, number) -> None:
    """To the whole group, as a terminal's Ctrl-C or hang-up: the id is noted before we end."""
    wait = 'for _ in $(seq 600); do [ -e "$HERE/go" ] && break; sleep 0.1; done'
    sbatch(fake, f'touch "$HERE/began"; {wait}; echo 101')
    if (pid := os.fork()) == 0:
        try:
            os.setpgid(0, 0)
            signal.signal(number, lambda *_: os._exit(130))
            submit(tmp_path)
        finally:
            os._exit(0)
    while not (fake.folder / "began").exists():
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    os.killpg(pid, number)
    (fake.folder / "go").touch()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert note_of(tmp_path).arrays[0].job_id == "101"


def test_a_watcher_that_was_killed_while_sbatch_ran_is_no_orphan(tmp_path, fake) -> None:
    """SIGKILL: the note was there before, and what its tasks are is on disk."""
    sbatch(fake, "LISTED; kill -9 $PPID; sleep 1")
    if (pid := os.fork()) == 0:
        try:
            submit(tmp_path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    note = note_of(tmp_path)
    assert note.arrays[0].job_id is None
    assert adopt(note, query()).arrays[0].job_id == "101"
    (folder,) = (tmp_path / ".submitit").iterdir()
    payload = json.loads((folder / "tasks.json").read_text())
    assert payload["program"] == "cells" and len(payload["tasks"]) == 3


@pytest.mark.parametrize("comes_first", [False, True])
def test_the_record_of_a_forced_cell_is_put_aside_once_its_job_is_submitted(
    tmp_path: Path, fake: FakeSlurm, comes_first: bool
) -> None:
    """Not one that the job itself has left by then."""
    one = cells(1, ranks=1)[0]
    file = tmp_path / one.cell_id() / "record.json"
    file.parent.mkdir()
    file.write_text(record(one).model_dump_json())
    (tmp_path / "later").write_text(record(one, ended_at=datetime.now(UTC)).model_dump_json())
    another = f"mv {tmp_path}/later {file}; " if comes_first else ""
    sbatch(fake, f"{another}echo 101")
    submit(tmp_path, FORCED)
    assert file.exists() == comes_first
    (task, *_) = json.loads(next(tmp_path.glob(".submitit/*/tasks.json")).read_text())["tasks"]
    assert task["cell"] == str(file.parent) and task["forced"] is True
