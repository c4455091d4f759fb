"""The statistics of the report as tables for a reader: convergence, scaling, claims."""

from __future__ import annotations

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
    text,
    with_context,
)
from analysis.scaling import BASELINE, SHARED_CORES
from analysis.stats import ONE_RUN


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


def convergence_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """The course's table, redone."""
    notes = Notes()
    columns = (
        ranks_column(runs),
        Column("condition", "left", "technique, and the settings that differ within this sweep"),
        Column("global batch", about="images per optimizer step, over all ranks"),
        Column("steps", about="optimizer steps of a whole run"),
        Column("train acc", about="running mean of training accuracy over the last epoch, while "
               "weights change: the metric of the course, no measure of generalisation"),
        Column("validation accuracy", about="whole held-out split after the final epoch (never the "
               "best one), completed runs: mean ± half-width of the 95 % t interval over seeds. "
               "Where runs diverged, \"all\" is the mean over all runs, a diverged one counting "
               "as chance (1 / classes)"),
        Column("runs", about="completed and diverged runs; every run has its own seed"),
        Column("diverged", about="runs that diverged / runs"),
        Column("training s", about="seconds in training epochs (validation not counted), mean "
               "over completed runs"),
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
        count(row["global_batch"]),
        notes.missing(row["steps_why"]) if pd.isna(row["steps"]) else count(row["steps"]),
        _plain_mean(row, "train_accuracy", notes),
        _accuracy(row, notes),
        count(row["n"]),
        f"{row['n_diverged']}/{row['n']}",
        joined([_plain_mean(row, "train_s", notes), shared]),
    )


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
        Column("all-reduce", about="share of a steady step in the all-reduce, waiting for slower "
               "ranks included: mean over ranks and runs"),
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


def claims_view(table: pd.DataFrame, runs: pd.DataFrame, reference: str | None) -> Table:
    """Each technique against the reference at the largest rank count both have."""
    notes = Notes()
    family = int(table["family"].iloc[0]) if len(table) else 0
    columns = (
        Column("technique", "left"),
        Column("against", "left"),
        ranks_column(runs),
        Column("global batch"),
        Column("runs", about="of the technique / of the reference, diverged ones included"),
        Column("difference", about="in validation accuracy (fraction, not per cent) over all runs, "
               "a diverged one counting as chance"),
        Column("95 % interval", about="Welch's t, for this comparison alone"),
        Column("p (Holm)", about=f"two-sided Welch p, adjusted by Holm's method for {family} "
               "planned comparison(s); the verdict uses it at 0.05"),
        Column("verdict", "left"),
        Column("runs per arm to decide", about="with power 0.8, were the observed difference and "
               "spread the true ones; alone at 0.05 / at the strictest level of the family"),
    )  # fmt: skip
    rows = tuple(_claim_row(row, notes) for row in plain_rows(table))
    return Table(
        "claims",
        f"Claims: techniques against {reference or 'a reference'}",
        columns,
        rows,
        notes.lines(),
        intro="One planned family: every technique against the reference at the largest rank "
        "count that both have. Every other comparison of rows in this report is exploratory and "
        "uncorrected.",
        empty="The sweep has one technique: there is nothing to compare.",
    )


def _claim_row(row: Row, notes: Notes) -> tuple[str, ...]:
    verdict = joined([str(row["verdict"]), notes.mark(row["why"])])
    bounded = not pd.isna(row["difference_low"])
    counted = not pd.isna(row["n"])
    return (
        with_context(row),
        text(row["reference"]),
        count(row["gpus"]),
        count(row["global_batch"]),
        f"{row['n']} / {row['n_reference']}" if counted else "n/a",
        "n/a" if pd.isna(row["difference"]) else f"{row['difference']:+.3f}",
        interval(row["difference_low"], row["difference_high"], 3) if bounded else "n/a",
        "n/a" if pd.isna(row["p_holm"]) else _p_value(row["p_holm"]),
        verdict,
        _seeds(row, notes),
    )


def _seeds(row: Row, notes: Notes) -> str:
    if row["verdict"] != "inconclusive":
        return "" if row["verdict"] in ("higher", "lower") else "n/a"
    if pd.isna(row["seeds_in_family"]):
        return notes.missing(row["seeds_why"])
    return f"{count(row['seeds_alone'])} / {count(row['seeds_in_family'])}"


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
