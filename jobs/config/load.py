"""A sweep: from a file under jobs/sweeps to the ordered, unique configs of its cells.

The grammar of the file is described in jobs/config/grammar.py.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jobs.config.files import FILE_KEYS, NamedFiles
from jobs.config.grammar import MAX_CELLS, Axis, Rule, Settings, SweepFile
from jobs.config.sweep import DATA, SWEEPS, Sweep, without_repeats
from jobs.config.techniques import PARAMETERS, changed, load_techniques, spelled_out
from jobs.config.yamlfile import find_file, load_yaml, problem_of
from train.config.checks import new_cell_problem
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError, unknown

_FIELDS = RunConfig.model_fields
#: What a cell has where the file does not say it.
_DEFAULTS = {k: f.default for k, f in _FIELDS.items() if not f.is_required()} | {"seed": 0}


@dataclass
class Cell:
    """What the file says about one cell."""

    file: SweepFile
    settings: Settings
    #: As rules see it, before any override.
    written: Mapping[str, Any]
    #: The same after all overrides.
    values: Mapping[str, Any]

    def given(self, key: str) -> Any:
        """Null means unset."""
        return self.settings[key].value if key in self.settings else None

    def error(self, key: str, text: str) -> ConfigError:
        """``text`` with the line of ``key``, and what tells this cell from others of the sweep."""
        setting = self.settings.get(key)
        # what all cells share stands at the top level
        own = [f"{key}={one.value}" for key, one in self.settings.items() if len(one.path) > 1]
        text = f"{text} (cell: {', '.join(own) or 'the only cell'})"
        return self.file.document.error(setting.path if setting else (), text)


def sweep_name(name_or_path: str) -> str:
    """Of the folder of its results. Raises ConfigError as :func:`load_sweep`."""
    return SweepFile(load_yaml(find_file("sweep", name_or_path, SWEEPS))).heading.name


def guessed_name(name_or_path: str) -> str:
    """The same where the file is broken or gone."""
    try:
        text = find_file("sweep", name_or_path, SWEEPS).read_text(
            encoding="utf-8", errors="replace"
        )
    except (ConfigError, OSError):
        text = ""
    found = re.search(r"^name: *([a-z0-9_]+)", text, re.MULTILINE)
    return found[1] if found else Path(name_or_path).stem


def load_sweep(name_or_path: str, folder: Path = SWEEPS, *, data: Path = DATA) -> Sweep:
    """Read a sweep by its name in ``folder`` or by its path. ``data``: folder of the data sets.

    Raises:
        ConfigError: no such sweep, or an error in its file: with the line, what was found, what is
            known and the nearest.
    """
    file = SweepFile(load_yaml(find_file("sweep", name_or_path, folder)))
    named = NamedFiles(file.document.source.resolve().parent, data)
    cells = [(cell, _config(cell, named)) for cell in expand(file)]
    _refuse_moving_base(cells)
    configs, remarks = without_repeats(_unique(cells))
    parts = [file.common, *chain.from_iterable(chain(file.axes, *file.include))]
    written = [str(part["technique"].value) for part in parts if "technique" in part]
    used = [config.technique.name for config in configs]
    return Sweep(
        name=file.heading.name,
        title=" ".join((file.heading.title or file.heading.name).split()),
        source=file.document.source,
        configs=configs,
        techniques=tuple(name for name in dict.fromkeys([*written, *used]) if name in used),
        cores_per_rank=file.heading.cores_per_rank,
        lines={
            str(getattr(config, key)): file.document.line(cell.settings[key].path)
            for cell, config in cells
            for key in ("dataset", "pretrained")
            if key in cell.settings
        },
        networks=named.networks,
        remarks=remarks,
    )


def expand(file: SweepFile) -> list[Cell]:
    """Cells in the order of the file; equal ones are not merged here.

    Raises:
        ConfigError: too many cells, none at all, or a rule that matches none.
    """
    count = sum(math.prod(map(len, axes)) for axes in (file.axes, *file.include))
    if count > MAX_CELLS:  # known before anything is built
        text = f"the sweep has {count:,} cells, {MAX_CELLS:,} are allowed: split it"
        raise file.document.error(("matrix",), text)
    # without an axis, include entries alone name the cells
    crossed = [] if file.include and not file.axes else _crossed(file, file.axes)
    dropped = {i for rule in file.exclude for i in _matching(file, rule, crossed)}
    cells = [cell for i, cell in enumerate(crossed) if i not in dropped]
    for axes in file.include:
        cells += _crossed(file, axes)
    if not cells:
        raise file.document.error(("exclude",), "the exclude rules drop every cell of the sweep")
    for rule in file.override:  # of two that set a key, the later wins
        for i in _matching(file, rule, cells):
            cells[i].settings = {**cells[i].settings, **rule.sets}
            cells[i].values = _values(cells[i].settings)
    return cells


def _crossed(file: SweepFile, axes: Sequence[Axis]) -> list[Cell]:
    cells = []
    for parts in product(*axes):
        settings = dict(file.common)
        for part in parts:
            settings |= part
        values = _values(settings)
        cells.append(Cell(file, settings, written=values, values=values))
    return cells


def _values(settings: Settings) -> dict[str, Any]:
    """Keys that are set, over the defaults and the technique's parameters."""
    given = {key: one.value for key, one in settings.items() if one.value is not None}
    row = load_techniques().get(str(given.get("technique")))
    return _DEFAULTS | (changed(row, given) if row else given)


