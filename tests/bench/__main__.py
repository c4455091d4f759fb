"""What the step costs, as ratios within one run on a machine that does nothing else.

Each line is a case: median, smallest and largest ratio of a form to the case's first one, of
neighbours in time. All samples are kept in results/bench/TIME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.hosts import ROOT, run_ranks, two_hosts

FORMS = str(Path(__file__).with_name("forms.py"))
RATE = "200mbit"


class Case(NamedTuple):
    """Forms of one step side by side; see forms.py."""

    name: str
    model: str
    dataset: str
    batch: int  # per rank
    ranks: int
    seconds: float  # of each form in each round
    forms: tuple[str, ...]  # the first one is what the others are compared with
    slow_link: bool = False  # each rank is a host of its own


CASES = (
    Case("overlap", "cnn", "synthetic", 128, 2, 3.0, ("parts", "1", "4"), slow_link=True),
    Case("small, 1 rank", "cnn", "digits", 64, 1, 1.0, ("parts", "1", "16")),
    Case("small, 2 ranks", "cnn", "digits", 64, 2, 1.0, ("parts", "1", "16")),
    Case("plain script, cnn", "cnn", "synthetic", 128, 2, 4.0, ("plain", "2")),
    Case("plain script, cnn, 1 rank", "cnn", "synthetic", 128, 1, 4.0, ("plain", "2")),
    Case("plain script, resnet_mini", "resnet_mini", "synthetic", 256, 2, 5.0, ("plain", "1")),
    Case("plain script, resnet_mini, 1 rank", "resnet_mini", "synthetic", 256, 1, 5.0,
         ("plain", "1")),
)  # fmt: skip


def run(case: Case, rounds: int, store: Path) -> dict[str, list[float]]:
    """Images/s of all ranks in each round, and the machine's matrix products."""
    command = [FORMS, case.model, case.dataset, str(case.batch), str(case.seconds), str(rounds),
               str(store), *case.forms]  # fmt: skip
    if case.slow_link:
        with two_hosts(RATE):
            ranks = run_ranks(command, case.ranks, hosts=True)
    else:
        ranks = run_ranks(command, case.ranks)
    return {form: [sum(of) for of in zip(*(r[form] for r in ranks), strict=True)] for form in
            ranks[0]}  # fmt: skip


def lines(case: Case, found: dict[str, list[float]]) -> Iterator[str]:
    base = found[case.forms[0]]
    for form in case.forms:
        ratios = [a / b for a, b in zip(found[form], base, strict=True)]
        yield (
            f"{case.name:34} {form:>6} {statistics.median(found[form]):9,.0f} images/s"
            f"  {statistics.median(ratios):5.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def why_not(case: Case) -> str | None:
    if case.slow_link and (os.geteuid() != 0 or not shutil.which("tc")):
        return "two hosts on one machine need root, ip and tc (package iproute2)"
    if len(os.sched_getaffinity(0)) < case.ranks:
        return f"needs {case.ranks} cores"
    return None


def main(tokens: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("cases", nargs="*", help="parts of their names; all where none is given")
    given = parser.parse_args(tokens)
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as store:
        for case in CASES:
            if given.cases and not any(part in case.name for part in given.cases):
                continue
            if why := why_not(case):
                print(f"{case.name:34} not run: {why}")
                continue
            found = run(case, given.rounds, Path(store))
            report[case.name] = case._asdict() | {"found": found}
            print("\n".join(lines(case, found)), flush=True)
    out = ROOT / "results" / "bench" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"all samples: {out.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
