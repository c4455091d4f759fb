"""`python -m train.interconnect.simulate`: how often would a tournament name the right node, how
often a wrong one? On simulated networks, with the decisions and the retests of real runs.

What is simulated: a pair runs at min(send, receive, path) with Gaussian noise of its own and of
each sample. What is not: congestion, routing, faults that come and go.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from train.interconnect.measure.rounds import Pair, Round
from train.interconnect.measure.stream import Plan
from train.interconnect.record import End, Measurement, Node, Tournament
from train.interconnect.tournament import play
from train.program.command_line import positive, run

_RATE = 1e10  # bit/s; decisions depend on ratios only
_PLAN = Plan()


class Noise(NamedTuple):
    """Relative deviations: pair, of what one pair reaches; sample, of its repetitions."""

    pair: float
    sample: float


class SimulatedFabric:
    """Stands in for the coordinator and all agents."""

    lost: dict[str, str] = {}  # noqa: RUF012  (nobody is lost here)

    def __init__(self, count: int, noise: Noise, seed: int) -> None:
        width = len(str(count))
        self.nodes = tuple(
            Node(name=f"n{number:0{width}}", interface="sim", address="0.0.0.0")  # noqa: S104
            for number in range(count)
        )
        self.send, self.receive = np.full(count, _RATE), np.full(count, _RATE)
        self.path: dict[Pair, float] = {}
        #: leaf of each node, and what each leaf sends and receives at most, shared by its pairs
        self.leaf: list[int] = [0] * count
        self.up: dict[int, float] = {}
        self.down: dict[int, float] = {}
        self._noise, self._rng = noise, np.random.default_rng(seed)
        self._own: dict[Pair, float] = {}
        self.rounds = 0

    async def measure(self, pairs: Round, plan: Plan, phase: str) -> list[Measurement]:
        self.rounds += 1
        return [self._measure(pair, plan, phase, pairs) for pair in pairs]

    def _share(self, pair: Pair, pairs: Round) -> float:
        """What the uplinks leave this pair of those that cross them now."""
        a, b = self.leaf[pair.sender], self.leaf[pair.receiver]
        if a == b:
            return float("inf")
        crossing = [(self.leaf[p.sender], self.leaf[p.receiver]) for p in pairs]
        leaving = sum(x == a != y for x, y in crossing)
        coming = sum(y == b != x for x, y in crossing)
        return min(self.up.get(a, np.inf) / leaving, self.down.get(b, np.inf) / coming)

    def _measure(self, pair: Pair, plan: Plan, phase: str, pairs: Round) -> Measurement:
        own = self._own.setdefault(pair, 1 + self._noise.pair * self._rng.normal())
        truth = min(
            self.send[pair.sender], self.receive[pair.receiver], self.path.get(pair, np.inf),
            self._share(pair, pairs),
        )  # fmt: skip
        scatter = 1 + self._noise.sample * self._rng.normal(size=plan.samples)
        end = End(cpu_s=0, waited_s=0, wall_s=1, received_bytes=None, sent_bytes=None)
        return Measurement(
            sender=self.nodes[pair.sender].name, receiver=self.nodes[pair.receiver].name,
            phase=phase, together=len(pairs), rates=tuple(np.maximum(truth * own * scatter, 1.0)),
            at_sender=end, at_receiver=end,
        )  # fmt: skip


class Rates(NamedTuple):
    """Of ``trials`` networks with one node, or one uplink, at ``share`` of the rate (1: none)."""

    share: float
    trials: int
    named: int  # the slow one, and nobody else
    wrong: int  # somebody else, too or instead
    rounds: int
    seconds: float  # to simulate and decide one


def calibrate(
    count: int, noise: Noise, shares: Iterable[float], trials: int, leaves: int = 1
) -> list[Rates]:
    """count: nodes, at least three. leaves: switches that they are on, as many on each; of three or
    more it is the uplink of one that is slow, as a whole."""
    return [_tried(count, noise, share, trials, leaves) for share in shares]


def _tried(count: int, noise: Noise, share: float, trials: int, leaves: int) -> Rates:
    named = wrong = rounds = 0
    began = time.perf_counter()
    for trial in range(trials):
        fabric = SimulatedFabric(count, noise, trial)
        fabric.leaf = [node * leaves // count for node in range(count)]
        switches = {
            node.name: f"leaf{leaf}" for node, leaf in zip(fabric.nodes, fabric.leaf, strict=True)
        }
        victim = _slowed(fabric, leaves, share, trial)
        blamed = blamed_in(asyncio.run(play(fabric, _PLAN, trial, lambda _: None, switches)))
        truth = {(victim,)} if share < 1 else set()
        named += bool(truth) and blamed == truth
        wrong += bool(blamed - truth)
        rounds = fabric.rounds
    return Rates(share, trials, named, wrong, rounds, (time.perf_counter() - began) / trials)


def _slowed(fabric: SimulatedFabric, leaves: int, share: float, trial: int) -> str:
    """The name of the one that is slow now."""
    if leaves > 1:
        victim = trial % leaves
        fabric.up[victim] = fabric.down[victim] = share * fabric.leaf.count(victim) * _RATE
        return f"leaf{victim}"
    victim = trial % len(fabric.nodes)
    fabric.send[victim] *= share
    fabric.receive[victim] *= share
    return fabric.nodes[victim].name


def blamed_in(found: Tournament) -> set[tuple[str, ...]]:
    return {retest.nodes for retest in found.retests if retest.outcome == "confirmed"}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train.interconnect.simulate",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--nodes", type=positive(int), nargs="+", default=[4, 8, 64])
    parser.add_argument("--noise", type=positive(float), nargs="+", default=[0.01, 0.03],
                        help="of a sample; that of a pair is half of it")  # fmt: skip
    parser.add_argument(
        "--shares", type=positive(float), nargs="+", default=[1, 0.9, 0.85, 0.75, 0.5, 0.25]
    )
    parser.add_argument("--trials", type=positive(int), default=100)
    parser.add_argument("--leaves", type=positive(int), default=1, help="switches, three "
                        "or more: the uplink of one is slow, in place of a node")  # fmt: skip
    told = parser.parse_args(arguments)
    if min(told.nodes) < 3:
        parser.error("expected three nodes or more")
    if max(told.shares) > 1:
        parser.error("expected shares of a healthy rate, 1 or less")
    if told.leaves == 2 or any(count % told.leaves or count < 2 * told.leaves
                               for count in told.nodes if told.leaves > 1):  # fmt: skip
        parser.error("expected three leaves or more, of two nodes or more each, as many on each")
    print("nodes  noise  slow one   named right  named wrong  trials  rounds  seconds each")
    for count in told.nodes:
        for noise in told.noise:
            for row in calibrate(
                count, Noise(noise / 2, noise), told.shares, told.trials, told.leaves
            ):
                right = "-" if row.share == 1 else f"{row.named / row.trials:.1%}"
                print(f"{count:5}  {noise:5.1%}  {'none' if row.share == 1 else row.share:>9}"
                      f"  {right:>11}  {row.wrong / row.trials:11.1%}  {row.trials:6}"
                      f"  {row.rounds:6}  {row.seconds:12.3f}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
