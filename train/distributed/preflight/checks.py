"""Checks of one rank's surroundings, and the report on them.

They need Python's standard library alone, so that they run before anything that may crash, and in
an image that lacks every package. The report is on disk before each step that may crash or hang.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from train.distributed.machine.gpus import unusable
from train.distributed.watchdog import EXIT_STALLED, REPORT_S, end_process
from train.errors import FULL, remedy
from train.record.atomic import write_atomically
from train.record.mount import LOCKS_REMEDY, machine_at, mount_in_words

#: One entry of a report's ``findings``; plain, because pydantic may be what is missing.
Finding = dict[str, Any]
#: Enough for the shared memory and the session folders of a few ranks of one node.
ROOM_BYTES = 32 * 2**20
_BINDS = "bind it (`binds` of the site file), or take --contain and --no-mount out of its arguments"
_WIRING = ("PMIX_RANK", "PMI_RANK", "PMI_FD")


def finding(check: str, ok: bool | None, found: str, expected: str, fix: str) -> Finding:
    """``fix`` is told only where there is something to fix."""
    return {
        "check": check, "ok": ok, "found": found, "expected": expected, "fix": "" if ok else fix,
    }  # fmt: skip


def check_python() -> Finding:
    version = sys.version.split()[0]
    return finding(
        "python", sys.version_info >= (3, 10), f"python {version}", "python 3.10 or later",
        "use the suite's image (make image), or one with such a python3 first on PATH",
    )  # fmt: skip


def check_pmix(environment: Mapping[str, str], world: int) -> Finding:
    """By MPI, tasks find each other through variables; over Gloo they need none."""
    there = any(name in environment for name in _WIRING)
    needed = world > 1 and "HOROSCALE_RENDEZVOUS" not in environment
    return finding(
        "PMIx", there or not needed,
        "its variables are there" if there else "no PMIX_* variable",
        "srun's PMIx variables reach the ranks" if needed else "not needed: the ranks use Gloo",
        "start with srun --mpi=pmix (`srun --mpi=list` shows what there is) and take --cleanenv, "
        "--containall, -e and -C out of the container's arguments; or `mpi: gloo` in the site file",
    )  # fmt: skip


def check_writable(name: str, folder: Path, fix: str = _BINDS, room: int = 0) -> Finding:
    """Whether a file can be made there, by making one, and whether there is room."""
    expected = "writable" + (f", {room // 2**20} MiB free" if room else "")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".preflight-") as probe:
            probe.write(b"x")
            probe.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        said = f"{folder}: {error.strerror}"
        lack = remedy(error, folder) if error.errno in FULL else ""
        return finding(name, False, said, expected, lack or fix)
    return finding(name, free >= room, f"{folder}: writable, {free:,} bytes free", expected, fix)


def check_need(what: str, use: str, path: Path) -> Finding:
    """``use``: to read a folder or a file, or to write into a folder."""
    if use == "write":
        return check_writable(what, path)
    expected = "readable on every node"
    try:
        if path.is_dir():
            found = f"{sum(1 for _ in os.scandir(path))} entries"
        else:
            with path.open("rb") as file:
                found = f"a file that begins with {file.read(8)!r}"
    except OSError as error:
        fix = f"make it readable on every node, and {_BINDS}"
        return finding(what, False, f"{path}: {error.strerror}", expected, fix)
    return finding(what, True, f"{path}: {found}", expected, "")


def check_lock(file: Path, holder: str) -> tuple[Finding, str]:
    """Whether flock works there, and shows the lock that another machine holds while ranks run; and
    this machine, where it does, else ''.

    ``holder``: the other machine; '' where it could not lock the file.
    """
    where, expected = mount_in_words(file), "flock works, and nodes see each other's locks"
    here, held = "", False
    try:
        with file.open("rb") as handle:
            here = machine_at(handle.fileno())
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        held = True
    except FileNotFoundError:  # its node could not write there, which the check of results shows
        return finding("locks", None, f"no lock on {where}", expected, ""), ""
    except OSError as error:
        said = f"{file}: {error.strerror}, on {where}"
        return finding("locks", False, said, expected, LOCKS_REMEDY), ""
    if not (holder and here) or holder.partition(" ")[0] == here.partition(" ")[0]:
        return finding("locks", None, f"flock works on {where}", expected, ""), ""
    said = f"{file}: {'held' if held else 'free, and another node holds it'}, on {where}"
    return finding("locks", held, said, expected, LOCKS_REMEDY), here if held else ""


def check_gpu(names: list[str], local_size: int, *, wanted: bool) -> Finding:
    """One GPU for each rank: its own alone is visible, or at least as many as there are ranks."""
    ok = len(names) == 1 or len(names) >= local_size if wanted else True
    return finding(
        "GPU", ok,
        f"{len(names)} visible" + (f" ({', '.join(names)})" if names else ""),
        f"one for each of {local_size} ranks of the node" if wanted else "none needed",
        "`gpu_support: nv` (or rocm) and `gpus` in the site file, and a GPU image (make image "
        "IMAGE=gpu)",
    )  # fmt: skip


def check_cuda(driver: tuple[int, int] | None, built: str | None, *, wanted: bool) -> Finding:
    """A driver serves programs built for its own CUDA and older ones, and within one major version
    also for newer minor ones."""
    newest = "no CUDA driver" if driver is None else "driver for CUDA {}.{}".format(*driver)
    expected = f"a driver for CUDA {built}" if built else "a TensorFlow that was built for CUDA"
    if not wanted:
        return finding("CUDA", True, newest, "none needed", "")
    fix = "make image IMAGE=gpu" if not built else "a newer driver on that node, or an older image"
    ok = bool(built and driver and driver[0] >= int(built.split(".")[0]))
    return finding("CUDA", ok, newest if built else "a TensorFlow for CPUs", expected, fix)


def check_gpu_models(
    gpus: Mapping[str, tuple[int, int]], built: str | None, *, wanted: bool
) -> Finding:
    """Whether the code of the image runs on these GPUs, which a driver for it does not say.

    Args:
        gpus: name -> compute capability.
    """
    reasons = [unusable(*gpu, built) for gpu in gpus.items()] if wanted and built else []
    models = ", ".join(f"{name} ({major}.{minor})" for name, (major, minor) in gpus.items())
    return finding(
        "GPU model", not any(reasons), next(filter(None, reasons), models or "none"),
        f"GPUs that CUDA {built} runs on" if wanted else "none needed",
        "ask for another type of GPU (`gpu_type` or `constraint` of the site file), or use an "
        "image with another CUDA",
    )  # fmt: skip


class Hopeless(Exception):
    """A finding after which further steps would only crash or hang."""


class Report:
    """What is known so far, on disk after each phase (preflight_report reads it)."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        number = os.environ.get("SLURM_PROCID") or os.environ.get("HOROSCALE_RANK")
        procid = int(number) if number and number.isdecimal() else None
        host = socket.gethostname()
        # process numbers repeat where each container has its own
        name = f"{host}-{uuid.uuid4().hex[:8]}" if procid is None else str(procid)
        self._file = folder / f"rank-{name}.json"
        self._began = time.monotonic()
        self._limit_s = limit_s
        self.facts: dict[str, Any] = {
            "schema_version": 1, "host": host, "procid": procid, "phase": "light checks",
            "late": False, "started_at": datetime.now(timezone.utc).isoformat(), "duration_s": 0.0,
            "pmix": any(name.startswith("PMIX_") for name in os.environ),
            "versions": {"python": platform.python_version()}, "built": {}, "launcher": None,
            "size": None, "rank": None, "local_rank": None, "cross_rank": None, "interface": None,
            "carried": {}, "gpus": [], "driver": None, "lock": "",
            "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"), "findings": [],
        }  # fmt: skip
        self.hurry(limit_s)
        # where native code, such as a library that loads, keeps Python's lock: a thread without
        # it ends the process, with exit code 1; where stacks are written to must not hang
        stacks = os.memfd_create("stacks")
        faulthandler.dump_traceback_later(limit_s + 2 * REPORT_S, exit=True, file=stacks)
        # only now what may hang
        folder.mkdir(parents=True, exist_ok=True)
        self.facts["driver"] = _driver()

    def hurry(self, seconds: float) -> None:
        """End by then, or earlier where that was said before."""
        timer = threading.Timer(seconds, end_process, (EXIT_STALLED, self._late))
        timer.daemon = True
        timer.start()

    def enter(self, phase: str) -> None:
        self.facts["phase"] = phase
        self.write()

    def add(self, *findings: Finding) -> None:
        self.facts["findings"] = [*self.facts["findings"], *findings]

    def refuse(self, finding: Finding) -> None:
        """Raises Hopeless when the finding is a bad one."""
        self.add(finding)
        if finding["ok"] is False:
            raise Hopeless

    def write(self) -> None:
        self.facts["duration_s"] = round(time.monotonic() - self._began, 3)
        write_atomically(self._file, json.dumps(self.facts, indent=1))

    @property
    def bad(self) -> list[Finding]:
        return [finding for finding in self.facts["findings"] if finding["ok"] is False]

    def _late(self) -> None:
        """Native code may hold this process for ever: write what is known before it is ended."""
        phase = self.facts["phase"]
        self.facts["late"] = True
        slow = "raise `preflight_s` of the site file if the image or a file system is slow"
        fix = "ranks without a report never started; with reports of all, their network "
        fix += "interface does not lead to each other: name one as `interface` of the site file"
        self.add(
            finding(
                "time", False, f"still {phase} after {time.monotonic() - self._began:.0f} s",
                f"all ranks meet and compute a sum within {self._limit_s:.0f} s (preflight_s)",
                slow if phase in ("light checks", "importing") else f"{fix}; or {slow}",
            )
        )  # fmt: skip
        self.write()


def _driver() -> str | None:
    try:
        return Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return None
