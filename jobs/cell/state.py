"""Where each cell stands, and what the next `make sweep` does about it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from jobs.cell.heartbeat import read_sign
from jobs.cell.missing_record import Begun, begun_in, settle_lost
from jobs.cell.ranks import end_leftovers
from jobs.config.sweep import Sweep
from train.config.networks import MODELS
from train.config.run import RunConfig
from train.errors import ConfigError, NoRecord, RecordError, Unreadable, read_whole, remedy
from train.record.atomic import write_atomically
from train.record.cause import cause_line, pieces
from train.record.cell_folder import (
    CHECKPOINT_NAME,
    CONFIG_NAME,
    read_last_epoch,
    refuse_other_config,
)
from train.record.lock import LOCK_NAME, MayRun, hold, holder, is_free
from train.record.measurements import EpochRecord
from train.record.run import GOOD, MANIFEST_NAME, RECORD_NAME, OtherCell, SweepManifest
from train.record.summary import read_own_summary

RUNNING, NEW, BROKEN = "running", "new", "broken record"
#: A file that says what to do with it cannot be read now: it is left alone, with FORCE=1, too.
UNREADABLE = "unreadable record"
#: Another machine may run it, and whether it does cannot be seen here: it is left alone, too.
MAY_RUN = "may still run"
#: Its folder holds the record of another config, which only FORCE=1 puts aside.
OTHERS = "record of another config"
#: Has a good record, or another config's, and is to run again all the same.
FORCED = "forced"
#: What a cell does while it has no record of its last attempt; also RUNNING.
WAITING, STARTING, ENDING = "waiting", "starting", "ending"
NOT_SUBMITTED = "not submitted"
#: Slurm does not tell, and the files do not either.
UNKNOWN = "unknown"
ARCHIVE_NAME = "archive"


@dataclass(frozen=True)
class CellState:
    """One cell at one moment. None: not known, or there is nothing to know."""

    config: RunConfig
    folder: Path
    status: str  # of its record, or RUNNING to FORCED above: what a sweep goes by
    why: str = ""  # how it ended, or why it waits; one line for a person
    cause: str = ""  # of a bad end: equal for cells whose ends differ only by names and numbers
    ended_at: datetime | None = None  # of its record
    resume: bool = False  # its next start goes on from its checkpoint
    attempt: Begun | None = None  # the one that has no record yet
    doing: str = ""  # what it does now, where its status does not tell
    began_at: datetime | None = None  # of what it does now
    # of a cell that was submitted to a cluster, by its last job
    job: str | None = None
    alive: bool = False  # the job runs, waits, or may still do so
    elsewhere: str = ""  # why Slurm cannot be asked about the job from here
    slurm: str | None = None  # the job's state, in Slurm's word
    nodes: str | None = None
    expected_start: datetime | None = None
    log: Path | None = None  # of the job's supervisor

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> str:
        """For a person."""
        return self.doing or self.status

    @property
    def active(self) -> bool:
        return self.state in (RUNNING, STARTING, ENDING)

    @property
    def done(self) -> bool:
        return self.status in GOOD

    @property
    def to_run(self) -> bool:
        """Whether a sweep has to run it, or to wait for whoever does."""
        return not (self.done or self.left_alone)

    @property
    def left_alone(self) -> bool:
        """Whether nobody can say here what is to be done with it."""
        return self.status in (UNREADABLE, MAY_RUN) or bool(self.elsewhere)

    def forced(self) -> CellState:
        """The same cell for FORCE=1; not while its job may still run."""
        again = (self.done or self.status == OTHERS) and not self.alive
        return replace(self, status=FORCED) if again else self

    def seconds(self) -> float | None:
        """How long it has been doing what it does, or had been when it ended."""
        if self.began_at is None:
            return None
        end = None if self.active else self.ended_at
        return max(0.0, ((end or datetime.now(UTC)) - self.began_at).total_seconds())

    def last_epoch(self) -> EpochRecord | None:
        """Of what it does now; its file is read again when it has changed."""
        if self.state in (NEW, FORCED, NOT_SUBMITTED, STARTING):
            return None
        if self.state == WAITING and not self.resume:
            return None
        return read_last_epoch(self.folder)

    def phase(self) -> str:
        """What rank 0 does, by its last life sign; '' where there is none."""
        sign = read_sign(self.folder, 0) if self.state == RUNNING else None
        return "" if sign is None or sign.at is None else sign.phase


def checked(cells: Sequence[CellState], *, force: bool = False) -> list[CellState]:
    """The cells as a sweep takes them. ``force``: finished ones, and those whose folders hold the
    record of another config, are to run again.

    Raises:
        OtherCell: of the first folder that holds the record of another config; not with ``force``.
    """
    for cell in cells:
        if cell.status == OTHERS and not force:
            raise OtherCell(cell.why)
    return [cell.forced() if force else cell for cell in cells]


def stand(config: RunConfig, folder: Path) -> CellState:
    """Look at one cell; one whose supervisor was killed gets its ``lost`` record here. One that
    cannot be read or written, or that may still run, is left alone."""
    cell = recorded(config, folder)
    try:
        if cell.status == UNREADABLE or (cell.attempt is None and (cell.done or is_free(folder))):
            return cell  # most cells of a large sweep, without the cost of holding them
        with hold(folder) as ours:
            if not ours:
                why = f"an earlier make sweep still runs it: {holder(folder) or 'unknown'}"
                return CellState(config, folder, RUNNING, why)
            end_leftovers(folder)
            settle_lost(folder, config)
    except OSError as error:
        return cell if cell.done else left_alone(config, folder, error)
    return recorded(config, folder)


def left_alone(config: RunConfig, folder: Path, error: OSError) -> CellState:
    """A cell whose files cannot be used now, or that may still run: others go on without it."""
    status, why = MAY_RUN if isinstance(error, MayRun) else UNREADABLE, str(error)
    if not isinstance(error, Unreadable):
        why += f": {remedy(error, folder) or 'put right what it names'}, then make sweep again"
    return CellState(config, folder, status, why)


def recorded(config: RunConfig, folder: Path) -> CellState:
    """What the cell's files say; changes nothing."""
    cell = CellState(config, folder, NEW, "not run yet")
    try:
        if not folder.exists():  # most cells of a sweep that is new
            return cell
        cell = _of_record(config, folder)
        attempt = begun_in(folder)
        if not cell.done:
            # an attempt would replace it, and an error is no proof that it is not there
            read_whole(folder / CONFIG_NAME)
    except OSError as error:
        return cell if cell.done else left_alone(config, folder, error)
    return cell if attempt is None else replace(cell, attempt=attempt)


