"""`python -m jobs` on a cluster of fakes, as a user calls it: bad requests, refusals, outages."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.__main__ import refuse_gone
from jobs.cell.lock import only_sweep
from jobs.cell.missing_record import Begun, announce
from jobs.slurm.submissions import job_name, write_note
from tests.builders import record
from tests.jobs.slurm.client.clusters import TRANSCRIPTS
from tests.jobs.slurm.desk import SITE, Desk
from tests.jobs.slurm.fakes import CLOSING, SBATCH, report_preflight
from tests.unreadable import is_untouched, stale, unreadable
from train.config.run import load_config
from train.record.measurements import Throughput
from train.record.run import read_record


@pytest.fixture
def desk(tmp_path: Path, data_root: Path) -> Desk:
    return Desk(tmp_path, data_root)


def records(desk: Desk) -> list[str]:
    return [read_record(file).status for file in sorted(desk.sweep.glob("*/record.json"))]


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [("image: none", "image: /nowhere/own.sif", "there is no image /nowhere/own.sif"),
     ("ranks_per_node: 2", "ranks_per_node: 1\nmax_nodes: 1", "the sweep does not fit the site")],
)  # fmt: skip
def test_what_does_not_fit_submits_nothing(tmp_path, data_root, line, change, words) -> None:
    """The image, the number of ranks; also where the queue has no room."""
    desk = Desk(tmp_path, data_root, SITE.replace(line, change) + "submit_limit: 1\n")
    trial = tmp_path / "trial.yaml"
    trial.write_text(trial.read_text().replace("[1]", "[1, 2]"))
    desk.queue(j5="RUNNING")
    assert words in desk.submit(code=2)
    assert desk.fake.calls("sbatch") == []


@pytest.mark.parametrize("given", ["--pack=4", "--budget=50"])
def test_an_option_of_earlier_versions_is_refused_with_what_replaces_it(given, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        refuse_gone(["jobs", "sweep", "quickstart", given])
    advice = {"--pack=4": "random order", "--budget=50": "make plan prints the GPU-hours"}
    assert advice[given] in capsys.readouterr().err


def test_time_limits_go_by_what_ran_at_this_site(tmp_path: Path, data_root: Path) -> None:
    """Three cells like it that this site's jobs completed."""
    site = SITE.replace("time_min: 5", "max_time_min: 60")
    desk = Desk(tmp_path, data_root, site, cells=3)
    desk.submit()
    assert "#SBATCH --time=60\n" in (desk.fake.folder / "script-1").read_text()
    steady = Throughput(images_per_s=1000.0, samples=(), left_out=(1,))
    array = desk.notes()[0].arrays[0]
    folders = [desk.sweep / cell for cell in array.cells]
    for element, cell in zip(array.elements(), folders, strict=True):
        made = record(load_config(cell / "config.json"), throughput=steady)
        where = made.provenance.model_copy(update={"slurm_job_id": element})
        text = made.model_copy(update={"provenance": where}).model_dump_json()
        (cell / "record.json").write_text(text)
    trial = desk.folder / "trial.yaml"
    trial.write_text(trial.read_text().replace("[0, 1, 2]", "[0, 1, 2, 3]"))
    desk.submit()
    assert "#SBATCH --time=10\n" in (desk.fake.folder / "script-2").read_text()
    assert "#SBATCH --time=60\n" in desk.say("plan", "--partition", "other").stdout
    first = folders[0] / "record.json"  # of another site's job, or of this machine
    first.write_text(first.read_text().replace('"slurm_job_id":"101_0"', '"slurm_job_id":"9"'))
    assert "#SBATCH --time=60\n" in desk.say("plan").stdout


def test_what_is_written_about_a_submission(desk: Desk) -> None:
    """Jobs run in another folder than who calls: their paths are absolute. They may hold blanks and
    quotes."""
    desk.results = Path('o\'neil & "sons" $HOME é')
    desk.submit(cwd=desk.folder)
    desk.results = desk.folder / desk.results
    (note,) = desk.notes()
    assert [(array.job_id, len(array.cells)) for array in note.arrays] == [("101", 3)]
    (folder,) = (desk.sweep / ".submitit").iterdir()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (*folder.iterdir(), folder)}
    secrets = {"tasks.json": 0o600, "submission.sh": 0o700}
    assert modes == {folder.name: stat.S_IMODE(desk.sweep.stat().st_mode), **secrets}
    assert all((cell / "config.json").exists() for cell in desk.cells)
    script = (desk.fake.folder / "script-1").read_text()
    assert f"#SBATCH --comment=horoscale:{note.run}:0" in script
    assert f"--chdir='{desk.folder}/o'" in script
    assert Path(shlex.split(script.splitlines()[-1])[-1]).exists(), "the tasks"


