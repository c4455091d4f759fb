"""A rank of a preflight job, run for real: what it writes down, also when it cannot go on."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from train.distributed.preflight.report import LATE, RankPreflight, problems, read_reports
from train.program.environment import environment_of
from train.record.mount import boot_id, device_of

ROOT = Path(__file__).resolve().parents[4]


def preflight(
    out: Path, *options: str, code: str = "", **environment: str
) -> tuple[int, RankPreflight]:
    """Exit code and report of one rank; ``code`` runs before it in the same process."""
    begin = "import sys\nfrom train.distributed.preflight.__main__ import main\n"
    start = f"{begin}sys.exit(main(sys.argv[1:]))"
    program = f"{code}\n{start}"
    done = subprocess.run(
        [sys.executable, "-c", program, "--out", str(out), *options],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=600,
        env=environment_of("ranks", os.environ) | environment,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    (report,) = read_reports(out)
    return done.returncode, report


def failed(report: RankPreflight) -> list[str]:
    return [finding.check for finding in report.failed()]


def test_a_world_of_one_on_this_machine_is_well(tmp_path: Path) -> None:
    code, report = preflight(tmp_path / "out", "--world", "1")
    assert code == 0 and failed(report) == [], report.findings
    assert report.phase == "done" and not report.late and report.procid is None
    assert (report.size, report.rank, report.local_rank, report.cross_rank) == (1, 0, 0, 0)
    assert report.interface == "lo" and report.built["gloo"] and "horovod" in report.versions
    assert problems([report], 1) == ()
    checks = {finding.check for finding in report.findings}
    assert {"python", "PMIx", "/tmp", "/dev/shm", "results", "interface", "GPU",
            "world", "all-reduce"} <= checks  # fmt: skip


@pytest.mark.ranks2
def test_two_ranks_add_up(start_ranks: Callable[..., list[str]], tmp_path: Path) -> None:
    start_ranks(
        [
            "-m",
            "train.distributed.preflight",
            "--out",
            str(tmp_path),
            "--world",
            "2",
        ],
        2,
    )
    reports = read_reports(tmp_path)
    assert problems(reports, 2) == ()
    assert [(r.procid, r.rank, r.size, r.local_rank) for r in reports] == [
        (0, 0, 2, 0),
        (1, 1, 2, 1),
    ]
    # 1 MiB crossed in both directions
    assert all(report.carried["lo"] > 2 * 2**20 for report in reports)


def test_a_dropped_environment_is_found_and_named(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as handle:  # the rank reads that another node holds it
        fcntl.flock(handle, fcntl.LOCK_EX)
        code, report = preflight(tmp_path / "out", "--world", "4", "--lock", str(lock), "b 0:1")
    assert report.lock == f"{boot_id()} {device_of(lock)}"
    assert code == 1 and {"PMIx", "world"} <= set(failed(report))
    assert report.size is None and report.phase == "done"
    told = " ".join(finding.found + finding.fix for finding in report.failed())
    assert "world of 1 rank" in told and "--cleanenv" in told


def test_a_rank_whose_peers_never_come_ends_by_itself(tmp_path: Path) -> None:
    rank = {"RANK": "1", "SIZE": "2", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
    rank["RENDEZVOUS"] = str(tmp_path / "nobody publishes")
    code, report = preflight(
        tmp_path / "out", "--world", "2", "--limit-s", "30",
        # before its clock runs, so that a busy machine does not end it while importing
        code="import horovod.tensorflow, tensorflow_addons",
        **{f"HOROSCALE_{name}": value for name, value in rank.items()},
    )  # fmt: skip
    assert code == 75 and report.late and report.phase == "meeting the others"
    assert report.procid == 1 and failed(report) == [LATE]
    missing = [finding for _, finding in problems([report], 2) if finding.check == "ranks"]
    assert missing and "1 of 2 ranks" in missing[0].found


HANGING_WRITE = """
import os, train.record.atomic
os.mkfifo({fifo!r})
calls, real = [], os.fsync
def hang_from_the_third_on(handle):
    calls.append(handle)
    return real(handle) if len(calls) < 3 else open({fifo!r}, "w")
train.record.atomic.os.fsync = hang_from_the_third_on
"""


def test_a_write_that_hangs_does_not_keep_a_late_rank_alive(tmp_path: Path) -> None:
    """In the kernel, as on a file server that is gone: a FIFO that nobody reads."""
    code = HANGING_WRITE.format(fifo=str(tmp_path / "fifo"))
    code += "import train.distributed.watchdog; train.distributed.watchdog.REPORT_S = 0.5"
    exit_code, report = preflight(tmp_path / "out", "--world", "1", "--limit-s", "20", code=code)
    assert exit_code == 75 and report.phase == "light checks"  # what was written before


#: PyDLL, other than CDLL, calls with Python's lock held, as the loading of a library does.
HANGING_IMPORT = """
import ctypes, sys, train.distributed.preflight.checks
train.distributed.preflight.checks.REPORT_S = 0.5
class Hanging:
    def find_spec(self, name, *_):
        if name == "train.distributed.interfaces":
            ctypes.PyDLL(None).sleep(100)
sys.meta_path.insert(0, Hanging())
"""


def test_native_code_that_never_returns_does_not_keep_a_late_rank_alive(tmp_path: Path) -> None:
    code, report = preflight(
        tmp_path / "out", "--world", "1", "--limit-s", "20", code=HANGING_IMPORT
    )
    assert code == 1 and report.phase == "importing"


def test_an_image_without_pydantic_says_so(tmp_path: Path) -> None:
    """The report itself must need no package."""
    block = "import sys; sys.modules['pydantic'] = None"
    code, report = preflight(tmp_path / "out", "--world", "1", code=block)
    assert code == 1 and report.phase == "done"
    assert any("pydantic" in finding.found for finding in report.failed())


def test_a_crash_leaves_the_step_that_it_happened_in(tmp_path: Path) -> None:
    dies = (
        "import faulthandler, os, sys\nfaulthandler.disable()\n"
        "class FakeCrash:\n"
        "  def find_spec(self, name, *_):\n"
        "    if name == 'horovod': os.abort()\n"
        "sys.meta_path.insert(0, FakeCrash())"
    )
    code, report = preflight(tmp_path / "out", "--world", "1", code=dies)
    assert code == -6 and report.phase == "importing"
    ((host, finding),) = problems([report], 1)
    assert host == report.host and "died in its phase 'importing'" in finding.found


def test_wrong_surroundings_are_named(tmp_path: Path) -> None:
    code, report = preflight(
        tmp_path / "out", "--world", "1", "--interface", "ib5", "--gpu",
        "--need", "the weights", "read", str(tmp_path / "none.h5"),
        "--need", "scratch", "write", str(tmp_path / "none"),
        "--need", "the data", "read", str(tmp_path),
    )  # fmt: skip
    assert code == 1
    assert {"the weights", "scratch", "interface"} <= set(failed(report))
    if not report.gpus:
        assert {"GPU", "CUDA"} <= set(failed(report))
    told = {finding.check: finding.found for finding in report.failed()}
    assert "'ib5' is not there" in told["interface"] and "lo (127.0.0.1)" in told["interface"]
