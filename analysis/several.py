"""Several sweeps as one: what a report, a notebook or an export of them is made from."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pandas as pd

from analysis import fmt
from analysis.interconnect.collectives import fitted
from analysis.interconnect.run import RunError, load_run
from analysis.page.report import Report, build
from analysis.prediction.alpha_beta import WORST
from analysis.prediction.collectives import Link
from analysis.records.columns import FRAMES, LABELS
from analysis.records.frames import Frames, labelled
from analysis.records.load import SweepError, load_frames
from analysis.table import Column, plain_rows
from analysis.topics.topic import Caution
from analysis.writing import csv_text, noted_files
from train.record.atomic import write_atomically

#: Names of the files that an export wrote into a folder; others are not replaced.
_OWN = ".export.json"
#: TensorBoard takes a file for one of events by a part of its name; this one is ours to replace.
EVENTS_NAME = "events.out.tfevents.horoscale"
#: Name of a scalar -> column of the epochs. TensorBoard shows names with one prefix together.
SCALARS = {
    "loss/train": "train_loss",
    "loss/validation": "validation_loss",
    "accuracy/train": "train_accuracy",
    "accuracy/validation": "validation_accuracy",
    "step/learning_rate": "lr_last",
    "step/global_batch": "epoch_batch",
    "speed/images_per_s": "images_per_s",
    "speed/train_s": "train_s",
    "speed/evaluation_s": "eval_s",
}


def frames_of(folders: Sequence[Path], *, cache: bool = False) -> tuple[Frames, tuple[str, ...]]:
    """All sweeps as one, and the cells that several of them have. Of several sweeps, frames begin
    with a column ``sweep``, and ``cell_id`` becomes ``SWEEP/CELL``.

    Such a cell counts once: the same run twice is no second run. It is that of the first sweep that
    has a usable run of it.

    Raises:
        SweepError: one of them is no sweep, or two have one name.
    """
    loaded = [load_frames(folder, cache=cache) for folder in folders]
    if len(loaded) == 1:
        return loaded[0], ()
    names = [one.name for one in loaded]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise SweepError(
            f"{', '.join(map(str, folders))}: found two sweeps with the name {', '.join(again)}, "
            "expected different ones. To compare two measurements of one sweep: analysis check "
            "AFTER --baseline BEFORE"
        )
    owners: dict[str, int] = {}
    for frame in ("runs", "planned"):
        for number, one in enumerate(loaded):
            for cell in getattr(one, frame)["cell_id"]:
                owners.setdefault(cell, number)
    planned = pd.concat([one.planned["cell_id"] for one in loaded])
    twice = tuple(planned[planned.duplicated()].unique())
    parts = {
        name: [_own(one, number, name, owners) for number, one in enumerate(loaded)]
        for name in FRAMES
    }
    whole = {name: pd.concat(part, ignore_index=True) for name, part in parts.items()}
    settings = {key: found for one in loaded for key, found in one.settings.items()}
    # names and contexts are made again over all, so that equal names mean equal things
    labels = labelled(whole["planned"], settings).set_index("cell_id")[list(LABELS)]
    for name, table in whole.items():
        own = labels.reindex(table["cell_id"])
        whole[name] = table.assign(**{label: own[label].array for label in LABELS})
    merged = Frames(
        folder=Path(os.path.commonpath([one.folder.resolve() for one in loaded])),
        name=" + ".join(names),
        title=" + ".join(dict.fromkeys(one.title for one in loaded)),
        techniques=tuple(dict.fromkeys(name for one in loaded for name in one.techniques)),
        problems=tuple(
            replace(problem, cell_id=f"{one.name}/{problem.cell_id}")
            for number, one in enumerate(loaded)
            for problem in one.problems
            if owners[problem.cell_id] == number
        ),
        unplanned=tuple(f"{one.name}/{cell}" for one in loaded for cell in one.unplanned),
        settings=settings,
        sites=tuple(dict.fromkeys(site for one in loaded for site in one.sites)),
        **whole,
    )
    return merged, twice


def _own(frames: Frames, number: int, name: str, owners: Mapping[str, int]) -> pd.DataFrame:
    """Rows of the cells that are this sweep's, which they name."""
    table: pd.DataFrame = getattr(frames, name)
    table = table[table["cell_id"].map(owners) == number]
    cells = (f"{frames.name}/" + table["cell_id"]).astype("string")
    sweep = pd.Series(frames.name, index=table.index, dtype="string", name="sweep")
    return pd.concat([sweep, table.assign(cell_id=cells)], axis=1)


