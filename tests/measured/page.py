"""Tables of docs/results.md from the records in docs/measured, and which figures it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from analysis.page.report import Report, build
from analysis.plots.figure import Figure
from analysis.records.load import load_frames
from analysis.table import Row, plain_rows
from analysis.topics.comparisons.arms import CALLED, ArmPairs, arms
from analysis.topics.comparisons.contrast import Contrast, contrasts
from analysis.topics.names import with_context
from analysis.topics.topic import Sweep
from tests.measured import (
    best_rates,
    error_by_images,
    layer_factors,
    noise_scale,
    sigmoid_inputs,
)
from train.record.run import RECORD_NAME, RunRecord, read_record

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs" / "measured"
PAGE = ROOT / "docs" / "results.md"
#: Figures that the page shows, by sweep: of its report, or of the page alone.
FIGURES = (
    ("mnist_sigmoids", "validation_accuracy"),
    ("mnist_sigmoids", "sigmoid_inputs"),
    ("noise_networks", "noise_curve"),
    ("cifar10_batches", "accuracy_by_batch"),
    ("cifar10_batches", "layer_factors"),
    ("steps_to_target", "steps_by_batch"),
    ("sgd_rate_search", "accuracy_by_rate"),
    ("sgd_rate_search", "best_rates"),
    ("data_size", "error_by_images"),
)
#: Sweeps whose seconds can be compared: nothing else ran beside them.
TIMED = ("assessment_local", "cifar10_frameworks", "cifar10_local", "fashion_frameworks")
#: Sweeps whose rows the page's text compares, as the report's pairs are not what they ask.
COMPARED_IN_TEXT = ("artists_steps",)
DRAWN = ROOT / "docs" / "figures"
OWN: dict[str, Callable[[Report], Figure | None]] = {
    "sigmoid_inputs": lambda report: sigmoid_inputs.figure(report.frames.epochs, _records(report)),
    "noise_curve": lambda report: noise_scale.figure(Sweep(report.frames)),
    "layer_factors": lambda report: layer_factors.figure(report.frames.runs, _records(report)),
    "best_rates": lambda report: best_rates.figure(report.tables["learning_rates"].data),
    "error_by_images": lambda report: error_by_images.figure(report.frames.runs),
}
_RULE = {"left": ":---", "right": "---:"}
#: rows of cifar10_techniques that the page speaks of side by side: what each adds to the batch norm
#: that all but naive have, neighbours in the order at 4,096, and what differs by one thing
PAIRS = (
    *((row, "batch_norm") for row in (
        "ghost_batch_norm", "lr_scaling", "lr_scaling_warmup", "sqrt_scaling", "lamb", "lars",
        "larc", "novograd", "muon", "tuned",
    )),
    ("tuned", "muon"), ("muon", "lamb"), ("lamb", "lars"), ("lars", "sqrt_scaling"),
    ("sqrt_scaling", "novograd"), ("larc", "lr_scaling_warmup"),
    ("sqrt_scaling", "lr_scaling_warmup"),
    ("lr_scaling_warmup", "lr_scaling"),
)  # fmt: skip


def sweeps() -> list[Path]:
    return sorted(folder for folder in MEASURED.iterdir() if folder.is_dir())


def frames_of(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables of the sweep's report, by key."""
    tables = build(load_frames(folder, cache=False), draw=False).tables
    return {key: table.data for key, table in tables.items()}


def figures(sweep: str) -> dict[str, tuple[str, str]]:
    """SVG and caption of the sweep's figures that the page shows, by file name."""
    report = build(load_frames(MEASURED / sweep, cache=False))
    drawn = {figure.key: figure for topic in report.topics for figure in topic.figures}
    keys = [key for name, key in FIGURES if name == sweep]
    drawn |= {key: own for key in keys if key in OWN and (own := OWN[key](report))}
    shown = {f"{sweep}-{key}.svg": drawn[key] for key in keys}
    return {name: (str(found.svg), found.caption) for name, found in shown.items()}


def _records(report: Report) -> Iterator[RunRecord]:
    """Of the runs, for what no frame has."""
    for cell in report.frames.runs["cell_id"]:
        yield read_record(report.frames.folder / cell / RECORD_NAME)


