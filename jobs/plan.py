"""What a sweep would do, cell by cell: sizes, steps, rates, time. Runs nothing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from jobs.apart import apart
from jobs.estimate import Rates, estimate
from train.config import ConfigError, RunConfig
from train.schedule import RunPlan, plan_of

#: (data set, image size) -> training images there are
Facts = Mapping[tuple[str, int | None], int]


@dataclass(frozen=True)
class PlanRow:
    """One cell of the plan."""

    cell_id: str
    dataset: str
    model: str
    technique: str
    gpus: int
    global_batch: int  # in the first epoch
    last_batch: int  # and in the last, where it grows
    accumulation: int  # batches of a rank per step, in the first epoch
    steps_per_epoch: int  # in the first epoch
    total_steps: int
    epochs: int
    lr: float  # the scaled rate, after the warm-up and before the schedule
    seconds: float | None  # estimated wall time
    source: str  # where the estimate is from, or why there is none
    initial_share: float  # of batch norm's initial statistics in the averages at the end
    idle_rule: bool = False  # its rule scales by global / base batch, and both are the same
    flat_warmup: bool = False  # its warm-up climbs from the base rate, which is no lower
    target: str | None = None  # what it stops at, in words
    apart: tuple[tuple[str, str], ...] = ()  # settings that set it apart from others of the sweep


#: Of what sets cells apart: columns of their own; a target's words are told below the table.
_TOLD = {"batch", "epochs", "base_lr", "target"}
#: Above this, what evaluation normalises with is no longer what the network was trained with.
MUCH_INITIAL = 0.05


def plan_rows(configs: Iterable[RunConfig], facts: Facts, rates: Rates) -> tuple[PlanRow, ...]:
    """The rows of the plan, in the order of the configs.

    Raises:
        ConfigError: cells that the data is too small for, all of them in one message; a data set
            whose size is not in ``facts``.
    """
    rows, wrong = [], []
    configs = list(configs)
    differing = apart(configs)
    for config in configs:
        key = (config.dataset, config.image_size)
        if key not in facts:
            raise ConfigError(f"the size of the data set {config.dataset} is not known")
        try:
            row = _row(plan_of(config, facts[key]), rates)
            rows.append(replace(row, apart=tuple(differing[config.cell_id()].items())))
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        count = f"{len(wrong)} of {len(wrong) + len(rows)} cells"
        raise ConfigError("\n  ".join([f"{count} cannot run on their data:", *wrong]))
    return tuple(rows)


def _row(plan: RunPlan, rates: Rates) -> PlanRow:
    config, first = plan.config, plan.epochs[0]
    images = sum(epoch.steps * epoch.global_batch for epoch in plan.epochs)
    time = estimate(config, images, len(plan.epochs), rates)
    return PlanRow(
        cell_id=config.cell_id(),
        dataset=config.dataset,
        model=config.model,
        technique=config.technique.name,
        gpus=config.gpus,
        global_batch=first.global_batch,
        last_batch=plan.epochs[-1].global_batch,
        accumulation=first.accumulation,
        steps_per_epoch=first.steps,
        total_steps=plan.total_steps,
        epochs=len(plan.epochs),
        lr=config.technique.peak_lr(config.global_batch),
        seconds=time.seconds,
        source=time.source,
        initial_share=_initial_share(plan),
        idle_rule=config.technique.lr_scaling != "none"
        and config.global_batch == config.technique.base_batch,
        flat_warmup=config.technique.warmup_epochs > 0
        and config.technique.warmup_from == "base"
        and config.global_batch < config.technique.base_batch,
        target=config.target.in_words() if config.target else None,
    )


def _initial_share(plan: RunPlan) -> float:
    """Each batch of a rank, or each ghost of it, keeps ``bn_momentum`` of the moving averages."""
    technique = plan.config.technique
    if technique.normalisation == "none" or technique.bn_statistics == "reestimated":
        return 0.0
    ghosts = plan.config.batch_per_rank // (technique.ghost_batch or plan.config.batch_per_rank)
    updates = sum(epoch.steps * epoch.accumulation for epoch in plan.epochs) * ghosts
    return float(technique.bn_momentum**updates)


def render_plan(
    rows: Sequence[PlanRow],
    lines: Mapping[str, Sequence[str]],
    console: Console,
    done: Collection[str] = (),
) -> None:
    """Print the table, the launch lines, and last what is to run and how long it takes.

    ``lines``: cell id -> tokens; printed unwrapped, quoted for a shell. ``done``: ids of the cells
    that have a good record and are skipped.
    """
    table = _table(rows, done)
    if console.is_terminal and max(map(len, table)) > console.width:
        table = _table(rows, done, shorten=True)
    # a file or a pipe has no width to keep to: nothing is cut
    console.print("\n".join(table), markup=False, highlight=False, soft_wrap=True)
    shown = [row.cell_id for row in rows if row.cell_id in lines]
    if shown:
        console.print("\nlaunch lines, one such process per rank:", highlight=False)
    for name in shown:
        text = f"  {name}:\n    {shlex.join(lines[name])}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print()
    for text in summary(rows, done):
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _never_scaled(rows: Sequence[PlanRow]) -> list[str]:
    """Techniques whose scaling rule acts in none of their cells."""
    acting = {row.technique for row in rows if not row.idle_rule}
    return [name for name in dict.fromkeys(row.technique for row in rows) if name not in acting]


def _table(
    rows: Sequence[PlanRow], done: Collection[str] = (), *, shorten: bool = False
) -> list[str]:
    """Lines of aligned columns, ids to the left, numbers to the right.

    Plain text: a rich table of two thousand rows takes seconds. ``shorten``: leave out data set and
    model of the ids where all cells share them.
    """
    words = common_start([row.cell_id for row in rows]) if shorten else ""
    keys = [key for key, _ in rows[0].apart if key not in _TOLD] if rows else []
    head = ["cell", *keys, "gpus", "batch", "steps/epoch", "epochs", "steps", "peak lr", "time"]
    above = [""] * len(head)
    if words:
        at = head.index("steps/epoch")
        above[at], head[at] = "steps", "/epoch"
    body = [
        (
            f"..{row.cell_id.removeprefix(words)}" if words else row.cell_id,
            *(dict(row.apart)[key] for key in keys),
            str(row.gpus),
            _batch(row),
            f"{row.steps_per_epoch:,}",
            f"{row.epochs:,}",
            f"{row.total_steps:,}",
            f"{row.lr:.4g}",
            _time(row, done),
        )
        for row in rows
    ]
    lines = [*([above] if words else []), head, *body]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    gap = " " if words else "  "
    return [gap.join(_aligned(line, widths)).rstrip() for line in lines]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    numbers = zip(cells[1:], widths[1:], strict=True)
    return [cells[0].ljust(widths[0]), *(text.rjust(width) for text, width in numbers)]


def common_start(cell_ids: Iterable[str]) -> str:
    """Data set and model of the ids, where all cells share them; else ''."""
    starts = {"-".join(cell_id.split("-")[:2]) + "-" for cell_id in cell_ids}
    return starts.pop() if len(starts) == 1 else ""


def _batch(row: PlanRow) -> str:
    grown = row.last_batch != row.global_batch
    return f"{row.global_batch:,}" + (f"-{row.last_batch:,}" if grown else "")


def _time(row: PlanRow, done: Collection[str]) -> str:
    if row.cell_id in done:
        return "done"
    return "?" if row.seconds is None else f"~{clock(row.seconds)}"


def summary(rows: Sequence[PlanRow], done: Collection[str] = ()) -> list[str]:
    """Closing lines: size of the sweep, time of what is to run, what each estimate stands on."""
    data = ", ".join(dict.fromkeys(f"{row.model} on {row.dataset}" for row in rows))
    lines = [f"{len(rows)} cells: {data}; batch = images per step over all ranks"]
    if accumulated := sum(row.accumulation > 1 for row in rows):
        most = max(row.accumulation for row in rows)
        lines.append(
            f"{accumulated} accumulate up to {most} batches per step: the gradients of as many "
            "times the ranks, batch norm per batch, in more time; not alike: moving averages (they "
            "move once per batch), noise and dropout draws"
        )
    targets = Counter(row.target for row in rows if row.target)
    for goal, count in targets.items():
        lines.append(f"{count} stop at {goal}, or when that is out of reach")
    if flat := [row.cell_id for row in rows if row.flat_warmup]:
        lines.append(
            f"{len(flat)} have a warm-up that climbs nowhere, from the base rate to a lower one ("
            f"{flat[0]}{', ...' if len(flat) > 1 else ''}): their batch is below base_batch; say "
            "warmup_from: zero, or warmup_epochs: 0"
        )
    if idle := _never_scaled(rows):
        lines.append(
            f"{', '.join(idle)}: all cells have the base batch, so the rate is not scaled (nor "
            "warmed up from it): set base_batch to the batch that base_lr belongs to, if another"
        )
    if early := [row.initial_share for row in rows if row.initial_share > MUCH_INITIAL]:
        lines.append(
            f"{len(early)} take so few steps that up to {max(early):.0%} of the initial batch-norm "
            "statistics stay in their moving averages: set bn_statistics: reestimated, or a lower "
            "bn_momentum"
        )
    ahead = [row for row in rows if row.cell_id not in done]
    if len(ahead) < len(rows):
        lines.append(f"{len(rows) - len(ahead)} have a good record and are skipped")
    if not ahead:
        return [*lines, "nothing to train"]
    known = [row.seconds for row in ahead if row.seconds is not None]
    if not known:
        return [*lines, "time: never run here, so there is nothing to estimate from"]
    total = f"time: about {clock(sum(known))} one cell after another"
    if len(known) < len(ahead):
        total += f", {len(ahead) - len(known)} never run here left out"
    sources = Counter(row.source for row in ahead if row.seconds is not None)
    return [*lines, total, *(f"  {n} estimated from {source}" for source, n in sources.items())]


def clock(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