def report_of(folders: Sequence[Path], *, draw: bool = True, cache: bool = False) -> Report:
    """One report of all these sweeps. Raises SweepError as :func:`frames_of`."""
    frames, twice = frames_of(folders, cache=cache)
    network = network_beside(replace(frames, folder=folders[0]))
    report = build(frames, network=network, draw=draw)
    if not twice:
        return report
    cells = f"{fmt.counted(len(twice), 'cell')}, which count{'s' if len(twice) == 1 else ''} once"
    text = f"Several of these sweeps plan {cells} ({fmt.first_of(twice, 1)})."
    return replace(report, cautions=(*report.cautions, Caution(text, "none")))


def columns(*, merged: bool) -> pd.DataFrame:
    """What the columns of all frames are, a row each; ``merged``: of several sweeps."""
    first = [Column("sweep", "string", description="that the row is of")] if merged else []
    rows = [
        {"table": name, "column": column.name, "unit": column.unit,
         "type": "JSON array" if column.dtype == "object" else column.dtype,
         "description": column.description}
        for name, own in FRAMES.items() for column in (*first, *own)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["table", "column", "type", "unit", "description"])


def write_export(frames: Frames, folder: Path) -> dict[Path, int]:
    """Write the tidy frames, a row per run, epoch, rank and so on, and columns.csv, which says what
    each column is, to ``folder``.

    Returns:
        the files and the number of their rows.

    Raises:
        ValueError: a file of such a name is there that no export wrote; nothing is written then.
        OSError: the folder cannot be read or written.
    """
    tables = {f"{name}.csv": getattr(frames, name) for name in FRAMES}
    tables |= {"columns.csv": columns(merged="sweep" in frames.planned)}
    note = folder / _OWN
    own = noted_files(note)
    if others := [name for name in tables if name not in own and (folder / name).exists()]:
        raise ValueError(
            f"{folder}: found {', '.join(others)}, which no export wrote; expected a new or empty "
            "folder, or that of an earlier export"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(note, json.dumps(sorted({*own, *tables})) + "\n")
    for name, table in tables.items():
        write_atomically(folder / name, csv_text(table))
    return {folder / name: len(table) for name, table in tables.items()}


def write_events(frames: Frames, folder: Path) -> dict[Path, int]:
    """Write the scalars of each epoch for TensorBoard, ``folder``/CELL/ for each run.

    The step is the epoch. The wall time is the start of the run plus its seconds of training and
    evaluation so far: records have no time of an epoch.

    Returns:
        the files and the number of their epochs.

    Raises:
        ValueError: the package that writes events is not installed.
        OSError: the folder cannot be written.
    """
    try:
        # its own Writer adds a second file to a run each time, and loads TensorFlow
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
        from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(
            f"--tensorboard: the package tensorboard is not in this Python environment ({error}); "
            "it is installed with TensorFlow: run make setup, or export where ranks run"
        ) from error
    started = frames.runs.set_index("cell_id")["started_at"].map(datetime.fromisoformat)
    written = {}
    for cell, epochs in frames.epochs.groupby("cell_id", sort=False):
        start_s = started[cell].timestamp()
        content = io.BytesIO()
        events = RecordWriter(content)
        events.write(Event(wall_time=start_s, file_version="brain.Event:2").SerializeToString())
        for row in plain_rows(epochs):
            scalars = [
                {"tag": tag, "simple_value": row[column]}
                for tag, column in SCALARS.items()
                if row[column] is not None
            ]
            now_s = start_s + row["seconds_so_far"]
            event = Event(step=row["epoch"], wall_time=now_s, summary={"value": scalars})
            events.write(event.SerializeToString())
        file = folder / str(cell) / EVENTS_NAME
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content.getvalue())
        written[file] = len(epochs)
    return written


def network_beside(frames: Frames) -> Link | None:
    """The network between all nodes of the sweep, for large messages, from the newest run of make
    interconnect beside it that measured all-reduces of all of them and that a fit
    describes; None: the sweep used one node, or there is no such run."""
    hosts = {host for names in frames.runs["hosts"] for host in names}
    runs = (frames.folder.resolve().parent / "interconnect").glob("[!.]*/")
    for folder in sorted(runs if len(hosts) > 1 else (), reverse=True):
        with contextlib.suppress(RunError):
            measured = load_run(folder).collectives
            if measured and hosts <= {rank.host for rank in measured.ranks}:
                fit = fitted(measured, "horovod", len(measured.ranks))
                if fit and fit.worst <= WORST and not measured.oversubscribed:
                    return fit.large
    return None
