"""Fakes of Slurm's programs on PATH, for what no cluster is needed to see; each notes its calls.

``srun`` is scripted: a small Python program that behaves as one srun with all of its ranks.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobs.cell.container import Image
from jobs.config.site import Site
from jobs.slurm.client.run import Answer
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import FIELD, START, JobState
from jobs.slurm.job.task import JobTask, PreflightReport, Problem, SubmissionContext
from jobs.slurm.submissions import Array, RunNote
from tests.builders import config, record
from tests.jobs.slurm.client.clusters import TRANSCRIPTS
from tests.sweeps import ROOT
from train.config.run import RunConfig

#: The first line of squeue's answer, as 22.05.8 prints it.
HEADER = START + FIELD.join(
    ("JOBID", "ARRAY_JOB_ID", "ARRAY_TASK_ID", "STATE", "REASON", "START_TIME", "TIME", "NODELIST",
     "COMMENT", "COMMAND", "NAME")
) + "\n"  # fmt: skip


def squeue_text(
    states: Mapping[str, str], *, nodes: str = "", comment: str = "(null)", name: str = "n"
) -> str:
    """What squeue prints of these jobs, by id: Slurm's word."""
    text = HEADER
    for job, state in states.items():
        array, _, index = job.partition("_")
        fields = [array, array, index or "N/A", state, "None", "N/A", "0:10", nodes, comment]
        text += START + FIELD.join([*fields, "(null)", name]) + "\n"
    return text


#: What sbatch answered to --test-only.
SBATCH = TRANSCRIPTS.parent / "sbatch"
OFF = "Slurm accounting storage is disabled"
#: How sbatch ends when it fails; one of Slurm's texts follows.
CLOSING = "sbatch: error: Batch job submission failed: "
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"

#: standard library only; the names that a script of an srun finds ready
PRELUDE = """
import datetime, json, os, signal, sys, time
from pathlib import Path
ARGV = sys.argv[1:]
OPTIONS = dict(a[2:].split("=", 1) for a in ARGV if a.startswith("--") and "=" in a)
SIZE = int(OPTIONS["ntasks"])
CELL = Path(next(a for a in ARGV if a.endswith("config.json"))).parent
LOGS = CELL / "logs"
ATTEMPT = int(ARGV[ARGV.index("--attempt") + 1])
RESUME = "--resume" in ARGV
GOOD = Path({good!r})

def say(text):
    print(text, file=sys.stderr, flush=True)

def beat():
    for rank in range(SIZE):
        (LOGS / f"rank-{{rank}}.beat").write_text(json.dumps(dict(phase="training", idle_s=0.0)))

def good():
    told = json.loads((GOOD / f"{{CELL.name}}.json").read_text())
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    told["ended_at"] = told["attempts"][0]["ended_at"] = now
    (CELL / ".good.tmp").write_text(json.dumps(told))
    (CELL / ".good.tmp").rename(CELL / "record.json")

def epoch(number):
    line = json.loads((GOOD / f"{{CELL.name}}.json").read_text())["epochs"][0]
    with open(CELL / "epochs.jsonl", "a") as out:
        out.write(json.dumps(dict(line, epoch=number, attempt=ATTEMPT)) + "\\n")
    (CELL / "checkpoint.npz").write_text("as if")

def unfinished(done):
    (LOGS / "unfinished").write_text(f"stopped after epoch {{done}} of 9")

def live(until=lambda: False, seconds=30.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        beat()
        time.sleep(0.02)
"""


