"""What `status`, `plan` and the start of `sweep` cost with 10,000 cells and as many records.

Usage: python -m tests.bench.commands [CELLS]. Each line is one command in a process of its own:
seconds until it ended, or until a sweep's first sbatch or first cell; of these, seconds of
processors, on which other programs have less influence; and the peak of its memory.
Done: every cell of the sweep has a record. New: none has, and the records are another sweep's.
Ended: all jobs are gone and left records. Slurm's programs are fakes.
Commands that take more than 3 s or 500 MB are marked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from jobs.config.load import load_sweep
from jobs.plan.datasets import train_images
from jobs.slurm.submissions import job_name, read_notes, write_note
from tests.builders import record
from tests.jobs.slurm.fakes import FakeSlurm, fake_slurm
from train.config.run import RunConfig
from train.record.measurements import Throughput

CELLS = 10_000
MOST_S, MOST_MB = 3.0, 500.0
SWEEP = """
dataset: digits
model: cnn
epochs: 108
batch_per_rank: 16
matrix:
  technique: [naive, lr_scaling_warmup]
  gpus: [1, 2, 4, 8]
  base_lr: {rates}
  seed: {seeds}
"""
SITE = "partition: practice\nranks_per_node: 2\nmax_time_min: 5\nimage: none\narray_limit: 1000\n"


def write_records(folder: Path, configs: Sequence[RunConfig]) -> int:
    """A completed record for each config; returns the size of the last one in bytes."""
    tails: dict[int, str] = {}
    text = ""
    for config in configs:
        if config.gpus not in tails:
            whole = record(config, throughput=Throughput(images_per_s=1e3, samples=(), left_out=()))
            lines = whole.model_dump_json(indent=2)
            tails[config.gpus] = lines[lines.index('  "world"') :]
            epochs = "\n".join(epoch.model_dump_json() for epoch in whole.epochs[-20:]) + "\n"
        own = config.model_dump_json(indent=2)
        nested = own.replace("\n", "\n  ")
        text = f'{{\n  "schema_version": 1,\n  "cell_id": "{config.cell_id()}",\n'
        text += '  "status": "completed",\n  "error": null,\n'
        text += f'  "config": {nested},\n{tails[config.gpus]}\n'
        cell = folder / config.cell_id()
        cell.mkdir(parents=True)
        (cell / "config.json").write_text(own + "\n")
        (cell / "record.json").write_text(text)
        (cell / "epochs.jsonl").write_text(epochs)
    return len(text)


def measure(fake: FakeSlurm, argv: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, seconds of processors and peak MB of a command until it ends, says that a first cell
    has started (it is ended there), or calls sbatch."""
    (fake.folder / "count").unlink(missing_ok=True)
    (fake.folder / "script-1").unlink(missing_ok=True)
    began, started = time.time(), None
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs", *argv], env={**os.environ, "PATH": fake.path}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if ": started" in line and started is None:
            started = time.time()
            process.terminate()
    _, status, used = os.wait4(process.pid, 0)
    if started is None and os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"{' '.join(argv)}: {''.join(said[-20:])}")
    sbatch = fake.folder / "script-1"
    end = sbatch.stat().st_mtime if sbatch.exists() else started or time.time()
    return end - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def commands(folder: Path, fake: FakeSlurm) -> Iterator[list[str]]:
    """Each after the state of the files that it is for has been made."""
    data = ["--data", str(folder / "data"), "--store", str(folder / "store")]
    here, cluster = (["--site", site, *data] for site in ("local", str(folder / "site.yaml")))
    submit = ["sweep", *cluster, "--no-wait", "--no-preflight"]
    yield from (["done", "status"], ["done", "plan", *here], ["done", "plan", *cluster])
    yield from (["done", "sweep", *here], ["done", *submit])
    (folder / "new").mkdir()
    sweep, another = folder / "new" / "many", folder / "new" / "another"
    (folder / "done" / "many").rename(another)
    yield from (["new", "status"], ["new", "plan", *here], ["new", "plan", *cluster])
    yield ["new", "sweep", *here]
    shutil.rmtree(sweep)
    yield ["new", *submit]
    arrays = [array for note in read_notes(sweep) for array in note.arrays]
    jobs = [job for array in arrays for job in array.elements()]
    fake.queue(dict.fromkeys(jobs, "PENDING"), job_name("many", sweep))
    yield ["new", "status"]
    (sweep / ".slurm").rename(another / ".slurm")
    shutil.rmtree(sweep)
    (folder / "ended").mkdir()
    ended = another.rename(folder / "ended" / "many")
    before = {"submitted_at": datetime(2020, 1, 1, tzinfo=UTC)}  # their records
    for note in read_notes(ended):
        write_note(ended, note.model_copy(update=before))
    fake.queue({}, "nobody")
    yield from (["ended", "status"], ["ended", *submit])


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        rates = [n / 1000 for n in range(1, count // 200 + 1)]
        (folder / "many.yaml").write_text(SWEEP.format(rates=rates, seeds=list(range(25))))
        (folder / "site.yaml").write_text(SITE)
        configs = load_sweep(str(folder / "many.yaml")).configs
        size = write_records(folder / "done" / "many", configs)
        print(f"{len(configs):,} cells, records of {size / 1e3:.0f} KB", flush=True)
        fake = fake_slurm(folder / "bin")
        train_images(configs, folder / "data", folder / "store", folder)
        for results, command, *options in commands(folder, fake):
            argv = [command, str(folder / "many.yaml"), "--results", str(folder / results)]
            seconds, spent, peak = measure(fake, [*argv, *options])
            more = "" if seconds <= MOST_S and peak <= MOST_MB else " (more than wanted)"
            where = "cluster" if str(folder / "site.yaml") in options else ""
            print(f"{results:6}{command:7}{where:8}{seconds:5.1f} s, {spent:.1f} s of processors, "
                  f"{peak:.0f} MB{more}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else CELLS)