@pytest.mark.parametrize(
    ("said", "code"),
    [("Invalid account or account/partition combination specified", 2),
     ("Socket timed out on send/recv operation", 3)],
)  # fmt: skip
def test_a_wrong_request_is_told_from_a_busy_cluster(desk: Desk, said: str, code: int) -> None:
    desk.fake.put("sbatch", f"echo '{CLOSING}{said}' >&2; exit 1")
    assert said in desk.submit(code=code)
    assert not any(note.arrays[0].job_id for note in desk.notes()) and not records(desk)


def test_the_first_line_says_where_cells_run(desk: Desk, monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SBATCH_NODES", "7")
    first, *others = desk.submit().splitlines()
    assert first == f"[sweep] jobs run on the cluster of site file {desk.folder / 'site.yaml'}"
    assert any("OMP_NUM_THREADS" in line for line in others)
    assert any("SBATCH_NODES" in line for line in others)


def test_sbatch_decides_what_the_cluster_takes(desk: Desk) -> None:
    """Seen: partitions that are down for the night were refused, though sbatch takes jobs there."""
    desk.fake.put("sinfo", "echo 'practice*|down|1:00:00|1-1|1|drained|1|1|(null)|(null)'")
    said = "submitted 3 cells in 1 sbatch calls (jobs 101), random order of cells (seed 0)"
    assert said in desk.submit()
    assert desk.fake.calls("sinfo") == []


def test_a_refusal_ends_with_the_keys_that_sbatch_got(tmp_path: Path, data_root: Path) -> None:
    """Not with advice by the words of it: --mem-per-cpu got advice on GPUs. What was submitted
    before goes on."""
    site = f"{SITE}qos: long\narray_limit: 2\nsbatch: {{mem-per-cpu: 9999}}\n"
    desk = Desk(tmp_path, data_root, site)
    good = (desk.fake.folder / "sbatch").read_text().partition("\n")[2]
    refuse = f"echo Welcome; cat '{SBATCH / 'refused_nodes.err'}' >&2; exit 1"
    desk.fake.put("sbatch", f'[ -e "$HERE/count" ] && {{ {refuse}; }}\n{good}')
    said = desk.submit(code=2)
    assert "sbatch refused: sbatch: error: Batch job submission failed: More processors" in said
    assert "than permitted Welcome" in said and "GPU" not in said
    keys = "partition, qos, time_min, requeue, cpus_per_rank, ranks_per_node, max_time_min"
    assert f"site.yaml that set its options: {keys}, array_limit, array_parallel, signal_s, " \
        "sbatch." in said  # fmt: skip
    (note,) = desk.notes()
    assert note.arrays[0].job_id == "101" and len(note.arrays[0].cells) == 2


@pytest.mark.parametrize("most", ["MaxArraySize = 2", "SchedulerParameters = max_array_tasks=2"])
def test_the_smaller_limit_on_arrays_holds(desk: Desk, most: str) -> None:
    """Seen: a cluster with a limit below array_limit, whose default is 1000, was refused."""
    text = re.sub(".*MaxArraySize.*", most, (TRANSCRIPTS / "practice_config.out").read_text())
    (desk.folder / "config.out").write_text(text)
    desk.fake.put("scontrol", f"cat '{desk.folder / 'config.out'}'")
    assert "sbatch calls: 2; jobs: 3, one per cell" in desk.say("plan").stdout
    assert "submitted 3 cells in 2 sbatch calls" in desk.submit()
    assert "#SBATCH --array=0-1%2\n" in (desk.fake.folder / "script-1").read_text()


def test_nothing_submitted_is_no_success(desk: Desk) -> None:
    """The user's other jobs fill the queue. Seen: "the jobs go on without you", and code 0."""
    site = desk.folder / "site.yaml"
    site.write_text(site.read_text() + "submit_limit: 2\n")
    desk.queue(j5="RUNNING", j6="RUNNING")
    assert "no cell could be submitted yet" in desk.submit(code=3)
    desk.queue(j5="RUNNING")
    assert "preflight: job 101 on 1 node" in desk.say("sweep", "--no-wait").stderr
    assert "make sweep again submits the rest" in desk.submit()
    desk.queue(j5="RUNNING", j102="RUNNING")
    assert "make sweep again submits the rest" in desk.submit()
    assert len(desk.fake.calls("sbatch")) == 2


def test_the_arrays_of_a_sweep_share_array_parallel(tmp_path: Path, data_root: Path) -> None:
    desk = Desk(tmp_path, data_root, f"{SITE}array_parallel: 5\n", cells=9)
    trial = tmp_path / "trial.yaml"
    trial.write_text(trial.read_text().replace("[1]", "[1, 2]"))
    plan = desk.say("plan").stdout
    assert "#SBATCH --array=0-8%3\n" in plan and "#SBATCH --array=0-8%2\n" in plan
    desk.submit()
    scripts = [(desk.fake.folder / f"script-{number}").read_text() for number in (1, 2)]
    assert "#SBATCH --array=0-8%3\n" in scripts[0] and "#SBATCH --array=0-8%2\n" in scripts[1]


def test_a_plan_shows_what_array_parallel_holds_back(tmp_path: Path, data_root: Path) -> None:
    """Seen: it showed all arrays as submitted at once."""
    desk = Desk(tmp_path, data_root, f"{SITE}array_parallel: 1\narray_limit: 2\n", cells=6)
    plan = desk.say("plan").stdout
    assert "jobs: 6, one per cell; 2 arrays wait for room (array_parallel)" in plan
    assert plan.count("#SBATCH --array=0-1%1\n") == 1


def test_two_sweeps_at_once(desk: Desk) -> None:
    with only_sweep(desk.sweep):
        assert "another make sweep works on" in desk.submit(code=2)
    assert desk.fake.calls("sbatch") == []


def test_a_controller_that_is_away_submits_nothing(desk: Desk) -> None:
    for name in ("squeue", "sinfo", "scontrol"):
        desk.fake.put(name, "echo 'error: Invalid user' >&2; exit 1")
    assert "Slurm gives no answer" in desk.submit(code=3)
    assert desk.fake.calls("sbatch") == []


@pytest.mark.parametrize("where", [{"user": os.getuid() + 1}, {"cluster": "other"}])
def test_cells_that_cannot_be_asked_about_name_the_way_out(desk: Desk, where) -> None:
    """By another user, or on a former cluster. Seen: "0 cells, 0 to run", and code 3 for ever; make
    cancel claimed that no job was in the queue."""
    desk.submit()
    desk.age()
    file = write_note(desk.sweep, desk.notes()[0].model_copy(update=where))
    for options in ((), ("--force",)):
        said = desk.submit(*options, code=3)
        assert "3 cells, 0 to run" in said
        assert "3 cells are left alone: submitted" in said and f"rm {file}" in said
    cancelled = desk.say("cancel", code=3).stderr
    assert "not cancelled: submitted" in cancelled and f"rm {file}" in cancelled
    assert "no job" not in cancelled and len(desk.fake.calls("sbatch")) == 1
    file.unlink()
    assert "3 cells, 3 to run" in desk.submit()
    assert len(desk.fake.calls("sbatch")) == 2


def test_jobs_elsewhere_that_left_their_records_are_no_obstacle(desk: Desk) -> None:
    desk.say("sweep", "--no-wait")
    for note in desk.notes():
        write_note(desk.sweep, note.model_copy(update={"user": os.getuid() + 1}))
    (preflight,) = (desk.results / "preflight").iterdir()
    for cell in desk.cells:
        text = record(load_config(cell / "config.json"), ended_at=datetime.now(UTC))
        (cell / "record.json").write_text(text.model_dump_json())
    assert f"rm {desk.sweep}/.slurm/{preflight.name}.json" in desk.say("cancel", code=3).stderr
    report_preflight(preflight)
    assert "no job of this sweep is in the queue" in desk.say("cancel").stderr
    assert "nothing to train" in desk.submit()


def test_jobs_that_are_gone_get_their_records_and_run_again(desk: Desk) -> None:
    """What is in the queue, or may still be, is not submitted again."""
    desk.submit()
    desk.fake.queue({"101_0": "RUNNING", "101_1": "PENDING", "101_2": "PENDING"}, "renamed since")
    assert "3 cells are in the queue already" in desk.submit()
    desk.queue()
    assert "3 cells are in the queue already" in desk.submit(), "files are not ten minutes old"
    assert len(desk.fake.calls("sbatch")) == 1 and not records(desk)
    desk.age()
    desk.submit()
    assert records(desk) == ["lost"] * 3 and len(desk.fake.calls("sbatch")) == 2
    error = read_record(desk.cells[0] / "record.json").error
    assert error is not None and "no longer knows job 101" in error.what


def test_a_newer_checkout_leaves_the_configs_of_live_cells_alone(desk: Desk) -> None:
    """Seen: a key with a default was added, and all waiting elements refused the rewritten files:
    they run the code of their submission. What runs next is written by this version."""
    desk.submit()
    before = {}
    for number, file in enumerate(sorted(desk.sweep.glob("*/config.json"))):
        keys = json.loads(file.read_text())
        if number == 1:
            keys["colour"] = None  # of a newer version
        else:
            del keys["deterministic"]  # an older one had no such key
        file.write_text(json.dumps(keys))
        before[file] = file.read_bytes(), file.stat().st_mtime_ns
    manifest = desk.sweep / "sweep.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))
    before[manifest] = manifest.read_bytes(), manifest.stat().st_mtime_ns
    desk.queue(j101_0="RUNNING", j101_1="PENDING", j101_2="PENDING")
    for options in ((), ("--force",)):
        assert "3 cells are in the queue already" in desk.submit(*options)
        assert {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in before} == before
    desk.queue()
    desk.age()
    aged = {file: file.stat().st_mtime for file in before}
    desk.submit()
    assert len(desk.fake.calls("sbatch")) == 2, "they were lost"
    (renewed,) = [file for file in before if file.stat().st_mtime != aged[file]]
    assert load_config(renewed).cell_id() == renewed.parent.name and renewed in list(before)[1:2]


def test_the_configs_of_cells_whose_job_may_still_come_stay(desk: Desk) -> None:
    """Seen: sbatch timed out, and the next make sweep wrote the files that the job then read."""
    desk.fake.put("sbatch", "kill -KILL $$")
    desk.submit(code=3)
    for cell in desk.cells:
        file = cell / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "colour": None}))
    before = [(cell / "config.json").read_bytes() for cell in desk.cells]
    desk.submit(code=3)
    assert [(cell / "config.json").read_bytes() for cell in desk.cells] == before
    assert len(desk.fake.calls("sbatch")) == 1