def _matching(file: SweepFile, rule: Rule, cells: Sequence[Cell]) -> list[int]:
    """Positions of the cells that a rule is about. It may list values that no cell has, but none
    that no cell could have.

    Raises:
        ConfigError: it matches no cell, or names an unknown technique or a value of another type
            than the cells have: it has a typo.
    """
    matching, reason = list(range(len(cells))), "none has all of it at once"
    rows = load_techniques()
    for key, settings in rule.when.items():
        values = [cell.written.get(key) for cell in cells]
        own = list(map(json.dumps, values))
        there = dict(zip(own, values, strict=True))
        types = {_type(value) for value in values} - {"null"}
        wanted = [(spelled_out(key, one.value), one.path) for one in settings]
        for value, path in wanted:
            if key == "technique" and str(value) not in rows:
                raise file.document.error(path, unknown(key, value, rows))
            if types and _type(value) not in {*types, "null"}:
                text = f"{key}: expected {' or '.join(sorted(types))}, found {json.dumps(value)}"
                raise file.document.error(path, text)
        fits = {text for text in there if any(_is(there[text], value) for value, _ in wanted)}
        if not fits:
            never = " or ".join(json.dumps(value) for value, _ in wanted)
            reason = f"{key} is never {never} (it is {', '.join(there) or 'not given'})"
        matching = [i for i in matching if own[i] in fits]
    if matching:
        return matching
    text = f"this {rule.path[0]} rule matches none of the {len(cells)} cells: {reason}"
    raise file.document.error(rule.path, text)


def _type(value: Any) -> str:
    """JSON's name for it."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", dict: "keys"}
    return "null" if value is None else names.get(type(value), "a list")


def _is(own: Any, wanted: Any) -> bool:
    """Whether it is the same, or names some numbers of the cell's kind."""
    parts = isinstance(own, dict) and isinstance(wanted, dict)
    return wanted.items() <= own.items() if parts else bool(own == wanted)


def _config(cell: Cell, named: NamedFiles) -> RunConfig:
    values, rows = dict(cell.values), load_techniques()
    strong = values["scaling"] == "strong"
    fixed = "global_batch" if strong else "batch_per_rank"
    for key in ("dataset", "model", "technique", "gpus", "epochs", fixed):
        if key not in values:
            raise cell.error(key, f"{key!r} is missing: give it at the top level or in 'matrix:'")
    name, base_batch = str(values["technique"]), values.get("base_batch", values[fixed])
    if strong:
        values |= _shared_out(cell, values["global_batch"])
    elif "global_batch" in values:
        text = "global_batch follows from batch_per_rank: leave it out, or say 'scaling: strong'"
        raise cell.error("global_batch", text)
    if name not in rows:
        raise cell.error("technique", unknown("technique", values["technique"], rows))
    technique = {"name": name, "base_batch": base_batch, **{key: values[key] for key in PARAMETERS}}
    fields = {key: value for key, value in values.items() if key in _FIELDS}
    for key in FILE_KEYS:
        try:
            fields[key] = named.in_config(key, fields)
        except ConfigError as error:
            raise cell.error(key, f"{key}: {error}") from error
    try:
        fields["technique"] = _technique(json.dumps(technique))
        config = RunConfig.model_validate(fields, strict=True)
    except ValidationError as error:
        model = Technique if error.title == "Technique" else RunConfig
        place, text = problem_of(model, cell.settings, error)
        raise cell.error(str(place[0]) if place else "technique", text) from error
    if problem := new_cell_problem(config):
        keys = [key for key in cell.settings if key in problem]
        raise cell.error(min(keys, key=problem.find, default="technique"), problem)
    return config


@lru_cache(MAX_CELLS)
def _technique(settings: str) -> Technique:
    """Cells that share the settings of a technique share the object."""
    return Technique.model_validate_json(settings, strict=True)


def _shared_out(cell: Cell, total: int) -> dict[str, int]:
    """Batch per rank and accumulation that make up a global batch: one of them follows."""
    factors = ("gpus", "batch_per_rank", "accumulation")
    given = {key: value for key in factors if (value := cell.given(key)) is not None}
    for key, value in {**given, "global_batch": total}.items():
        if type(value) is not int or value < 1:
            raise cell.error(key, f"{key}: expected a whole number from 1 on, found {value!r}")
    part, complete = math.prod(given.values()), len(given) == len(factors)
    follows, rest = divmod(total, part)
    if rest or (complete and follows != 1):
        what = " x ".join(f"{key} {given[key]}" for key in factors if key in given)
        use = f"{part}" if complete else f"a multiple of {part}"
        text = f"global_batch {total} cannot be made of {what}: use {use}, or exclude the cell"
        raise cell.error("global_batch", text)
    following = "accumulation" if "batch_per_rank" in given else "batch_per_rank"
    return given if complete else {**given, following: follows}


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
        if cell.given("base_batch") or (rule == "none" and not technique.regime_adaptation):
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


def _unique(cells: Sequence[tuple[Cell, RunConfig]]) -> tuple[RunConfig, ...]:
    """Equal cells merged, first place kept.

    Raises:
        ConfigError: two different configs with one id.
    """
    first: dict[str, RunConfig] = {}
    for cell, config in cells:
        name = config.cell_id()
        if first.setdefault(name, config) != config:
            text = f"two different cells have the id {name}; change the seed of one"
            raise cell.error("seed", text)
    return tuple(first.values())
