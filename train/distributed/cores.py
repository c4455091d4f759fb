"""Cores that another run of this machine holds.

A rank claims each core that it is pinned to, by an address of its own in the abstract namespace of
unix(7). That is one table for all users and jobs of a machine (of a network namespace), without a
file, and the kernel ends a claim with its process. A core has several seats: who has to share it
takes a free one and sends a message to the others. From then on the times of these runs are no
scaling figures.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from train.distributed.launch import Launch, own_cores, pin
from train.distributed.quota import quotas_here

#: So many processes can claim one core. A further one would share it unseen by later ones.
SEATS = range(32)


@dataclass
class Claims:
    """The cores of this rank, for as long as this object lives."""

    cores: tuple[int, ...] = ()
    told: bool = False  # another run holds some of them, or has to share them
    held: dict[int, socket.socket] = field(default_factory=dict)

    def shared(self) -> bool:
        """Whether another run has used some of these cores so far."""
        for claim in self.held.values():
            with contextlib.suppress(OSError):
                claim.recv(1, socket.MSG_DONTWAIT)
                self.told = True
        return self.told

    def take(self, core: int) -> bool:
        """Claim a core; False where another process has claimed it."""
        if not self.sit(core, SEATS[0]):
            return False
        if any(_answers(core, seat) for seat in SEATS[1:]):
            self.give_back(core)
            return False
        return True

    def sit(self, core: int, seat: int) -> bool:
        """Claim one seat of a core; False where it is taken."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(_address(core, seat))
        except OSError as error:
            claim.close()
            # where there is no such namespace, nobody holds anything
            return error.errno != errno.EADDRINUSE
        self.held[core] = claim
        return True

    def give_back(self, core: int) -> None:
        if claim := self.held.pop(core, None):
            claim.close()


def claim(wanted: Iterable[int], spare: Iterable[int]) -> Claims:
    """As many cores as are wanted: these or, where another process holds some of them, spare ones.

    If too few are free, it takes the wanted ones and sends a message to everybody who holds them.
    """
    wanted, claims = tuple(wanted), Claims()
    chosen = [core for core in wanted if claims.take(core)]
    for core in spare:
        if len(chosen) < len(wanted) and claims.take(core):
            chosen.append(core)
    if len(chosen) == len(wanted):
        claims.cores = tuple(chosen)
        return claims
    for core in {*claims.held} - {*wanted}:
        claims.give_back(core)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for core in {*wanted} - {*claims.held}:
            any(claims.sit(core, seat) for seat in SEATS)  # first, so that later ones tell us
            for seat in SEATS:
                with contextlib.suppress(OSError):  # nobody sits there, or its queue is full
                    sender.sendto(b"shared", socket.MSG_DONTWAIT, _address(core, seat))
    claims.cores, claims.told = wanted, True
    return claims


def is_held(core: int) -> bool:
    """Whether a process of this machine claims the core now; it does not notice the question."""
    return any(_answers(core, seat) for seat in SEATS)


def _answers(core: int, seat: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        return asking.connect_ex(_address(core, seat)) == 0


def _address(core: int, seat: int) -> str:
    return f"\0horoscale/core/{core}/{seat}"


def take_cores(launch: Launch) -> Claims:
    """Pin this process to cores of its own, and claim them.

    Raises:
        ConfigError: as :func:`train.distributed.launch.pin`.
    """
    wanted, *others = _planned(launch)
    if launch.cores is not None and launch.spare is None:
        claims = Claims(wanted)  # whoever gave them has not made a claim possible
    else:
        free = sorted(os.sched_getaffinity(0)) if launch.spare is None else launch.spare
        theirs = {core for cores in (wanted, *others) for core in cores}
        claims = claim(wanted, [core for core in free if core not in theirs])
    pin(claims.cores)
    if claims.told and launch.local_rank == 0:
        what = "another run, or another rank, holds cores that this one uses, too"
        print(f"train: {what}: its times are no scaling figures (oversubscribed)", file=sys.stderr)
    return claims


def _planned(launch: Launch) -> Iterator[tuple[int, ...]]:
    """Cores of this rank, and then those of all ranks of this node, as on a free machine."""
    mask, quotas = os.sched_getaffinity(0), quotas_here()
    for local in (launch.local_rank, *range(launch.local_size)):
        of = replace(launch, local_rank=local)
        yield own_cores(mask, of, os.cpu_count(), quotas)
