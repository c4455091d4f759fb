"""What a start of a cell costs as the files of its data set grow: nothing, if a sweep starts it.

Usage: python -m tests.bench.start [FILES...] [--ranks N] [--starts N] [--by-hand]
[--against FOLDER]. For each number of files, 100 class folders of small PNG files: seconds from the
ranks' start until rank 0 announces the run (logs/start.json), the median of N starts, and the
system calls of all ranks until then by strace; those "of files" name a file or list a folder. The
data are prepared before. --by-hand: without a supervisor, as horovodrun starts ranks. --against: a
checkout of another commit, whose ranks start in turns with these.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from jobs.cell.launch import core_groups, rank_argv, rank_environment
from jobs.plan.datasets import train_images
from tests import builders
from tests.sweeps import ROOT
from tests.train.data.raw_files import picture
from train.config.run import RunConfig
from train.program.environment import environment_of

CLASSES = 100
CALL = re.compile(r"\d+ +([\d.]+) (\w+)\(")
OF_FILES = re.compile(r"open|stat|access|readlink|getdents|execve")


def make_files(folder: Path, count: int) -> None:
    """In their time stamps all alike: copies of a few pictures."""
    pictures = [picture(folder.parent / f"{n}.png", (8, 8), seed=n) for n in range(10)]
    for number in range(CLASSES):
        (folder / f"c{number:02d}").mkdir(parents=True)
    for number in range(count):
        place = folder / f"c{number % CLASSES:02d}" / f"{number}.png"
        shutil.copyfile(pictures[number % 10], place)


def prepare(data: Path, store: Path, tree: Path) -> None:
    argv = [sys.executable, "-m", "train.data", "prepare", "folder:many", "--image-size", "8"]
    argv += ["--root", str(data), "--store", str(store)]
    subprocess.run(argv, cwd=tree, check=True, stdout=subprocess.DEVNULL)


def start(
    config: RunConfig, sweep: Path, data: Path, store: Path, tree: Path, trace: Path | None, *,
    by_hand: bool,
) -> float:  # fmt: skip
    """Seconds until the run is announced; the ranks are then ended."""
    cell = sweep / config.cell_id()
    shutil.rmtree(cell, ignore_errors=True)
    (cell / "logs").mkdir(parents=True)
    (cell / "config.json").write_text(config.model_dump_json(exclude_defaults=True))
    argv = rank_argv(cell, data=str(data), store=str(store), attempt=1, stall_s=600, resume=False)
    cores = core_groups(config.gpus, 1, sorted(os.sched_getaffinity(0)))
    base, running, began = environment_of("ranks", os.environ), [], time.time()
    for rank in range(config.gpus):
        own = rank_environment(cell, cores, rank, attempt=1, supervisor=os.getpid(), root=tree)
        if by_hand:
            del own["HOROSCALE_SUPERVISOR"]
        traced = ["strace", "-f", "-ttt", "-o", f"{trace}-{rank}"] if trace else []
        with (cell / "logs" / f"rank-{rank}.log").open("wb") as log:
            running.append(
                psutil.Popen(
                    [*traced, sys.executable, *argv], cwd=tree, env=base | own, stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
    announced = cell / "logs" / "start.json"
    try:
        while not announced.exists():
            if any(process.poll() for process in running):
                raise RuntimeError((cell / "logs" / "rank-0.log").read_text()[-3000:])
            time.sleep(0.02)
        return announced.stat().st_mtime - began
    finally:
        for process in running:
            with suppress(psutil.NoSuchProcess):  # it has failed
                for one in (*process.children(recursive=True), process):
                    one.kill()
            process.wait()


def calls(trace: Path, ranks: int, until: float) -> tuple[int, int]:
    """System calls of all ranks that began before a moment, and those of files among them."""
    lines = (Path(f"{trace}-{rank}").read_text(errors="replace") for rank in range(ranks))
    found = (CALL.match(line) for text in lines for line in text.splitlines())
    names = [call[2] for call in found if call and float(call[1]) <= until]
    return len(names), sum(bool(OF_FILES.search(name)) for name in names)


def main(tokens: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.start", description=__doc__)
    parser.add_argument("files", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--against", type=Path, help="a checkout of another commit")
    given = parser.parse_args(tokens)
    if not shutil.which("strace"):
        print("what a start costs: not run: needs strace")
        return
    trees = {"this": ROOT} | ({"other": given.against} if given.against else {})
    print("| files | checkout | seconds | system calls | of files |\n|---:|---|---:|---:|---:|")
    for count in given.files:
        with tempfile.TemporaryDirectory() as folder:
            data, sweep = Path(folder), Path(folder) / "sweep"
            make_files(data / "many", count)
            config = builders.config(
                dataset="folder:many", image_size=8, gpus=given.ranks, batch_per_rank=4,
                steps_per_epoch=1, technique=builders.row(standardise=True),
            )  # fmt: skip
            for name, tree in trees.items():
                prepare(data, data / name, tree)
            train_images([config], data, data / "this", sweep)
            once = partial(start, config, sweep, data, by_hand=given.by_hand)
            seconds: dict[str, list[float]] = {name: [] for name in trees}
            for _ in range(given.starts):
                for name, tree in trees.items():
                    seconds[name].append(once(data / name, tree, None))
            for name, tree in trees.items():
                once(data / name, tree, data / "trace")
                told = (sweep / config.cell_id() / "logs" / "start.json").stat().st_mtime
                every, of_files = calls(data / "trace", given.ranks, told)
                middle = statistics.median(seconds[name])
                print(f"| {count:,} | {name} | {middle:.1f} | {every:,} | {of_files:,} |")


if __name__ == "__main__":
    main(sys.argv[1:])
