"""The output contract: RunRecord, all that analysis trusts about one cell.

Importing this module loads neither TensorFlow nor Horovod. A value that is not there is null and
``missing`` says why, under its dotted path (list positions left out): never 0, never -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from train.config.frozen import Frozen
from train.config.run import RunConfig, explain
from train.errors import ConfigError, NoRecord, RecordError, read_whole
from train.record.atomic import write_atomically, write_new
from train.record.measurements import (
    Classification,
    Count,
    DataRecord,
    EpochRecord,
    LinkTraffic,
    Positive,
    RankSteps,
    Sharpness,
    TargetOutcome,
    Throughput,
)
from train.record.nulls import Why, null_paths

#: Of a cell: below the sweep, and no longer than file systems take.
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=255)]
DataPlane = Literal["gloo", "mpi", "nccl", "tf.distribute"]  # the last: its own, not Horovod's
_NO_GIT = Why("the code does not run from a git checkout, or git is not there")

Status = Literal["completed", "diverged", "failed", "timeout", "preempted", "cancelled", "lost"]
#: A run that ended as the experiment meant it to; a retry never replaces its record.
GOOD: frozenset[str] = frozenset({"completed", "diverged"})
RECORD_NAME = "record.json"
MANIFEST_NAME = "sweep.json"


class RunError(Frozen):
    """Why a cell did not complete."""

    what: str
    where: str
    what_to_do: str
    rank: Count | None = None
    log_tail: tuple[str, ...] = ()


class World(Frozen):
    """The ranks that met, and what they ran on and talked over."""

    size: Positive
    nodes: Positive
    hostnames: tuple[str, ...]  # one per rank
    device_kind: Literal["cpu", "gpu"]
    device: str
    cores_per_rank: Positive
    # fewer cores than ranks claim, a CPU quota, or another run on some of them: no scaling figures
    oversubscribed: bool
    launcher: Literal["horoscale", "horovodrun", "mpirun", "srun", "none"]
    controller: Literal["gloo", "mpi"]
    data_plane: DataPlane
    interface: str | None  # network interface really used between ranks


class Provenance(Frozen):
    git_commit: Annotated[str | None, _NO_GIT]
    git_dirty: Annotated[bool | None, _NO_GIT]
    image_digest: Annotated[str | None, Why("not run from a container image")]
    versions: dict[str, str]
    cpu: str
    gpu: Annotated[str | None, Why("no GPU on this machine")]
    driver: Annotated[str | None, Why("no GPU driver on this machine")]
    kernel: str | None = None  # of the node of rank 0
    # of this machine; ranks computed on CPU cores
    unused_gpus: Annotated[int | None, Why("no GPU was seen that the ranks did not use")] = Field(
        None, ge=1
    )
    slurm_job_id: Annotated[str | None, Why("not run under Slurm")]
    seeds: dict[str, int]
    environment: dict[str, str]  # allow-listed names only
    # what is not equal on all ranks: name -> value -> ranks that have it; above, rank 0's
    unequal: dict[str, dict[str, tuple[Count, ...]]] = Field({})


class Attempt(Frozen):
    """One start of the cell's ranks."""

    number: int = Field(ge=1)
    resumed_from_epoch: int = Field(ge=0)  # 0: from the beginning
    started_at: AwareDatetime
    ended_at: AwareDatetime
    status: Status


