"""Quick tests see no Apptainer, Slurm or network, and one that installs something fails the run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sweeps import ROOT, executable, ran

TESTS = """
import os, shutil, subprocess, urllib.request

def test_that_looks_around():
    assert [shutil.which(name) for name in ("sbatch", "apptainer", "munged")] == [None] * 3
    assert shutil.which("sbatches") and "SLURM_CONF" not in os.environ

def test_that_installs():
    subprocess.run(["apt-get", "install", "hello"])

def test_that_leaves_something():
    subprocess.Popen(["sleep", "300"])

def test_that_downloads():
    urllib.request.urlopen("http://192.0.2.1/", timeout=60)
"""


def test_what_quick_tests_may_not_do_fails_their_session(tmp_path: Path) -> None:
    for name in ("sbatch", "apptainer", "munged", "sbatches"):
        executable(tmp_path / "bin" / name, "#!/bin/sh\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    argv = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", tmp_path, tmp_path]
    argv += ["-p", "no:cacheprovider", "-p", "tests.bare", "-m", "not slow and not slurm"]
    done = ran(argv, cwd=ROOT, env=os.environ | {"PATH": path, "SLURM_CONF": "/x"})
    assert done.returncode == 1 and "1 failed, 3 passed" in done.stdout, done.stdout
    assert "test_it.py::test_that_downloads\n" in done.stdout
    installed, left = (line for line in done.stderr.splitlines() if "::" in line)
    assert "test_that_installs (call): apt-get install hello" in installed
    assert "test_that_leaves_something (call): sleep 300 (process" in left