def test_finished_cells_run_by_force_alone(desk: Desk) -> None:
    desk.submit()
    for cell in desk.cells:
        text = record(load_config(cell / "config.json")).model_dump_json()
        (cell / "record.json").write_text(text)
    assert "nothing to train" in desk.submit()
    assert len(desk.fake.calls("sbatch")) == 1
    desk.submit("--force")
    assert len(desk.fake.calls("sbatch")) == 2


def test_status_and_cancel_without_a_submission(desk: Desk) -> None:
    done = desk.say("status", "--json")
    assert {cell["state"] for cell in json.loads(done.stdout)["cells"]} == {"not submitted"}
    assert "nothing to cancel" in desk.say("cancel", code=2).stderr
    assert desk.fake.calls() == []


def test_status_while_the_controller_is_away(desk: Desk) -> None:
    desk.submit()
    desk.fake.away("squeue")
    assert "Unable to contact slurm controller" in desk.say("status", code=3).stdout
    assert not records(desk), "no answer settles nothing"


def test_cancel_settles_what_had_not_begun(desk: Desk) -> None:
    """Of the waiting cells one is run by an earlier job, whose supervisor writes its record."""
    desk.submit()
    (desk.cells[2] / "logs").mkdir()
    announce(desk.cells[2], Begun(number=1, started_at=datetime.now(UTC), pid=1, job="6"))
    desk.queue(j101_0="COMPLETING")  # without accounting Slurm may forget what never began
    (desk.fake.folder / "queue").rename(desk.fake.folder / "after")
    desk.queue(j101_0="RUNNING", j101_1="PENDING", j101_2="PENDING")
    desk.fake.put("scancel", 'mv "$HERE/after" "$HERE/queue"')
    desk.say("cancel")
    assert desk.fake.calls("scancel") == [["scancel", "101"]]
    assert records(desk) == ["cancelled"]


