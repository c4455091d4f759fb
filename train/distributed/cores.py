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
from collections.abc import Iterable
from dataclasses import dataclass, field

from train.distributed.launch import Launch
from train.distributed.quota import quotas_here
from train.distributed.topology import near_gpus, plan_processors
from train.errors import ConfigError

#: So many processes can claim one core. A further one would share it unseen by later ones.
SEATS = range(32)


@dataclass
class Claims:
    """The cores of this rank, for as long as this object lives."""

    cores: tuple[int, ...] = ()
    others: bool = False  # another run has held some of them, too
    held: dict[int, socket.socket] = field(default_factory=dict)

    def shared(self) -> bool:
        """Whether another run has used some of these cores so far."""
        for claim in self.held.values():
            with contextlib.suppress(OSError):
                claim.recv(1, socket.MSG_DONTWAIT)
                self.others = True
        return self.others

    def take(self, core: int) -> bool:
        """Claim a core; False if another process has claimed it."""
        if not self.sit(core, SEATS[0]):
            return False
        if any(_answers(core, seat) for seat in SEATS[1:]):
            self.give_back(core)
            return False
        return True

    def sit(self, core: int, seat: int) -> bool:
        """Claim one seat of a core; False if it is taken."""
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
    claims.cores, claims.others = wanted, True
    return claims


def is_held(core: int) -> bool:
    """Whether a process of this machine claims the core now; it does not notice the question."""
    return any(_answers(core, seat) for seat in SEATS)


def _answers(core: int, seat: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(_address(core, seat)) == 0


def _address(core: int, seat: int) -> str:
    return f"\0horoscale/core/{core}/{seat}"


def take_cores(launch: Launch) -> Claims:
    """Claim cores for this process, pin it to them, and size the thread pools that read the
    environment.

    Two pinned one-core ranks process about 1.5 times the images of two that share both cores.

    Raises:
        ConfigError: this machine has no such cores, or they are not for this process.
    """
    mask = os.sched_getaffinity(0)
    if launch.cores is not None:
        # whoever gave them without spare ones has not made a claim possible
        spared = launch.spare is not None
        claims = claim(launch.cores, launch.spare or ()) if spared else Claims(launch.cores)
    else:
        near = near_gpus(launch)
        own, left = plan_processors(mask, launch, os.cpu_count(), quotas_here(), near)
        claims = claim(own[launch.local_rank], left)
    try:
        os.sched_setaffinity(0, claims.cores)
    except OSError as error:
        wanted, mine = (",".join(map(str, each)) for each in (claims.cores, sorted(mask)))
        raise ConfigError(
            f"cannot run on cores {wanted}: {error.strerror}; this process may use {mine}"
        ) from error
    os.environ["OMP_NUM_THREADS"] = str(len(claims.cores))
    if claims.others and launch.local_rank == 0:
        what = "another run, or another rank, holds cores that this one uses, too"
        print(f"train: {what}: its times are no scaling figures (oversubscribed)", file=sys.stderr)
    return claims
