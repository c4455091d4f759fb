"""What is no record is one error with its words, whatever is in the file."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.builders import config, failed, rank_steps, record, technique
from tests.analysis.many import CLASSES
from tests.analysis.samples import NOISE, TRUST
from train.config.run import Target
from train.errors import RecordError
from train.record.measurements import GoalHeld, LinkTraffic, TargetOutcome
from train.record.nulls import null_paths
from train.record.run import RunRecord, read_record

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
ERROR = {"what": "w", "where": "x", "what_to_do": "y"}


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


#: What one would find in files of other versions, of full disks and of editors, and words on it.
BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "not JSON"),
    "truncated": (TEXT[: len(TEXT) // 2], "not JSON"),
    "followed by more": (TEXT + "{}", "not JSON"),
    "no object": ("[]", "should be an object"),
    "not UTF-8": (TEXT.replace("node1", "n\xf6de").encode("latin-1"), "not JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + TEXT.encode(), "not JSON"),
    "nested too deeply": ("[" * 500 + "]" * 500, "not JSON"),
    "no version": (without("schema_version"), "schema_version None"),
    "version 2": (edited("schema_version", value=2), "schema_version 2"),
    "another version, and all else wrong": ('{"schema_version": 3, "a": []}', "schema_version 3"),
    "a missing part": (without("weights_sha256"), "weights_sha256"),
    "an unknown key in an epoch": (edited("epochs", 1, "surprise", value=1), "surprise"),
    "completed with an error": (edited("error", value=ERROR), "yet there is an error"),
    "failed without an error": (edited("status", value="failed"), "no error says why"),
    "another cell": (edited("cell_id", value="other"), "not that of the config"),
    "an impossible config": (edited("config", "gpus", value=0), "gpus"),
    "NaN": (edited("epochs", 0, "train_loss", value=float("nan")), "train_loss"),
    "a number beyond doubles": (TEXT.replace('"train_s": 2.0', '"train_s": 1e999'), "train_s"),
    "negative seconds": (edited("epochs", 2, "train_s", value=-1.0), "train_s"),
    "half a step": (edited("epochs", 0, "steps", value=1.5), "steps"),
    "an inner null without a reason": (
        edited("classification", "classes", 1, "f1", value=None), "classification.classes.f1",
    ),
    "no reasons": (edited("missing", value={}), "null without a reason in 'missing': "),
    "a time without its zone": (edited("started_at", value="2025-03-01T12:00:00"), "started_at"),
    "a very large number": (edited("epochs", 0, "images", value=10**30), "images"),
    "a number of 5,000 digits": (
        TEXT.replace('"images": 320', f'"images": 1{"0" * 5000}', 1), "not JSON",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_record_is_an_error_with_its_words(name: str, tmp_path: Path) -> None:
    content, words = BAD[name]
    file = tmp_path / "record.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecordError, match=r"record\.json") as caught:
        read_record(file)
    assert words in str(caught.value)


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


@settings(max_examples=100, deadline=None)
@given(place=st.sampled_from(PLACES), how=st.sampled_from(["drop", "set", "add"]), value=_VALUES)
def test_any_single_change_makes_a_record_or_an_error(
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
    file = tmp_path_factory.mktemp("r") / "record.json"
    file.write_text(json.dumps(changed))
    with contextlib.suppress(RecordError):
        made = read_record(file)
        assert set(nulls_of(made)) <= set(made.missing)


@pytest.mark.parametrize("whole", [False, True])
def test_nulls_are_those_of_a_dump(whole: bool) -> None:
    older = json.loads(TEXT)
    for epoch in older["epochs"]:
        del epoch["lr_mean"], epoch["suspended_s"]
    for made in (RICH, failed(config()), RunRecord.model_validate(older)):
        assert list(null_paths(made, whole=whole)) == list(
            dict.fromkeys(nulls_of(made, whole=whole))
        )
