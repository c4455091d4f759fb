"""A sweep: from a file under jobs/sweeps to the ordered, unique configs of its cells.

The grammar of the file is described in jobs/config/grammar.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jobs.config.expand import Cell, expand
from jobs.config.grammar import DEFAULTS, MAX_CELLS, SweepFile, parse
from jobs.config.sweep import SWEEPS, Sweep
from jobs.config.techniques import PARAMETERS, TECHNIQUES_FILE, TechniqueRow, load_techniques
from jobs.config.yamlfile import find_file, first_named, load_yaml, problem_of
from train.config.run import RunConfig
from train.config.technique import Technique

_FIELDS = frozenset(RunConfig.model_fields)
_REQUIRED = ("dataset", "model", "technique", "gpus", "epochs")


def load_sweep(
    name_or_path: str, folder: Path = SWEEPS, techniques: Path = TECHNIQUES_FILE
) -> Sweep:
    """Read a sweep by its name in ``folder`` or by its path.

    Raises:
        ConfigError: no such sweep, or an error in its file: with the line, what was found, what is
            known and the nearest.
    """
    rows = load_techniques(techniques)
    file = parse(load_yaml(find_file("sweep", name_or_path, folder)), rows)
    cells = [(cell, _config(cell, rows)) for cell in expand(file, rows)]
    _refuse_moving_base(cells)
    configs = _unique(file, cells)
    used = [config.technique.name for config in configs]
    written = [part["technique"].value for part in file.all_settings() if "technique" in part]
    return Sweep(
        name=file.name,
        title=file.title,
        source=file.document.source,
        configs=configs,
        techniques=tuple(name for name in dict.fromkeys([*written, *used]) if name in used),
        cores_per_rank=file.cores_per_rank,
    )


def _config(cell: Cell, rows: Mapping[str, TechniqueRow]) -> RunConfig:
    values = {**DEFAULTS, **cell.values()}
    for key in _REQUIRED:
        if key not in values:
            raise cell.error(key, f"{key!r} is missing: give it at the top level or in 'matrix:'")
    batch, accumulation, base_batch = _batches(cell, values)
    row = rows[values["technique"]]
    changes = {key: value for key, value in values.items() if key in PARAMETERS}
    technique = {"name": row.name, "base_batch": base_batch, **row.settings(changes)}
    data = {key: value for key, value in values.items() if key in _FIELDS}
    data |= {"batch_per_rank": batch, "accumulation": accumulation}
    try:
        # each value was checked strictly where it stands in the file
        config = RunConfig.model_validate(data | {"technique": _technique(json.dumps(technique))})
    except ValidationError as error:
        model = Technique if error.title == "Technique" else RunConfig
        text = problem_of(model, error)[1]
        raise cell.error([*first_named(cell.settings, text), "technique"][0], text) from error
    _refuse_bare_noise(cell, config)
    return config


@lru_cache(MAX_CELLS)
def _technique(settings: str) -> Technique:
    """Cells that share the settings of a technique share the object."""
    return Technique.model_validate_json(settings, strict=True)


def _batches(cell: Cell, values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Batch per rank, batches accumulated per step, and the batch that the base rate belongs to."""
    strong = values["scaling"] == "strong"
    fixed, mode = ("global_batch", "strong") if strong else ("batch_per_rank", "weak")
    if not strong and "global_batch" in values:
        text = "scaling: weak fixes batch_per_rank, so global_batch follows from it: leave it out"
        raise cell.error("global_batch", f"{text}, or say 'scaling: strong'")
    if fixed not in values:
        raise cell.error(fixed, f"{fixed!r} is missing: scaling: {mode} fixes it")
    base = values.get("base_batch", values[fixed])
    if strong:
        return *_shared_out(cell, values["global_batch"]), base
    return values["batch_per_rank"], values["accumulation"], base


def _shared_out(cell: Cell, total: int) -> tuple[int, int]:
    """Batch per rank and accumulation that make up a global batch: one of them follows."""
    factors = ("gpus", "batch_per_rank", "accumulation")
    given = {key: value for key, value in cell.values().items() if key in factors}
    part, complete = math.prod(given.values()), len(given) == len(factors)
    follows, rest = divmod(total, part)
    if rest or (complete and follows != 1):
        what = " x ".join(f"{key} {given[key]}" for key in factors if key in given)
        below, above = total - rest, total - rest + part
        near = part if complete or not below else f"{below} or {above}"
        text = f"global_batch {total} cannot be made of {what}: use {near}, or exclude the cell"
        raise cell.error("global_batch", text)
    if "batch_per_rank" not in given:
        return follows, given.get("accumulation", 1)
    return given["batch_per_rank"], given.get("accumulation", follows)


def _refuse_bare_noise(cell: Cell, config: RunConfig) -> None:
    """Here and not in the contract, so that records of such cells stay readable.

    Raises:
        ConfigError: the cell injects noise with no warm-up or no clip.
    """
    technique = config.technique
    noise, tamed = technique.noise_batch, technique.clip_norm and technique.warmup_epochs
    if noise is not None and noise < config.global_batch and not tamed:
        text = (
            f"noise_batch {noise} multiplies the gradients of {config.global_batch:,} images "
            f"by weights with a deviation of {(config.global_batch / noise - 1) ** 0.5:.1f}, "
            "which needs a clip and a warm-up: set clip_norm, e.g. 1.0, and warmup_epochs, "
            "with warmup_from: zero where no rule scales the rate"
        )
        raise cell.error("noise_batch", text)


def _refuse_moving_base(cells: Sequence[tuple[Cell, RunConfig]]) -> None:
    """Where the batch changes between cells, a base batch that is not given would move along, and
    no rule would ever act.

    Raises:
        ConfigError: cells of one technique, which goes by the base batch, differ in it unasked.
    """
    first: dict[str, int] = {}
    for cell, config in cells:
        technique = config.technique
        rule = technique.lr_scaling
        if "base_batch" in cell.values() or (rule == "none" and not technique.regime_adaptation):
            continue
        base = first.setdefault(technique.name, technique.base_batch)
        if base != technique.base_batch:
            key = "global_batch" if config.scaling == "strong" else "batch_per_rank"
            text = (
                f"{key} changes between cells and technique {technique.name} goes by it "
                f"(lr_scaling {rule}), so say the global batch that base_lr belongs to, e.g. "
                f"base_batch: {base}; for one base per batch, zip base_batch with {key}"
            )
            raise cell.error(key, text)


def _unique(file: SweepFile, cells: Sequence[tuple[Cell, RunConfig]]) -> tuple[RunConfig, ...]:
    """Equal cells merged, first place kept.

    Raises:
        ConfigError: two different configs with one id, or an include entry that adds no cell.
    """
    first: dict[str, tuple[Cell, RunConfig]] = {}
    for cell, config in cells:
        name = config.cell_id()
        if first.setdefault(name, (cell, config))[1] != config:
            text = f"two different cells have the id {name}; change the seed of one"
            raise cell.error("seed", text)
    adding = {cell.path for cell, _ in first.values()}
    for path in file.include:
        if path not in adding:
            text = "this include entry adds no cell: all of its cells are there already; remove it"
            raise file.document.error(path, text)
    return tuple(config for _, config in first.values())
