"""The quick reader gives the verdict, and the words, of a slow one that takes nothing for granted:
it parses the file by itself, and looks for nulls in a dump of the whole record."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.analysis.builders import config, failed, rank_steps, record, technique
from tests.analysis.many import CLASSES
from tests.analysis.samples import NOISE, TRUST
from train.config.run import Target, explain
from train.record.run import (
    GoalHeld,
    LinkTraffic,
    RecordError,
    RunRecord,
    TargetOutcome,
    null_paths,
    read_record,
)

RICH = record(
    config(gpus=2, technique=technique("lamb"), target=Target(validation_accuracy=0.4, held_for=1)),
    accuracies=[0.4, None, 0.5],
    epoch_changes={"noise": NOISE, "trust": TRUST, "gradient_norm": 1.0, "train_s": 2.0},
    steps=tuple(rank_steps(rank) for rank in range(2)),
    traffic=(LinkTraffic(host="a", interface="lo", received_bytes=1, sent_bytes=2),),
    classification=CLASSES,
    target=TargetOutcome(
        met=True, epoch=1, steps=10, images=320, seconds=2.5, why="held",
        held=(GoalHeld(accuracy="validation", goal=0.4, epoch=1, steps=1, images=1, seconds=2.5),),
    ),
    alarms=("doubtful",),
)  # fmt: skip
TEXT = RICH.model_dump_json(indent=2)
GOOD: dict[str, Any] = json.loads(TEXT)


def nulls(value: Any, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from nulls(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from nulls(item, path)


def nulls_of(made: RunRecord, *, whole: bool = False) -> list[str]:
    dumped = made.model_dump(exclude_unset=not whole)
    parts = [name for name in dumped if name not in ("config", "error", "missing")]
    return [path for name in parts for path in nulls(dumped[name], name)]


def slowly(path: Path) -> RunRecord:
    """The reader that the quick one took the place of."""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
    except ValueError as error:
        raise RecordError(f"{path}: not JSON (truncated?): {error}") from error
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version != 1:
        raise RecordError(f"{path}: schema_version {version!r} found, 1 expected")
    try:
        made = RunRecord.model_validate_json(text)
    except ValidationError as error:
        raise RecordError(f"{path}: against the contract:\n{explain(error)}") from error
    assert set(nulls_of(made)) <= set(made.missing)
    return made


def verdict(reader: Any, file: Path) -> RunRecord | str:
    try:
        return reader(file)
    except RecordError as error:
        return str(error)


def same(file: Path, data: str | bytes) -> RunRecord | str:
    file.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    found = verdict(read_record, file)
    assert found == verdict(slowly, file)
    return found


def edited(*path: Any, value: Any) -> str:
    """The good record with another value somewhere."""
    changed = copy.deepcopy(GOOD)
    at = changed
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return json.dumps(changed)


def without(*names: str) -> str:
    return json.dumps({key: value for key, value in GOOD.items() if key not in names})


def test_a_good_record_is_read(tmp_path: Path) -> None:
    assert same(tmp_path / "record.json", TEXT) == RICH
    assert same(tmp_path / "record.json", failed(config()).model_dump_json()) == failed(config())


#: What one would find in files of other versions, of full disks and of editors.
BAD = {
    "empty": "",
    "truncated": TEXT[: len(TEXT) // 2],
    "truncated in a number": TEXT[: TEXT.index("validation_images") + 22],
    "followed by more": TEXT + "{}",
    "no object": "[]",
    "a number": "1",
    "null": "null",
    "not UTF-8": TEXT.replace("node1", "n\xf6de").encode("latin-1"),
    "a byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "a control character": TEXT.replace("node1", "no\x01de"),
    "half a surrogate pair": TEXT.replace("node1", "\\ud800"),
    "a comma too many": TEXT.rstrip()[:-1].rstrip() + ",}",
    "nested too deeply": "[" * 500 + "]" * 500,
    "no version": without("schema_version"),
    "version 0": edited("schema_version", value=0),
    "version 2": edited("schema_version", value=2),
    "version 1.0": edited("schema_version", value=1.0),
    "version true": edited("schema_version", value=True),
    "version as text": edited("schema_version", value="1"),
    "version twice, the wrong one last": TEXT.rstrip()[:-1] + ', "schema_version": 2}',
    "version twice, the wrong one first": '{"schema_version": 2,' + TEXT.lstrip()[1:],
    "another version, and all else wrong": '{"schema_version": 3, "runs": []}',
    "status twice": '{"status": "fine",' + TEXT.lstrip()[1:],
    "no config": without("config"),
    "no epochs": without("epochs"),
    "a missing part": without("weights_sha256"),
    "an unknown key": json.dumps({**GOOD, "surprise": 1}),
    "an unknown key in an epoch": edited("epochs", 1, "surprise", value=1),
    "an unknown status": edited("status", value="fine"),
    "failed without an error": edited("status", value="failed"),
    "another cell": edited("cell_id", value="other"),
    "another seed": edited("config", "seed", value=7),
    "an impossible config": edited("config", "gpus", value=0),
    "NaN": edited("epochs", 0, "train_loss", value=float("nan")),
    "Infinity": edited("epochs", 0, "train_s", value=float("inf")),
    "minus infinity": edited("epochs", 0, "lr_first", value=float("-inf")),
    "a number beyond doubles": TEXT.replace('"train_s": 2.0', '"train_s": 1e999'),
    "negative seconds": edited("epochs", 2, "train_s", value=-1.0),
    "an accuracy above 1": edited("epochs", 0, "validation_accuracy", value=1.01),
    "no steps in an epoch": edited("epochs", 0, "steps", value=0),
    "half a step": edited("epochs", 0, "steps", value=1.5),
    "a whole number as a float": edited("epochs", 0, "steps", value=10.0),
    "a number as text": edited("epochs", 0, "steps", value="10"),
    "a bool for a number": edited("epochs", 0, "steps", value=True),
    "a null without a reason": edited("epochs", 0, "train_loss", value=None),
    "an inner null without a reason": edited("classification", "classes", 1, "f1", value=None),
    "no reasons": edited("missing", value={}),
    "reasons as a list": edited("missing", value=[]),
    "noise that disagrees": edited("epochs", 0, "noise", "b_simple", value=None),
    "epochs as an object": edited("epochs", value={}),
    "an empty epoch": edited("epochs", 0, value={}),
    "a time without its zone": edited("started_at", value="2025-03-01T12:00:00"),
    "a time in words": edited("started_at", value="yesterday"),
    "seconds for a time": edited("started_at", value=1740830400),
    "a very large number": edited("epochs", 0, "images", value=10**30),
    "a number of 5,000 digits": TEXT.replace('"images": 320', f'"images": 1{"0" * 5000}', 1),
}


@pytest.mark.parametrize("name", BAD)
def test_verdict_and_words_are_those_of_the_slow_reader(name: str, tmp_path: Path) -> None:
    same(tmp_path / "record.json", BAD[name])


_VALUES = st.sampled_from(
    [None, True, False, 0, -1, 1, 2, 0.5, 1.5, -0.5, 1e300, 10**20, float("nan"), float("inf"),
     "", "completed", "2025-03-01T12:00:00Z", "1", [], {}, [None], {"name": None}]
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from _places(item, (*path, key))


PLACES = list(_places(GOOD))


@settings(max_examples=300, deadline=None)
@given(place=st.sampled_from(PLACES), how=st.sampled_from(["drop", "set", "add"]), value=_VALUES)
def test_any_single_change_has_the_same_verdict(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], how: str, value: Any
) -> None:
    changed = copy.deepcopy(GOOD)
    at = changed
    for part in place[:-1]:
        at = at[part]
    if how == "drop":
        del at[place[-1]]
    elif how == "set" or isinstance(at, list):
        at[place[-1]] = value
    else:
        at[f"{place[-1]}_"] = value
    same(tmp_path_factory.mktemp("r") / "record.json", json.dumps(changed))


@pytest.mark.parametrize("whole", [False, True])
def test_nulls_are_those_of_a_dump(whole: bool) -> None:
    older = json.loads(TEXT)
    for epoch in older["epochs"]:
        del epoch["lr_mean"], epoch["suspended_s"]
    for made in (RICH, failed(config()), RunRecord.model_validate(older)):
        assert null_paths(made, whole=whole) == list(dict.fromkeys(nulls_of(made, whole=whole)))
