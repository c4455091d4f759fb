"""What a healthy network reached, kept, so that a later run can see that the fabric
is slow as a whole: peers within a run cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import AwareDatetime, Field

from analysis.interconnect.collectives import SeriesTimes, series_now, shape_of, through_ports
from analysis.interconnect.facts import environment
from analysis.interconnect.run import Run, RunError, pairs_frame, read
from train.config.frozen import Frozen
from train.interconnect.record import Tournament
from train.record.atomic import write_atomically

#: Sender and receiver -> bit/s, its samples.
PairsRates = dict[tuple[str, str], tuple[float, ...]]
BASELINE_NAME = "baseline.json"


class PairRates(Frozen):
    sender: str
    receiver: str
    rates: tuple[float, ...]  # bit/s


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
    through InfiniBand ports; None: not known."""

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

    @property
    def rates(self) -> PairsRates:
        return {(pair.sender, pair.receiver): pair.rates for pair in self.pairs}


def baseline_of(run: Run) -> Baseline:
    """
    Raises:
        RunError: the run holds no tournament.
    """
    tournament, collectives = run.tournament, run.collectives
    if tournament is None:
        raise RunError(f"{run.folder} measured no pairs: expected a run with its tournament phase")
    return Baseline(
        run=run.name,
        made_at=tournament.started_at,
        nodes=tuple(node.name for node in tournament.nodes),
        interfaces=tuple(sorted({node.interface for node in tournament.nodes})),
        environment=environment(run.facts),
        company=tournament.company,
        streams=tournament.streams,
        pairs=tuple(
            PairRates(sender=m.sender, receiver=m.receiver, rates=m.rates)
            for m in tournament.measurements
            if m.phase == "tournament" and m.rates and np.median(m.rates) > 0
        ),
        uplinks=tuple(_uplinks(tournament)),
        shape=shape_of(collectives) if collectives else None,
        collectives=series_now(collectives) if collectives else (),
        through_ports=through_ports(collectives) if collectives else None,
    )


def read_baseline(file: Path) -> Baseline:
    """
    Raises:
        RunError: there is none, or it is broken.
    """
    found = read(file, Baseline, "Replace it: make interconnect-baseline FORCE=1")
    if found is None:
        raise RunError(f"{file}: no such file. Expected a baseline, as make interconnect-baseline "
                       "keeps it")  # fmt: skip
    return found


def keep(baseline: Baseline, file: Path) -> None:
    """Raises: OSError: it cannot be written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, baseline.model_dump_json(indent=1) + "\n")


def _uplinks(tournament: Tournament) -> Iterator[Crossing]:
    """Rounds lie one after another; a sender takes part in each once. Those in which a pair gave
    no number are left out."""
    crossed = pairs_frame(tournament).query("phase == 'uplinks'")
    ends = [crossed[end].map(tournament.switches) for end in ("sender", "receiver")]
    for (a, b), own in crossed.groupby(ends, sort=False):
        rounds: list[dict[str, float]] = [{}]  # sender -> bit/s
        for sender, rate in zip(own["sender"], own["rate"].astype(float), strict=True):
            if sender in rounds[-1]:
                rounds.append({})
            rounds[-1][sender] = rate
        every = [pd.Series(one) for one in rounds]
        rates = tuple(one.quantile(0.75, "higher") for one in every if one.notna().all())
        if rates:
            yield Crossing(sender=a, receiver=b, pairs=max(map(len, rounds)), rates=rates)
