"""`python -m jobs` on a cluster of fakes, as a user calls it: bad requests, refusals, outages."""

from __future__ import annotations

import json
import os
import shlex
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from jobs.__main__ import app
from jobs.slurm.client.squeue import FIELD, START
from jobs.slurm.submissions import RunNote, job_name, read_notes, write_note
from tests.builders import record
from tests.jobs.slurm.client.clusters import TRANSCRIPTS
from tests.jobs.slurm.fakes import FakeSlurm, fake_slurm
from tests.sweeps import ROOT
from tests.unreadable import is_untouched, unreadable
from train.config.run import load_config
from train.record.run import RunError, read_record

SWEEP = """
title: cells that no cluster runs
dataset: digits
model: cnn
epochs: 2
batch_per_rank: 64
matrix:
  gpus: {gpus}
  technique: [naive]
  seed: [0, 1, 2]
"""
SITE = """
partition: practice
ranks_per_node: 2
time_min: 5
image: none
"""


@dataclass(frozen=True)
class Done:
    """What a command said."""

    returncode: int
    stdout: str
    stderr: str


class Desk:
    """A user's shell on a login node whose Slurm is fake."""

    data: Path | None = None  # shared by all tests

    def __init__(self, folder: Path, site: str = SITE, gpus: str = "[1]", refuse_at: int = 0):
        self.folder = folder
        self.fake: FakeSlurm = fake_slurm(folder / "bin", refuse_at=refuse_at)
        self.results = folder / "results"
        (folder / "site.yaml").write_text(site)
        (folder / "trial.yaml").write_text(SWEEP.format(gpus=gpus))

    @property
    def sweep(self) -> Path:
        return self.results / "trial"

    def say(
        self, command: str, *options: str, site: bool = True, cwd: Path = ROOT, **env: str
    ) -> Done:
        argv = [command, str(self.folder / "trial.yaml"), "--results", str(self.results)]
        if command in ("sweep", "plan"):
            data = str(self.data or self.folder)
            argv += ["--data", data, "--store", f"{data}/prepared"]
        argv += ["--site", str(self.folder / "site.yaml")] if site else []
        before = Path.cwd()
        os.chdir(cwd)
        try:
            with patch.dict(os.environ, {"PATH": self.fake.path, **env}):
                found = CliRunner().invoke(app, [*argv, *options])
        finally:
            os.chdir(before)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
        return Done(found.exit_code, found.stdout, found.stderr)

    def submit(self, *options: str, **env: str) -> Done:
        return self.say("sweep", "--no-wait", "--no-preflight", *options, **env)

    def notes(self) -> list[RunNote]:
        return read_notes(self.sweep)[0]


@pytest.fixture(autouse=True)
def _shared_data(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "data", data_root)


def age(desk: Desk, minutes: float = 11) -> None:
    """As if everything in the sweep's folder had happened so long ago."""
    then = time.time() - 60 * minutes
    for note in desk.notes():
        at = note.submitted_at - timedelta(minutes=minutes)
        write_note(desk.sweep, note.model_copy(update={"submitted_at": at}))
    for file in desk.sweep.rglob("*"):
        os.utime(file, (then, then))


def refused(done: Done, desk: Desk, *words: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert desk.fake.calls("sbatch") == [], "something was submitted"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("partitoin: practice", ("unknown key 'partitoin'", "did you mean", "partition")),
        ("partition: practise", ("practise", "practice")),
        ("cpus_per_rank: 64", ("needs", "CPUs")),
        ("gpus: gres\nranks_per_node: 8", ("GPUs",)),
        ("time_min: 100000", ("100,000 minutes", "1,440 minutes")),
        ("image: /nowhere/own.sif", ("there is no image /nowhere/own.sif",)),
        ("image: \"/no,where/own.sif\"", ("','", "in its path")),
        ("slurm_conf: 3", ("slurm_conf", "valid string")),
        ("setup: [\"a\\nb\"]", ("single line",)),
        ("sbatch: {array: 3}", ("array is what this program sets by itself",)),
    ],
)  # fmt: skip
def test_a_wrong_site_submits_nothing(tmp_path: Path, change: str, words: tuple[str, ...]) -> None:
    keys = {line.split(":")[0] for line in change.splitlines()}
    kept = [line for line in SITE.splitlines() if line.split(":")[0] not in keys]
    gpus = "[8]" if "ranks_per_node: 8" in change else "[1]"
    desk = Desk(tmp_path, "\n".join([*kept, change, ""]), gpus=gpus)
    refused(desk.submit(), desk, *words)


@pytest.mark.parametrize("sign", ["%", "\n"])
def test_folders_that_a_batch_script_cannot_name(tmp_path: Path, sign: str) -> None:
    desk = Desk(tmp_path)
    desk.results = tmp_path / f"a{sign}b"
    refused(desk.submit(), desk, "results folder", "without it")


