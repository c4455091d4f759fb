"""What a sweep would do, cell by cell: its plan on the data, its time, what sets it apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.plan.differences import Settings, apart, by_condition
from jobs.plan.estimate import Estimate, Rate, RateKey, estimate
from train.config.plan import RunPlan, plan_of
from train.config.run import RunConfig
from train.errors import ConfigError


@dataclass(frozen=True)
class PlanRow:
    """One cell of the plan."""

    cell_id: str
    plan: RunPlan  # shared by cells that differ in their seed only: its config may be another's
    time: Estimate
    apart: Settings  # settings that set it apart from others of the sweep


def plans_of(
    configs: Sequence[RunConfig], images: Mapping[tuple[str, int | None], int]
) -> dict[str, RunPlan]:
    """Cell id -> plan.

    ``images``: (data set, image size) -> training images that there are.

    Raises:
        ConfigError: cells that the data is too small for, all of them in one message.
    """
    plans: dict[str, RunPlan] = {}
    wrong = []
    for cells in by_condition(configs):
        plan = None
        for config in cells:
            try:
                plan = plan or plan_of(config, images[config.dataset, config.image_size])
                plans[config.cell_id()] = plan
            except ConfigError as error:
                wrong.append(str(error))
    if wrong:
        count = f"{len(wrong)} of {len(configs)} cells"
        raise ConfigError("\n  ".join([f"{count} cannot run on their data:", *wrong]))
    return plans


def plan_rows(
    configs: Sequence[RunConfig],
    images: Mapping[tuple[str, int | None], int],
    rates: Mapping[RateKey, Rate],
) -> tuple[PlanRow, ...]:
    """The rows of the plan, in the order of the configs. Arguments, errors: see plans_of()."""
    plans, differing = plans_of(configs, images), apart(configs)
    shared = {id(plan): plan for plan in plans.values()}
    times = {key: estimate(plan, rates) for key, plan in shared.items()}
    names = [config.cell_id() for config in configs]
    return tuple(
        PlanRow(name, plans[name], times[id(plans[name])], differing[name]) for name in names
    )
