"""A sweep of many short cells on a real Slurm, disturbed all the time; then what came of it.

    python -m tests.chaos --nodes 64 --cells 2000 --faults 100 --seed 1

Root only. Everything runs in namespaces of its own, so that nothing is left, whatever happens. The
ranks are fakes (fake_rank says of what); all else is real.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from containers.practice import needs
from containers.practice.place import Place
from containers.practice.spaces import UNSHARE
from tests.chaos import evidence
from tests.chaos.cluster import Cluster
from tests.chaos.faults import FAULTS, SLOW, drawn
from tests.chaos.stage import Stage
from tests.practice import ROOT, USER

#: Whoever started this may be killed, and nothing must be left then either.
ENDS_WITH_US = ("setpriv", "--pdeathsig=KILL", "--")
#: The first process of the namespace takes in orphans; when it ends, so does all else.
FIRST = ("sh", "-c", '"$@" & wait $!', "sh")
MOST_SHOWN = 12  # pieces of evidence of one check
PAUSE = "pause"
TEND_EVERY_S, DRAIN_S = 20.0, 75.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, help="of the faults (default: drawn, and printed)")
    parser.add_argument("--minutes", type=float, help="give up then (default: by the cells)")
    parser.add_argument("--only", default=",".join(FAULTS), help="faults to draw from")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.inside is not None:
        return inside(options)
    if found := needs.troubles() + needs.missing_packages():
        print(f"no chaos on this machine: {'; '.join(found)}")
        return 2
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="horoscale-chaos-", dir="/var/tmp"))
    folder.chmod(0o755)
    argv = [*ENDS_WITH_US, *UNSHARE, *FIRST, sys.executable, "-m", "tests.chaos", *arguments]
    argv += ["--seed", str(seed), "--inside", str(folder)]
    code = subprocess.run(argv, check=False, cwd=ROOT).returncode
    if code == 0:
        shutil.rmtree(folder)
    else:
        print(f"what is left of it: {folder}")
    return code


def inside(options: argparse.Namespace) -> int:
    rng = random.Random(options.seed)
    folder = options.inside
    (folder / "cluster").mkdir()
    cluster = Cluster(Place(folder / "cluster"), options.nodes)
    stage = Stage(folder, cluster, options.cells, rng)
    minutes = options.minutes or 6 + options.cells / 12 + options.faults / 4
    faults = drawn(options.faults, rng, options.only.split(","))
    version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True)
    print(f"chaos: seed {options.seed}, {options.nodes} nodes, {options.cells} cells, "
          f"{len(faults)} faults, {version.stdout.strip()}; at most {minutes:.0f} min")  # fmt: skip
    try:
        stage.set_up(64 + options.cells // 3)
        cluster.up()
        run = Run(stage, faults)
        run.go(60 * minutes)
        return run.report()
    finally:
        _keep(stage)


def _keep(stage: Stage) -> None:
    """Copies of what only lives in the namespace."""
    kept = stage.folder / "kept"
    shutil.copytree(stage.cluster.place.log, kept / "log", dirs_exist_ok=True)
    shutil.copytree(stage.results, kept / "results", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns(".filled", ".reserve"))  # fmt: skip


@dataclass
class Run:
    stage: Stage
    faults: list[tuple[float, str]]
    struck: Counter[str] = field(default_factory=Counter)
    began: float = 0.0
    seconds: float = 0.0
    in_time: bool = True

    def say(self, text: str) -> None:
        spent = time.monotonic() - self.began
        good = len(self.stage.records.good)
        print(f"{spent:7.1f} s  {good:4} good  {text}", flush=True)

    def go(self, limit_s: float) -> None:
        stage = self.stage
        self.began = tended = looked = time.monotonic()
        if any(name == "watcher_hung_up" for _, name in self.faults):
            # the first submission, of all cells, is the one that matters most
            self.faults.remove(next(f for f in self.faults if f[1] == "watcher_hung_up"))
            self._strike("watcher_hung_up")
        while len(stage.records.good) < stage.cells or SLOW in stage.down:
            now = time.monotonic()
            if now - self.began > limit_s:
                self.in_time = False
                self.say("the time is over")
                break
            if now - looked > 0.5:
                stage.records.look()
                looked = now
            if now - tended > TEND_EVERY_S:
                if mended := stage.cluster.tend(USER):
                    self.say(f"the administrator mends {', '.join(mended)}")
                tended = now
            self._undo()
            self._watch()
            self._disturb()
            time.sleep(0.1)
        self.seconds = time.monotonic() - self.began
        self._settle()

    def _undo(self) -> None:
        now = time.monotonic()
        due = [entry for entry in self.stage.later if entry[0] <= now]
        for entry in due:
            self.stage.later.remove(entry)
            entry[1]()

    def _watch(self) -> None:
        stage = self.stage
        if {SLOW, PAUSE} & stage.down:
            return
        if stage.watcher is None:
            stage.watch()
        elif stage.watcher.poll() is not None:
            code = stage.forget_watcher()
            self.say(f"watcher {stage.starts} ended with code {code}: {stage.watch_said[:110]}")
            stage.hold_down(PAUSE, 1)  # a shell's user does not type at once

    def _disturb(self) -> None:
        done = len(self.stage.records.good) / self.stage.cells
        for entry in [entry for entry in self.faults if entry[0] <= done]:
            if self._strike(entry[1]):
                self.faults.remove(entry)
                return  # and look first

    def _strike(self, name: str) -> bool:
        told = FAULTS[name](self.stage)
        if told is not None:
            self.struck[name] += 1
            self.say(f"{name}: {told}")
        return told is not None

    def _settle(self) -> None:
        """Undo what is down, let the last watcher and all jobs end."""
        stage = self.stage
        while stage.later:
            self._undo()
            time.sleep(0.1)
        stage.cluster.wait_until_empty(USER, DRAIN_S if self.in_time else 5)
        stage.records.look()
        if stage.watcher is not None:
            deadline = time.monotonic() + 60
            while stage.watcher.poll() is None and time.monotonic() < deadline:
                time.sleep(0.5)
            self.say(f"the last watcher ends: {stage.watch_said[:110]}")
            stage.end_watcher(signal.SIGTERM)
        stage.records.look()

    def report(self) -> int:
        """Print what came of it; 0 where all checks are good."""
        stage, sweep = self.stage, self.stage.records.sweep
        starts = evidence.starts_in(stage.ledger.read_text())
        print(f"\n{self.seconds:.0f} s, {60 * stage.cells / self.seconds:.1f} cells a minute")
        print("faults:", _counts(self.struck), f"; not struck: {[n for _, n in self.faults]}")
        print(f"watchers: {stage.starts}")
        print(f"starts of ranks: {len(starts)}, ended:",
              _counts(Counter(start.end or "killed" for start in starts)))  # fmt: skip
        completions = stage.cluster.completions.read_text()
        jobs = evidence.known_jobs(completions, stage.cluster.jobs(USER), USER)
        checks = {
            "records lost": evidence.lost(sweep, stage.records, stage.cells),
            "cells twice": evidence.twice(starts),
            f"orphans among {len(jobs)} jobs": evidence.orphans(jobs, evidence.noted(sweep)),
        }
        for what, found in checks.items():
            print(f"{'RED' if found else 'ok '}  {len(found)} {what}")
            for line in found[:MOST_SHOWN]:
                print(f"       {line}")
        if not self.in_time:
            print("RED  not all cells were done in time")
        return int(any(checks.values()) or not self.in_time)


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.most_common()) or "none"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
