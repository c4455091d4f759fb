"""How often `make interconnect` is right, on the practice cluster: real traffic over slow links.

    python -m tests.detection --healthy 20 --repeats 5 --out docs/interconnect-detection.csv

measures (about 25 s a run; needs root and `make cluster`) and writes a row per run; without --out
it prints the table of the file that is there, which docs/interconnect.md holds and a test compares.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "interconnect-detection.csv"
LINK = "200mbit"
Named = frozenset[tuple[str, tuple[str, ...]]]


class Fault(NamedTuple):
    """limits: arguments of containers/practice limit. expected: what is to be named; None: that it
    cannot be decided."""

    name: str
    limits: tuple[tuple[str, ...], ...]
    expected: Named | None
    baseline: bool = False


def _one(what: str, *nodes: str) -> Named:
    return frozenset({(what, nodes)})


FAULTS = (
    Fault("none", (), frozenset()),
    *(Fault(f"one node at {share} %", ((("node3", f"{2 * share}mbit")),), _one("node", "node3"))
      for share in (85, 50, 25)),
    *(Fault(f"one node sends at {share} %", (("node4", f"{2 * share}mbit", "--way", "send"),),
            _one("send", "node4")) for share in (50, 25)),
    *(Fault(f"one node receives at {share} %", (("node1", f"{2 * share}mbit", "--way", "receive"),),
            _one("receive", "node1")) for share in (50, 25)),
    *(Fault(f"one way of one link at {share} %",
            (("node1", f"{2 * share}mbit", "--to", "node3", "--rest", LINK),),
            _one("link", "node1", "node3")) for share in (50, 25)),
    Fault("two of four nodes at 25 %", (("node1", "50mbit"), ("node2", "50mbit")), None),
    Fault("all nodes at 50 %, with a baseline", (("all", "100mbit"),), _one("fabric"), True),
)  # fmt: skip


def run_all(healthy: int, repeats: int) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="horoscale-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        site = folder / "site.yaml"
        site.write_text(yaml.safe_dump(_site()))
        baseline: Path | None = None
        for fault in FAULTS:
            for number in range(repeats if fault.limits else healthy):
                if fault.baseline and baseline is None:
                    before, _, _ = _measure(folder, site, FAULTS[0], None)
                    baseline = folder / "baseline.json"
                    _command(
                        "analysis", "interconnect-baseline", str(before), "--to", str(baseline)
                    )
                _, code, verdict = _measure(folder, site, fault, baseline)
                named = frozenset((f["what"], tuple(f["nodes"])) for f in verdict["findings"]
                                  if f["weight"] == "fault")  # fmt: skip
                told = "; ".join(f"{what} {' -> '.join(nodes)}".strip() for what, nodes in
                                 sorted(named))  # fmt: skip
                yield {
                    "fault": fault.name, "run": number, "status": verdict["status"], "exit": code,
                    "named": told, "result": result(fault, verdict["status"], named),
                    "median_mbit_s": round(verdict["middle"] / 1e6, 1),
                }  # fmt: skip


def result(fault: Fault, status: str, named: Named) -> str:
    """right, wrong (somebody else was named, too or instead) or undecided."""
    expected = fault.expected or frozenset()
    if named - expected:
        return "wrong"
    if named == expected and (status == "UNDECIDED") == (fault.expected is None):
        return "right"
    return "undecided" if status == "UNDECIDED" else "missed"


def _site() -> dict[str, object]:
    from tests.jobs.slurm.sweeping import BARE
    from tests.practice import place_of

    return {**BARE, "slurm_conf": str(place_of(os.environ).slurm_conf), "user": "practice"}


def _measure(
    folder: Path, site: Path, fault: Fault, baseline: Path | None
) -> tuple[Path, int, dict[str, object]]:
    for arguments in (("all", LINK), *fault.limits):
        _practice("limit", *arguments)
    try:
        done = _command(
            "jobs", "interconnect", "--site", str(site), "--results", str(folder / "results"),
            "--phases", "preflight,tournament", "--samples", "5", "--sample-s", "0.2",
        )  # fmt: skip
    finally:
        _practice("limit", "all", "off")
    run = Path(done.stdout.strip())
    against = ["--baseline", str(baseline)] if fault.baseline and baseline else []
    judged = _command("analysis", "interconnect", str(run), *against)
    return run, judged.returncode, json.loads((run / "verdict.json").read_text())


def _practice(*arguments: str) -> None:
    program = str(ROOT / "containers" / "practice")
    subprocess.run([sys.executable, program, *arguments], check=True, cwd=ROOT)


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env=dict(os.environ), stdin=subprocess.DEVNULL,
    )  # fmt: skip


def table(file: Path = FILE) -> str:
    frame = pd.read_csv(file, keep_default_na=False)
    lines = ["| fault | runs | named right | named wrong | undecided | missed |",
             "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for fault, rows in frame.groupby("fault", sort=False):
        counts = [int((rows["result"] == kind).sum())
                  for kind in ("right", "wrong", "undecided", "missed")]  # fmt: skip
        lines.append(f"| {fault} | {len(rows)} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.detection", description=__doc__)
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    if told.out is not None:
        rows = []
        for row in run_all(told.healthy, told.repeats):
            print(*row.values(), sep=" | ", flush=True)
            rows.append(row)
            pd.DataFrame(rows).to_csv(told.out, index=False)
    print(table(told.out or FILE))


if __name__ == "__main__":
    main()