@dataclass(frozen=True)
class FakeSlurm:
    """A folder of fakes, to be put first on PATH."""

    folder: Path

    @property
    def path(self) -> str:
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def put(self, name: str, script: str) -> None:
        """``script``: shell; it finds its arguments and $HERE, the folder of the fakes."""
        here = shlex.quote(str(self.folder))
        note = f'HERE={here}\nprintf "%s\\0" {name} "$@" >> "$HERE/calls"; echo >> "$HERE/calls"\n'
        (self.folder / name).write_text(f"#!/bin/sh\n{note}{script}\n")
        (self.folder / name).chmod(0o755)

    def says(self, name: str, answer: Answer) -> None:
        for part, text in (("out", answer.out), ("err", answer.err)):
            (self.folder / f"{name}.{part}").write_text(text, errors="surrogateescape")
        self.put(name, f'cat "$HERE/{name}.out"; cat "$HERE/{name}.err" >&2; exit {answer.code}')

    @property
    def asked(self) -> list[str]:
        """Which programs were run."""
        return [call[0] for call in self.calls()]

    def calls(self, name: str | None = None) -> list[list[str]]:
        file = self.folder / "calls"
        lines = file.read_text().split("\0\n")[:-1] if file.exists() else []
        found = [line.split("\0") for line in lines]
        return [call for call in found if name in (None, call[0])]

    def forget(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)

    def queue(self, states: Mapping[str, str], name: str) -> None:
        """What squeue says from now on: job -> Slurm's word."""
        (self.folder / "queue").write_text(squeue_text(states, name=name))
        self.put("squeue", 'cat "$HERE/queue"')

    def away(self, name: str) -> None:
        self.put(name, f"echo {shlex.quote(AWAY)} >&2; exit 1")


def fake_slurm(folder: Path) -> FakeSlurm:
    """An empty queue on the practice cluster, without accounting."""
    folder.mkdir(parents=True, exist_ok=True)
    fake = FakeSlurm(folder)
    fake.put("sbatch", f"[ $1 = --test-only ] && exec cat '{SBATCH / 'fits.err'}' >&2" + """
n=$(cat "$HERE/count" 2>/dev/null || echo 0); n=$((n + 1)); echo $n > "$HERE/count"
for last; do :; done
cp "$last" "$HERE/script-$n"
echo $((100 + n))""")  # fmt: skip
    fake.put("srun", "exit 0")
    fake.put("sacct", f"echo '{OFF}' >&2; exit 1")
    fake.put("sinfo", f"cat {shlex.quote(str(TRANSCRIPTS / 'practice_sinfo.out'))}")
    fake.put("scontrol", f"""
case "$*" in
*config*) cat {shlex.quote(str(TRANSCRIPTS / 'practice_config.out'))} ;;
*requeue*) cat "$HERE/requeue-says" >&2 2>/dev/null && exit 1; exit 0 ;;
update*) exit 0 ;;
*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
esac""")  # fmt: skip
    fake.put("scancel", "exit 0")
    fake.queue({}, "nobody")
    return fake


def script_srun(fake: FakeSlurm, body: str, cells: Sequence[RunConfig] = ()) -> None:
    """srun from now on plays ``body``; :func:`good` leaves good records of ``cells``."""
    good = fake.folder / "good"
    good.mkdir(exist_ok=True)
    for one in cells:
        (good / f"{one.cell_id()}.json").write_text(record(one).model_dump_json())
    play = fake.folder / "play.py"
    play.write_text(PRELUDE.format(good=str(good)) + body)
    fake.put("srun", f'exec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(play))} "$@"')


