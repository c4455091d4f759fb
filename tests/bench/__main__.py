"""What the step costs, as ratios within one run on a machine that does nothing else.

Each line is a case: median, smallest and largest ratio of a form to the case's first one, of
neighbours in time. What cannot be had in one process takes turns as a whole: starts of one case and
of the other. All samples are kept in results/bench/TIME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.hosts import ROOT, run_ranks, two_hosts

FORMS = str(Path(__file__).with_name("forms.py"))


class Case(NamedTuple):
    """Forms of one step side by side; see forms.py."""

    name: str
    model: str
    dataset: str
    batch: int  # per rank
    ranks: int
    seconds: float  # of each form in each round
    forms: tuple[str, ...]  # the first one is what the others are compared with
    slow_link: str | None = None  # its rate, as tc writes it; each rank is a host of its own
    deterministic: bool = True
    apart: bool = False  # ranks at the same time, but each in a world of its own
    cores: int = 1  # per rank


CASES = (
    Case("overlap", "cnn", "synthetic", 128, 2, 3.0, ("parts", "1", "4"), slow_link="200mbit"),
    Case("overlap, resnet50", "resnet50", "synthetic", 64, 2, 15.0, ("parts", "1"),
         slow_link="400mbit"),
    Case("small, 1 rank", "cnn", "digits", 64, 1, 1.0, ("parts", "1", "16")),
    Case("small, 2 ranks", "cnn", "digits", 64, 2, 1.0, ("parts", "1", "16")),
    Case("plain script, cnn", "cnn", "synthetic", 128, 2, 4.0, ("plain", "2")),
    Case("plain script, cnn, slow link", "cnn", "synthetic", 128, 2, 4.0, ("plain", "2"),
         slow_link="200mbit"),
    Case("plain script, cnn, 1 rank", "cnn", "synthetic", 128, 1, 4.0, ("plain", "2")),
    Case("plain script, resnet_mini", "resnet_mini", "synthetic", 256, 2, 5.0, ("plain", "1")),
    Case("plain script, resnet_mini, 1 rank", "resnet_mini", "synthetic", 256, 1, 5.0,
         ("plain", "1")),
)  # fmt: skip
_CNN = Case("cnn, 2 ranks", "cnn", "synthetic", 128, 2, 4.0, ("2",))
_RESNET = Case("resnet_mini, 2 ranks", "resnet_mini", "synthetic", 256, 2, 5.0, ("1",))
_ALONE = _RESNET._replace(name="resnet_mini, 1 rank on 2 cores", ranks=1, cores=2)
#: What is compared, start by start: the second with the first.
TURNS = {
    **{
        f"free operations, {case.name}": (case, case._replace(deterministic=False))
        for case in (_CNN, _RESNET, _ALONE)
    },
    **{
        f"one world, {case.name}": (case._replace(apart=True), case)
        for case in (_CNN, _RESNET)
    },
}  # fmt: skip
ROUNDS_A_START = 3


def run(case: Case, rounds: int, store: Path) -> dict[str, list[float]]:
    """In each round: images/s of all ranks by form; "communication", the seconds of an all-reduce
    by itself; "peak", the images/s of a machine that only multiplies matrices."""
    operations = "deterministic" if case.deterministic else "free"
    command = [FORMS, case.model, case.dataset, str(case.batch), str(case.seconds), str(rounds),
               str(store), operations, *case.forms]  # fmt: skip
    if case.slow_link:
        with two_hosts(case.slow_link) as hosts:
            ranks = run_ranks(command, case.ranks, hosts=hosts)
    else:
        ranks = run_ranks(command, case.ranks, apart=case.apart, cores_per_rank=case.cores)
    summed = {name: [sum(of) for of in zip(*(r[name] for r in ranks), strict=True)] for name in
              ranks[0]}  # fmt: skip
    (flop,) = summed.pop("flop")
    peak = [product * case.ranks / flop for product in summed.pop("matrix")]
    communication = [seconds / case.ranks for seconds in summed.pop("communication")]
    return {**summed, "communication": communication, "peak": peak}


def turns(first: Case, second: Case, starts: int, store: Path) -> dict[str, list[float]]:
    """The same, of as many starts of two cases with one form each."""
    (form,) = first.forms
    found: dict[str, list[float]] = {"first": [], "second": [], "peak": []}
    for number in range(starts):
        order = ("first", "second") if number % 2 == 0 else ("second", "first")
        for side in order:
            one = run(first if side == "first" else second, ROUNDS_A_START, store)
            found[side].append(statistics.median(one[form]))
            found["peak"].append(statistics.median(one["peak"]))
    return found


def lines(name: str, forms: Sequence[str], found: dict[str, list[float]]) -> Iterator[str]:
    """Images/s of each form, its ratio to the first one, its share of what matrix products reach
    beside it."""
    peak = statistics.median(found["peak"])
    for form in forms:
        rate = statistics.median(found[form])
        ratio = spread([a / b for a, b in zip(found[form], found[forms[0]], strict=True)])
        yield f"{name:40} {form:>6} {rate:9,.0f} images/s  {ratio}  {rate / peak:4.0%} of peak"


def overlaps(case: Case, found: dict[str, list[float]]) -> Iterator[str]:
    """Which share of an all-reduce by itself a step in one graph saves."""
    images, alone = case.batch * case.ranks, found["communication"]
    for form in case.forms[1:]:
        saved = [images / a - images / b for a, b in zip(found["parts"], found[form], strict=True)]
        share = spread([s / seconds for s, seconds in zip(saved, alone, strict=True)])
        yield (
            f"{case.name:40} {form:>6} {statistics.median(alone):9.3f} s of all-reduce, overlap "
            f"{share}"
        )


def spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):5.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"


def why_not(case: Case) -> str | None:
    if case.slow_link and (os.geteuid() != 0 or not shutil.which("tc")):
        return "two hosts on one machine need root, ip and tc (package iproute2)"
    if len(os.sched_getaffinity(0)) < case.ranks * case.cores:
        return f"needs {case.ranks * case.cores} cores"
    return None


def main(tokens: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("cases", nargs="*", help="parts of their names; all where none is given")
    given = parser.parse_args(tokens)
    report: dict[str, Any] = {}
    together = {case.name: (case,) for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        for name, cases in (together | TURNS).items():
            if given.cases and not any(part in name for part in given.cases):
                continue
            if why := why_not(cases[0]):
                print(f"{name:40} not run: {why}")
                continue
            if len(cases) == 1:
                found, forms = run(cases[0], given.rounds, store), cases[0].forms
            else:
                found, forms = turns(*cases, given.rounds, store), ("first", "second")
            report[name] = {"cases": [case._asdict() for case in cases], "found": found}
            print("\n".join(lines(name, forms, found)), flush=True)
            if found.get("communication") and cases[0].ranks > 1:
                print("\n".join(overlaps(cases[0], found)), flush=True)
    out = ROOT / "results" / "bench" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"all samples: {out.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
