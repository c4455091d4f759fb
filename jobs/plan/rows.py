"""What a sweep would do, cell by cell: its plan on the data, its time, what sets it apart."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from jobs.plan.differences import Settings, apart, condition_of
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


def plan_rows(
    configs: Sequence[RunConfig],
    images: Mapping[tuple[str, int | None], int],
    rates: Mapping[RateKey, Rate],
) -> tuple[PlanRow, ...]:
    """The rows of the plan, in the order of the configs.

    ``images``: (data set, image size) -> training images that there are.

    Raises:
        ConfigError: cells that the data is too small for, all of them in one message.
    """
    rows, wrong = [], []
    differing = apart(configs)
    planned: dict[Hashable, tuple[RunPlan, Estimate]] = {}
    for config in configs:
        condition = condition_of(config)
        try:
            if condition not in planned:
                plan = plan_of(config, images[config.dataset, config.image_size])
                planned[condition] = plan, estimate(plan, rates)
            cell_id = config.cell_id()
            rows.append(PlanRow(cell_id, *planned[condition], differing[cell_id]))
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        count = f"{len(wrong)} of {len(configs)} cells"
        raise ConfigError("\n  ".join([f"{count} cannot run on their data:", *wrong]))
    return tuple(rows)
