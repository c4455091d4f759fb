"""What a healthy network reached, kept, so that a later run can tell a fabric that is slow as a
whole: its peers cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from pydantic import AwareDatetime, Field, ValidationError

from analysis.interconnect.bandwidth import through_ports
from analysis.interconnect.nodes import differences
from analysis.interconnect.run import Run, RunError
from train.config.frozen import Frozen
from train.interconnect.collectives.record import Collectives, Way
from train.interconnect.record import Tournament
from train.record.atomic import write_atomically

#: Sender and receiver -> bit/s, its samples.
PairsRates = dict[tuple[str, str], tuple[float, ...]]
BASELINE_NAME = "baseline.json"
#: Firmware, routes and neighbours change; an older baseline proves nothing.
MAX_AGE = timedelta(days=90)
#: Facts that may differ without another network being measured.
_MAY_DIFFER = ("frequency governor", "transparent huge pages", "image")


class PairRates(Frozen):
    sender: str
    receiver: str
    rates: tuple[float, ...]  # bit/s


class SeriesTimes(Frozen):
    """A series of all ranks. seconds: bytes -> of the median call; a slow one has fewer sizes."""

    name: str
    way: Way
    seconds: dict[int, float]


class Crossing(Frozen):
    """From leaf switch to leaf switch. pairs: that crossed together. rates: of each round, bit/s,
    what the better quarter of them reached: one slow node does not make its uplink slow."""

    sender: str
    receiver: str
    pairs: int
    rates: tuple[float, ...]


class Baseline(Frozen):
    """environment: group, name -> what most nodes say, of facts that equal nodes share.
    company: pairs that ran at the same time at most. streams: connections of each pair.
    shape: of the ranks whose collectives were measured. through_ports: whether Horovod's went
    through InfiniBand ports; None: not told."""

    schema_version: int = Field(1, ge=1, le=1)
    run: str
    made_at: AwareDatetime
    nodes: tuple[str, ...]
    interfaces: tuple[str, ...]
    environment: dict[str, str]
    company: int
    streams: int = 1
    pairs: tuple[PairRates, ...]
    uplinks: tuple[Crossing, ...] = ()
    shape: str | None = None
    collectives: tuple[SeriesTimes, ...] = ()
    through_ports: bool | None = None


def baseline_of(run: Run) -> Baseline:
    """
    Raises:
        RunError: the run holds no tournament.
    """
    if run.tournament is None:
        raise RunError(f"{run.folder} measured no pairs: expected a run with its tournament phase")
    found = run.tournament
    return Baseline(
        run=run.name,
        made_at=found.started_at,
        nodes=tuple(node.name for node in found.nodes),
        interfaces=tuple(sorted({node.interface for node in found.nodes})),
        environment=environment(run),
        company=found.company,
        streams=found.streams,
        pairs=tuple(
            PairRates(sender=a, receiver=b, rates=own) for (a, b), own in rates_now(found).items()
        ),
        uplinks=uplinks_now(found),
        shape=shape_of(run.collectives) if run.collectives else None,
        collectives=series_now(run.collectives) if run.collectives else (),
        through_ports=through_ports(run.collectives) if run.collectives else None,
    )


def environment(run: Run) -> dict[str, str]:
    usual: dict[str, str] = {
        f"{d.group}: {d.name}": d.usual for d in differences(run.facts)
    }  # fmt: skip
    for one in run.facts:
        for fact in one.facts:
            if one.when == "before" and fact.role == "same" and fact.value is not None:
                usual.setdefault(f"{fact.group}: {fact.name}", fact.value)
    return usual


def read_baseline(file: Path) -> Baseline:
    """
    Raises:
        RunError: there is none, or it is broken.
    """
    try:
        return Baseline.model_validate_json(file.read_bytes())
    except OSError as error:
        raise RunError(
            f"{file}: {error.strerror}. Expected a baseline, as make interconnect-baseline keeps it"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise RunError(f"{file} is no baseline of this version: {where}: {first['msg']}") from error


def keep(baseline: Baseline, file: Path) -> None:
    """Raises: OSError: it cannot be written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, baseline.model_dump_json(indent=1) + "\n")


def impossible(baseline: Baseline, run: Run) -> str | None:
    """Why there is nothing to compare."""
    if run.tournament is None:
        return "this run measured no pairs"
    if not {(p.sender, p.receiver) for p in baseline.pairs} & set(rates_now(run.tournament)):
        return f"it has no pair of nodes with this run in common ({', '.join(baseline.nodes)})"
    return None


def refusals(baseline: Baseline, run: Run, now: datetime) -> Iterator[str]:
    """Why a comparison of the two would not be one of the network alone; all of it."""
    if run.tournament is None:
        return
    age = now - baseline.made_at
    if age > MAX_AGE:
        yield f"it is {age.days} days old, expected at most {MAX_AGE.days}: keep a new one"
    mine = tuple(sorted({node.interface for node in run.tournament.nodes}))
    if mine != baseline.interfaces:
        yield f"it went over {', '.join(baseline.interfaces)}, this run over {', '.join(mine)}"
    if run.tournament.streams != baseline.streams:
        yield (f"its pairs used {baseline.streams} connections, this run's "
               f"{run.tournament.streams}")  # fmt: skip
    here = environment(run)
    for name, then in sorted(baseline.environment.items()):
        now_is = here.get(name)
        if now_is is not None and now_is != then and not name.endswith(_MAY_DIFFER):
            yield f"{name}: {then} then, {now_is} now"
    for known, whose in ((baseline.environment, "it"), (here, "this run")):
        if not known:
            yield f"{whose} has no preflight, so nothing tells whether the nodes are the same"


def rates_then(pairs: Sequence[PairRates]) -> PairsRates:
    return {(p.sender, p.receiver): p.rates for p in pairs}


def uplinks_now(found: Tournament) -> tuple[Crossing, ...]:
    """Rounds lie one after another; a sender takes part in each once. Those in which a pair gave
    no number are left out."""
    rounds: dict[tuple[str, str], list[dict[str, float]]] = {}  # sender -> bit/s
    for m in found.measurements:
        if m.phase == "uplinks":
            ends = found.switches[m.sender], found.switches[m.receiver]
            own = rounds.setdefault(ends, [{}])
            if m.sender in own[-1]:
                own.append({})
            own[-1][m.sender] = float(np.median(m.rates)) if m.rates else math.nan
    return tuple(
        Crossing(sender=a, receiver=b, pairs=max(map(len, own)), rates=rates)
        for (a, b), own in rounds.items()
        if (rates := tuple(
            float(np.quantile([*one.values()], 0.75, method="higher"))
            for one in own if not any(map(math.isnan, one.values()))
        ))
    )  # fmt: skip


def shape_of(found: Collectives) -> str:
    return f"{len(found.ranks)} ranks on {found.nodes} nodes, {found.controller} controller"


def series_now(found: Collectives) -> tuple[SeriesTimes, ...]:
    return tuple(
        SeriesTimes(
            name=f"{s.operation} {s.place} {s.mode}", way=s.way,
            seconds={point.bytes: float(np.median(point.seconds)) for point in s.points},
        )
        for s in found.series
        if s.ranks == len(found.ranks) and s.points
    )  # fmt: skip


def rates_now(found: Tournament) -> PairsRates:
    """Of the pairs that gave any, bit/s."""
    return {
        (m.sender, m.receiver): m.rates
        for m in found.measurements
        if m.phase == "tournament" and m.rates and np.median(m.rates) > 0
    }
