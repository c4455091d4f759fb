"""The clock that leaves out what its process could not run in, on a clock that the tests move."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from train.distributed.awake import PERIOD_S, TOLERANCE_S, Awake


@dataclass
class Machine:
    """Its time, and what the main thread computed of it; seconds."""

    time: float = 1000.0
    cpu: float = 5.0

    def awake(self) -> Awake:
        return Awake(lambda: self.time, lambda: self.cpu)

    def run(self, awake: Awake, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD_S)):
            self.time += PERIOD_S
            awake.look()


def test_a_suspension_is_left_out_whoever_looks_first_when_it_is_over() -> None:
    for first in ("look", "now", "suspended_s"):
        machine = Machine()
        awake = machine.awake()
        began = awake.look()
        for _ in range(2):  # they add up
            machine.run(awake, 10)
            machine.time += 3600
            getattr(awake, first)()
        machine.run(awake, 10)
        assert awake.suspended_s() == 2 * (3600 - PERIOD_S)
        assert awake.now() - began == 30 + 2 * PERIOD_S


def test_a_busy_machine_is_no_suspension() -> None:
    machine = Machine()
    awake = machine.awake()
    began = awake.look()
    for _ in range(10):
        machine.time += 2
        awake.look()
    assert awake.now() - began == 20 and awake.suspended_s() == 0


def test_it_never_goes_back() -> None:
    """A gap found late may not reach back before a moment that somebody has read: an epoch would
    have taken less than no time."""
    machine = Machine()
    awake = machine.awake()
    awake.look()
    machine.time += 2.2  # stopped; who wakes up first reads
    began = awake.now()
    machine.time += 0.1
    awake.look()
    assert awake.now() >= began


def test_native_code_that_keeps_the_watch_waiting_is_no_suspension() -> None:
    machine = Machine()
    awake = machine.awake()
    began = awake.look()
    machine.time, machine.cpu = machine.time + 30, machine.cpu + 29.9
    assert awake.now() - began == 30 and awake.suspended_s() == 0
    machine.time, machine.cpu = machine.time + 30, machine.cpu + 10  # stopped in the middle of it
    assert awake.now() - began == 40 and awake.suspended_s() == 20


def test_where_nobody_watches_nothing_is_left_out() -> None:
    machine = Machine()
    awake = machine.awake()
    began = awake.now()
    machine.time += 3600
    assert awake.now() - began == 3600 and awake.suspended_s() == 0


def test_whoever_waits_for_a_disk_is_not_suspended() -> None:
    """Nothing but a thread of its own can tell the two apart."""
    wait_s = PERIOD_S + 3 * TOLERANCE_S
    alone = Awake()
    alone.look()
    with Awake().kept() as kept:
        for _ in range(10):  # a very busy machine may keep that thread waiting, too
            time.sleep(wait_s)
            if alone.suspended_s() - kept.suspended_s() > TOLERANCE_S:
                return
    pytest.fail("the thread tells nothing apart")
