"""One run of results/interconnect/ as it lies on disk, and its pairs as a frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from pydantic import BaseModel, ValidationError

from analysis.records.extract import recorded
from analysis.table import Column, Row, frame
from train.interconnect.collectives.record import COLLECTIVES_NAME, Collectives
from train.interconnect.facts.record import FACTS_GLOB, NodeFacts
from train.interconnect.record import (
    JOB_NAME,
    TOURNAMENT_NAME,
    JobNote,
    Measurement,
    Tournament,
)

_Model = TypeVar("_Model", bound=BaseModel)
PAIRS = (
    *(Column(name, "string", path=name) for name in ("sender", "receiver", "phase")),
    Column("together", "Int64", path="together"),
    *(Column(name, "Int64") for name in ("samples", "wrong_bytes")),
    *(Column(name) for name in ("rate", "rate_min", "rate_max")),
    *(Column(name, path=name) for name in ("latency_s", "latency_min_s")),
    Column("retransmitted", "Int64", path="tcp.retransmitted"),
    Column("path_mtu", "Int64", path="tcp.path_mtu"),
    Column("bytes", "Int64", path="bytes"),
    Column("sent_bytes", "Int64", path="at_sender.sent_bytes"),
    Column("received_bytes", "Int64", path="at_receiver.received_bytes"),
    Column("error", "string", path="error"),
)  # fmt: skip


class RunError(ValueError):
    """There is no run to judge; the text says what was found, expected and what to do."""


@dataclass(frozen=True)
class Run:
    folder: Path
    job: JobNote | None  # None: the program was started by hand
    tournament: Tournament | None  # None: it was not measured, as the two below
    collectives: Collectives | None = None
    facts: tuple[NodeFacts, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name


def load_run(folder: Path) -> Run:
    """
    Raises:
        RunError: no such folder, none of its files, or one that is broken.
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: no such folder. Expected one of results/interconnect/, which "
                       "make interconnect makes")  # fmt: skip
    job = read(folder / JOB_NAME, JobNote)
    tournament = read(folder / TOURNAMENT_NAME, Tournament)
    collectives = read(folder / COLLECTIVES_NAME, Collectives)
    if job is None and tournament is None and collectives is None:
        raise RunError(f"{folder} holds neither {TOURNAMENT_NAME} nor {JOB_NAME}: expected the "
                       "folder of one run, as make interconnect prints it")  # fmt: skip
    facts = (read(file, NodeFacts) for file in sorted(folder.glob(FACTS_GLOB)))
    return Run(folder, job, tournament, collectives, tuple(one for one in facts if one))


def read(file: Path, model: type[_Model], instead: str = "Measure again") -> _Model | None:
    """None: there is no such file. instead: what to do where it is broken.

    Raises:
        RunError: it is broken.
    """
    try:
        return model.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise RunError(
            f"{file} is broken or of another version: {where}: {first['msg']}. {instead}"
        ) from error


def pairs_frame(tournament: Tournament) -> pd.DataFrame:
    """One row per measurement, columns PAIRS; a pair that gave no number has its error.

    together: pairs that were measured at the same time. rate: bit/s, the median of the samples.
    latency_s: half of a round trip of 8 bytes, the median. path_mtu: by TCP, bytes. sent_bytes,
    received_bytes: that the interfaces of the two ends counted, headers included.
    """
    return frame([_row(m) for m in tournament.measurements], PAIRS)


def _row(m: Measurement) -> Row:
    row = recorded(m, PAIRS) | {"samples": len(m.rates)}
    if m.rates:
        row |= {"rate": np.median(m.rates), "rate_min": min(m.rates), "rate_max": max(m.rates),
                "wrong_bytes": m.wrong_bytes}  # fmt: skip
    return row
