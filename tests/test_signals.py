"""A hang-up and a request to end are met as Ctrl-C is, by every program of the suite."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sweeps import ROOT, wait_until

#: Program -> its file, the functions it is to be caught in, whichever it calls, its arguments.
PROGRAMS = {
    "jobs status": ("-m jobs", "jobs.config.load.load_sweep", ["status"]),
    "jobs sweep": ("-m jobs", "jobs.config.load.load_sweep", ["sweep"]),
    "jobs interconnect": ("-m jobs", "jobs.slurm.client.detect.site_for", ["interconnect"]),
    "analysis": ("-m analysis", "analysis.records.load.load_frames", ["summary", "x"]),
    "setup": ("containers/setup.py", "fcntl.flock locks.lock_file", ["login"]),
    "image": ("containers/image.py", "apptainer.ensure", ["cpu"]),
    "practice": ("containers/practice/__main__.py", "practice.place.place_of", ["status"]),
}
CODE = """
import importlib, pathlib, runpy, sys, time
program, functions, inside, *arguments = sys.argv[1:]
def caught(*_, **__):
    try:
        pathlib.Path(inside).touch()
        time.sleep(60)
    finally:
        print("cleaned up", file=sys.stderr)
sys.argv = [program, *arguments]
sys.path[:0] = [".", "containers"]
for module, _, name in (function.rpartition(".") for function in functions.split()):
    setattr(importlib.import_module(module), name, caught)
if program.startswith("-m "):
    runpy.run_module(program[3:], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(program, run_name="__main__")
"""


@contextmanager
def caught(program: str, inside: Path, *, nohup: bool = False) -> Iterator[subprocess.Popen[str]]:
    """The program while it is in the middle of something."""
    file, functions, arguments = PROGRAMS[program]
    first = ["env", "--ignore-signal=HUP"] if nohup else []
    with subprocess.Popen(
        [*first, sys.executable, "-c", CODE, file, functions, str(inside), *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            wait_until(lambda: inside.exists() or process.poll() is not None, program)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("program", PROGRAMS)
def test_they_end_alike(tmp_path: Path, program: str) -> None:
    ends = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with caught(program, tmp_path / number.name) as process:
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
            ends[number.name] = process.returncode, said
    assert ends["SIGINT"][0] == 130 and "cleaned up" in ends["SIGINT"][1]
    assert "Traceback" not in ends["SIGINT"][1]
    assert ends["SIGTERM"] == ends["SIGHUP"] == ends["SIGINT"]


@pytest.mark.parametrize("program", ["jobs status", "analysis", "setup", "practice"])
def test_a_hang_up_that_is_ignored_stays_so(tmp_path: Path, program: str) -> None:
    with caught(program, tmp_path / "in", nohup=True) as process:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130


def test_a_second_hang_up_disturbs_no_clean_up(tmp_path: Path) -> None:
    """The kernel sends one, and the shell another."""
    with caught("jobs status", tmp_path / "in") as process:
        for _ in range(20):
            process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.startswith("cleaned up\n[sweep] interrupted")
