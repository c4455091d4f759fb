"""Where the time of a step goes on two ranks with a core each: `python -m tests.bench.parts` prints
a table for each network, in milliseconds.

Four contenders take turns: two independent runs and one world of two ranks, each with the step in
one graph and in parts. "In step" is the mean of the longer of the runs' two steps, pair by pair:
what two ranks that wait for each other would need if nothing else cost time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.bench.__main__ import chosen, run
from tests.bench.cases import Case, Contender
from tests.bench.worlds import Answers

CONTENDERS = (Contender("apart", "1", apart=True), Contender("world", "1"),
              Contender("apart, parts", "parts", apart=True),
              Contender("world, parts", "parts"))  # fmt: skip
CASES = (
    Case("resnet_mini, digits, 128 a rank", "resnet_mini", "digits", 128, 2.0, 2, CONTENDERS),
    Case("resnet_mini, synthetic, 256 a rank", "resnet_mini", "synthetic", 256, 5.0, 2, CONTENDERS),
    Case("cnn, synthetic, 128 a rank", "cnn", "synthetic", 128, 4.0, 2, CONTENDERS),
)


def steps(turns: Sequence[Answers]) -> np.ndarray:
    """Seconds of each step on each rank, [2, steps]."""
    return np.array([[s for own in turns for s in own[rank]["calls"]] for rank in (0, 1)])


def parts(turns: Sequence[Answers]) -> dict[str, np.ndarray]:
    """Mean seconds of each part of a step, on each rank. The ranks meet twice: once to wait for the
    slower one, once more to time a round."""
    count = steps(turns).shape[1]
    waiting, negotiation, communication, update = (
        np.array([sum(own[rank]["parts"][name] for own in turns) / count for rank in (0, 1)])
        for name in ("waiting_s", "negotiation_s", "communication_s", "update_s")
    )
    rest = steps(turns).mean(axis=1) - communication - 2 * negotiation - update
    return {
        "forward and backward pass, next batch, rest": rest,
        "waiting for the slower rank": waiting,
        "negotiation, a round of it": negotiation,
        "all-reduce": communication - waiting,
        "update": update,
    }


def rows(found: dict[str, list[Answers]]) -> Iterator[tuple[str, np.ndarray]]:
    yield "one graph: two independent runs", steps(found["apart"]).mean(axis=1)
    yield "one graph: these in step", np.full(2, steps(found["apart"]).max(axis=0).mean())
    yield "one graph: one world", steps(found["world"]).mean(axis=1)
    for name in ("apart", "world"):
        title = {"apart": "independent", "world": "one world"}[name]
        for part, seconds in parts(found[f"{name}, parts"]).items():
            if seconds.any():
                yield f"in parts, {title}: {part}", seconds


def main(tokens: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.parts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("cases", nargs="*", help="parts of their names; all where none is given")
    given = parser.parse_args(tokens)
    with tempfile.TemporaryDirectory() as store:
        for case in chosen(CASES, given.cases):
            answers = run(case, given.rounds, Path(store), None).answers
            print(f"| {case.name}, ms | rank 0 | rank 1 |\n| :--- | ---: | ---: |")
            for name, seconds in rows(answers):
                print(f"| {name} | {1e3 * seconds[0]:.2f} | {1e3 * seconds[1]:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
