"""The statistics of the report as tables for a reader: convergence and scaling."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.display import (
    Column,
    Notes,
    Row,
    Table,
    count,
    interval,
    joined,
    number,
    percent,
    plain_rows,
    significant,
    with_context,
)
from analysis.scaling import BASELINE, SHARED_CORES
from analysis.stats import ONE_RUN

CHANGED_IMAGES = (
    "training images are cropped, mirrored or cut at random: this accuracy is of the changed "
    "images, lower than that of the same weights on the images as they are"
)


def ranks_column(runs: pd.DataFrame) -> Column:
    """GPUs only where every rank had one; elsewhere the footnote says what a rank was."""
    kinds = set(runs["device_kind"])
    if kinds == {"gpu"}:
        devices = " and ".join(sorted(set(runs["device"])))
        return Column("GPUs", about=f"one rank per GPU; device: {devices}")
    cores = sorted(set(runs["cores_per_rank"]))
    group = (
        "several cores" if len(cores) != 1 else "1 core" if cores[0] == 1 else f"{cores[0]} cores"
    )
    devices = " and ".join(sorted(set(runs["device"]))) or "unknown"
    if "gpu" in kinds:
        return Column("ranks", about=f"one GPU or a group of CPU cores each; devices: {devices}")
    return Column("ranks", about=f"groups of CPU cores, not GPUs: {group} each; device: {devices}")


def _validated_on(runs: pd.DataFrame) -> str:
    whole, part = "whole held-out split", "a tenth of the training images, which no run trained on,"
    found = set(runs["validate_on"])
    if found == {"train_part"}:
        return part
    return f"{whole}, or where so named {part}" if "train_part" in found else whole


def convergence_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """The course's table, redone."""
    notes = Notes()
    columns = (
        ranks_column(runs),
        Column("condition", "left", "technique, and the settings that differ within this sweep"),
        Column("global batch", about="images per optimizer step, over all ranks and accumulated "
               "batches; where it grows, first → last epoch"),
        Column("steps", about="optimizer steps of a whole run"),
        Column("train acc", about="running mean of training accuracy over the last epoch, while "
               "weights change: the metric of the course, no measure of generalisation"),
        Column("validation accuracy", about=f"{_validated_on(runs)} after the final epoch (never "
               "the best one), completed runs: mean ± half-width of the 95 % t interval over "
               "seeds. Where runs diverged, \"all\" is the mean over all runs, a diverged one "
               "counting as chance (1 / classes)"),
        Column("runs", about="completed and diverged runs; every run has its own seed"),
        Column("diverged", about="runs that diverged / runs"),
        Column("training s", about="seconds in training epochs (not in validation, nor in "
               "statistics that batch norm takes anew for it), mean over completed runs"),
        Column("efficiency", about="of the throughput, with its 95 % interval: see the scaling "
               "table"),
    )  # fmt: skip
    rows = tuple(_convergence_row(row, notes) for row in plain_rows(table))
    return Table(
        "convergence",
        "Convergence: what each technique reaches at each scale",
        columns,
        rows,
        notes.lines(),
        empty="No usable run.",
    )


def _convergence_row(row: Row, notes: Notes) -> tuple[str, ...]:
    shared = notes.mark(SHARED_CORES) if row["oversubscribed"] else ""
    return (
        count(row["gpus"]),
        with_context(row),
        batch_text(row["global_batch"], row["global_batch_last"]),
        notes.missing(row["steps_why"]) if pd.isna(row["steps"]) else count(row["steps"]),
        joined([_plain_mean(row, "train_accuracy", notes), _changed(row, notes)]),
        _accuracy(row, notes),
        count(row["n"]),
        f"{row['n_diverged']}/{row['n']}",
        joined([_plain_mean(row, "train_s", notes), shared]),
        _efficiency(row, notes),
    )


def batch_text(first: Any, last: Any) -> str:
    """A global batch, and what it has grown to."""
    return count(first) if pd.isna(last) or first == last else f"{count(first)} → {count(last)}"


def _changed(row: Row, notes: Notes) -> str:
    known = not pd.isna(row["train_accuracy_mean"])
    return notes.mark(CHANGED_IMAGES) if known and row["changes_images"] else ""


def _plain_mean(row: Row, name: str, notes: Notes) -> str:
    if pd.isna(row[f"{name}_mean"]):
        return notes.missing(row[f"{name}_why"])
    value = row[f"{name}_mean"]
    return number(value, 3) if name.endswith("accuracy") else significant(value)


