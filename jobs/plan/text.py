"""The plan as text: a table of the cells, launch lines, and what to know of the sweep besides."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from jobs.messages import clock, columns
from jobs.plan.differences import common_start
from jobs.plan.rows import PlanRow
from train.config.networks import model_label, split_hash
from train.config.plan import RunPlan

#: Of what sets cells apart: these have columns of their own, or (a target) a remark.
_SHOWN_ELSEWHERE = {"batch", "steps_per_epoch", "epochs", "base_lr", "target"}
#: A share below this changes no comparison of cells.
MUCH = 0.05


def plan_lines(
    rows: Sequence[PlanRow],
    launch_lines: Mapping[str, Sequence[str]],
    done: Collection[str] = (),
) -> list[str]:
    """The table, the launch lines, and last what is to run and how long it takes.

    ``launch_lines``: cell id -> tokens; unwrapped, quoted for a shell. ``done``: ids of the cells
    that have a good record and are skipped.
    """
    lines = _table(rows, done)
    # a file or a pipe has no width to keep to
    if sys.stdout.isatty() and max(map(len, lines)) > shutil.get_terminal_size().columns:
        lines = _table(rows, done, common_start([row.cell_id for row in rows]))
    if launch_lines:
        lines += ["", "launch lines, one such process per rank:"]
    for name in (row.cell_id for row in rows if row.cell_id in launch_lines):
        lines += [f"  {name}:", f"    {shlex.join(launch_lines[name])}"]
    return [*lines, "", *summary(rows, done)]


def _table(rows: Sequence[PlanRow], done: Collection[str], start: str = "") -> list[str]:
    """``start``: of all ids, left out of them where a terminal is narrow, as heads are split."""
    keys = [key for key in rows[0].apart if key not in _SHOWN_ELSEWHERE]
    head = ["cell", *keys, "gpus", "batch", "steps/epoch", "epochs", "steps", "peak lr", "time"]
    if start:
        head = [name.replace("/", "\n/").replace(" ", "\n") for name in head]
    body = [
        (
            f"..{row.cell_id.removeprefix(start)}" if start else row.cell_id,
            *(row.apart[key] for key in keys),
            *_numbers(row, done),
        )
        for row in rows
    ]
    return columns(head, body, left=1)


def _numbers(row: PlanRow, done: Collection[str]) -> tuple[str, ...]:
    plan, config = row.plan, row.plan.config
    first, last = plan.epochs[0], plan.epochs[-1]
    batch = f"{first.global_batch:,}"
    if last.global_batch != first.global_batch:
        batch += f"-{last.global_batch:,}"
    sizes = first.steps, len(plan.epochs), plan.total_steps
    rate = config.technique.peak_lr(config.global_batch)
    time = "?" if row.time.seconds is None else f"~{clock(row.time.seconds)}"
    time = "done" if row.cell_id in done else time
    return str(config.gpus), batch, *(f"{size:,}" for size in sizes), f"{rate:.4g}", time


def summary(rows: Sequence[PlanRow], done: Collection[str] = ()) -> list[str]:
    """Size of the sweep, remarks on its cells, time of those that are to run, and what that is
    estimated from. ``done``: ids of cells that have a good record."""
    configs = [row.plan.config for row in rows]
    named = (f"{model_label(c.model)} on {split_hash(c.dataset)[0]}" for c in configs)
    data = ", ".join(dict.fromkeys(named))
    lines = [f"{len(rows)} cells: {data}; batch = images per step over all ranks"]
    targets = Counter(config.target.in_words() for config in configs if config.target)
    lines += [f"{n} stop at {goal}, or when that is out of reach" for goal, n in targets.items()]
    lines += _remarks(rows)
    ahead = [row for row in rows if row.cell_id not in done]
    if len(ahead) < len(rows):
        lines.append(f"{len(rows) - len(ahead)} have a good record and are skipped")
    return [*lines, *_time(ahead)]


def _remarks(rows: Sequence[PlanRow]) -> Iterator[str]:
    measured = {row.cell_id: _measured(row.plan) for row in rows}
    for key, words in _REMARKS.items():
        cells = {name: numbers[key] for name, numbers in measured.items() if numbers[key]}
        if cells:
            first = next(iter(cells)) + (", ..." if len(cells) > 1 else "")
            least, most = min(cells.values()), max(cells.values())
            yield f"{len(cells)} {words.format(first=first, least=least, most=most)}"
    scaled = [c for row in rows if (c := row.plan.config).technique.lr_scaling != "none"]
    acting = {c.technique.name for c in scaled if c.global_batch != c.technique.base_batch}
    names = dict.fromkeys(config.technique.name for config in scaled)
    if idle := [name for name in names if name not in acting]:
        text = "all cells have the base batch, so the rate is not scaled: set base_batch if another"
        yield f"{', '.join(idle)}: {text} batch suits base_lr"


def _measured(plan: RunPlan) -> dict[str, float]:
    """A number for each of the remarks, 0 where there is nothing to say."""
    config, first, technique = plan.config, plan.epochs[0], plan.config.technique
    batch, base = config.global_batch, technique.base_batch
    climbs = technique.warmup_epochs and technique.warmup_from == "base"
    shortened = technique.regime_adaptation and plan.total_steps < config.epochs * first.steps
    decays = technique.lr_scaling == "adascale" and technique.schedule.name != "constant"
    initial, left_out = _initial_share(plan), plan.left_over / plan.used
    initial, as_built = initial if initial > MUCH else 0, config.runs_as_built
    return {
        "accumulated": first.accumulation if first.accumulation > 1 else 0,
        "repeats": config.repeats,
        "climbs_down": climbs and batch < base,
        "shortened": plan.total_steps if shortened else 0,
        "may_not_decay": decays and batch > base,
        "initial": 0 if as_built else initial,
        "initial_as_built": initial if as_built else 0,
        "left_out": left_out if left_out > MUCH else 0,
    }


def _initial_share(plan: RunPlan) -> float:
    """Of batch norm's initial statistics in the moving averages at the end: each batch of a rank,
    or each ghost of it, keeps ``bn_momentum`` of them; a network that runs as built is taken to
    have Keras' momentum."""
    technique, as_built = plan.config.technique, plan.config.runs_as_built
    none = technique.normalisation == "none" and not as_built
    if none or technique.bn_statistics == "reestimated":
        return 0.0
    updates = sum(epoch.steps * epoch.accumulation for epoch in plan.epochs)
    if technique.ghost_batch and technique.bn_momentum_per == "ghost":
        updates *= plan.config.batch_per_rank // technique.ghost_batch
    return float((0.99 if as_built else technique.bn_momentum) ** updates)


