"""What it costs to load records into frames and to make all tables of them, and how the cost grows
from 1,000 to 10,000 records.

Usage: python -m tests.bench.records [CONDITIONS ...]; 8 conditions and 2,500 by default. Records
are of 100 epochs, made for this in a temporary folder of 1 GB. Cold: nothing is cached; warm: no
record changed since. Seconds are of processors, over all processes, so that other programs on the
machine count little. It fails where ten times the records cost a cold report, loading and tables
together, more than eleven times as much.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.analysis.many import many

FEW, MANY = 1_000, 10_000
MOST_GROWTH = 11.0


def measure(folder: Path) -> dict[str, float]:
    """Of this process: it loads one sweep, makes its tables and compares it with itself."""
    from analysis.page.report import build
    from analysis.records.load import load_frames
    from analysis.topics.comparisons import changes

    began, before = time.perf_counter(), _spent()
    frames = load_frames(folder)
    assert len(frames.runs) == len(frames.planned)
    loaded = _spent()
    build(frames, draw=False)
    changes.table(frames, frames)
    peak = max(resource.getrusage(who).ru_maxrss for who in _WHO)
    wall = time.perf_counter() - began
    return {"wall_s": wall, "cpu_s": loaded - before, "tables_s": _spent() - loaded,
            "peak_kb": peak}  # fmt: skip


_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _spent() -> float:
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, _WHO))


def case(conditions: int, records: int) -> dict[str, dict[str, float]]:
    """Cold and then warm, each in a process of its own."""
    with tempfile.TemporaryDirectory() as parent:
        folder = many(Path(parent) / "sweep", conditions, records // conditions)
        # as if they were not of this very moment, of which no cache is sure
        for file in folder.glob("*/record.json"):
            os.utime(file, (0, 0))
        command = [sys.executable, "-m", "tests.bench.records", "--folder", str(folder)]
        found = {}
        for which in ("cold", "warm"):
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[which] = json.loads(done.stdout)
    return found


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--folder"]:
        print(json.dumps(measure(Path(arguments[1]))))
        return 0
    good = True
    for conditions in [int(text) for text in arguments] or [8, 2_500]:
        few, large = (case(min(conditions, records), records) for records in (FEW, MANY))
        for which in ("cold", "warm"):
            before, after = (
                found[which]["cpu_s"] + found[which]["tables_s"] for found in (few, large)
            )
            limit = MOST_GROWTH if which == "cold" else math.inf
            good &= after <= limit * before
            print(
                f"{conditions:5,} conditions, {which}: {FEW:,} records {before:.2f} s of processor "
                f"({few[which]['tables_s']:.2f} s of them tables), {MANY:,} {after:.1f} s "
                f"({large[which]['tables_s']:.1f} s), {after / before:.1f} times"
                f"{f', at most {limit:g}' if limit < math.inf else ''}; "
                f"{large[which]['wall_s']:.1f} s of wall clock, "
                f"{large[which]['peak_kb'] / 1024:,.0f} MB",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
