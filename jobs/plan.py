"""What a sweep would do, cell by cell: sizes, steps, rates, time. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.apart import apart
from jobs.estimate import Rates, estimate
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
