"""What a sweep would do, cell by cell: sizes, steps, rates, time; and what to know of it beside its
table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.messages import clock
from jobs.plan.differences import apart
from jobs.plan.estimate import Rates, estimate
from train.config.plan import RunPlan, plan_of
from train.config.run import RunConfig
from train.errors import ConfigError

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
    left_out: float = 0.0  # largest share of the images that an epoch has no whole step for
    idle_rule: bool = False  # its rule scales by global / base batch, and both are the same
    flat_warmup: bool = False  # its warm-up climbs from the base rate, which is no lower
    undecayed: bool = False  # AdaScale with a schedule whose end it may not reach
    repeats: bool = False  # its ranks draw the same images
    shortened: bool = False  # regime adaptation takes fewer steps than the epochs that were asked
    target: str | None = None  # what it stops at, in words
    apart: tuple[tuple[str, str], ...] = ()  # settings that set it apart from others of the sweep


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
        left_out=plan.left_over / plan.used,
        idle_rule=config.technique.lr_scaling != "none"
        and config.global_batch == config.technique.base_batch,
        flat_warmup=config.technique.warmup_epochs > 0
        and config.technique.warmup_from == "base"
        and config.global_batch < config.technique.base_batch,
        undecayed=config.technique.lr_scaling == "adascale"
        and config.technique.schedule.name != "constant"
        and config.global_batch > config.technique.base_batch,
        repeats=config.repeats,
        shortened=config.technique.regime_adaptation
        and plan.total_steps < config.epochs * first.steps,
        target=config.target.in_words() if config.target else None,
    )


def _initial_share(plan: RunPlan) -> float:
    """Each batch of a rank, or each ghost of it, keeps ``bn_momentum`` of the moving averages."""
    technique = plan.config.technique
    if technique.normalisation == "none" or technique.bn_statistics == "reestimated":
        return 0.0
    updates = sum(epoch.steps * epoch.accumulation for epoch in plan.epochs)
    if technique.ghost_batch and technique.bn_momentum_per == "ghost":
        updates *= plan.config.batch_per_rank // technique.ghost_batch
    return float(technique.bn_momentum**updates)


#: Above this, what evaluation normalises with is no longer what the network was trained with.
MUCH_INITIAL = 0.05
#: Above this, cells of one sweep are not trained on equally many images.
MUCH_LEFT_OUT = 0.05


def summary(rows: Sequence[PlanRow], done: Collection[str] = ()) -> list[str]:
    """Closing lines: size of the sweep, time of what is to run, what each estimate stands on."""
    data = ", ".join(dict.fromkeys(f"{row.model} on {row.dataset}" for row in rows))
    lines = [f"{len(rows)} cells: {data}; batch = images per step over all ranks"]
    if accumulated := sum(row.accumulation > 1 for row in rows):
        most = max(row.accumulation for row in rows)
        lines.append(
            f"{accumulated} accumulate up to {most} batches per step: the gradients of as many "
            "times the ranks, batch norm per batch, in more time; not alike: moving averages (they "
            "move once per batch), noise and dropout draws, what compression rounds"
        )
    if repeating := [row for row in rows if row.repeats]:
        lines.append(
            f"{len(repeating)} let all ranks draw the same images (partition: same; "
            f"{_few(repeating)}), as the course's scripts do: a step of k ranks is worth that of "
            "one, and an epoch sees 1/k of the images; images/s count each one k times"
        )
    targets = Counter(row.target for row in rows if row.target)
    for goal, count in targets.items():
        lines.append(f"{count} stop at {goal}, or when that is out of reach")
    if flat := [row for row in rows if row.flat_warmup]:
        lines.append(
            f"{len(flat)} have a warm-up that climbs nowhere, from the base rate to a lower one ("
            f"{_few(flat)}): their batch is below base_batch; say "
            "warmup_from: zero, or warmup_epochs: 0"
        )
    if short := [row for row in rows if row.shortened]:
        lines.append(
            f"{len(short)} have regime_adaptation and a batch below base_batch ({_few(short)}), so "
            f"they take fewer steps than their epochs have, down to "
            f"{min(row.total_steps for row in short)}: set base_batch to the smallest batch, or "
            "leave regime_adaptation out"
        )
    if undecayed := [row for row in rows if row.undecayed]:
        lines.append(
            f"{len(undecayed)} have AdaScale and a schedule that decays ({_few(undecayed)}): it is "
            "read on the clock of gains and ends with the steps of base_batch, which no run gets "
            "to whose gains stay below batch / base_batch; so it ends at a higher rate than rows "
            "of another rule: compare it with rows of a constant rate"
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
    if shares := [row.left_out for row in rows if row.left_out > MUCH_LEFT_OUT]:
        lines.append(
            f"{len(shares)} leave out up to {max(shares):.0%} of the images in each epoch, other "
            "ones every time, since they fill no whole step, or no epoch of steps_per_epoch: cells "
            "of other batches see more; for equal budgets choose a data_fraction whose number of "
            "images is a multiple of the largest batch, and a steps_per_epoch that divides a pass"
        )
    ahead = [row for row in rows if row.cell_id not in done]
    if len(ahead) < len(rows):
        lines.append(f"{len(rows) - len(ahead)} have a good record and are skipped")
    return [*lines, *_time(ahead)]


def _time(ahead: Sequence[PlanRow]) -> list[str]:
    """How long the cells that are to run take, and what that is estimated from."""
    if not ahead:
        return ["nothing to train"]
    known = [row.seconds for row in ahead if row.seconds is not None]
    if not known:
        return ["time: never run here, so there is nothing to estimate from"]
    total = f"time: about {clock(sum(known))} one cell after another"
    if len(known) < len(ahead):
        total += f", {len(ahead) - len(known)} never run here left out"
    sources = Counter(row.source for row in ahead if row.seconds is not None)
    return [total, *(f"  {n} estimated from {source}" for source, n in sources.items())]


def _few(rows: Sequence[PlanRow]) -> str:
    return f"{rows[0].cell_id}{', ...' if len(rows) > 1 else ''}"


def _never_scaled(rows: Sequence[PlanRow]) -> list[str]:
    """Techniques whose scaling rule acts in none of their cells."""
    acting = {row.technique for row in rows if not row.idle_rule}
    return [name for name in dict.fromkeys(row.technique for row in rows) if name not in acting]
