"""The preflight's own job, with an srun that starts no rank."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.lock import only_sweep
from jobs.cell.needs import Need
from jobs.config.site import Site
from jobs.slurm.job import preflight as module
from jobs.slurm.job.preflight import run_preflight
from jobs.slurm.job.step_ranks import StepRanks
from jobs.slurm.job.task import PreflightReport, PreflightTask, read_preflight
from tests.jobs.slurm.fakes import FakeSlurm
from tests.train.distributed.preflight.test_preflight_report import report as rank_report
from train.distributed.preflight.report import LATE, Finding
from train.record import mount
from train.record.mount import boot_id, device_of

SITE: dict[str, Any] = {"ranks_per_node": 1}


def task(folder: Path, **changes: Any) -> PreflightTask:
    values: dict[str, Any] = {
        "folder": str(folder), "site": Site(**SITE), "nodes": 2,
        "ranks_per_node": 1, "image": "/i.sif", "root": "/code",
        "needs": (Need(what="the results folder", path="/results", use="write"),
                  Need(what="the data set", path="/a b")),
    }  # fmt: skip
    return PreflightTask(**(values | changes))


def failed(fake: FakeSlurm, folder: Path, words: str) -> PreflightReport:
    """Of two ranks, the second one's container does not start."""
    return held(
        fake, folder, f"echo {shlex.quote(f'FATAL:   {words}')} > {folder}/rank-1.log",
        "echo 'srun: error: n2: task 1: Exited with exit code 255' >&2; exit 1",
    )  # fmt: skip


def held(fake: FakeSlurm, folder: Path, *lines: str) -> PreflightReport:
    """What the preflight leaves after this srun."""
    fake.put("srun", "\n".join(lines))
    with pytest.raises(SystemExit, match="1"):
        run_preflight(task(folder).model_dump(mode="json"))
    report = read_preflight(folder)
    assert report is not None
    return report


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("TMPDIR", raising=False)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/a b", "n2: the data set: found no /a b; expected it is on every node"),
        ("/results", "n2: the results folder: found no /results"),
        ("/raid", "n2: a bind of the site file: found no /raid"),
    ],
)
def test_what_a_node_lacks_is_named_with_the_node(fake, tmp_path, path, named) -> None:
    """In the words of Apptainer 1.4."""
    words = f"container creation failed: mount hook function failure: mount {path}->{path} error: "
    words += f"while mounting {path}: mount source {path} doesn't exist"
    report = failed(fake, tmp_path, words)
    assert named in str(report.problems[0])


@pytest.mark.parametrize(
    ("nodes", "scratch", "given", "used"),
    [(1, None, "HERE", "HERE"), (1, None, "/nowhere/t", "/tmp"), (1, None, "t", "/tmp"),
     (2, None, "HERE", "/tmp"), (2, None, None, None), (2, "/local", "HERE", "/local")],
)  # fmt: skip
def test_temporary_files_go_where_the_node_has_a_folder(
    tmp_path: Path, nodes: int, scratch: str | None, given: str | None, used: str | None
) -> None:
    """A login node's TMPDIR comes along with the job."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as here:
        environment = {} if given is None else {"TMPDIR": given.replace("HERE", here)}
        made = task(tmp_path, site=Site(ranks_per_node=1, scratch=scratch), nodes=nodes)
        wanted = used and used.replace("HERE", here)
        assert made.on_node(environment).site.scratch == wanted


def test_ranks_killed_for_their_memory_hold_the_sweep(fake: FakeSlurm, tmp_path: Path) -> None:
    """In the words of Slurm 22.05. They died while they imported, and MPI was blamed for it."""
    said = "StepId=1.0 exceeded memory limit (310067200 > 214958080), being killed"
    lines = [f"echo 'slurmstepd-n2: error: {said}' > {tmp_path}/rank-1.log",
             "echo 'srun: error: n2: task 1: Killed' >&2; exit 137"]  # fmt: skip
    for rank in range(2):
        died = rank_report(rank, phase="importing", host=f"n{rank + 1}").model_dump_json()
        (tmp_path / f"rank-{rank}.json").write_text(died)
    (problem,) = held(fake, tmp_path, *lines).problems
    assert (problem.node, problem.check, problem.found) == ("n2", "memory", said)
    assert "mem_per_rank_gb" in problem.fix


def test_an_image_that_starts_slowly_is_not_a_broken_one(
    fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: `the image, the bind of the checkout or the results folder is missing`."""
    monkeypatch.setattr(module, "START_S", -19)  # preflight_s is 20 at least
    monkeypatch.setitem(SITE, "preflight_s", 20)
    (tmp_path / "rank-0.json").write_text(rank_report(0, phase="importing").model_dump_json())
    (problem,) = held(
        fake, tmp_path, "echo 'srun: Job step creation disabled' >&2; exec sleep 60"
    ).problems
    assert problem.check == "time limit" and "preflight_s" in problem.fix
    assert "rank 0: importing, rank 1: no report yet" in problem.found
    assert "preflight_s, 20 s" in problem.expected and "creation disabled" in problem.found


