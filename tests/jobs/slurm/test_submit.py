"""One call of sbatch: whatever it prints, and whenever its caller dies, the job can be found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.slurm.client.squeue import FIELD, START, parse
from jobs.slurm.submissions import adopt, read_notes
from jobs.slurm.submit import job_in
from tests.jobs.slurm.test_sweep import SITE, Desk
from tests.sweeps import ROOT

__all__ = ["_shared_data"]
from tests.jobs.slurm.test_sweep import _shared_data


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("17\n", ("17", None)),
        ("17;big\n", ("17", "big")),
        ("Submitted batch job 17\n", ("17", None)),
        ("Submitted batch job 17 on cluster big\n", ("17", "big")),
        ("Welcome to Big!\nYour budget: 1,200.5 hours until 2026-12-31.\n17\n", ("17", None)),
        ("-> job 17 accepted (partition gpu2, v22.05)\n", ("17", None)),
        ('{"job_id": 17}', ("17", None)),
        (
            "loading tools/3.1\nSubmitted batch job 17\n42 jobs of yours wait\n",
            ("17", None),
        ),
        ("", None),
        ("done", None),
        ("jobs 17 and 18\n", None),
        ("job 17 and job 18\n", None),
        ("Balance: 1200 hours\n", None),
        ("Max time per job: 24 hours\n", None),
        ("Your allocation ends in 3 days, nothing was submitted\n", None),
        ("17\n18\n", None),
    ],
)
def test_any_output_with_one_number_of_a_job_is_an_answer(
    text: str, job: tuple[str, str | None] | None
) -> None:
    assert job_in(text) == job


def test_a_program_that_failed_must_say_it_in_sbatchs_own_words() -> None:
    assert job_in("You already have job 17 in the queue\n", certain=True) is None
    assert job_in("Submitted batch job 17\n", certain=True) == ("17", None)


def sbatch(desk: Desk, script: str) -> None:
    """From now on; HERE is the folder of the fakes, and LISTED makes squeue show the job 101."""
    listed = f"""
comment=$(sed -n 's/^#SBATCH --comment=//p' "$2"); command=$2
LISTED() {{ printf '{START}%s' 101 101 N/A PENDING None N/A 0:00 '' \\
  "$comment" "$command" renamed | sed 's/{START}/{FIELD}/g; s/^{FIELD}/{START}/' > "$HERE/queue"; }}
