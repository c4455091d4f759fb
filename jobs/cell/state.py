"""Where each cell stands, from its folder alone; and what the next `make sweep` does about it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from jobs.cell.failure import cause_line, cause_of_line
from jobs.cell.lock import LOCK_NAME, hold, holder
from jobs.cell.missing_record import ATTEMPT_NAME, is_unsettled, settle_lost
from jobs.cell.ranks import end_leftovers
from train.config.run import RunConfig
from train.errors import ConfigError, Unreadable, read_whole
from train.record.atomic import write_atomically
from train.record.cell_folder import (
    CHECKPOINT_NAME,
    CONFIG_NAME,
    refuse_other_config,
)
from train.record.run import (
    GOOD,
    MANIFEST_NAME,
    RECORD_NAME,
    NoRecord,
    OtherCell,
    RecordError,
    SweepManifest,
)
from train.record.summary import read_own_summary

#: Ended by something outside the run, so its checkpoint is worth going on from.
INTERRUPTED = frozenset({"cancelled", "timeout", "preempted", "lost"})
RUNNING, NEW, BROKEN = "running", "new", "broken record"
#: A file that says what to do with it cannot be read now: it is left alone, with FORCE=1, too.
UNREADABLE = "unreadable record"
#: Its folder holds the record of another config, which only FORCE=1 puts aside.
OTHERS = "record of another config"
#: Has a good record, or another config's, and is to run anew all the same.
FORCED = "forced"
ARCHIVE_NAME = "archive"


@dataclass(frozen=True)
class Standing:
    """One cell before a sweep runs."""

    config: RunConfig
    folder: Path
    status: str  # a record's status, or one of the six above
    why: str  # one line for a person
    cause: str = ""  # of a bad end: equal for cells whose ends differ only by names and numbers

    @property
    def done(self) -> bool:
        return self.status in GOOD

    @property
    def to_run(self) -> bool:
        """Whether a sweep has to run it, or to wait for whoever does."""
        return not self.done and self.status != UNREADABLE

    @property
    def resume(self) -> bool:
        return self.status in INTERRUPTED and (self.folder / CHECKPOINT_NAME).exists()

    def forced(self) -> Standing:
        """The same cell for FORCE=1."""
        return replace(self, status=FORCED) if self.done or self.status == OTHERS else self


def survey(configs: Sequence[RunConfig], sweep: Path) -> list[Standing]:
    """Look at every cell; cells whose supervisor was killed get their ``lost`` record here."""
    return [stand(config, sweep / config.cell_id()) for config in configs]


def stand(config: RunConfig, folder: Path) -> Standing:
    """Look at one cell.

    Raises:
        OSError: its folder is missing or cannot be written.
    """
    with hold(folder) as ours:
        if not ours:
            why = f"an earlier make sweep still runs it: {holder(folder) or 'unknown'}"
            return Standing(config, folder, RUNNING, why)
        try:
            if is_unsettled(folder):
                end_leftovers(folder)
                settle_lost(folder, config)
        except Unreadable as error:
            return Standing(config, folder, UNREADABLE, str(error))
    return recorded(config, folder)


def recorded(config: RunConfig, folder: Path) -> Standing:
    """What the cell's record says of it; changes nothing."""
    found = _of_record(config, folder)
    try:
        # a start would replace these, and neither proves by an error that it is not there
        for name in () if found.done else (CONFIG_NAME, f"logs/{ATTEMPT_NAME}"):
            read_whole(folder / name)
    except Unreadable as error:
        return Standing(config, folder, UNREADABLE, str(error))
    return found


def _of_record(config: RunConfig, folder: Path) -> Standing:
    try:
        record = read_own_summary(folder, config)
    except NoRecord:
        return Standing(config, folder, NEW, "not run yet")
    except RecordError as error:
        return Standing(config, folder, BROKEN, str(error).splitlines()[0])
    except OtherCell as error:
        return Standing(config, folder, OTHERS, str(error))
    except Unreadable as error:
        return Standing(config, folder, UNREADABLE, str(error))
    ended = f"completed {record.ended_at:%Y-%m-%d %H:%M}"
    line = cause_line(record)
    return Standing(
        config, folder, record.status, line or ended, cause_of_line(line, record) if line else ""
    )


def refuse_others(cells: Iterable[Standing]) -> None:
    """Raises OtherCell at the first whose folder holds the record of another config."""
    for cell in cells:
        if cell.status == OTHERS:
            raise OtherCell(cell.why)


def lay_out(
    configs: Sequence[RunConfig], sweep: Path, manifest: SweepManifest, *, force: bool = False
) -> None:
    """Write sweep.json and every cell's config.json before anything runs, so that a report can
    name the cells that never did.

    Raises:
        ConfigError: a file lies where a cell's folder belongs, or, unless ``force``, the record or
            the config.json of another config; nothing is written then.
        OSError: the results folder cannot be written.
    """
    for config in configs:
        folder = sweep / config.cell_id()
        if folder.exists() and not folder.is_dir():
            raise ConfigError(
                f"{folder} is a file, expected the folder of a cell or nothing: move it away"
            )
    if not force:
        refuse_others(recorded(config, sweep / config.cell_id()) for config in configs)
        for config in configs:
            with suppress(Unreadable):  # such a cell is left alone: see recorded()
                refuse_other_config(sweep / config.cell_id(), config)
    for config in configs:
        folder = sweep / config.cell_id()
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(Unreadable):
            _lay(folder / CONFIG_NAME, config)
    _lay(sweep / MANIFEST_NAME, manifest)


def _lay(file: Path, content: BaseModel) -> None:
    """Write the file unless it is there already: an unchanged plan must not look new."""
    text = content.model_dump_json(indent=2) + "\n"
    if read_whole(file) != text.encode():
        write_atomically(file, text)


def archive(folder: Path) -> None:
    """Put an earlier result aside, whole, before the cell is run anew: nothing is lost.

    Only of a record that was read: see :class:`train.errors.Unreadable`.
    """
    if not (folder / RECORD_NAME).exists():
        return
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    target = folder / ARCHIVE_NAME / stamp
    target.mkdir(parents=True)
    for item in sorted(folder.iterdir()):
        if item.name not in (CONFIG_NAME, ARCHIVE_NAME, LOCK_NAME):
            shutil.move(str(item), target / item.name)
