"""Where each cell stands, from its folder alone; and what the next `make sweep` does about it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.supervisor import LOCK_NAME, is_running, settle_lost
from train.config import RunConfig
from train.files import write_atomically
from train.record import GOOD, MANIFEST_NAME, RECORD_NAME, RecordError, SweepManifest, read_record
from train.traces import CHECKPOINT_NAME, CONFIG_NAME

#: Ended by something outside the run, so its checkpoint is worth going on from.
INTERRUPTED = frozenset({"cancelled", "timeout", "preempted", "lost"})
ARCHIVE_NAME = "archive"


@dataclass(frozen=True)
class Standing:
    """One cell before a sweep runs."""

    config: RunConfig
    folder: Path
    status: str  # a record's status, or "new", "broken record", "running"
    why: str  # one line for a person

    @property
    def done(self) -> bool:
        return self.status in GOOD

    @property
    def resume(self) -> bool:
        return self.status in INTERRUPTED and (self.folder / CHECKPOINT_NAME).exists()


def survey(configs: Sequence[RunConfig], sweep: Path) -> list[Standing]:
    """Look at every cell; cells whose supervisor was killed get their ``lost`` record here."""
    return [_stand(config, sweep / config.cell_id()) for config in configs]


def _stand(config: RunConfig, folder: Path) -> Standing:
    if is_running(folder):
        return Standing(config, folder, "running", "an earlier make sweep still runs it")
    settle_lost(folder, config)
    file = folder / RECORD_NAME
    if not file.exists():
        return Standing(config, folder, "new", "not run yet")
    try:
        record = read_record(file)
    except RecordError as error:
        return Standing(config, folder, "broken record", str(error).splitlines()[0])
    if record.error is None:
        return Standing(
            config, folder, record.status, f"completed {record.ended_at:%Y-%m-%d %H:%M}"
        )
    return Standing(config, folder, record.status, record.error.what)


def lay_out(configs: Sequence[RunConfig], sweep: Path, manifest: SweepManifest) -> None:
    """Write sweep.json and every cell's config.json before anything runs, so that a report can
    name the cells that never did.

    Raises:
        OSError: the results folder cannot be written.
    """
    for config in configs:
        folder = sweep / config.cell_id()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / CONFIG_NAME
        text = config.model_dump_json(indent=2) + "\n"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_atomically(file, text)
    write_atomically(sweep / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")


def archive(folder: Path) -> None:
    """Put an earlier result aside, whole, before the cell is run anew: nothing is lost."""
    if not (folder / RECORD_NAME).exists():
        return
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    target = folder / ARCHIVE_NAME / stamp
    target.mkdir(parents=True)
    for item in sorted(folder.iterdir()):
        if item.name not in (CONFIG_NAME, ARCHIVE_NAME, LOCK_NAME):
            shutil.move(str(item), target / item.name)
