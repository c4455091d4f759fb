"""Messages of a step on two ranks, by Horovod's timeline of rank 0: the plain script, and the suite
with gradients in 32 and 16 bits. `python -m tests.bench.messages` prints a count for each network.

Horovod's thread sends one message after another, and writes an event for each tensor of it: events
that overlap in time are one message.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.__main__ import chosen
from tests.bench.cases import Case, Contender, opened

STEPS = 8  # of a turn, about
#: Horovod's name for an all-reduce outside of a graph: the one that begins a turn.
TURN = "HorovodAllreduce"
CONTENDERS = (Contender("plain"), *(Contender(name, "1", compression=name)
                                    for name in ("none", "fp16", "bf16")))  # fmt: skip
CASES = tuple(
    Case(model, model, "synthetic", batch, 0.0, 2, CONTENDERS)
    for model, batch in (("resnet50", 16), ("cnn", 128), ("resnet_mini", 64))
)


class Sent(NamedTuple):
    """One tensor on its way; times in microseconds."""

    tensor: str
    asked: int  # a rank asked for it first
    begin: int
    end: int


def sent(file: Path) -> list[Sent]:
    """What a timeline of Horovod holds, in the order of the times."""
    names: dict[int, str] = {}
    begun: dict[int, list[tuple[str, int]]] = {}
    asked: dict[int, int] = {}
    found = []
    for event in json.loads(file.read_text()):
        tensor = event["pid"]
        if event["ph"] == "M" and "name" in event.get("args", {}):
            names[tensor] = event["args"]["name"]
        elif event["ph"] == "B":
            begun.setdefault(tensor, []).append((event["name"], event["ts"]))
        elif event["ph"] == "E" and begun.get(tensor):
            name, begin = begun[tensor].pop()
            if name.startswith("NEGOTIATE_"):
                asked[tensor] = begin
            elif not begun[tensor]:  # no activity within one
                found.append(Sent(names[tensor], asked[tensor], begin, event["ts"]))
    return sorted(found, key=lambda one: one.begin)


def messages(tensors: Sequence[Sent]) -> int:
    count, until = 0, -1
    for one in tensors:
        count += one.begin > until
        until = max(until, one.end)
    return count


def last_turn(
    case: Case, one: Contender, folder: Path, steps: int = STEPS
) -> tuple[list[Sent], int]:
    """What rank 0 sent in the last turn of a world, and the steps of that turn."""
    timeline = folder / f"{case.name} {one.name}.json"
    world = opened(
        case, one, (), folder / f"{case.name} {one.name}", folder / "data", None,
        HOROVOD_TIMELINE=str(timeline),
    )  # fmt: skip
    with world as running:
        running.set_steps(steps * running.step_s)
        taken = [running.turn()[0]["images"] // case.batch for _ in range(2)][-1]
    found = sent(timeline)
    marks = [n for n, one in enumerate(found) if one.tensor == TURN]
    return found[marks[-1] + 1 :], taken


def counts(case: Case, folder: Path) -> Iterator[str]:
    for one in case.contenders:
        found, steps = last_turn(case, one, folder)
        yield f"{messages(found) / steps:.1f}"


def main(models: Sequence[str]) -> int:
    print("messages a step", *(one.name for one in CONTENDERS), sep=" | ")
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen(CASES, models):
            print(case.name, *counts(case, Path(folder)), sep=" | ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
