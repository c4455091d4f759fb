"""What a healthy network reached, kept, so that a later run can tell a fabric that is slow as a
whole: its peers cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from pydantic import AwareDatetime, Field, ValidationError

from analysis.interconnect.bandwidth import through_ports
from analysis.interconnect.nodes import differences
from analysis.interconnect.run import Run, RunError
from train.collectives.record import Way
from train.files import write_atomically
from train.frozen import Frozen
from train.interconnect.record import Tournament

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
    """The largest size of a series of all ranks. seconds: of its calls."""

    name: str
    way: Way
    ranks: int
    bytes: int
    seconds: tuple[float, ...]


class Baseline(Frozen):
    """environment: group, name -> what most nodes say, of facts that equal nodes share.
    company: pairs that ran at the same time at most. streams: connections of each pair.
    uplinks: from leaf switch to leaf switch, the rates of pairs that loaded the uplink together.
    through_ports: whether Horovod's collectives went through InfiniBand ports; None: not told."""

    schema_version: int = Field(1, ge=1, le=1)
    run: str
    made_at: AwareDatetime
    nodes: tuple[str, ...]
    interfaces: tuple[str, ...]
    environment: dict[str, str]
    company: int
    streams: int = 1
    pairs: tuple[PairRates, ...]
    uplinks: tuple[PairRates, ...] = ()
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
        pairs=_told(rates_now(found)),
        uplinks=_told(uplinks_now(found)),
        collectives=series_now(run),
        through_ports=through_ports(run.collectives) if run.collectives else None,
    )


def _told(rates: PairsRates) -> tuple[PairRates, ...]:
    return tuple(PairRates(sender=a, receiver=b, rates=own) for (a, b), own in rates.items())


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


def uplinks_now(found: Tournament) -> PairsRates:
    """From leaf switch to leaf switch, bit/s: medians of the pairs that crossed together."""
    rates: dict[tuple[str, str], list[float]] = {}
    for m in found.measurements:
        if m.phase == "uplinks" and m.rates:
            ends = found.switches[m.sender], found.switches[m.receiver]
            rates.setdefault(ends, []).append(float(np.median(m.rates)))
    return {ends: tuple(own) for ends, own in rates.items()}


def series_now(run: Run) -> tuple[SeriesTimes, ...]:
    if run.collectives is None:
        return ()
    whole = [s for s in run.collectives.series
             if s.ranks == len(run.collectives.ranks) and s.points]  # fmt: skip
    return tuple(
        SeriesTimes(
            name=f"{s.operation} {s.place} {s.mode}", way=s.way, ranks=s.ranks,
            bytes=s.points[-1].bytes, seconds=s.points[-1].seconds,
        )
        for s in whole
    )  # fmt: skip


def rates_now(found: Tournament) -> PairsRates:
    """Of the pairs that gave any, bit/s."""
    return {
        (m.sender, m.receiver): m.rates
        for m in found.measurements
        if m.phase == "tournament" and m.rates and np.median(m.rates) > 0
    }
