"""Cores and GPUs of other runs: left to them where others are free, else both know of it."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest
import tensorflow as tf

from tests.acting import acting
from tests.sweeps import ROOT
from train.distributed import world
from train.distributed.launch import Launch, read_launch
from train.distributed.machine import cores
from train.distributed.machine.claims import Claims, claim, is_held
from train.distributed.machine.cores import take_cores

#: Numbers of cores that no machine has, and no real rank claims.
A, B, C, D = range(2_000_000 + 10 * os.getpid(), 2_000_004 + 10 * os.getpid())


def test_a_free_core_is_taken_in_place_of_a_held_one() -> None:
    one, other = claim((A,), ()), claim((A,), (A, B))
    assert (one.own, other.own) == ((A,), (B,))
    assert is_held(A) and is_held(B) and not is_held(C), "and nobody notices the question"
    assert not one.shared() and not other.shared()


def test_both_know_that_they_share() -> None:
    """A run that has begun alone would else keep times that the later one spoils."""
    first, apart = claim((A, B), ()), claim((C,), ())
    later = claim((B, D), ())
    assert later.own == (B, D) and later.shared()
    assert first.shared() and first.shared() and not apart.shared()
    assert is_held(D), "its own one stays its own"
    del first
    assert not is_held(A) and claim((A,), ()).own == (A,)


def test_who_shares_holds_the_core_as_well() -> None:
    """Seen: after the first run had ended, a third one believed that it was alone."""
    first = claim((A,), ())
    second = claim((A,), ())
    del first
    assert is_held(A) and claim((A,), (B,)).own == (B,)
    second.others = False
    third, fourth = claim((A,), ()), claim((A,), ())
    assert third.shared() and fourth.shared() and second.shared(), "all of them know"
    del second, third
    assert is_held(A)
    del fourth
    assert not is_held(A)


@pytest.mark.parametrize(("number", "free"), [(errno.EADDRINUSE, False), (errno.EACCES, True)])
def test_an_address_in_use_is_a_claim_of_another_process(
    monkeypatch: pytest.MonkeyPatch, number: int, free: bool
) -> None:
    """Which ends at once. Any other failure is none."""

    class Fails(socket.socket):
        def bind(self, _address: object, /) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "socket", Fails)
    assert Claims[int]().take(A) is free


def test_what_is_not_enough_is_given_back() -> None:
    first = claim((A, B), ())
    later = claim((A, B), (C,))
    assert later.own == (A, B) and not is_held(C)
    assert first.shared()


def test_the_kernel_ends_a_claim_of_a_killed_process() -> None:
    code = (
        f"import time; from train.distributed.machine.claims import claim; c = claim(({A},), ()); "
    )
    code += "print(c.own, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout and other.stdout.readline()
        assert is_held(A) and claim((A,), (B,)).own == (B,)
        other.kill()
    assert not is_held(A)


def test_another_user_is_seen_and_told() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    first = claim((A,), ())

    def share() -> None:
        assert claim((A,), (B,)).own == (B,)
        assert claim((A,), ()).shared()

    assert acting(54321, 54321, share) == 0
    assert first.shared()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores that all tasks may use."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(cores, "quotas_here", lambda: ())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {A, B, C, D})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


class FakeGpus:
    """As TensorFlow shows them: of this machine's, those of ``visible``."""

    def __init__(self, visible: Sequence[str]) -> None:
        self.experimental, self.visible = self, visible

    def list_physical_devices(self, _kind: str) -> Sequence[str]:
        return self.visible

    def set_visible_devices(self, *_: object) -> None: ...

    def set_memory_growth(self, *_: object) -> None: ...

    def get_device_details(self, gpu: str) -> dict[str, str]:
        return {"device_name": gpu}


def gpus_of_a_job(
    patch: pytest.MonkeyPatch, ranks: int, *visible: str, bound: bool = False
) -> list[tuple[tuple[str, ...], Claims[str]]]:
    """Of each rank of a job on one node; ``bound``: each rank is shown one of them."""
    found = []
    for rank in range(ranks):
        shown = visible[rank : rank + 1] if bound else visible
        patch.setattr(tf, "config", FakeGpus(shown))
        patch.setattr(world, "gpu_ids", lambda shown=shown: list(shown))
        found.append(world.own_gpus(rank, ranks, 1))
    return found


def test_two_jobs_on_one_node_take_different_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the later one takes those of the earlier, and both records say so."""
    four = [f"gpu {os.getpid()} {n}" for n in range(4)]
    jobs = [gpus_of_a_job(monkeypatch, 2, *four) for _ in range(2)]
    assert [[*models] for job in jobs for models, _ in job] == [[one] for one in four]
    assert not any(claims.shared() for job in jobs for _, claims in job)
    (models, claims), *_ = gpus_of_a_job(monkeypatch, 1, *four)
    assert models == (four[0],) and claims.shared() and jobs[0][0][1].shared()
    assert not jobs[0][1][1].shared()


@pytest.mark.parametrize(("bound", "shares"), [(True, [False, False]), (False, [True, True])])
def test_ranks_of_a_job_share_a_gpu_only_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, bound: bool, shares: list[bool]
) -> None:
    two = [f"gpu {os.getpid()} {n}" for n in (7, 8)][: 1 + bound]
    job = gpus_of_a_job(monkeypatch, 2, *two, bound=bound)
    assert [claims.shared() for _, claims in job] == shares


def ranks(size: int) -> list[Claims[int]]:
    """Of a job with one core a task."""
    steps = (Launch("srun", rank, size, rank, size, cores_asked=1) for rank in range(size))
    return [take_cores(launch) for launch in steps]


def test_two_jobs_on_an_unbound_node_take_different_cores(node: None) -> None:
    """Seen: both were pinned to its first core."""
    jobs = [ranks(2), ranks(2)]
    assert [[claims.own for claims in job] for job in jobs] == [[(A,), (B,)], [(C,), (D,)]]
    assert not any(claims.shared() for job in jobs for claims in job)
    third = ranks(1)
    assert third[0].own == (A,) and third[0].shared()
    assert [claims.shared() for claims in jobs[0]] == [True, False]


@pytest.mark.parametrize(("spare", "chosen"), [(None, A), ("", A), (f"{C},{D}", C)],
                         ids=["nothing", "no spare core", "spare cores"])  # fmt: skip
def test_what_a_supervisor_gives(node: None, spare: str | None, chosen: int) -> None:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CORES")
    told = dict(zip([f"HOROSCALE_{name}" for name in names], f"0 1 0 1 {A}".split(), strict=True))
    told |= {} if spare is None else {"HOROSCALE_SPARE": spare}
    other = claim((A,), ())
    claims = take_cores(read_launch(told))
    assert claims.own == (chosen,)
    assert claims.shared() is other.shared() is (spare == "")