def test_a_rank_that_starts_after_the_other_has_waited_for_its_whole_time(
    fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's end makes us end the second, before it wrote anything."""
    monkeypatch.setattr(StepRanks, "grace_s", 0.1)
    waited = Finding(check=LATE, ok=False, found="still meeting", expected="all meet", fix="look")
    late = rank_report(0, waited, phase="meeting the others", late=True)
    (tmp_path / "rank-0.json").write_text(late.model_dump_json())
    said = "srun: error: n1: task 0: Exited with exit code 75"
    found = held(fake, tmp_path, f"echo '{said}' >&2; exec sleep 60").problems
    assert [problem.check for problem in found] == [LATE, "time limit"]
    assert "rank 1: no report yet" in found[1].found and "rank 0" not in found[1].found


def test_a_rank_without_a_report_is_named_with_its_exit_code_and_last_words(fake, tmp_path) -> None:
    words = "ModuleNotFoundError: No module named 'train'"
    first = held(
        fake, tmp_path, f'echo "{words}" > {tmp_path}/rank-1.log',
        "echo 'srun: error: n2: task 1: Exited with exit code 1' >&2; exit 1",
    ).problems[0]  # fmt: skip
    assert (first.node, first.found) == ("n2", f"rank 1 ended with exit code 1: {words}")


def test_what_srun_said_is_passed_on(fake: FakeSlurm, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank-{rank}.json").write_text(rank_report(rank).model_dump_json())
    (problem,) = held(fake, tmp_path, "echo 'srun: error: a new kind' >&2; exit 7").problems
    assert problem.found == "srun ended with exit code 7: srun: error: a new kind"
    (problem,) = held(
        fake, tmp_path, f"echo 'free(): invalid pointer' > {tmp_path}/rank-1.log",
        "echo 'srun: error: n2: task 1: Exited with exit code 134' >&2; exit 134",
    ).problems  # fmt: skip
    assert problem.found == "rank 1 ended with exit code -6: free(): invalid pointer"


def test_a_preflight_that_is_ended_has_found_nothing(fake: FakeSlurm, tmp_path: Path) -> None:
    """Preempted or cancelled: its report blamed the container of a healthy node."""
    fake.put("srun", "kill -TERM $PPID; exec sleep 9")
    with pytest.raises(SystemExit, match="ended before its ranks"):
        run_preflight(task(tmp_path).model_dump(mode="json"))
    assert read_preflight(tmp_path) is None


def test_locks_that_other_machines_saw_are_in_the_report(
    fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the ranks run, the job holds a lock. Its own node may see that of the make sweep."""
    folder, sweep = tmp_path / "preflight" / "run", tmp_path / "sweep"
    folder.mkdir(parents=True)
    for rank in range(2):
        seen = rank_report(rank, lock="b1 0:50" if rank else "")
        (folder / f"rank-{rank}.json").write_text(seen.model_dump_json())
    fake.put("srun", f"flock -n -s {folder}/.running true && exit 9; exit 0")
    boot = tmp_path / "boot"
    boot.write_text("b2")
    with monkeypatch.context() as login:
        login.setattr(mount, "BOOT_ID", boot)
        sweeps = only_sweep(sweep)
        sweeps.__enter__()
    run_preflight(task(folder, sweep=str(sweep)).model_dump(mode="json"))
    sweeps.__exit__(None, None, None)
    report, here = read_preflight(folder), f"{boot_id()} {device_of(tmp_path)}"
    assert report is not None and report.ok
    assert report.locks == ((f"b2 {device_of(tmp_path)}", here), (here, "b1 0:50"))
    (line,) = fake.calls("srun")
    assert line[line.index("--lock") :][:3] == ["--lock", f"{folder}/.running", here]
    assert (folder / ".running").read_text() == ""


def test_the_lock_of_a_make_sweep_that_has_ended_shows_nothing(fake, tmp_path: Path) -> None:
    """Also where it was killed, and left its name."""
    for rank in range(2):
        (tmp_path / f"rank-{rank}.json").write_text(rank_report(rank).model_dump_json())
    (tmp_path / ".lock").write_text("process 7 on login1, boot b1, 0:45")
    run_preflight(task(tmp_path, sweep=str(tmp_path)).model_dump(mode="json"))
    report = read_preflight(tmp_path)
    assert report is not None and report.ok and report.locks == ()


def test_ranks_that_do_not_start_hold_the_sweep(fake, tmp_path, capsys) -> None:
    report = failed(fake, tmp_path, "no such image")
    assert (report.job, report.nodes) == ("7", ())
    assert "[preflight] n2: container: found no such image" in capsys.readouterr().out
    (line,) = fake.calls("srun")
    at = line.index("/i.sif")
    assert line[at - 6 : at] == [
        word for path in ("/code", "/results", "/a b") for word in ("--bind", path)
    ]
    assert {"--mpi=pmix", "--ntasks=2", "--kill-on-bad-exit=0"} <= set(line[:at])
    at = line.index("--lock")
    assert line[at - 8 : at - 4] == ["--need", "the results folder", "write", "/results"]
    assert line[at - 4 : at] == ["--need", "the data set", "read", "/a b"]
