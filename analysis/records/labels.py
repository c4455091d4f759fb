"""Names that tell rows apart: of techniques, and of whatever else differs within a sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import fmt
from analysis.table import Names, plain_rows
from train.config.networks import model_label, split_hash

#: Column of a config: settings of the technique as JSON, as records and caches have it.
SETTINGS = "settings"
#: What may differ between rows of one table, beyond technique, ranks and batch.
_CONTEXT = {
    "dataset": "{}", "model": "{}", "width": "width {:g}", "shortcuts": "shortcuts: {}",
    "image_size": "{} px", "pretrained": "from {}",
    "framework": "{}", "scaling": "{} scaling", "epochs": "{} epochs",
    "epoch_images": "{:,} images an epoch", "sharpness_images": "sharpness on {:,} images",
    "accumulation": "accumulation {}", "data_fraction": "{:.4g} of the data",
    "partition": "order: {}", "target": "target {}", "validate_on": "validated on {}",
    "deterministic": "deterministic: {}",
}  # fmt: skip
#: What goes without saying, even where other rows differ in it.
_PLAIN = {"accumulation": 1, "validate_on": "held_out", "deterministic": True, "width": 1.0,
          "shortcuts": True}  # fmt: skip


#: Columns that name a network or a file, with the sha256 of its content.
_NAMED = ("dataset", "model", "pretrained")


#: technique_settings, a hash -> the settings.
Settings = Mapping[str, Mapping[str, Any]]


def short_names(values: Iterable[str]) -> dict[str, str]:
    """Networks and files without the hash of their content, of which six digits stay where two
    would have one name."""
    short = {value: _short(value) for value in dict.fromkeys(values)}
    twice = Counter(short.values())
    return {
        value: f"{name}@{(split_hash(value)[1] or '')[:6]}" if twice[name] > 1 else name
        for value, name in short.items()
    }


def _short(value: str) -> str:
    try:
        return model_label(value)
    except ValueError:  # a data set, or weights
        return split_hash(value)[0]


def in_short(table: pd.DataFrame) -> pd.DataFrame:
    """The same with such names in short; what differed still differs."""
    short = {name: table[name].map(short_names(table[name].dropna())) for name in _NAMED}
    return table.assign(**short)


def key(parts: Any) -> str:
    """Canonical text of some settings, to group by."""
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


def parsed_settings(configs: pd.DataFrame) -> Settings:
    """Of the column SETTINGS of configs."""
    each = configs[["technique_settings", SETTINGS]].dropna().drop_duplicates()
    return {name: json.loads(text) for name, text in each.itertuples(index=False)}


def technique_labels(settings: Settings) -> dict[str, str]:
    """Names of settings; where one name stands for several settings, with what differs from the
    others: a value that more than half of them have goes without saying, so that a search that
    changes one thing at a time names that thing."""
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for which, found in settings.items():
        by_name.setdefault(found["name"], {})[which] = flat_settings(found)
    labels = {}
    for name, variants in by_name.items():
        usual = _usual(list(variants.values()))
        for which, flat in variants.items():
            differing = ", ".join(
                f"{field}={flat[field]}"
                for field, value in usual.items()
                if field in flat and key({"": flat[field]}) != value
            )
            labels[which] = f"{name} ({differing})" if differing else name
    return labels


def _usual(variants: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Field that differs between variants -> text of the value that more than half of them have,
    None if there is no such value. Numbers of a kind differ between those of that kind only, and
    where each kind has one value of them, the kind says it."""
    usual: dict[str, str | None] = {}
    for field in sorted({field for flat in variants for field in flat}):
        having = [flat for flat in variants if field in flat]
        values = Counter(key({"": flat[field]}) for flat in having)
        value, times = values.most_common(1)[0]
        if len(values) > 1 and not _told_by_kind(field, having):
            usual[field] = value if 2 * times > len(having) else None
    return usual


def _told_by_kind(field: str, variants: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a number (optimizer.beta_1) has one value in each kind (optimizer)."""
    if "." not in field:
        return False
    kind = field.partition(".")[0]
    values = {(flat[kind], key({"": flat[field]})) for flat in variants}
    return len(values) == len({name for name, _ in values})


def without_rates(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """technique_settings -> a key of all but the learning rate, which searches change; and a label
    of each key."""
    rest = {which: {**found, "base_lr": None} for which, found in settings.items()}
    keys = {which: key(found) for which, found in rest.items()}
    return keys, technique_labels({keys[which]: found for which, found in rest.items()})


def contexts(table: pd.DataFrame) -> pd.Series[Any]:
    """Per row: the settings that differ somewhere in the sweep; empty where none do.

    Accumulation is not named where ranks and batch, which every table shows, leave no choice of it.
    """
    varying = [name for name in _CONTEXT if table[name].nunique(dropna=False) > 1]
    if "accumulation" in varying:
        ways = table.groupby(["gpus", "global_batch", "scaling"])["accumulation"].nunique()
        varying = [name for name in varying if name != "accumulation" or ways.max() > 1]
    if not varying:
        return pd.Series([Names()] * len(table), index=table.index, dtype=object)
    which = table.groupby(varying, sort=False, dropna=False).ngroup()
    first = in_short(table)[varying].loc[~which.duplicated()]
    words = [_context(row) for row in plain_rows(first)]
    return pd.Series([words[one] for one in which], index=table.index, dtype=object)


def _context(row: Mapping[str, Any]) -> Names:
    return Names(
        fmt.counted(value, "epoch") if name == "epochs" else _CONTEXT[name].format(value)
        for name, value in row.items()
        if value is not None and value != _PLAIN.get(name)
    )


def without(context: Iterable[str], *ends: str) -> Names:
    """A context for where the parts that end so are said elsewhere."""
    return Names(part for part in context if not part.endswith(ends))


def without_scaling(context: Iterable[str]) -> Names:
    return without(context, " scaling")


def without_batch(context: Iterable[str]) -> Names:
    """A context for where batches, and what they are made of, are said elsewhere."""
    return Names(p for p in without_scaling(context) if not p.startswith("accumulation "))


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"schedule": {"name": "step", "factor": 0.1}}: schedule is step, schedule.factor 0.1."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            numbers = dict(value)
            flat[name] = numbers.pop("name")
            flat |= {f"{name}.{number}": numbers[number] for number in numbers}
        else:
            flat[name] = value
    return flat