class RunRecord(Frozen):
    """One submitted cell leaves exactly one of these."""

    schema_version: Literal[1] = 1
    cell_id: str
    status: Status
    error: RunError | None
    config: RunConfig
    world: World | None
    data: DataRecord | None
    epochs: tuple[EpochRecord, ...]
    steps: Annotated[
        tuple[RankSteps, ...] | None,
        Why("no step that was taken in parts, or no other, after the first of its kind"),
    ]
    throughput: Throughput | None
    # why no gradient is sent before all are there
    why_no_overlap: Annotated[
        str | None, Why("large gradients are sent while the backward pass goes on")
    ] = None
    # bytes of one rank's gradients in one step, as they travel
    gradient_bytes: int | None = Field(None, ge=1)
    # names of the variables that a layer-wise optimizer gives rates of their own
    adapted: tuple[str, ...] = ()
    # without interfaces that moved nothing; empty for one rank, or where no counter could be read
    traffic: tuple[LinkTraffic, ...] = ()
    classification: Annotated[Classification | None, Why("the last epoch was not evaluated")] = None
    target: TargetOutcome | None = None
    sharpness: Annotated[Sharpness | None, Why("second derivatives were no finite numbers")] = None
    # findings that make the numbers doubtful, as that all ranks trained on the same images
    alarms: tuple[str, ...] = ()
    weights_sha256: str | None  # equal on all ranks, or the status is failed
    provenance: Provenance | None
    attempts: tuple[Attempt, ...]
    started_at: AwareDatetime
    ended_at: AwareDatetime
    missing: dict[str, str]  # dotted path of a null -> reason

    @model_validator(mode="after")
    def _honest(self) -> RunRecord:
        unexplained = sorted(set(null_paths(self)) - set(self.missing))
        if unexplained:
            raise ValueError(f"null without a reason in 'missing': {', '.join(unexplained)}")
        if self.status == "completed" and self.error is not None:
            raise ValueError("status is completed, yet there is an error")
        if self.status != "completed" and self.error is None:
            raise ValueError(f"status is {self.status}, yet no error says why")
        if self.cell_id != self.config.cell_id():
            raise ValueError(f"cell_id {self.cell_id} is not that of the config")
        return self


class SweepManifest(Frozen):
    """sweep.json: the cells that a sweep asks for now, in the order of its file."""

    schema_version: Literal[1] = 1
    name: str
    title: str
    cells: tuple[FolderName, ...]
    techniques: tuple[str, ...]  # order of the rows in reports


class OtherCell(ConfigError):
    """A record is of another config than the cell that it lies with."""


def read_record(path: Path) -> RunRecord:
    """Read one record strictly.

    Raises:
        NoRecord: there is none.
        RecordError: it is truncated, of another schema version, or against the contract.
        Unreadable: it cannot be read now, so that it may be a good one.
    """
    if (content := read_whole(path)) is None:
        raise NoRecord(f"{path}: there is no such file")
    try:
        record = RunRecord.model_validate_json(content)
    except ValidationError as error:
        raise RecordError(f"{path}: {_why_no_record(error)}") from error
    if "schema_version" not in record.model_fields_set:
        raise RecordError(f"{path}: schema_version None found, 1 expected")
    return record


def _why_no_record(error: ValidationError) -> str:
    """In words: another version has other keys, so that pydantic's findings would mean nothing."""
    for item in error.errors():
        if item["type"] == "json_invalid":
            return f"not JSON (truncated?): {item['msg']}"
        if item["loc"] == ("schema_version",):
            return f"schema_version {item['input']!r} found, 1 expected"
    return f"against the contract:\n{explain(error)}"


def refuse_other(found_config: RunConfig, config: RunConfig, path: Path) -> None:
    """Raises OtherCell, with all that differs, if the config found in ``path`` is not ``config``.

    The folder's name does not tell: it holds 24 bits of a hash, and a folder given by hand none.
    Parsed configs are compared, so a file from before a key existed has that key's default.
    """
    if found_config == config:
        return
    both = [dict(_settings(c.model_dump(mode="json"))) for c in (found_config, config)]
    keys = [key for key in both[0] | both[1] if both[0].get(key) != both[1].get(key)]
    there, here = (", ".join(f"{key} {one.get(key)}" for key in keys) for one in both)
    raise OtherCell(
        f"{path} is of another config: found {there}; expected {here}. FORCE=1 puts it aside and "
        "runs this one, RESULTS=DIR leaves it; by hand --force replaces it, --out DIR leaves it"
    )


def _settings(part: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in part.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def write_record(path: Path, record: RunRecord, *, replace_good: bool = False) -> bool:
    """Write the record atomically, unless a good one is there; False if that was kept.

    Where no record is seen, one that is there all the same (another machine wrote it, and the cache
    of a network file system does not know yet) gives way to a good record only. Raises Unreadable:
    a record may be there that cannot be read now; nothing was written.
    """
    text = record.model_dump_json(indent=2) + "\n"
    if not replace_good:
        if read_whole(path) is None:
            if write_new(path, text):
                return True
            if record.status not in GOOD:
                return False
        try:
            if read_record(path).status in GOOD:
                return False
        except RecordError:
            pass  # a broken record is worth less than any new one
    write_atomically(path, text)
    return True
