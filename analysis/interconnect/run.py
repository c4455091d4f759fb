"""One run of results/interconnect/ as it lies on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from train.interconnect.collectives.record import COLLECTIVES_NAME, Collectives
from train.interconnect.facts.record import FACTS_GLOB, NodeFacts
from train.interconnect.record import JOB_NAME, TOURNAMENT_NAME, JobNote, Tournament

_Model = TypeVar("_Model", bound=BaseModel)


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
    job = _read(folder / JOB_NAME, JobNote)
    tournament = _read(folder / TOURNAMENT_NAME, Tournament)
    collectives = _read(folder / COLLECTIVES_NAME, Collectives)
    if job is None and tournament is None and collectives is None:
        raise RunError(f"{folder} holds neither {TOURNAMENT_NAME} nor {JOB_NAME}: expected the "
                       "folder of one run, as make interconnect prints it")  # fmt: skip
    told = (_read(file, NodeFacts) for file in sorted(folder.glob(FACTS_GLOB)))
    return Run(folder, job, tournament, collectives, tuple(one for one in told if one))


def _read(file: Path, model: type[_Model]) -> _Model | None:
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
            f"{file} is broken or of another version: {where}: {first['msg']}. Measure again"
        ) from error