def table(folder: Path) -> str:
    """What each condition reaches, or of many conditions what they keep as the batch grows; for
    techniques and for libraries how they compare."""
    frames = frames_of(folder)
    text = headline(frames)
    if folder.name in TIMED and frames["scaling"]["gpus"].nunique() > 1:
        text += "\n" + _efficiency(frames["scaling"])
    if folder.name in TIMED and "targets" in frames:
        text += "\n" + _targets(frames["targets"])
    claims = frames.get("claims", pd.DataFrame(columns=["difference"]))
    # runs that a target ends are not compared in accuracy
    if folder.name not in COMPARED_IN_TEXT and claims["difference"].notna().any():
        one = claims["reference"].iloc[0] if claims["reference"].nunique() == 1 else ""
        text += "\n" + _markdown(
            [(f"against {one}" if one else "compared", "left"), ("global batch", "right"),
             ("difference, 95 % interval", "right"), ("simultaneous interval", "right"),
             ("verdict", "left")],
            [_claim(row, named=not one) for row in plain_rows(claims)],
        )  # fmt: skip
    if len(frames.get("frameworks", ())):
        seconds = [("images/s", "right"), ("Horovod's", "right"), ("ratio", "right")]
        text += "\n" + _markdown(
            [("against Horovod", "left"), ("ranks", "right"),
             *(seconds if folder.name in TIMED else ()), ("difference in accuracy", "right"),
             ("verdict", "left")],
            [_framework(row, timed=folder.name in TIMED)
             for row in plain_rows(frames["frameworks"])],
        )  # fmt: skip
    return text


def side_by_side(folder: Path) -> str:
    """PAIRS at the largest batch: one family."""
    found = arms(Sweep(load_frames(folder, cache=False)))
    largest = found[found["global_batch"] == found["global_batch"].max()]
    largest = largest.set_index("technique", drop=False)
    first, second = (largest.loc[list(side)] for side in zip(*PAIRS, strict=True))
    pairs = ArmPairs(first, second)
    made = pairs.rows("second") | contrasts({Contrast(): pairs.accuracy})
    return _markdown(
        [("at 4,096", "left"), ("difference, 95 % interval", "right"),
         ("simultaneous interval", "right"), ("verdict", "left")],
        [
            [f"{row[CALLED]} - {row['second']}", _difference(row), _simultaneous(row),
             row["verdict"]]
            for row in plain_rows(pd.DataFrame(made))
        ],
    )  # fmt: skip


def noise_growth(folder: Path, first: int, last: int) -> list[str]:
    """By what the noise scale grew between two epochs, run by run: a text for each condition that
    has an interval, from the largest factor."""
    frames = load_frames(folder, cache=False)
    epochs = frames.epochs.assign(row=frames.epochs["context"].factorize()[0])
    ends = (epochs[epochs["epoch"] == at] for at in (first, last))
    found = noise_scale.growth(*ends, epochs["row"].nunique()).dropna(subset="low")
    return [
        "{0:.{3}f} ({1:.{3}f} to {2:.{3}f})".format(*ends, 1 if ends[0] > 1 else 2)
        for ends in found.sort_values("value")[["value", "low", "high"]].to_numpy()[::-1]
    ]


def headline(frames: Mapping[str, pd.DataFrame]) -> str:
    """The first table of a sweep: of many conditions at two batches what each keeps."""
    reached = frames["convergence"]
    if reached["sharpness_largest"].notna().any():
        return _minima(reached)
    kept = frames.get("larger_batch", pd.DataFrame())
    two = reached["global_batch"].nunique() == 2 and len(reached) == 2 * len(kept) > 2
    return _kept(kept) if two else _reached(reached)


def _minima(frame: pd.DataFrame) -> str:
    """Where runs ended whose sharpness was measured, and how sharp it is there."""
    return _markdown(
        [("condition", "left"), ("global batch", "right"), ("steps", "right"),
         ("train loss", "right"), ("validation accuracy", "right"),
         ("largest eigenvalue", "right"), ("scaled", "right"), ("runs", "right")],
        [
            [with_context(row), f"{row['global_batch']:,}", _steps(row), f"{row['train_loss']:.3f}",
             _mean(row, "validation_accuracy"),
             *(_interval(row, f"sharpness_{name}", ",.0f") for name in ("largest", "scaled")),
             str(row["n"])]
            for row in plain_rows(_by_batch(frame))
        ],
    )  # fmt: skip


def _targets(frame: pd.DataFrame) -> str:
    """How many runs reached their target, and when: medians over seeds."""
    return _markdown(
        [("condition", "left"), ("reached", "right"), ("epochs", "right"),
         ("seconds, median", "right")],
        [
            [with_context(row), f"{row['reached'] * row['n']:.0f} of {row['n']}",
             *("" if row[name] is None else f"{row[name]:,.0f}" for name in ("epoch", "seconds"))]
            for row in plain_rows(frame)
        ],
    )  # fmt: skip


def _steps(row: Row) -> str:
    """Steps of a run, from fewest to most where the runs of the condition differ."""
    return row["steps_note"].split(": ")[-1] if pd.isna(row["steps"]) else f"{row['steps']:,.0f}"


