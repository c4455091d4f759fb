"""Names that tell rows apart: of techniques, and of whatever else differs within a sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from train.config.run import Target
from train.record.run import RunRecord

#: What may differ between rows of one table, beyond technique, ranks and batch.
_CONTEXT = {
    "dataset": "{}", "model": "{}", "image_size": "{} px", "pretrained": "from {}",
    "framework": "{}", "scaling": "{} scaling", "epochs": "{} epochs",
    "accumulation": "accumulation {}", "data_fraction": "{:.4g} of the data",
    "partition": "order: {}", "target": "target {}", "validate_on": "validated on {}",
    "deterministic": "deterministic: {}",
}  # fmt: skip
#: What goes without saying, even where other rows differ in it.
_PLAIN = {"accumulation": 1, "validate_on": "held_out", "deterministic": True}


def key(parts: Mapping[str, Any]) -> str:
    """Canonical text of some settings, to group by."""
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


def technique_labels(records: Iterable[RunRecord]) -> dict[str, str]:
    """Settings -> name; where one name stands for several settings, with what differs from the
    others: a value that more than half of them have goes without saying, so that a search that
    changes one thing at a time names that thing."""
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        settings = record.config.technique.model_dump(mode="json")
        by_name.setdefault(settings["name"], {})[key(settings)] = _flat(settings)
    labels = {}
    for name, variants in by_name.items():
        usual = _usual(list(variants.values()))
        for settings_key, flat in variants.items():
            found = ", ".join(
                f"{field}={flat[field]}"
                for field, value in usual.items()
                if field in flat and key({"": flat[field]}) != value
            )
            labels[settings_key] = f"{name} ({found})" if found else name
    return labels


def _usual(variants: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Field that differs between variants -> text of the value that more than half of them have,
    None if there is no such value."""
    usual: dict[str, str | None] = {}
    for field in sorted({field for flat in variants for field in flat}):
        values = Counter(key({"": flat.get(field)}) for flat in variants)
        value, times = values.most_common(1)[0]
        if len(values) > 1:
            usual[field] = value if 2 * times > len(variants) else None
    return usual


def contexts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Per row: the settings that differ somewhere in the sweep, in words; empty where none do."""
    varying = [name for name in _CONTEXT if len({row[name] for row in rows}) > 1]
    return [
        ", ".join(
            _CONTEXT[name].format(row[name])
            for name in varying
            if row[name] is not None and row[name] != _PLAIN.get(name)
        )
        for row in rows
    ]


def without_framework(context: str, framework: str) -> str:
    """A context for where the framework is said elsewhere."""
    return ", ".join(part for part in context.split(", ") if part != framework)


def without_scaling(context: str) -> str:
    """A context for where the scaling mode is said elsewhere."""
    return ", ".join(part for part in context.split(", ") if not part.endswith(" scaling"))


def without_batch(context: str) -> str:
    """A context for where batches, and what they are made of, are said elsewhere."""
    rest = without_scaling(context).split(", ")
    return ", ".join(part for part in rest if not part.startswith("accumulation "))


def target_text(target: Target | None) -> str | None:
    """What a run is to reach, in few words and without a comma, which parts a context."""
    return None if target is None else target.in_words()


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
