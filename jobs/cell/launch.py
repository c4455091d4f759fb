"""The launch line of a cell as values: token lists and environments; nothing runs here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

#: Cores of each rank, or of each process.
Groups = tuple[tuple[int, ...], ...]
#: Every rank of a cell, and no other process, has this variable with the cell's stem in it.
RENDEZVOUS = "HOROSCALE_RENDEZVOUS"


def rendezvous_stem(cell: Path) -> Path:
    return cell / "logs" / "rendezvous-"


def rank_argv(
    cell: Path,
    *,
    data: str,
    store: str,
    attempt: int,
    stall_s: float,
    resume: bool,
    supervised: bool = False,
    stop_at: float | None = None,
) -> list[str]:
    """What every rank's Python is given, on this machine and on Slurm.

    Args:
        supervised: a supervisor that may be on another host keeps the record.
        stop_at: when ranks stop at the end of their epoch, seconds since 1970.
    """
    argv = ["-m", "train", str(cell / "config.json"), *(["--supervised"] if supervised else [])]
    argv += ["--data", data, "--store", store, "--attempt", str(attempt)]
    argv += ["--stall-s", f"{stall_s:g}"]
    argv += [] if stop_at is None else ["--stop-at", f"{stop_at:.0f}"]
    return [*argv, "--resume"] if resume else argv


def rank_environment(
    cell: Path, cores: Groups, rank: int, *, attempt: int, supervisor: int, root: Path
) -> dict[str, str]:
    """What a process of ranks on this machine gets on top of the supervisor's environment."""
    size = str(len(cores))
    return {
        "HOROSCALE_RANK": str(rank),
        "HOROSCALE_SIZE": size,
        "HOROSCALE_LOCAL_RANK": str(rank),
        "HOROSCALE_LOCAL_SIZE": size,
        "HOROSCALE_CORES": ",".join(str(core) for core in cores[rank]),
        # a new name for each start: an old address must never be met at
        RENDEZVOUS: f"{rendezvous_stem(cell)}{attempt}-{supervisor}",
        "HOROSCALE_SUPERVISOR": str(supervisor),
        "PYTHONPATH": str(root),
    }


def core_groups(
    ranks: int, per_rank: int, free: Sequence[int], processes: int | None = None
) -> Groups:
    """Disjoint groups of cores for so many processes of equally many ranks, or for each rank; with
    too few cores, ranks share single ones in turn.

    Shared cores are marked in the record (``oversubscribed``): such times are no scaling figures.
    """
    own = ranks * per_rank <= len(free)
    of_rank = [
        free[rank * per_rank : (rank + 1) * per_rank] if own else [free[rank % len(free)]]
        for rank in range(ranks)
    ]
    together = ranks // (processes or ranks)
    groups = (of_rank[first : first + together] for first in range(0, ranks, together))
    return tuple(tuple(dict.fromkeys(chain.from_iterable(group))) for group in groups)
