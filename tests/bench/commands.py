"""What `status`, `plan` and the start of `sweep` cost with 10,000 cells and as many records.

Usage: python -m tests.bench.commands [CELLS]. Each line is one command in a process of its own:
seconds until it ended, or until a sweep's first sbatch or first cell, and the peak of its memory.
Done: every cell of the sweep has a record. New: none has, and the records are another sweep's.
Slurm's programs are fakes. It fails where a command takes more than 3 s or 500 MB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.config.load import load_sweep
from tests.builders import record
from tests.jobs.slurm.fakes import fake_slurm
from train.config.run import RunConfig

CELLS = 10_000
MOST_S, MOST_MB = 3.0, 500.0
SWEEP = """
title: many cells
dataset: digits
model: cnn
epochs: 108
batch_per_rank: 16
matrix:
  technique: [naive, lr_scaling_warmup]
  gpus: [1, 2, 4, 8]
  seed: {seeds}
"""
SITE = "partition: practice\nranks_per_node: 2\ntime_min: 5\nimage: none\narray_limit: 1000\n"


def write_records(folder: Path, configs: Sequence[RunConfig]) -> int:
    """A completed record for each config; returns the size of the last one in bytes."""
    tails: dict[int, str] = {}
    text = ""
    for config in configs:
        if config.gpus not in tails:
            whole = record(config).model_dump_json(indent=2)
            tails[config.gpus] = whole[whole.index('  "world"') :]
        of_config = config.model_dump_json(indent=2).replace("\n", "\n  ")
        text = (
            f'{{\n  "schema_version": 1,\n  "cell_id": "{config.cell_id()}",\n'
            f'  "status": "completed",\n  "error": null,\n  "config": {of_config},\n'
            f"{tails[config.gpus]}\n"
        )
        cell = folder / config.cell_id()
        cell.mkdir(parents=True)
        (cell / "config.json").write_text(config.model_dump_json(indent=2) + "\n")
        (cell / "record.json").write_text(text)
    return len(text)


def measure(
    argv: Sequence[str], environment: Mapping[str, str], first: Path
) -> tuple[float, float]:
    """Seconds and peak MB of one command until it ends, says that a first cell has started (there
    it is ended), or has made the file ``first``."""
    first.unlink(missing_ok=True)
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs", *argv], env=environment, text=True, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said, until = [], None
    for line in process.stderr:
        said.append(line)
        if ": started" in line:
            until = until or time.time()
            process.terminate()
    _, status, used = os.wait4(process.pid, 0)
    if until is None and os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"{' '.join(argv)}: {''.join(said[-20:])}")
    until = first.stat().st_mtime if first.exists() else until or time.time()
    return until - began, used.ru_maxrss / 1024


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        sweep, site = folder / "many.yaml", folder / "site.yaml"
        sweep.write_text(SWEEP.format(seeds=list(range(count // 8))))
        site.write_text(SITE)
        size = write_records(folder / "done" / "many", load_sweep(str(sweep)).configs)
        print(f"{count:,} cells, records of {size / 1e3:.0f} KB", flush=True)
        fake = fake_slurm(folder / "bin")
        environment = {**os.environ, "PATH": fake.path}
        good = True

        def show(name: str, command: str, *options: str, results: str) -> None:
            nonlocal good
            argv = [command, str(sweep), "--results", str(folder / results), *options]
            if command != "status":
                argv += ["--data", str(folder / "data"), "--store", str(folder / "store")]
            seconds, peak = measure(argv, environment, fake.folder / "script-1")
            good &= seconds <= MOST_S and peak <= MOST_MB
            print(f"{name:32} {seconds:6.1f} s {peak:6.0f} MB", flush=True)

        for state in ("done", "new"):
            if state == "new":
                (folder / "new").mkdir()
                (folder / "done" / "many").rename(folder / "new" / "another")
            here, cluster = ("--site", "local"), ("--site", str(site))
            show(f"{state}: status", "status", results=state)
            show(f"{state}: plan", "plan", *here, results=state)
            show(f"{state}: plan, cluster", "plan", *cluster, results=state)
            show(f"{state}: sweep", "sweep", *here, results=state)
            shutil.rmtree(folder / "new" / "many", ignore_errors=True)
            show(f"{state}: sweep, cluster", "sweep", *cluster, "--no-wait", "--no-preflight",
                 results=state)  # fmt: skip
            show(f"{state}: status, cluster", "status", results=state)
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else CELLS))
