"""A sweep: from a file under jobs/sweeps to the ordered, unique configs of its cells.

The grammar of the file is described in jobs/config/grammar.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jobs.config.expand import Cell, axes_of, expand, written
from jobs.config.grammar import SweepFile, parse
from jobs.config.keys import CELL_KEYS, defaults
from jobs.config.sweep import SWEEPS, Sweep
from jobs.config.techniques import (
    PARAMETERS,
    TECHNIQUES_FILE,
    TechniqueRow,
    finding,
    load_techniques,
)
from jobs.config.yamlfile import find_file, load_yaml
from train.config.run import RunConfig
from train.errors import ConfigError

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
    cells = expand(file, rows)
    made = [(cell, _config(cell, file, rows)) for cell in cells]
    _refuse_moving_base(file, made)
    _refuse_bare_noise(file, made)
    configs = _unique(file, made)
    used = {config.technique.name for config in configs}
    ordered = [str(setting.value) for setting in written(file, "technique")]
    ordered += [config.technique.name for config in configs]  # set by an override only
    return Sweep(
        name=file.name,
        title=file.title,
        source=file.document.source,
        configs=configs,
        techniques=tuple(name for name in dict.fromkeys(ordered) if name in used),
        cores_per_rank=file.cores_per_rank,
    )


def _config(cell: Cell, file: SweepFile, rows: Mapping[str, TechniqueRow]) -> RunConfig:
    values = {**defaults(), **cell.values()}
    for key in _REQUIRED:
        if key not in values:
            where = "at the top level or under 'matrix:'"
            raise _wrong(cell, file, key, f"{key!r} is missing: give it {where}")
    batch, accumulation, base_batch = _batches(cell, file, values)
    row = rows[values["technique"]]
    changes = {key: value for key, value in values.items() if key in PARAMETERS}
    technique = {"name": row.name, "base_batch": base_batch, **row.settings(changes)}
    data = {key: value for key, value in values.items() if key in RunConfig.model_fields}
    data |= {"technique": technique, "batch_per_rank": batch, "accumulation": accumulation}
    try:
        return RunConfig.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        text = finding(RunConfig, first)
        key = _culprit(cell, first["loc"], text)
        where = ".".join(str(part) for part in first["loc"])
        raise _wrong(cell, file, key, f"{where}: {text}" if where else text) from error


def _batches(cell: Cell, file: SweepFile, values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Batch per rank, batches accumulated per step, and the batch that the base rate belongs to."""
    strong = values["scaling"] == "strong"
    fixed, mode = ("global_batch", "strong") if strong else ("batch_per_rank", "weak")
    if not strong and "global_batch" in values:
        text = "scaling: weak fixes batch_per_rank, so global_batch follows from it: leave it out"
        raise _wrong(cell, file, "global_batch", f"{text}, or say 'scaling: strong'")
    if fixed not in values:
        raise _wrong(cell, file, fixed, f"{fixed!r} is missing: scaling: {mode} fixes it")
    size = int(values[fixed])
    base = int(values.get("base_batch", size))
    if strong:
        return *_shared_out(cell, file, values), base
    return size, int(values["accumulation"]), base


def _shared_out(cell: Cell, file: SweepFile, values: Mapping[str, Any]) -> tuple[int, int]:
    """Batch per rank and accumulation that make up a global batch: one of them follows."""
    total, gpus = int(values["global_batch"]), int(values["gpus"])
    given = cell.values()
    if "batch_per_rank" not in given:
        times = int(values["accumulation"])
        what = f"{gpus} gpus" + (f" x {times} accumulated batches" if times > 1 else "")
        return _quotient(cell, file, total, gpus * times, what), times
    batch = int(given["batch_per_rank"])
    what = f"{gpus} gpus x batch_per_rank {batch}"
    times = _quotient(cell, file, total, gpus * batch, what)
    if given.get("accumulation", times) != times:
        text = (
            f"accumulation {given['accumulation']} is at odds with the rest: global_batch {total} "
            f"is {what} x {times}; leave one of the three out"
        )
        raise _wrong(cell, file, "accumulation", text)
    return batch, times


def _refuse_moving_base(file: SweepFile, cells: Sequence[tuple[Cell, RunConfig]]) -> None:
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
            raise _wrong(cell, file, key, text)


def _refuse_bare_noise(file: SweepFile, cells: Sequence[tuple[Cell, RunConfig]]) -> None:
    """Here and not in the contract, so that records of such cells stay readable.

    Raises:
        ConfigError: a cell injects noise with no warm-up or no clip.
    """
    for cell, config in cells:
        technique = config.technique
        noise = technique.noise_batch
        if noise is None or noise >= config.global_batch:
            continue
        if technique.clip_norm is None or not technique.warmup_epochs:
            text = (
                f"noise_batch {noise} multiplies the gradients of {config.global_batch:,} images "
                f"by weights with a deviation of {(config.global_batch / noise - 1) ** 0.5:.1f}, "
                "which needs a clip and a warm-up: set clip_norm, e.g. 1.0, and warmup_epochs, "
                "with warmup_from: zero where no rule scales the rate"
            )
            raise _wrong(cell, file, "noise_batch", text)


def _quotient(cell: Cell, file: SweepFile, total: int, part: int, what: str) -> int:
    if total % part:
        below, above = total - total % part, total - total % part + part
        near = f"{below} or {above}" if below else str(above)
        text = f"global_batch {total} does not divide by {what}: use {near}, or exclude the cell"
        raise _wrong(cell, file, "global_batch", text)
    return total // part


def _culprit(cell: Cell, where: tuple[int | str, ...], text: str) -> str:
    """The key whose line a message of the contract should name."""
    for part in where:
        if part in CELL_KEYS and part != "technique":
            return str(part)
    named = [key for key in cell.settings if key in text]
    return min(named, key=text.find, default="technique")


def _wrong(cell: Cell, file: SweepFile, key: str, text: str) -> ConfigError:
    setting = cell.settings.get(key)
    path = setting.path if setting else cell.path
    return file.document.error(path, f"{text} (cell: {axes_of(cell, file)})")


def _unique(file: SweepFile, cells: Sequence[tuple[Cell, RunConfig]]) -> tuple[RunConfig, ...]:
    """Equal cells merged, first place kept.

    Raises:
        ConfigError: two different configs with one id, or an include entry that adds no cell.
    """
    found: dict[str, RunConfig] = {}
    added: set[tuple[int | str, ...]] = set()
    for cell, config in cells:
        name = config.cell_id()
        if name not in found:
            found[name] = config
            added.add(cell.path)
        elif found[name] != config:
            text = f"two different cells have the id {name}; change the seed of one"
            raise file.document.error(cell.path, text)
    for entry in file.include:
        if entry.path not in added:
            text = "this include entry adds no cell: all of its cells are there already; remove it"
            raise file.document.error(entry.path, text)
    return tuple(found.values())