"""
    desk.fake.put("sbatch", listed + script)


@pytest.mark.parametrize(
    "script",
    [
        "LISTED; echo done",  # a wrapper with words of its own
        "LISTED",  # or none
        "LISTED; echo jobs 3 and 4",
        "LISTED; echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1",
        "comment='(null)'; LISTED; echo done",  # at a site that keeps comments for itself
    ],
)
def test_what_sbatch_does_not_say_the_queue_does(tmp_path: Path, script: str) -> None:
    desk = Desk(tmp_path, gpus="[1]")
    (tmp_path / "trial.yaml").write_text(
        (tmp_path / "trial.yaml").read_text().replace("[0, 1, 2]", "[0]")
    )
    sbatch(desk, script)
    done = desk.submit()
    assert done.returncode == 0, done.stderr
    assert [note.arrays[0].job_id for note in desk.notes()] == ["101"]


def test_nothing_in_the_output_and_nothing_in_the_queue_is_said_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    sbatch(desk, "echo done")
    done = desk.submit()
    assert done.returncode == 3, done.stderr
    assert "it ended well, but printed no job id ('done')" in done.stderr


def test_whether_it_was_submitted_is_not_known_while_the_queue_is_not(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    sbatch(desk, """rm "$HERE/queue"; echo 'sbatch: error: Socket timed out' >&2; exit 1""")
    done = desk.submit()
    assert done.returncode == 3, done.stderr
    assert "whether it was submitted all the same is not known" in done.stderr
    (note,) = desk.notes()
    assert note.arrays[0].job_id is None, "a later look finds it by its comment"


def sweep_argv(desk: Desk) -> list[str]:
    argv = [sys.executable, "-m", "jobs", "sweep", str(desk.folder / "trial.yaml")]
    argv += ["--results", str(desk.results), "--site", str(desk.folder / "site.yaml")]
    argv += ["--data", str(desk.data), "--store", f"{desk.data}/prepared"]
    return [*argv, "--no-preflight"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_while_sbatch_runs_orphans_nothing(tmp_path: Path, number: int) -> None:
    """To the whole group, as a terminal's Ctrl-C or hang-up: the id is noted before we end."""
    desk = Desk(tmp_path)
    sbatch(desk, 'touch "$HERE/began"; sleep 1; echo 101')
    process = subprocess.Popen(
        sweep_argv(desk), cwd=ROOT, env={**os.environ, "PATH": desk.fake.path}, text=True,
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (desk.fake.folder / "began").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert [note.arrays[0].job_id for note in desk.notes()] == ["101"], said


def test_a_watcher_that_was_killed_while_sbatch_ran_is_no_orphan(tmp_path: Path) -> None:
    """SIGKILL: the note was there before, and what its tasks are is on disk."""
    desk = Desk(tmp_path)
    (desk.fake.folder / "refusal").write_text("")
    sbatch(desk, "LISTED; kill -9 $PPID; sleep 1")
    done = subprocess.run(
        sweep_argv(desk), cwd=ROOT, env={**os.environ, "PATH": desk.fake.path}, check=False,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    (note,) = read_notes(desk.sweep)[0]
    assert note.arrays[0].job_id is None
    queue = parse((desk.fake.folder / "queue").read_text())
    assert adopt(note, queue).arrays[0].job_id == "101"
    (folder,) = (desk.sweep / ".submitit").iterdir()
    told = json.loads((folder / "tasks.json").read_text())
    assert told["program"] == "cells" and len(told["tasks"]) == 3
    assert not list(folder.glob("*.pkl"))


LIMITED = """
n=$(cat "$HERE/count" 2>/dev/null || echo 100); n=$((n + 1)); echo $n > "$HERE/count"
size=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$2"); size=$((${size:-0} + 1))
if [ $size -gt 2 ]; then
  echo "sbatch: error: QOSMaxSubmitJobPerUserLimit$(cat "$HERE/words" 2>/dev/null)" >&2
  echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job \
submit limit, user's size and/or time limits)" >&2
  exit 1
fi
echo $n"""


@pytest.mark.parametrize("where", ["sacctmgr", "the refusal"])
def test_arrays_are_cut_by_a_limit_that_can_be_read(tmp_path: Path, where: str) -> None:
    """Seen: an array that can never fit gave exit code 3, and make sweep again tried the same."""
    desk = Desk(tmp_path)
    desk.fake.put("sbatch", LIMITED)
    desk.fake.put("sacctmgr", 'case "$*" in *qos*) echo 2 ;; *) echo ;; esac')
    if where == "the refusal":
        desk.fake.put("sacctmgr", "exit 1")
        (desk.fake.folder / "words").write_text(": the limit is 2 jobs in the queue")
    done = desk.submit()
    assert done.returncode == 0, done.stderr
    assert "the cluster allows 2 of your jobs in the queue" in done.stderr
    (note,) = desk.notes()
    assert [len(array.units) for array in note.arrays] == [2]
    assert "1 cells wait for room in the queue (submit_limit 2)" in done.stderr


def test_a_limit_that_cannot_be_read_names_its_key_and_leaves_no_preflight(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.fake.put("sbatch", LIMITED)
    desk.fake.put("sacctmgr", "exit 1")
    done = desk.say("sweep", "--no-wait")
    assert done.returncode == 2, done.stderr
    assert "QOSMaxSubmitJobPerUserLimit" in done.stderr and "Set submit_limit: in" in done.stderr
    assert "site.yaml" in done.stderr
    assert desk.fake.calls("scancel") == [["scancel", "101"]], "the preflight holds its nodes"
    assert [note.kind for note in desk.notes()] == ["preflight"], "nothing else was submitted"


def test_one_preflight_however_often_the_cells_are_refused(tmp_path: Path) -> None:
    """Where the refusal may pass the preflight stays, and the next make sweep waits for it."""
    desk = Desk(tmp_path, SITE)
    busy = "echo 'sbatch: error: Slurm temporarily unable to accept job' >&2; exit 1"
    desk.fake.put("sbatch", f'grep -q "comment=.*:preflight" "$2" && echo 101 && exit 0; {busy}')
    assert desk.say("sweep", "--no-wait").returncode == 3
    assert desk.fake.calls("scancel") == []
    desk.fake.queue({"101": "PENDING"}, "n")
    assert desk.say("sweep", "--no-wait").returncode == 3
    kinds = [note.kind for note in desk.notes()]
    assert kinds.count("preflight") == 1, kinds
