"""The command as a user runs it: exit codes, messages, and every way to interrupt it."""

from __future__ import annotations

import errno
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from jobs.messages import refusals
from tests.jobs.local.scripted import GOOD, LONG, Front, family, front
from tests.sweeps import ROOT, ran, rank_processes, wait_until
from train.record.run import read_record

HOST = os.uname().nodename


def statuses(trial: Front) -> list[str]:
    files = [cell / "record.json" for cell in trial.cells()]
    return [read_record(file).status if file.exists() else "no record" for file in files]


def in_play(trial: Front) -> None:
    wait_until(lambda: list(trial.sweep.glob("*/mark-in-*")), "a rank")


def over(trial: Front) -> None:
    """Nothing runs any more."""
    assert not any(rank_processes(cell) for cell in trial.cells())
    assert not [pid for pid in family(trial.folder) if pid != os.getpid()]


def ends(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and all that was said, which is never a traceback."""
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err and "Error:" not in (out or ""), err
    return process.returncode, err


def test_all_well_then_nothing_to_do(tmp_path: Path) -> None:
    trial = front(tmp_path, GOOD, seeds="[0, 1]")
    done = trial.run()
    assert (done.returncode, done.stdout) == (0, f"{trial.sweep}\n")
    assert "2 cells, 2 to run" in done.stderr and "all cells: 2 completed" in done.stderr
    done = trial.run()
    assert done.returncode == 0 and "nothing to train" in done.stderr
    over(trial)


def test_a_refusing_file_system_is_exit_code_2_and_advice(capsys) -> None:
    with pytest.raises(typer.Exit) as caught, refusals():
        raise OSError(errno.EROFS, "Read-only file system", "/results/x")
    said = capsys.readouterr().err
    assert caught.value.exit_code == 2
    advice = "make the file system of / writable, which is read-only, then make the same again"
    assert f"'/results/x': {advice}" in said


@pytest.mark.parametrize(("command", "utf8"), [("sweep", "1"), ("logs", "0"), ("plan", "0")])
def test_a_folder_whose_name_is_no_utf_8(tmp_path: Path, command: str, utf8: str) -> None:
    """Seen: a sweep that ended well broke off where it names its folder."""
    trial, odd = front(tmp_path, GOOD), tmp_path / "no utf-8 \udce9"
    argv = [*trial.program, command, str(tmp_path / "trial.yaml"), "--results", str(odd)]
    argv += ["--data", str(trial.data), "--site=local"] if command in ("sweep", "plan") else []
    env = os.environ | {"PYTHONUTF8": utf8, "LC_ALL": "C.UTF-8"}
    done = ran(argv, cwd=ROOT, env=env, text=False)
    assert done.returncode == 0 and os.fsencode(odd) in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["sweep", "status"])
def test_a_link_in_a_circle_is_refused(tmp_path: Path, command: str) -> None:
    """Seen: a traceback, with the exit code of a failed cell."""
    trial = front(tmp_path, GOOD)
    (tmp_path / "circle").symlink_to("circle")
    argv = [*trial.program, command, str(tmp_path / "trial.yaml")]
    places = ["--data", str(tmp_path / "circle"), "--site=local"] if command == "sweep" else []
    done = ran([*argv, "--results", str(tmp_path / "circle"), *places], cwd=ROOT)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "Too many levels of symbolic links" in done.stderr


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupt_before_anything_has_begun(tmp_path: Path, ignored: bool) -> None:
    """The imports take seconds on a network file system. Seen: a traceback of them."""
    (tmp_path / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('goes on')\nos._exit(7)\n"
    )
    program = [sys.executable, "-m", "jobs", "where"]
    quiet = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"] if ignored else []
    done = ran([*quiet, *program], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (7 if ignored else 130, "")


COLOURS = ("FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS")


def test_a_log_has_no_escapes_and_ranks_nothing_of_the_shell(tmp_path: Path) -> None:
    """Whatever the shell says of terminals, and to other programs."""
    stray = ("TF_XLA_FLAGS", "OMP_PLACES", "MPLBACKEND", "BASH_ENV", "GIT_DIR", "SINGULARITY_BIND")
    body = f"assert not set({(*stray, *COLOURS)}) & set(os.environ), os.environ\n{GOOD}"
    trial = front(tmp_path, body)
    env = os.environ | dict.fromkeys((*COLOURS, *stray), "1") | {"NCCL_DEBUG": "WARN"}
    with trial.start(env=env) as process:
        code, err = ends(process)
    assert code == 0 and "\x1b" not in err
    (named,) = re.findall("not passed on to ranks: (.*) [(]docs", err)
    assert {"OMP_PLACES", "SINGULARITY_BIND", "TF_XLA_FLAGS"} <= set(named.split(", "))
    for words in (["status", str(trial.folder / "trial.yaml")], ["sweep", "--no-such-option"]):
        done = ran([*trial.program, *words], cwd=ROOT, env=env)
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("spoil", "words"),
    [("results", "cannot write to the results folder"), ("echo noise", "expected {"),
     ("exit 2", "is not ready"), ("kill -9 $$", "is not ready")],
)  # fmt: skip
def test_a_refused_request_is_exit_code_2(tmp_path: Path, spoil: str, words: str) -> None:
    trial = front(tmp_path, GOOD)
    if spoil == "results":
        trial.results.write_text("a file")
    else:
        shim = trial.stage / "python"  # counts the images, too
        answer = """echo '{"train_images": 1437, "form": "digits-0"}'"""
        assert answer in shim.read_text()
        shim.write_text(shim.read_text().replace(answer, spoil))
    done = trial.run()
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert not [file for file in trial.sweep.glob("*/*") if file.is_file()], "nothing was started"


@pytest.mark.parametrize(
    ("number", "whole", "times"),
    [(signal.SIGHUP, True, 1), (signal.SIGTERM, False, 1), (signal.SIGINT, True, 10)],
)
def test_a_signal_ends_all(tmp_path: Path, number: signal.Signals, whole: bool, times: int) -> None:
    """To all processes, as a terminal sends it, or to the command alone; by an impatient user to
    ranks that do not end."""
    deaf = "signal.signal(15, signal.SIG_IGN)\n" if times > 1 else ""
    trial = front(tmp_path, deaf + LONG, gpus="[2]", seeds="[0, 1]")
    with trial.start() as process:
        in_play(trial)
        for _ in range(times):
            (os.killpg if whole else os.kill)(process.pid, number)
            time.sleep(0.02)
        code, said = ends(process)
        over(trial)
    assert code == 130 and f"interrupted (got {number.name}): all ranks were ended" in said
    assert sorted(statuses(trial)) == ["cancelled", "no record"]


def test_the_end_of_make_ends_all(tmp_path: Path) -> None:
    """make ends the shell of its recipe, which passes nothing on."""
    trial = front(tmp_path, LONG)
    command = shlex.join(trial.argv()).replace("$", "$$")
    (tmp_path / "Makefile").write_text(f"sweep:\n\t@code=0; {command} || code=$$?; exit $$code\n")
    make = subprocess.Popen(
        ["make", "-f", str(tmp_path / "Makefile"), "sweep"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        in_play(trial)
        make.terminate()
        _, said = make.communicate(timeout=240)
        wait_until(lambda: not family(trial.sweep), "the end of all")
        over(trial)
    finally:
        for pid in family(trial.folder):
            os.kill(pid, signal.SIGKILL)
    assert "the make that started this has ended" in said
    assert statuses(trial) == ["cancelled"]


@pytest.mark.parametrize("command", ["sweep", "plan"])
def test_a_reader_that_is_gone(tmp_path: Path, command: str) -> None:
    trial = front(tmp_path, "live(0.5)\n" + GOOD, seeds=str(list(range(2))))
    said = "&1" if command == "sweep" else f"{tmp_path}/err"
    line = f"{shlex.join(trial.argv(command=command))} 2>{said}"
    script = f"{line} | head -1; echo ${{PIPESTATUS[0]}}"
    done = ran(["bash", "-c", script], cwd=ROOT, timeout=240)
    first, code = done.stdout.splitlines()
    if command == "sweep":
        assert code == "0" and statuses(trial) == ["completed"] * 2
    else:
        said = (tmp_path / "err").read_text()
        assert first.startswith("cell") and said == f"[sweep] cells run on this machine, {HOST}\n"
    over(trial)


def test_on_a_terminal_a_table_and_why_a_cell_failed(tmp_path: Path) -> None:
    why = "no memory [oom] :warning: " + "x" * 200
    fails = f"fail({why!r}) if '-s1-' in CELL.name else good()"
    trial = front(tmp_path, f"beat()\nepoch(1)\n{fails}\n", seeds="[0, 1]")
    master, slave = pty.openpty()
    with trial.start(stderr=slave, stdout=slave) as process:
        os.close(slave)
        text = b""
        try:
            while chunk := os.read(master, 4096):
                text += chunk
        except OSError:
            pass  # the other side is closed
        assert process.wait(20) == 1
    os.close(master)
    said = text.decode()
    assert "1 of 2 cells done: 1 completed; 1 failed" in said and "images/s" in said
    assert re.search(rf"-s1-\w+: failed: {re.escape(why)}", said), "neither cut nor taken as markup"
    assert not re.search(r"-s0-\w+: completed", said)
