"""What a step costs, as ratios within one run on a machine that does nothing else.

Each case has contenders, worlds of ranks that are started once and take turns, round by round, from
another one on in each. A line is a contender: images/s, and its ratio to the case's first one in
the same round: median (smallest to largest), and the exact 95 % interval of the median, by order
statistics, from six rounds on. The suite passes against the plain script if the median is at least
0.97 and the interval does not end below 1. All samples are kept in results/bench/TIME.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from analysis.stats.intervals import median_ends
from tests.bench.cases import CASES, Case, opened
from tests.bench.hosts import two_hosts
from tests.bench.worlds import Answers
from tests.sweeps import ROOT

BEFORE = "bc6f2d08"
BAR = 0.97


class Found(NamedTuple):
    answers: dict[str, list[Answers]]  # of each contender in each round
    delay_line: float | None  # the cores that it takes meanwhile


def rates(turns: Sequence[Answers]) -> list[float]:
    """Images/s of all ranks, turn by turn."""
    return [sum(own["images"] / own["seconds"] for own in answers) for answers in turns]


def run(case: Case, rounds: int, store: Path, old: Path | None) -> Found:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts, line = stack.enter_context(two_hosts(case.link)) if case.link else ((), None)
        running = {}
        for one in case.contenders:
            if one.name == "before" and old is None:
                continue
            world = opened(case, one, hosts, folder / one.name, store, old)
            running[one.name] = stack.enter_context(world)
            running[one.name].set_steps(case.seconds)
        names = list(running)
        answers: dict[str, list[Answers]] = {name: [] for name in names}
        begin, used = time.monotonic(), sum(line.cpu_times()[:2]) if line else 0.0
        for number in range(rounds):
            at = number % len(names)
            for name in names[at:] + names[:at]:
                answers[name].append(running[name].turn())
        share = None
        if line:
            share = (sum(line.cpu_times()[:2]) - used) / (time.monotonic() - begin)
        return Found(answers, share)


def lines(case: Case, found: Found) -> Iterator[str]:
    speeds = {name: rates(turns) for name, turns in found.answers.items()}
    first = next(iter(speeds))
    for name, own in speeds.items():
        ratios = [a / b for a, b in zip(own, speeds[first], strict=True)]
        text = f"{case.name:40} {name:>13} {statistics.median(own):9,.0f} images/s  "
        if name == first:
            yield text.rstrip()
            continue
        low, high = median_ends(ratios)
        text += spread(ratios)
        if not math.isnan(low):
            text += f", 95 % {low:.3f} to {high:.3f}"
        if (first, name) == ("plain", "suite"):
            passed = statistics.median(ratios) >= BAR and not high < 1
            text += "  passed" if passed else "  FAILED"
        yield text
        if first == "parts" and case.link:
            yield f"{case.name:40} {name:>13} {overlap(case, found, speeds[first], own)}"
    if found.delay_line is not None:
        yield f"{case.name:40}    delay line took {found.delay_line:.2f} of a core"


def overlap(case: Case, found: Found, parts: Sequence[float], own: Sequence[float]) -> str:
    """Which share of an all-reduce by itself the step in one graph saves."""
    images = case.batch * case.ranks
    alone = [
        statistics.fmean(one["parts"]["communication_s"] / len(one["calls"]) for one in answers)
        for answers in found.answers["parts"]
    ]
    saved = [
        (images / a - images / b) / seconds for a, b, seconds in zip(parts, own, alone, strict=True)
    ]
    return f"saves of {statistics.median(alone):.3f} s of all-reduce {spread(saved)}"


def spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):6.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def why_not(case: Case) -> str | None:
    if case.link and (os.geteuid() != 0 or not shutil.which("tc")):
        return "two hosts on one machine need root, ip and tc (package iproute2)"
    if len(os.sched_getaffinity(0)) < case.ranks * case.cores:
        return f"needs {case.ranks * case.cores} cores"
    return None


def chosen(cases: Sequence[Case], parts_of_names: Sequence[str]) -> Iterator[Case]:
    """Those whose names have one of these parts, all if there is none, and that can run here; for
    another it prints why not."""
    for case in cases:
        if parts_of_names and not any(part in case.name for part in parts_of_names):
            continue
        if why := why_not(case):
            print(f"{case.name:40} not run: {why}")
        else:
            yield case


def checkout(commit: str, folder: Path) -> Path | None:
    """The files of a commit; None if this clone lacks it."""
    asked = ["git", "cat-file", "-e", commit]
    known = subprocess.run(asked, cwd=ROOT, capture_output=True, check=False)
    if known.returncode:
        print(f"not compared with {commit}: this clone lacks it (git fetch --unshallow)")
        return None
    folder.mkdir()
    packed = subprocess.run(
        ["git", "archive", commit, "train"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return folder


def main(tokens: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--before", default=BEFORE, help="a commit, or nothing: no such contender")
    parser.add_argument("--seconds", type=float, help="of a turn; by default as each case has it")
    parser.add_argument("cases", nargs="*", help="parts of their names; all where none is given")
    given = parser.parse_args(tokens)
    report: dict[str, Any] = {"arguments": tokens}
    with tempfile.TemporaryDirectory() as folder:
        old = checkout(given.before, Path(folder) / "before") if given.before else None
        store = Path(folder) / "data"
        for case in chosen(CASES, given.cases):
            timed = case._replace(seconds=given.seconds or case.seconds)
            found = run(timed, given.rounds, store, old)
            report[case.name] = {"case": timed, "found": found}
            print("\n".join(lines(timed, found)), flush=True)
    out = ROOT / "results" / "bench" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report) + "\n", encoding="utf-8")
    print(f"all samples: {out.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