def _reached(frame: pd.DataFrame) -> str:
    shown = ["technique_label", "framework", "gpus", "global_batch"]
    alike = frame.duplicated(shown, keep=False)
    frame = frame.assign(context=frame["context"].where(alike, ""))  # told where rows read alike
    return _markdown(
        [("condition", "left"), ("ranks", "right"), ("global batch", "right"), ("steps", "right"),
         ("train acc", "right"), ("validation accuracy", "right"), ("runs (diverged)", "right")],
        [_convergence(row) for row in plain_rows(_by_batch(frame))],
    )  # fmt: skip


def _kept(frame: pd.DataFrame) -> str:
    """What each condition keeps from the smallest batch to the largest."""
    batches = [
        f"at {', '.join(f'{batch:,}' for batch in sorted(set(frame[f'global_batch_{end}'])))}"
        for end in ("small", "large")
    ]
    return _markdown(
        [("condition", "left"), *((batch, "right") for batch in batches),
         ("change, 95 % interval", "right"), ("runs", "right")],
        [_change(row) for row in plain_rows(frame)],
    )  # fmt: skip


def _efficiency(frame: pd.DataFrame) -> str:
    """Images/s and what is kept of the smallest count's, with its interval."""
    return _markdown(
        [("condition", "left"), ("ranks", "right"), ("images/s", "right"),
         ("efficiency, 95 % interval", "right"), ("runs", "right")],
        [
            [with_context(row), str(row["gpus"]), f"{row['images_per_s']:,.0f}",
             _interval(row, "efficiency"), str(row["n"])]
            for row in plain_rows(frame)
        ],
    )  # fmt: skip


def _interval(row: Row, name: str, form: str = ".2f") -> str:
    mean, low, high = (row[name + part] for part in ("", "_low", "_high"))
    return f"{mean:{form}}" + ("" if pd.isna(low) else f" ({low:{form}} to {high:{form}})")


def _change(row: Row) -> list[str]:
    return [
        _library(row["technique_label"], row),
        *(_mean(row, f"accuracy_{end}") for end in ("small", "large")),
        _difference(row),
        f"{row['n_small']} + {row['n_large']}",
    ]


def _claim(row: Row, *, named: bool) -> list[str]:
    label = row["technique_label"] + (f" - {row['reference']}" if named else "")
    if pd.isna(row["global_batch"]):
        return [label, "n/a", "n/a", "n/a", row["verdict"]]
    return [
        label, f"{row['global_batch']:,}", _difference(row), _simultaneous(row), row["verdict"],
    ]  # fmt: skip


def _mean(row: Row, name: str) -> str:
    mean, low, high = (row[name + part] for part in ("", "_low", "_high"))
    if pd.isna(low):
        return f"{mean:.3f} (n=1)"
    if low in (0, 1) or high in (0, 1):  # cut
        return f"{mean:.3f} ({low:.3f} to {high:.3f})"
    return f"{mean:.3f} ± {high - mean:.3f}"


def _difference(row: Row) -> str:
    low, high = row["difference_low"], row["difference_high"]
    between: str = "n=1" if pd.isna(low) else f"{low:+.3f} to {high:+.3f}"
    return f"{row['difference']:+.3f} ({between})"


def _simultaneous(row: Row) -> str:
    low, high = (row[f"difference_family_{end}"] for end in ("low", "high"))
    return "n=1" if pd.isna(low) else f"{low:+.3f} to {high:+.3f}"


def _by_batch(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("global_batch", kind="stable")


def _convergence(row: Row) -> list[str]:
    return [
        _library(with_context(row), row),
        str(row["gpus"]), f"{row['global_batch']:,}", _steps(row),
        f"{row['train_accuracy']:.3f}",
        _mean(row, "validation_accuracy"),
        f"{row['n']} ({round(row['diverged'] * row['n'])})",
    ]  # fmt: skip


def _library(label: str, row: Row) -> str:
    return label if row["framework"] == "horovod" else f"{label}, {row['framework']}"


def _framework(row: Row, *, timed: bool) -> list[str]:
    seconds = [
        f"{row['images_per_s_library']:,.0f}", f"{row['images_per_s']:,.0f}",
        _interval(row, "ratio"),
    ]  # fmt: skip
    return [
        row["library"], str(row["gpus"]), *(seconds if timed else ()),
        # the report has Horovod's less the row's; here as in the tables of techniques
        "{:+.4f} ({:+.4f} to {:+.4f})".format(
            *(0 - row[f"difference{end}"] for end in ("", "_high", "_low"))
        ),
        row["verdict"],
    ]  # fmt: skip


def _markdown(head: list[tuple[str, str]], rows: list[list[str]]) -> str:
    lines = [[name for name, _ in head], [_RULE[align] for _, align in head], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