def test_spaces_and_quotes_are_fine(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.results = tmp_path / 'o\'neil & "sons" $HOME é'
    done = desk.submit()
    assert done.returncode == 0, done.stderr
    assert len(desk.fake.calls("sbatch")) == 1


def test_a_relative_results_folder_is_the_callers(tmp_path: Path) -> None:
    """Jobs run in another folder: what they are told must be absolute."""
    desk = Desk(tmp_path)
    desk.results = Path("here")
    done = desk.say("sweep", "--no-wait", "--no-preflight", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    script = (desk.fake.folder / "script-1").read_text()
    assert f"{tmp_path}/here/trial/.submitit/" in script
    assert len(read_notes(tmp_path / "here" / "trial")[0]) == 1


def test_what_is_written_about_a_submission(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    done = desk.submit()
    assert done.returncode == 0, done.stderr
    (note,) = desk.notes()
    assert [array.job_id for array in note.arrays] == ["101"]
    assert len(note.arrays[0].units) == 3
    private = desk.sweep / ".submitit"
    folders = [private, *(path for path in private.iterdir() if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    assert all((path / "config.json").exists() for path in desk.sweep.glob("digits-*"))
    script = (desk.fake.folder / "script-1").read_text()
    assert f"#SBATCH --comment=horoscale:{note.run}:0" in script


def test_jobs_in_the_queue_are_not_submitted_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    # renamed since
    desk.fake.queue({"101_0": "RUNNING", "101_1": "PENDING", "101_2": "PENDING"}, "another")
    done = desk.submit()
    assert done.returncode == 0, done.stderr
    assert "3 cells are in the queue already" in done.stderr
    assert len(desk.fake.calls("sbatch")) == 1
    assert not list(desk.sweep.glob("*/record.json"))


def test_a_refusal_in_the_middle_keeps_what_was_submitted(tmp_path: Path) -> None:
    """Three shapes, three arrays; the second call fails. The next sweep submits the two others."""
    desk = Desk(tmp_path, gpus="[1, 2, 4]", refuse_at=2)
    done = desk.submit()
    assert done.returncode == 3, done.stderr
    assert "Unable to contact slurm controller" in done.stderr
    assert "Traceback" not in done.stderr
    (note,) = desk.notes()
    assert [array.job_id for array in note.arrays] == ["101"]
    desk.fake.queue({f"101_{n}": "PENDING" for n in range(3)}, job_name("trial", desk.sweep))
    assert desk.submit().returncode == 0
    given = [cell for note in desk.notes() for array in note.arrays if array.job_id
             for unit in array.units for cell in unit]  # fmt: skip
    assert len(given) == len(set(given)) == 9
    assert len(desk.fake.calls("sbatch")) == 4


@pytest.mark.parametrize(
    ("said", "code"),
    [("Invalid account or account/partition combination specified", 2),
     ("Requested node configuration is not available", 2),
     ("Socket timed out on send/recv operation", 3),
     ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", 2),
     ("QOSMaxSubmitJobPerUserLimit", 2), ("You must specify an account", 2),
     ("Job dependency problem", 2), ("lua: this partition is for teaching only", 2),
     ("Slurm temporarily unable to accept job, sleeping and retrying", 3)],
)  # fmt: skip
def test_a_wrong_request_is_told_from_a_busy_cluster(tmp_path: Path, said: str, code: int) -> None:
    desk = Desk(tmp_path, refuse_at=1)
    (desk.fake.folder / "refusal").write_text(said)
    done = desk.submit()
    assert done.returncode == code, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
    known = any(note.arrays[0].job_id for note in desk.notes())
    assert not known and not list(desk.sweep.glob("*/record.json"))


def test_a_controller_that_is_away_submits_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for name in ("squeue", "sinfo", "scontrol"):
        desk.fake.put(name, "echo 'error: Invalid user' >&2; exit 1")
    refused(desk.submit(), desk, "Slurm gives no answer", code=3)


def test_jobs_that_are_gone_get_their_records_and_run_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    done = desk.submit()
    assert done.returncode == 0 and "3 cells are in the queue already" in done.stderr
    assert not list(desk.sweep.glob("*/record.json")), "their files are not ten minutes old"
    age(desk)
    assert desk.submit().returncode == 0
    records = [read_record(path) for path in desk.sweep.glob("*/record.json")]
    assert [one.status for one in records] == ["lost"] * 3
    assert all(one.error and "no longer knows job 101" in one.error.what for one in records)
    assert len(desk.fake.calls("sbatch")) == 2


def test_a_budget_that_is_too_small(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    refused(desk.submit("--budget", "0.001"), desk, "hours")


def test_forced_cells_are_named_to_their_job(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    for cell in desk.sweep.glob("digits-*"):
        text = record(load_config(cell / "config.json")).model_dump_json()
        (cell / "record.json").write_text(text)
    assert "nothing to train" in desk.submit().stderr
    assert len(desk.fake.calls("sbatch")) == 1
    assert desk.submit("--force").returncode == 0
    assert len(desk.fake.calls("sbatch")) == 2


def test_status_and_cancel_without_a_submission(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    done = desk.say("status", "--json", site=False)
    assert done.returncode == 0, done.stderr
    assert {cell["state"] for cell in json.loads(done.stdout)["cells"]} == {"not submitted"}
    assert desk.fake.calls() == []
    refused(desk.say("cancel", site=False), desk, "nothing to cancel")


def test_status_while_the_controller_is_away(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    desk.fake.away("squeue")
    done = desk.say("status", site=False)
    assert done.returncode == 3
    assert "Unable to contact slurm controller" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(desk.sweep.glob("*/record.json")), "no answer settles nothing"


def test_cancel_settles_what_had_not_begun(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    name = job_name("trial", desk.sweep)
    desk.fake.queue({"101_0": "RUNNING", "101_1": "PENDING", "101_2": "PENDING"}, name)
    done = desk.say("cancel", site=False)
    assert done.returncode == 0, done.stderr
    assert {tuple(call) for call in desk.fake.calls("scancel")} == {("scancel", "101")}
    records = [read_record(path) for path in desk.sweep.glob("*/record.json")]
    assert [one.status for one in records] == ["cancelled"] * 2
    assert "2 cells had not begun" in done.stderr


def test_cancel_with_a_full_disk_cancels_all_the_same(tmp_path: Path, monkeypatch) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    desk.fake.queue({"101_0": "RUNNING"}, job_name("trial", desk.sweep))

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jobs.slurm.commands.announce_cancel", full)
    done = desk.say("cancel", site=False)
    assert done.returncode == 0, done.stderr
    assert ["scancel", "101"] in desk.fake.calls("scancel")
    assert "No space left" in done.stderr and "stop a make sweep" in done.stderr


def test_cancel_touches_nothing_that_is_not_this_sweeps(tmp_path: Path) -> None:
    """On another cluster, or after the controller lost its state, the id is somebody else's."""
    desk = Desk(tmp_path)
    desk.submit()
    desk.fake.queue({"101_0": "PENDING", "101_1": "PENDING"}, "thesis")
    done = desk.say("cancel", site=False)
    assert done.returncode == 0, done.stderr
    assert desk.fake.calls("scancel") == [] and not list(desk.sweep.glob("*/record.json"))
    assert "no job of this sweep is in the queue" in done.stderr


def test_a_note_that_cannot_be_read_keeps_its_cells_from_running_twice(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    (file,) = (desk.sweep / ".slurm").glob("*.json")
    file.write_text("{")
    command = f"/x/.submitit/{file.stem}-0/submission.sh"
    desk.fake.put("squeue", f"printf '{START}%s' 101 101 0 PENDING None N/A 0:00 '' '' {command} n "
                  f"| sed 's/{START}/{FIELD}/g; s/^{FIELD}/{START}/'")  # fmt: skip
    done = desk.submit()
    assert done.returncode == 3, done.stderr
    assert "101" in done.stderr and len(desk.fake.calls("sbatch")) == 1


def test_a_node_that_failed_is_excluded_on_the_retry(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.submit()
    age(desk)
    error = RunError(what="a node failed (node3)", where="node node3", what_to_do="again")
    for cell in desk.sweep.glob("digits-*"):
        config, now = load_config(cell / "config.json"), datetime.now(UTC)
        lost = record(config, status="lost", error=error, ended_at=now)
        (cell / "record.json").write_text(lost.model_dump_json())
    told = shlex.quote(str(TRANSCRIPTS / "practice_sinfo.out"))
    nodes = "printf 'node1 idle\\nnode2 idle*\\nnode3 idle\\nnode4 drained\\n'"
    desk.fake.put("sinfo", f'case "$*" in *--Node*) {nodes} ;; *) cat {told} ;; esac')
    done = desk.submit()
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --exclude=node3\n" in (desk.fake.folder / "script-2").read_text()
    assert "node3 failed under these cells: excluded" in done.stderr


def test_plan_asks_and_submits_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    done = desk.say("plan")
    assert done.returncode == 0, done.stderr
    assert desk.fake.calls() == []
    assert "#SBATCH" in done.stdout
    assert not desk.results.exists()


def test_a_sweep_that_has_to_wait_for_room(tmp_path: Path) -> None:
    desk = Desk(tmp_path, SITE + "submit_limit: 2\n")
    done = desk.submit()
    assert done.returncode == 0, done.stderr
    assert "1 cells wait for room in the queue (submit_limit 2)" in done.stderr
    assert "make sweep again submits the rest" in done.stderr
    assert sum(len(array.units) for array in desk.notes()[0].arrays) == 2


def test_what_cannot_be_read_is_not_submitted(tmp_path: Path) -> None:
    """The other cells are; and the answer is that something could not be decided."""
    desk = Desk(tmp_path)
    assert desk.submit().returncode == 0
    age(desk)
    desk.fake.forget()
    cells = sorted(desk.sweep.glob("digits-*"))
    file = unreadable(cells[0] / "record.json")
    done = desk.submit("--force")
    assert done.returncode == 3 and "Input/output error" in done.stderr, done.stderr
    (note,) = desk.notes()[1:]
    assert [name for unit in note.arrays[0].units for name in unit] == [c.name for c in cells[1:]]
    assert is_untouched(cells[0], file)
    assert "unreadable record" in desk.say("status", site=False).stdout
    assert "Input/output error" in desk.say("logs", "--cell", cells[0].name, site=False).stdout
