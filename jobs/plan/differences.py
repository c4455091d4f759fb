"""What sets the cells of a sweep apart beside what their ids say: a framework, a momentum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from train.config.run import RunConfig, Target

#: Said by the ids, or by ``batch``: what scaling fixes, the batch per rank or the global batch.
_SAID = {"schema_version", "dataset", "model", "technique", "gpus", "seed", "batch_per_rank"}
_SAID_OF_TECHNIQUE = {"name", "base_batch"}

#: Key of the config -> value as text, in the contract's order; the same keys for all cells.
Settings = dict[str, str]
#: Whether a key is the technique's own; and the key, dotted where it is a number of a kind.
Place = tuple[bool, str]


def apart(configs: Sequence[RunConfig]) -> dict[str, Settings]:
    """Cell id -> those settings of a cell that differ between the cells.

    Of a technique's own, those that differ between cells of that technique: the rest is what its
    name stands for.
    """
    flat = {config.cell_id(): dict(_flat(config)) for config in configs}
    groups: dict[str, list[dict[Place, Any]]] = {}
    for config in configs:
        groups.setdefault(config.technique.name, []).append(flat[config.cell_id()])
    keys = _varying(list(flat.values()), own=False)
    for cells in groups.values():
        for place, kinds in _varying(cells, own=True).items():
            keys[place] = keys.get(place, set()) | kinds
    return {
        cell: {
            place[1].removesuffix(".name"): _text(found.get(place))
            if _kind(place, found) in kinds
            else ""
            for place, kinds in keys.items()
        }
        for cell, found in flat.items()
    }


def in_words(settings: Settings) -> str:
    """framework mirrored, accumulation 8; '' where there is nothing to say."""
    return ", ".join(f"{key} {value}" for key, value in settings.items() if value)


def common_start(cell_ids: Iterable[str]) -> str:
    """Data set and model of the ids, where all cells share them; else ''."""
    starts = {"-".join(cell_id.split("-")[:2]) + "-" for cell_id in cell_ids}
    return starts.pop() if len(starts) == 1 else ""


def _flat(config: RunConfig) -> Iterator[tuple[Place, Any]]:
    weak = config.scaling == "weak"
    yield (False, "batch"), config.batch_per_rank if weak else config.global_batch
    for key in RunConfig.model_fields:
        if key not in _SAID:
            yield (False, key), getattr(config, key)
    for key in type(config.technique).model_fields:
        value = getattr(config.technique, key)
        if key in _SAID_OF_TECHNIQUE:
            continue
        if isinstance(value, BaseModel):
            for part, number in value.model_dump().items():
                yield (True, f"{key}.{part}"), number
        else:
            yield (True, key), value


def _varying(cells: Sequence[Mapping[Place, Any]], *, own: bool) -> dict[Place, set[Any]]:
    """Places -> the kinds in which they differ between cells of that kind."""
    found: dict[Place, set[Any]] = {}
    for place in dict.fromkeys(key for cell in cells for key in cell if key[0] is own):
        first: dict[Any, Any] = {}
        for cell in cells:
            kind, value = _kind(place, cell), cell.get(place)
            if first.setdefault(kind, value) != value:
                found.setdefault(place, set()).add(kind)
    return found


def _kind(place: Place, cell: Mapping[Place, Any]) -> Any:
    """Of which kind a cell's number is, sgd of its momentum; None for all that is no number of a
    kind. Where kinds differ, their names say enough of the rest."""
    own, key = place
    kind, _, part = key.partition(".")
    return cell.get((own, f"{kind}.name")) if part and part != "name" else None


def _text(value: Any) -> str:
    if isinstance(value, Target):
        return value.in_words()
    if isinstance(value, tuple):
        return "/".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else str(value)
