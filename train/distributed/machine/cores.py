"""Which cores a rank takes: whole ones, near its GPU, that no other run of this machine holds.

Linux numbers the hardware threads of a core far apart, as 0 and 64 of 128 (lscpu -e), so that equal
parts of a list of numbers give two ranks the same cores. Processors are hardware threads here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, groupby, product, zip_longest
from pathlib import Path

from train.distributed.launch import Launch
from train.distributed.machine.claims import Claims, claim
from train.distributed.machine.gpus import gpu_addresses
from train.distributed.machine.quota import Quota, quotas_here, usable_cores
from train.errors import ConfigError, text_of

SYS = Path("/sys")
Processors = tuple[int, ...]


def take_cores(launch: Launch) -> Claims[int]:
    """Claim cores for this process, pin it to them, and size the thread pools that read the
    environment.

    Two pinned one-core ranks process about 1.5 times the images of two that share both cores.
    """
    mask = os.sched_getaffinity(0)
    if launch.spare is not None:
        claims = claim(launch.cores, launch.spare)
    elif launch.cores:  # whoever gave them without spare ones has not made a claim possible
        claims = Claims(launch.cores)
    else:
        near = near_gpus(launch)
        own, left = plan_processors(mask, launch, os.cpu_count(), quotas_here(), near)
        claims = claim(own[launch.local_rank], left)
    try:
        os.sched_setaffinity(0, claims.own)
    except OSError as error:
        wanted, mine = (",".join(map(str, each)) for each in (claims.own, sorted(mask)))
        raise ConfigError(
            f"cannot run on cores {wanted}: {error.strerror}; this process may use {mine}"
        ) from error
    os.environ["OMP_NUM_THREADS"] = str(len(claims.own))
    if claims.others and launch.local_rank == 0:
        what = "another run, or another rank, holds cores that this one uses, too"
        print(f"train: {what}: its times are no scaling figures (oversubscribed)", file=sys.stderr)
    return claims


def whole_cores(processors: Iterable[int]) -> list[Processors]:
    """These processors, by core; each alone if the kernel does not list a core's threads."""
    cores: dict[str, list[int]] = {}
    for number in processors:
        threads = text_of(SYS / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        cores.setdefault(threads or f"processor {number}", []).append(number)
    return [tuple(core) for core in cores.values()]


def spread(processors: Iterable[int]) -> list[int]:
    """The same processors, first one of each core: the best for a quota on their time."""
    threads = zip_longest(*whole_cores(processors))
    return [number for number in chain(*threads) if number is not None]


def near_gpus(launch: Launch) -> list[frozenset[int]]:
    """Processors of the NUMA node of each rank's GPU on this node. Nothing if this rank sees fewer
    GPUs than there are ranks: it cannot know which ones the others have."""
    gpus = gpu_addresses()[: launch.local_size]
    files = (SYS / f"bus/pci/devices/{gpu}/local_cpulist" for gpu in gpus)
    near = [frozenset(_numbers(text_of(file))) for file in files]
    return near if len(near) == launch.local_size else []


def _numbers(text: str) -> Iterable[int]:
    """0-3,8 is 0, 1, 2, 3, 8."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def in_groups(
    processors: Iterable[int], size: int, near: Sequence[Collection[int]] = ()
) -> list[int]:
    """The same processors, so ordered that slices of ``size`` are groups for ranks.

    Each group begins with a core of its own, has only whole cores except its last, and is near one
    GPU (``near``: processors near each) or near none, as long as there are such groups.
    """

    def far(core: Processors) -> list[bool]:
        return [core[0] not in one for one in near]

    ordered: list[int] = []
    left: list[Processors] = []
    for far_from, block in groupby(sorted(whole_cores(processors), key=far), far):
        cores = list(block)
        left += cores if all(far_from) else _cut(cores, size, ordered)
    while sum(map(len, left)) >= size:
        left = _cut(left, size, ordered)
    return [*ordered, *chain(*left)]


def _cut(cores: Iterable[Processors], size: int, ordered: list[int]) -> list[Processors]:
    """Append groups of these cores to ``ordered``, first of those with most threads in the mask;
    returns what is left of cores."""
    left: list[Processors] = []
    group: list[Processors] = []
    for core in sorted(cores, key=lambda core: (-len(core), core)):
        group.append(core)
        threads = tuple(chain(*group))
        if len(threads) >= size:
            ordered += threads[:size]
            left += [threads[size:]] if threads[size:] else []
            group = []
    return left + group


def nearest(groups: Sequence[Processors], near: Sequence[Collection[int]]) -> list[Processors]:
    """For each rank the free group with most processors near its GPU, else the one with the closest
    numbers, as of the same socket. Groups are shared only if there are more ranks."""
    groups = [*groups] * -(-len(near) // len(groups))

    def distance(pair: tuple[int, int]) -> tuple[int, int]:
        wanted, group = near[pair[0]], groups[pair[1]]
        apart = min(group) - min(wanted) if wanted else 0
        return -len({*group}.intersection(wanted)), abs(apart)

    chosen: dict[int, int] = {}
    for rank, number in sorted(product(range(len(near)), range(len(groups))), key=distance):
        if rank not in chosen and number not in chosen.values():
            chosen[rank] = number
    return [groups[number] for _, number in sorted(chosen.items())]


def plan_processors(
    mask: Collection[int],
    launch: Launch,
    machine: int | None = None,
    quotas: tuple[Quota, ...] = (),
    near: Sequence[Collection[int]] = (),
) -> tuple[list[Processors], list[int]]:
    """The processors of each rank of this node, in equal shares, and those that are left.

    Under Slurm the mask may be this rank's alone already (sites bind tasks or not). If it is not, a
    rank takes no more than was asked for it: other jobs may run on the node. With more ranks than
    processors, ranks share single ones in turn (``oversubscribed`` in records). Of a shared mask
    they take no more than the CPU quota gives, of different cores first, but one each at least.

    machine: number of processors of this machine; a mask of all of them is nobody's own.
    """
    ranks, asked, most = launch.local_size, launch.cores_asked, len(mask)
    if len(mask) < ranks * asked and len(mask) != machine:
        return [tuple(sorted(mask))] * ranks, []
    size = asked
    if not 0 < ranks * asked <= len(mask):
        size = max(1, len(mask) // ranks)
        threads = max(map(len, whole_cores(mask)))
        size -= size % threads if size > threads else 0
        most = max(1, usable_cores(len(mask), quotas) // ranks)
    ordered = in_groups(sorted(mask), size, near)
    groups = [tuple(ordered[at : at + size]) for at in range(0, len(ordered) - size + 1, size)]
    # nodes that are one machine take different ones, too
    first = launch.node * ranks % len(groups)
    own = nearest(groups[first:] + groups[:first], near or [()] * ranks)
    chosen = [tuple(sorted(spread(group)[:most])) for group in own]
    taken = set(chain(*chosen))
    spare = spread(ordered) if most < size else ordered
    return chosen, [number for number in spare if number not in taken]