@pytest.mark.parametrize(("key", "asked"), [("cluster: big", "big"), ("cluster: null", "none")])
def test_status_and_cancel_ask_the_cluster_of_the_submission(
    tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch, key: str, asked: str
) -> None:
    """Seen: they read no site file, and asked the shell's cluster, which knows no such job."""
    desk = Desk(tmp_path, data_root, f"{SITE}{key}\n")
    monkeypatch.setenv("SLURM_CLUSTERS", "small")
    desk.submit()
    desk.queue(j101_0="RUNNING", j101_1="PENDING", j101_2="PENDING")
    note = 'echo "${SLURM_CLUSTERS-none}" >> "$HERE/asked"'
    desk.fake.put("squeue", f'{note}; cat "$HERE/queue"')
    desk.fake.put("scancel", note)
    for command in ("status", "cancel"):
        (desk.fake.folder / "asked").unlink(missing_ok=True)
        desk.say(command)
        assert set((desk.fake.folder / "asked").read_text().split()) == {asked}
    assert desk.fake.calls("scancel")


@pytest.mark.parametrize("spoilt", ["network", "sweep file", "no sweep file"])
def test_jobs_are_seen_and_cancelled_whatever_became_of_the_files(desk: Desk, spoilt: str) -> None:
    """Seen: after a half-typed edit of a network, all three commands ended in an error."""
    file, network = desk.folder / "trial.yaml", desk.folder / "net.py"
    text = file.read_text().replace("cnn", "net.py:build").replace("title", "name: mine\ntitle")
    network.write_text("def build(shape, classes): ...\n")
    file.write_text(text if spoilt == "network" else text.replace("name: mine\n", ""))
    name = "mine" if spoilt == "network" else "trial"
    desk.submit()
    desk.fake.queue({"101_0": "RUNNING"}, job_name(name, desk.results / name))
    if spoilt == "network":
        network.write_text("def build(shape, cla\n")
    elif spoilt == "sweep file":
        file.write_text(file.read_text() + "  - {\n")
    else:
        file.unlink()
    cells = sorted(path.name for path in (desk.results / name).glob("digits-*"))
    done = desk.say("status", "--json")
    assert sorted(cell["cell"] for cell in json.loads(done.stdout)["cells"]) == cells
    (line,) = [line for line in done.stderr.splitlines() if "are shown as" in line]
    assert str(network if spoilt == "network" else file) in line
    assert cells[0] in desk.say("logs", "--cell", cells[0]).stdout
    desk.say("cancel")
    assert desk.fake.calls("scancel") == [["scancel", "101"]]


