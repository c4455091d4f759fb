"""What sets the cells of a sweep apart besides what their ids say: a framework, a momentum."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from pydantic import BaseModel

from train.config.networks import split_hash
from train.config.run import RunConfig, Target

#: Said by the ids, or by ``batch``: what scaling fixes, the batch per rank or the global batch.
_SAID = {"schema_version", "dataset", "model", "technique", "gpus", "seed", "batch_per_rank"}
_SAID_OF_TECHNIQUE = {"name", "base_batch"}

#: Key of the config -> value as text, in the contract's order; the same keys for all cells.
Settings = dict[str, str]


def apart(configs: Sequence[RunConfig]) -> dict[str, Settings]:
    """Cell id -> those settings that differ between the cells; '' where a cell has no such setting.

    Settings of a technique are there if they differ between cells of one technique, and numbers of
    a kind (the momentum of sgd) if they differ within that kind: names say the rest.
    """
    conditions = by_condition(configs)
    settings = [tuple(_settings(cells[0])) for cells in conditions]
    values: dict[tuple[str, str], set[Any]] = {}
    for key, scope, value in chain.from_iterable(settings):
        values.setdefault((key, scope), set()).add(value)
    keys = dict.fromkeys(key for (key, _), different in values.items() if len(different) > 1)
    found: dict[str, Settings] = {}
    for cells, those in zip(conditions, settings, strict=True):
        texts = dict.fromkeys(keys, "") | {key: _text(v) for key, _, v in those if key in keys}
        found |= dict.fromkeys((config.cell_id() for config in cells), texts)
    return found


def by_condition(configs: Iterable[RunConfig]) -> Collection[Sequence[RunConfig]]:
    """Cells that are equal in all but their seeds: these are planned alike."""
    found: dict[Hashable, list[RunConfig]] = {}
    for config in configs:
        condition = tuple(value for key, value in config if key != "seed")
        found.setdefault(condition, []).append(config)
    return found.values()


def in_words(settings: Settings) -> str:
    """framework mirrored, accumulation 8; '' where there is nothing to say."""
    return ", ".join(f"{key} {value}" for key, value in settings.items() if value)


def common_start(cell_ids: Iterable[str]) -> str:
    """Data set and model of the ids, where all cells share them; else ''."""
    starts = {"-".join(cell_id.split("-")[:2]) + "-" for cell_id in cell_ids}
    return starts.pop() if len(starts) == 1 else ""


def _settings(config: RunConfig) -> Iterator[tuple[str, str, Any]]:
    """Keys, among which of the cells each is compared ('': among all), and values."""
    weak, technique = config.scaling == "weak", config.technique
    yield "batch", "", config.batch_per_rank if weak else config.global_batch
    for key, value in config:
        if key not in _SAID:
            yield key, "", value
    for key, value in technique:
        if isinstance(value, BaseModel):
            yield key, technique.name, dict(value)["name"]
            for part, number in value:
                yield f"{key}.{part}", f"{technique.name} {type(value)}", number
        elif key not in _SAID_OF_TECHNIQUE:
            yield key, technique.name, value


def _text(value: Any) -> str:
    if isinstance(value, Target):
        return value.in_words()
    if isinstance(value, tuple):
        return "/".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else split_hash(str(value))[0]