#: What to say of cells by what is measured of their plans.
_REMARKS = {
    "accumulated": (
        "accumulate up to {most} batches per step: the gradient equals that of {most} times as "
        "many ranks, but moving averages, noise, dropout and what compression rounds differ"
    ),
    "repeats": (
        "let all ranks draw the same images (partition: same; {first}): a step of k ranks is worth "
        "a step of one, and images/s count each image k times"
    ),
    "climbs_down": (
        "have a warm-up from the base rate to a lower one ({first}), since their batch is below "
        "base_batch: set warmup_from: zero, or warmup_epochs: 0"
    ),
    "shortened": (
        "have regime_adaptation and a batch below base_batch ({first}), so fewer steps than their "
        "epochs have, down to {least}: set base_batch to the smallest batch"
    ),
    "may_not_decay": (
        "have AdaScale and a schedule that decays ({first}): it ends at a higher rate unless gains "
        "reach batch / base_batch, so compare these cells with cells of a constant rate"
    ),
    "initial": (
        "take so few steps that up to {most:.0%} of the initial batch-norm statistics stay in "
        "their moving averages: set bn_statistics: reestimated, or a lower bn_momentum"
    ),
    "initial_as_built": (
        "run as built: BatchNormalization with Keras' momentum of 0.99 would keep up to {most:.0%} "
        "of its initial statistics (train check shows its momentum): build it with a lower one"
    ),
    "left_out": (
        "leave out up to {most:.0%} of the images in each epoch, which fill no whole step or "
        "epoch: for equal budgets choose data_fraction and steps_per_epoch so that they do"
    ),
}


def _time(ahead: Sequence[PlanRow]) -> list[str]:
    """How long the cells that are to run take, and what that is estimated from."""
    if not ahead:
        return ["nothing to train"]
    times = [row.time.seconds for row in ahead if row.time.seconds is not None]
    if not times:
        return ["time unknown: no cell like these ran here, so there is nothing to estimate from"]
    total = f"time: about {clock(sum(times))} one cell after another"
    if len(times) < len(ahead):
        total += f", without {len(ahead) - len(times)} of time unknown (none alike ran here)"
    sources = Counter(row.time.source for row in ahead if row.time.seconds is not None)
    return [total, *(f"  {n} estimated from {source}" for source, n in sources.items())]
