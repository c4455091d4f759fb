"""A rank notices that its supervisor is gone, also from inside a container."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sweeps import ROOT
from train.distributed.watchdog import is_orphan

RANK = """
import sys, time
from train.distributed.watchdog import is_orphan
supervisor = int(sys.argv[1])
print(is_orphan(supervisor), flush=True)
deadline = time.monotonic() + 60
while not is_orphan(supervisor) and time.monotonic() < deadline:
    time.sleep(0.01)
print(is_orphan(supervisor), flush=True)
"""
#: What stands between a supervisor and a rank: nothing, or the starter of a container.
BETWEEN = {"alone": "", "in a container": "sh -c '\"$@\"; true' starter "}


def test_a_parent_that_lives() -> None:
    assert not is_orphan(os.getppid())
    assert is_orphan(os.getpid()), "a process is not its own supervisor"


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_a_supervisor_that_is_killed(between: str) -> None:
    line = f'{between}"$1" -c "$2" $$ & wait'
    with subprocess.Popen(
        ["sh", "-c", line, "supervisor", sys.executable, RANK],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    ) as supervisor:  # fmt: skip
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "False\n"
        supervisor.kill()
        assert supervisor.stdout.readline() == "True\n"