def _accuracy(row: Row, notes: Notes) -> str:
    parts = [_with_interval(row, "validation_accuracy", notes)]
    if row["n_diverged"] and not pd.isna(row["scored_accuracy_mean"]):
        parts.append(f"all: {_with_interval(row, 'scored_accuracy', notes)}")
    return joined(parts, "; ")


def _with_interval(row: Row, name: str, notes: Notes) -> str:
    mean, half, why = (row[f"{name}_{part}"] for part in ("mean", "half_width", "why"))
    if pd.isna(mean):
        return notes.missing(why)
    if not pd.isna(half):
        return joined([f"{number(mean, 3)} ± {number(half, 3)}", notes.mark(why)])
    return (
        f"{number(mean, 3)} ({ONE_RUN})"
        if why == ONE_RUN
        else f"{number(mean, 3)} {notes.mark(why)}"
    )


def difference_text(row: Row, notes: Notes, why: Any) -> str:
    """With its interval; ``why``: why it has none, or what to know of it."""
    value, low, high = (row[f"difference{part}"] for part in ("", "_low", "_high"))
    if value is None:
        return notes.missing(why)
    if low is None and why == ONE_RUN:
        return f"{value:+.3f} ({ONE_RUN})"
    between = "" if low is None else interval(low, high, 3)
    return joined([f"{value:+.3f}", between, notes.mark(why)])


def scaling_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    notes = Notes()
    columns = (
        Column("condition", "left"),
        Column("mode", "left", "weak: the batch per rank is fixed; strong: the global batch is"),
        ranks_column(runs),
        Column("nodes"),
        Column("images/s", about="images really processed per second of training, all ranks "
               "together, steady state (median over epochs, the first one left out): mean over "
               "completed runs"),
        Column("sd", about="standard deviation between runs"),
        Column("n", about="completed runs with a throughput"),
        Column("speed-up", about="over n0 ranks; ratio of geometric means over runs"),
        Column("efficiency", about="throughput(n) / (n / n0 x throughput(n0)), with the 95 % t "
               "interval of the log ratio; the baseline's own spread is in it"),
        Column("n0", about="smallest rank count measured with the same technique and settings, "
               "data, model, device and batch"),
        Column("end to end s", about="all starts of a run, with start-up, compilation, "
               "validation and restarts: mean over completed runs"),
        Column("all-reduce", about="share of a steady step that waits for the all-reduce, and so "
               "for slower ranks, where no computing overlaps it: mean over ranks and runs"),
        Column("input wait", about="share of a steady step waiting for the next batch"),
    )  # fmt: skip
    rows = tuple(_scaling_row(row, notes) for row in plain_rows(table))
    return Table(
        "scaling",
        "Scaling: throughput against ranks",
        columns,
        rows,
        notes.lines(),
        empty="No usable run.",
    )


def _scaling_row(row: Row, notes: Notes) -> tuple[str, ...]:
    weak = row["scaling"] == "weak"
    mode = f"weak, {row['batch_per_rank']} a rank" if weak else f"strong, {row['global_batch']}"
    rate, why = row["images_per_s_mean"], row["images_per_s_why"]
    time = row["end_to_end_s_mean"]
    shares = (row["communication_share"], row["input_share"])
    return (
        with_context(row),
        mode,
        count(row["gpus"]),
        str(row["nodes"]),
        notes.missing(why) if pd.isna(rate) else significant(rate),
        "n=1" if why == ONE_RUN else significant(row["images_per_s_sd"]),
        count(row["n"]),
        "n/a" if pd.isna(row["speedup"]) else number(row["speedup"], 2),
        _efficiency(row, notes),
        count(row["n0"]),
        notes.missing(row["end_to_end_s_why"]) if pd.isna(time) else significant(time),
        *(notes.missing(row["step_shares_why"]) if pd.isna(s) else percent(s) for s in shares),
    )


def _efficiency(row: Row, notes: Notes) -> str:
    value, low, high, why = (
        row[name] for name in ("efficiency", "efficiency_low", "efficiency_high", "efficiency_why")
    )
    if pd.isna(value):
        return notes.missing(why)
    if not pd.isna(low):
        return f"{number(value, 2)} [{number(low, 2)}, {number(high, 2)}]"
    return f"{number(value, 2)} ({BASELINE})" if why == BASELINE else f"{number(value, 2)} ({why})"