def test_cells_that_an_edit_took_out_of_the_sweep_are_mentioned_and_cancelled(desk: Desk) -> None:
    desk.submit()
    desk.queue(j101_2="COMPLETING")
    (desk.fake.folder / "queue").rename(desk.fake.folder / "after")
    desk.queue(j101_0="PENDING", j101_1="PENDING")
    old = [desk.sweep / cell for cell in desk.notes()[0].arrays[0].cells]
    done = record(load_config(old[2] / "config.json"))
    (old[2] / "record.json").write_text(done.model_dump_json())
    file = desk.folder / "trial.yaml"
    file.write_text(file.read_text().replace("epochs: 2", "epochs: 3"))
    said = desk.say("status").stderr
    assert "3 more cells, which the sweep file no longer asks for: " in said
    assert "2 waiting" in said and "1 completed" in said
    desk.fake.put("scancel", 'mv "$HERE/after" "$HERE/queue"')
    assert old[0].name in desk.say("logs", "--cell", old[0].name).stdout
    desk.say("cancel")
    assert desk.fake.calls("scancel") == [["scancel", "101"]]
    assert sorted(records(desk)) == ["cancelled", "cancelled", "completed"]


def test_cancel_says_that_a_job_may_still_come(desk: Desk) -> None:
    """sbatch gave no answer, and the list that lacks its job proves nothing yet."""
    desk.fake.put("sbatch", "kill -KILL $$")
    desk.submit(code=3)
    assert "may still come into the queue" in desk.say("cancel", code=3).stderr
    desk.age()
    desk.say("cancel")


