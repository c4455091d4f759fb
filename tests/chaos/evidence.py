"""What is looked at: records while the sweep runs, then the ledger of the ranks, the notes, and
what slurmctld wrote down of every job."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

GOOD = ("completed", "diverged")
CLOCK_S = 0.05  # a line of the ledger is that much later than what it tells


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


@dataclass
class Records:
    """All records as they come and change; to be looked at often."""

    sweep: Path
    good: dict[str, str] = field(default_factory=dict)  # cell -> text of its good record
    lost: list[str] = field(default_factory=list)
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def look(self) -> None:
        there = set()
        for file in self.sweep.glob("*/record.json"):
            cell = file.parent.name
            with contextlib.suppress(OSError, ValueError):
                stat = file.stat()
                there.add(cell)
                if self._seen.get(cell) != (mark := (stat.st_ino, stat.st_mtime_ns)):
                    self._read(cell, file.read_text())
                    self._seen[cell] = mark
        for cell in self._seen.keys() - there:
            if cell in self.good and not (self.sweep / cell / "record.json").exists():
                self.lost.append(f"{cell}: the good record vanished")
            del self._seen[cell]

    def _read(self, cell: str, text: str) -> None:
        record = json.loads(text)
        if cell in self.good and text != self.good[cell]:
            self.lost.append(f"{cell}: the good record changed: now {record['status']}")
        if record["status"] in GOOD:
            self.good.setdefault(cell, text)

    def to_submit(self, cells: int) -> int:
        """Cells that the next watcher submits: those with a bad record, or all at the beginning."""
        return len(self._seen.keys() - self.good.keys()) or (0 if self._seen else cells)


@dataclass(frozen=True)
class Begun:
    """One start of a rank, by the ledger."""

    cell: str
    attempt: int
    job: str  # A_I
    start: str  # NUMBER.RESTARTS@NODE:PID
    began: float
    last: float  # its last sign of life
    end: str | None  # its own last word

    def __str__(self) -> str:
        times = f"{clock(self.began)}-{clock(self.last)}"
        return f"attempt {self.attempt} of job {self.job} ({self.start}) {times} {self.end or '-'}"


def starts_in(ledger: str) -> list[Begun]:
    found: dict[str, Begun] = {}
    for line in ledger.splitlines():
        word, cell, attempt, job, start, at, *more = line.split()
        old = found.get(f"{cell} {start}")
        began = float(at) if old is None else old.began
        end = more[0] if word == "end" else None
        found[f"{cell} {start}"] = Begun(cell, int(attempt), job, start, began, float(at), end)
    return sorted(found.values(), key=lambda begun: begun.began)


def twice(starts: Iterable[Begun]) -> list[str]:
    """Two live starts of a cell at once; a start after the cell's good record."""
    cells: dict[str, list[Begun]] = defaultdict(list)
    for begun in starts:
        cells[begun.cell].append(begun)
    found = []
    for cell, mine in cells.items():
        for index, begun in enumerate(mine):
            for other in mine[:index]:
                if begun.began < other.last - CLOCK_S:
                    found.append(f"{cell}: at once: {other} / {begun}")
                elif other.end == "completed":
                    found.append(f"{cell}: after its good record: {other} / {begun}")
    return found


def lost(sweep: Path, records: Records, cells: int) -> list[str]:
    """Cells without a completed record; good records that vanished, changed, or were put aside."""
    found = list(records.lost)
    laid = {file.parent.name for file in sweep.glob("*/config.json")}
    if len(laid) != cells:
        found.append(f"{len(laid)} cells are laid out, {cells} are asked for")
    for cell in sorted(laid):
        file = sweep / cell / "record.json"
        try:
            status = json.loads(file.read_text())["status"]
        except (OSError, ValueError) as error:
            status = f"no record: {error}"
        if status != "completed":
            found.append(f"{cell}: {status}")
    for file in sweep.glob("*/archive/*/record.json"):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(file.read_text())["status"] in GOOD:
                found.append(f"{file.relative_to(sweep)}: a good record that was put aside")
    return found


def noted(sweep: Path) -> set[str]:
    """Jobs of all notes: A_I, A for elements that Slurm did not take apart, or J."""
    found: set[str] = set()
    for file in (sweep / ".slurm").glob("[!.]*.json"):
        note = json.loads(file.read_text())
        for array in note["arrays"]:
            job, count = array["job_id"], len(array["cells"])
            found |= {str(job), *(f"{job}_{index}" for index in range(count) if count > 1)}
    return found


def known_jobs(completions: str, queue: Iterable[list[str]], user: str) -> dict[str, str]:
    """Job (A_I or J) -> what Slurm says, for every job of the user that there ever was."""
    found = {}
    for line in completions.splitlines():
        told = dict(re.findall(r"(\w+)=(\S*)", line))
        if told.get("UserId", "").startswith(f"{user}("):
            array, index = told.get("ArrayJobId", "0"), told.get("ArrayTaskId", "")
            name = f"{array}_{index}" if array != "0" and index.isdigit() else told["JobId"]
            found[name] = f"{told['Name']} {told['JobState']} {told.get('EndTime', '')}"
    return found | {job[0]: f"{job[3]} {job[1]} (in the queue)" for job in queue}


def orphans(jobs: Mapping[str, str], notes: set[str]) -> list[str]:
    return [f"job {job}: {told}, in no note" for job, told in jobs.items() if job not in notes]
