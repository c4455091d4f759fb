"""A rank's preflight report while it is made: on disk before each step that may crash or hang."""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train import preflight_checks as checks
from train.files import write_atomically
from train.watchdog import REPORT_S, end_process

#: A rank whose peers never came, or that was stuck otherwise, ends itself with this code.
EXIT_LATE = 75


class Hopeless(Exception):
    """A finding after which further steps would only crash or hang."""


class Report:
    """What is known so far, on disk after each phase (train.preflight_report reads it)."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        told = os.environ.get("SLURM_PROCID") or os.environ.get("HOROSCALE_RANK")
        procid = int(told) if told and told.isdecimal() else None
        host = socket.gethostname()
        # process numbers repeat where each container has its own
        name = f"{host}-{uuid.uuid4().hex[:8]}" if procid is None else str(procid)
        self._file = folder / f"rank-{name}.json"
        self._began = time.monotonic()
        self._limit_s = limit_s
        self.facts: dict[str, Any] = {
            "schema_version": 1, "host": host, "procid": procid, "phase": "light checks",
            "late": False, "started_at": datetime.now(UTC).isoformat(), "duration_s": 0.0,
            "pmix": any(name.startswith("PMIX_") for name in os.environ),
            "versions": {"python": platform.python_version()}, "built": {}, "launcher": None,
            "size": None, "rank": None, "local_rank": None, "cross_rank": None, "interface": None,
            "carried": {}, "gpus": [], "driver": None,
            "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"), "findings": [],
        }  # fmt: skip
        timer = threading.Timer(limit_s, end_process, (EXIT_LATE, self._late))
        timer.daemon = True
        timer.start()
        # where native code, such as a library that loads, keeps Python's lock: a thread without
        # it ends the process, with exit code 1; where stacks are written to must not hang
        stacks = os.memfd_create("stacks")
        faulthandler.dump_traceback_later(limit_s + 2 * REPORT_S, exit=True, file=stacks)
        # only now what may hang
        folder.mkdir(parents=True, exist_ok=True)
        self.facts["driver"] = _driver()

    def enter(self, phase: str) -> None:
        self.facts["phase"] = phase
        self.write()

    def add(self, *findings: checks.Finding) -> None:
        self.facts["findings"] = [*self.facts["findings"], *findings]

    def refuse(self, finding: checks.Finding) -> None:
        """Raises Hopeless when the finding is a bad one."""
        self.add(finding)
        if finding["ok"] is False:
            raise Hopeless

    def write(self) -> None:
        self.facts["duration_s"] = round(time.monotonic() - self._began, 3)
        write_atomically(self._file, json.dumps(self.facts, indent=1))

    @property
    def bad(self) -> list[checks.Finding]:
        return [finding for finding in self.facts["findings"] if finding["ok"] is False]

    def _late(self) -> None:
        """Native code may hold this process for ever: write what is known before it is ended."""
        phase = self.facts["phase"]
        self.facts["late"] = True
        self.add(
            checks.finding(
                "time", False, f"still {phase} after {self._limit_s:g} s",
                "all ranks meet and compute a sum before that",
                "ranks without a report never started; with reports of all, their network "
                "interface does not lead to each other: name one as `interface` of the site file",
            )
        )  # fmt: skip
        self.write()


def _driver() -> str | None:
    try:
        return Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return None
