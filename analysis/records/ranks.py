"""The ranks of a run: what each one's steady-state steps took, and where it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from analysis.records.columns import PARTS_OF_A_RANK
from train.record.run import RunRecord, Spread


def rank_values(record: RunRecord) -> Iterator[tuple[str, list[Any]]]:
    """Columns of RANKS that are not its run's, each in the order of the ranks; medians of steps."""
    steps, hosts = record.steps or (), record.world.hostnames if record.world else ()
    yield "rank", [one.rank for one in steps]
    yield "host", [hosts[one.rank] if one.rank < len(hosts) else None for one in steps]
    local, seen = [], Counter[str]()
    for host in hosts:
        local.append(seen[host])
        seen[host] += 1
    yield "local_rank", [local[one.rank] if one.rank < len(hosts) else None for one in steps]
    yield "sampled", [one.sampled for one in steps]
    for column in PARTS_OF_A_RANK:
        values: list[Spread | float | None] = [getattr(one, column.name) for one in steps]
        yield column.name, [v.median if isinstance(v, Spread) else v for v in values]
    yield "outside_epochs_s", [_outside_epochs(record)] * len(steps)


def _outside_epochs(record: RunRecord) -> float | None:
    if not record.attempts:
        return None
    last = record.attempts[-1]
    inside = sum(e.train_s + e.eval_s for e in record.epochs if e.attempt == last.number)
    return max(0.0, (last.ended_at - last.started_at).total_seconds() - inside)
