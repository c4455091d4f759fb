"""Quick tests see no Apptainer, Slurm or network, and one that installs something fails the run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sweeps import ROOT, executable, ran

TESTS = """
import os, shutil, subprocess, urllib.request
from jobs.slurm.client import detect

def test_that_looks_around():
    assert [shutil.which(name) for name in ("sbatch", "apptainer", "munged")] == [None] * 3
    assert shutil.which("sbatches")
    assert not {"SLURM_CONF", "MODULESHOME", "LMOD_CMD"} & os.environ.keys()
    assert detect.CONFIGURATIONS == ()

def test_that_installs():
    subprocess.run(["apt-get", "install", "hello"])
    if os.getuid() == 0:
        assert subprocess.run(["/usr/bin/apt-get", "install", "-s", "hello"], env={}).returncode

def test_that_leaves_something():
    subprocess.Popen(["sleep", "300"], env={}, start_new_session=True)

def test_that_mounts(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path])

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
    named = dict.fromkeys(("SLURM_CONF", "MODULESHOME", "LMOD_CMD"), "/x")
    done = ran(argv, cwd=ROOT, env=os.environ | named | {"PATH": path})
    assert done.returncode == 1 and "1 failed, 4 passed" in done.stdout, done.stdout
    assert "test_it.py::test_that_downloads" in done.stdout.rpartition("FAILED ")[2]
    assert "test_that_installs (call): apt-get install hello\n" in done.stderr
    assert "[bare] a test: sleep 300 (process" in done.stderr
    if os.geteuid() == 0:
        assert "[bare] left mounted: " in done.stderr and "apt-get install -s" in done.stderr
