"""Which cores and GPUs of this machine other runs hold.

A rank claims each processor that it is pinned to and each GPU that it uses, by an address of its
own in the abstract namespace of unix(7). That is one table for all users and jobs of a machine (of
a network namespace), without a file, and the kernel ends a claim with its process. Each has several
seats: who has to share it takes a free one and sends a message to the others. From then on the
times of these runs are no scaling figures.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: So many processes can claim one. A further one would share it unseen by later ones.
SEATS = range(32)
#: The number of a processor, or the id of a GPU.
Device = TypeVar("Device", bound="int | str")


@dataclass
class Claims(Generic[Device]):
    """The cores, or the GPUs, of this rank, for as long as this object lives."""

    own: tuple[Device, ...] = ()
    others: bool = False  # another run has held some of them, too
    held: dict[Device, socket.socket] = field(default_factory=dict)

    def shared(self) -> bool:
        """Whether another run has used some of them so far."""
        for claim in self.held.values():
            with contextlib.suppress(OSError):
                claim.recv(1, socket.MSG_DONTWAIT)
                self.others = True
        return self.others

    def take(self, one: Device) -> bool:
        """Claim it; False if another process has claimed it."""
        if not self.sit(one, SEATS[0]):
            return False
        if any(_answers(one, seat) for seat in SEATS[1:]):
            self.held.pop(one).close()
            return False
        return True

    def sit(self, one: Device, seat: int) -> bool:
        """Claim one seat; False if it is taken."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(_address(one, seat))
        except OSError as error:
            claim.close()
            # if there is no such namespace, nobody holds anything
            return error.errno != errno.EADDRINUSE
        self.held[one] = claim
        return True


def claim(wanted: Iterable[Device], spare: Iterable[Device]) -> Claims[Device]:
    """As many as are wanted: these or, if another process holds some of them, spare ones.

    If too few are free, it takes the wanted ones and sends a message to everybody who holds them.
    """
    wanted, claims = tuple(wanted), Claims[Device]()
    chosen = [one for one in wanted if claims.take(one)]
    for one in spare:
        if len(chosen) < len(wanted) and claims.take(one):
            chosen.append(one)
    if len(chosen) == len(wanted):
        claims.own = tuple(chosen)
        return claims
    for one in {*claims.held} - {*wanted}:
        claims.held.pop(one).close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for one in {*wanted} - {*claims.held}:
            any(claims.sit(one, seat) for seat in SEATS)  # first, so that later ones tell us
            for seat in SEATS:
                with contextlib.suppress(OSError):  # nobody sits there, or its queue is full
                    sender.sendto(b"shared", socket.MSG_DONTWAIT, _address(one, seat))
    claims.own, claims.others = wanted, True
    return claims


def is_held(one: int | str) -> bool:
    """Whether a process of this machine claims it now; it does not notice the question."""
    return any(_answers(one, seat) for seat in SEATS)


def _answers(one: int | str, seat: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(_address(one, seat)) == 0


def _address(one: int | str, seat: int) -> str:
    kind = "core" if isinstance(one, int) else "gpu"
    return f"\0horoscale/{kind}/{one}/{seat}"