@dataclass(frozen=True)
class Job:
    """A Slurm job's supervisor, started as its batch script would."""

    fake: FakeSlurm
    task: JobTask
    minutes_left: float = 60.0
    restarts: int = 0

    @contextmanager
    def start(self) -> Iterator[subprocess.Popen[str]]:
        file = self.fake.folder / "tasks.json"
        tasks = [None] * 5 + [self.task.model_dump(mode="json")]
        file.write_text(json.dumps({"program": "cells", "tasks": tasks}))
        environment = os.environ | {
            "PATH": self.fake.path, "SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "7",
            "SLURM_ARRAY_TASK_ID": "5", "SLURMD_NODENAME": "n1",
            "SLURM_RESTART_COUNT": str(self.restarts),
            "SLURM_JOB_NODELIST": "node[3-4]",
            "SLURM_JOB_END_TIME": str(int(time.time() + 60 * self.minutes_left)),
        }  # fmt: skip
        process = subprocess.Popen(
            ["sh", "-c", "trap '' USR2; exec \"$@\"", "sh", sys.executable, "-m",
             "jobs.slurm.job", str(file)], cwd=ROOT, text=True,
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(self) -> tuple[int, str]:
        """Exit code and what it said."""
        with self.start() as process:
            out, _ = process.communicate(timeout=240)
            return process.returncode, out


def task_of(folder: Path, cell: RunConfig, **changes: Any) -> JobTask:
    """The task of a cell whose config is written, on a node with as many ranks as it has."""
    place = folder / "results" / cell.cell_id()
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(cell.model_dump_json())
    values: dict[str, Any] = {
        "cell": str(place),
        "asked_at": datetime.now(UTC),
        "site": Site(ranks_per_node=cell.gpus, signal_s=30), "nodes": 1,
        "ranks_per_node": cell.gpus, "image": "none", "image_digest": None, "root": str(ROOT),
        "data": str(folder), "store": str(folder), "stall_s": 60, "minutes": 60,
    }  # fmt: skip
    return JobTask(**(values | changes))


def cells(count: int, ranks: int = 2) -> list[RunConfig]:
    return [config(seed=seed, gpus=ranks, epochs=9) for seed in range(count)]


def attempts(cell: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((cell / "record.json").read_text())["attempts"]
    return found


def context(sweep: Path, site: Site | None = None, **changes: Any) -> SubmissionContext:
    """Of a sweep on a site with one rank a node."""
    values: dict[str, Any] = {
        "name": sweep.name, "folder": sweep, "site_name": "s",
        "site": site or Site(ranks_per_node=1),
        "image": Image("none", None), "root": sweep / ".code" / "0123", "data": Path("/data"),
        "store": Path("/store"), "needs": (), "stall_s": 60, "git_commit": None,
        "git_dirty": None,
    }  # fmt: skip
    return SubmissionContext(**(values | changes))


PROBLEM = Problem(node="n", check="c", found="f", expected="e", fix="x")


def report_preflight(folder: Path, *problems: Problem, age: timedelta = timedelta(0)) -> None:
    report = PreflightReport(
        job="101", at=datetime.now(UTC) - age, nodes=("n1", "n2"), ranks_per_node=4, versions={},
        problems=problems,
    )  # fmt: skip
    (folder / "report.json").write_text(report.model_dump_json())


def note(*cells: str, job: str | None = None, run: str = "r1", **more: Any) -> RunNote:
    """Of one call of sbatch, for these cells."""
    array = Array(job_id=job, cells=cells, nodes=1, ranks_per_node=1, minutes=1)
    values: dict[str, Any] = {
        "site": "s", "job_name": "n", "submitted_at": datetime.now(UTC), "arrays": (array,),
    }  # fmt: skip
    return RunNote(run=run, **(values | more))


def in_queue(
    states: Mapping[str, str], comment: str = "", over_s: float = 1e6
) -> dict[str, JobState]:
    """What squeue shows: job -> Slurm's word. They ran for five seconds, ``over_s`` ago."""
    start = datetime.now(UTC) - timedelta(seconds=over_s + 5)
    return {
        job: JobState(job, state, "", start, "0:05", "n1", "x", comment)
        for job, state in states.items()
    }


class Told(History):
    """A history that knows these endings, and notes what it was asked."""

    def __init__(self, *endings: JobState) -> None:
        super().__init__()
        self.known = {ending.job: ending for ending in endings}
        self.asked: list[set[str]] = []

    def endings(self, over: Collection[str], gone: Collection[str] = ()) -> dict[str, JobState]:
        self.asked.append({*over, *gone})
        return {job: self.known[job] for job in (*over, *gone) if job in self.known}