def _of_record(config: RunConfig, folder: Path) -> CellState:
    try:
        record = read_own_summary(folder, config)
    except NoRecord:
        return CellState(config, folder, NEW, "not run yet")
    except RecordError as error:
        return CellState(config, folder, BROKEN, str(error).splitlines()[0])
    except OtherCell as error:
        return CellState(config, folder, OTHERS, str(error))
    why = cause_line(record.error)
    hosts = record.world.hostnames if record.world else ()
    cause = "".join(piece for _, piece in pieces(why, record.cell_id, hosts))
    # none is left by ranks that failed: see attend()
    resume = record.status not in GOOD and (folder / CHECKPOINT_NAME).exists()
    return CellState(config, folder, record.status, why, cause, record.ended_at, resume)


def lay_out(
    configs: Sequence[RunConfig], sweep: Path, manifest: SweepManifest, *, force: bool = False
) -> None:
    """Write sweep.json and the config.json of new cells before anything runs, so that a report can
    name the cells that never did. A config.json that is there stays until its cell is to run
    (:func:`write_config`): a job in the queue may read it, with the code of another version.

    Raises:
        ConfigError: a file lies where a cell's folder belongs, or, unless ``force``, the
            config.json of another config; nothing is written then.
        OSError: the results folder cannot be written.
    """
    new = []
    for config in configs:
        folder = sweep / config.cell_id()
        with contextlib.suppress(OSError):  # such a cell is left alone: see recorded()
            if not folder.exists():
                new.append((folder, config))
            elif not folder.is_dir():
                raise ConfigError(
                    f"{folder} is a file, expected the folder of a cell or nothing: move it away"
                )
            elif not (force or _holds(folder / CONFIG_NAME, config)):
                refuse_other_config(folder, config)
    for folder, config in new:
        folder.mkdir(parents=True, exist_ok=True)
        # not flushed: ten thousand take minutes, and half a file is replaced before its cell runs
        (folder / CONFIG_NAME).write_text(_text(config), encoding="utf-8")
    if not _holds(sweep / MANIFEST_NAME, manifest):
        write_atomically(sweep / MANIFEST_NAME, _text(manifest))


def keep_networks(wanted: Sweep, folder: Path) -> None:
    """Copy the files of a sweep's networks to where its cells read them, each once: what the user
    changes later makes other cells.

    Raises:
        OSError: the results folder cannot be written.
    """
    for sha256, content in wanted.networks.items():
        copy = folder / MODELS / f"{sha256}.py"
        if read_whole(copy) != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(copy, content)


def write_config(folder: Path, config: RunConfig) -> None:
    """Only for a cell that this version is about to run, and that no job may still run."""
    if not _holds(folder / CONFIG_NAME, config):
        write_atomically(folder / CONFIG_NAME, _text(config))


def _holds(file: Path, content: BaseModel) -> bool:
    """Whether the file reads as ``content``: versions write equal content in different texts."""
    text = read_whole(file)
    if text is None or text == _text(content).encode():
        return text is not None
    with contextlib.suppress(ValidationError):
        return type(content).model_validate_json(text) == content
    return False


def _text(content: BaseModel) -> str:
    return content.model_dump_json(indent=2) + "\n"


def ready(config: RunConfig, folder: Path, again: Callable[[], bool]) -> CellState:
    """The cell as a start finds it: a killed supervisor's start is settled, a record is put aside
    that is broken or, by ``again``, to be replaced, and config.json is one that ranks can read.
    Only for the holder of the cell's lock.

    Raises:
        OSError: a file that decides cannot be read now, or the folder cannot be written.
    """
    settle_lost(folder, config)
    cell = recorded(config, folder)
    if cell.status == BROKEN or (cell.status not in (NEW, UNREADABLE) and again()):
        archive(folder)
        cell = recorded(config, folder)
    if cell.to_run and cell.status != OTHERS:
        write_config(folder, config)
    return cell


def archive(folder: Path) -> None:
    """Move an earlier result to the archive before the cell is run again: nothing is lost.

    Only of a record that was read: see :class:`train.errors.Unreadable`.
    """
    if not (folder / RECORD_NAME).exists():
        return
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    target = folder / ARCHIVE_NAME / stamp
    target.mkdir(parents=True)
    for item in sorted(folder.iterdir()):
        if item.name not in (CONFIG_NAME, ARCHIVE_NAME, LOCK_NAME):
            # where a rename will not do: owners and times need not go along
            shutil.move(str(item), target / item.name, copy_function=shutil.copyfile)