def test_cancel_with_a_full_disk_cancels_all_the_same(desk: Desk, monkeypatch) -> None:
    desk.submit()
    desk.queue(j101_0="RUNNING")

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jobs.slurm.commands.announce_cancel", full)
    done = desk.say("cancel")
    assert ["scancel", "101"] in desk.fake.calls("scancel")
    assert "No space left" in done.stderr and "stop a make sweep" in done.stderr


def test_what_cannot_be_read_is_not_submitted(desk: Desk) -> None:
    """The other cells are; and the answer is that something could not be decided."""
    desk.submit()
    desk.age()
    file = unreadable(desk.cells[0] / "record.json")
    assert "Input/output error" in desk.submit("--force", code=3)
    (note,) = desk.notes()[1:]
    names = [cell.name for cell in desk.cells]
    assert sorted(note.arrays[0].cells) == names[1:]
    assert is_untouched(desk.cells[0], file)
    assert "unreadable record" in desk.say("status").stdout
    assert "Input/output error" in desk.say("logs", "--cell", names[0]).stdout


def test_a_folder_that_cannot_be_used_keeps_no_other_from_the_queue(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit()
    desk.age()
    names = [cell.name for cell in desk.cells]
    with monkeypatch.context() as errors:
        stale(errors, desk.cells[0])
        assert "Stale file handle" in desk.submit(code=3)
    (note,) = desk.notes()[1:]
    assert sorted(note.arrays[0].cells) == names[1:]
    assert not (desk.sweep / names[0] / "record.json").exists()


@pytest.mark.parametrize(("host", "runs"), [(os.uname().nodename, True), ("login2", False)])
def test_a_cell_that_a_make_sweep_of_a_login_node_ran_itself(
    desk: Desk, host: str, runs: bool
) -> None:
    """Killed on this one, it goes on in a job, which could not tell; on another one it may live."""
    desk.submit()
    desk.age()
    shutil.rmtree(desk.sweep / ".slurm")
    cell = desk.cells[0]
    (cell / "logs").mkdir()
    announce(cell, Begun(number=1, started_at=datetime.now(UTC), pid=1))
    (cell / ".running").write_text(f"process 1 on {host}")
    said = desk.submit(code=0 if runs else 3)
    (note,) = desk.notes()
    assert (cell.name in note.arrays[0].cells) is runs is (cell / "record.json").exists()
    assert (f"rm {cell / '.running'}" in said) is not runs


def test_two_sbatch_submit_all_and_a_status_asks_once(tmp_path: Path, data_root: Path) -> None:
    """One squeue; then one more for all unexplained jobs, by their ids, and one sacct. When their
    files are ten minutes old they get their records, and nothing is asked any more. Counts of
    calls, not seconds, which depend on the machine."""
    site = SITE.replace("ranks_per_node: 2", "ranks_per_node: 1\narray_limit: 1000")
    desk = Desk(tmp_path, data_root, site, cells=2000)
    assert "submitted 2000 cells in 2 sbatch calls" in desk.submit()
    calls = Counter(call[0] for call in desk.fake.calls() if call[0] != "srun")
    assert calls == {"sbatch": 2, "scontrol": 1, "squeue": 1}

    def status() -> tuple[list[str], dict[str, int]]:
        desk.fake.forget()
        done = desk.say("status", "--json")
        return [call[0] for call in desk.fake.calls()], json.loads(done.stdout)["counts"]

    jobs = {f"j{101 + n // 1000}_{n % 1000}": "PENDING" for n in range(2000)}
    desk.queue(**jobs)
    assert status() == (["squeue"], {"waiting": 2000})
    del jobs["j101_3"], jobs["j102_999"]
    desk.queue(**jobs)
    asked = ["squeue", "scontrol", "squeue", "sacct"]  # scontrol: which cluster answers
    assert status() == (asked, {"waiting": 2000 - 2, "ending": 2})
    for note, index in zip(desk.notes(), (3, 999), strict=True):
        old = note.submitted_at - timedelta(hours=1)
        write_note(desk.sweep, note.model_copy(update={"submitted_at": old}))
        for file in (desk.sweep / note.arrays[0].cells[index]).rglob("*"):
            os.utime(file, (old.timestamp(),) * 2)
    assert status() == (asked, {"waiting": 2000 - 2, "lost": 2})
    assert status() == (["squeue"], {"waiting": 2000 - 2, "lost": 2})
