"""Several sweeps as one set of frames."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest

from analysis import merge
from analysis.records.columns import FRAMES
from analysis.records.frames import Frames
from analysis.records.load import load_frames
from analysis.table import types
from analysis.topics.comparisons import techniques
from analysis.topics.topic import Sweep
from tests.analysis.builders import config, record, technique, write_sweep
from tests.analysis.samples import good_sweep, mixed_sweep, rich_sweep


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Frames]:
    folder = tmp_path_factory.mktemp("results")
    makers = {"mixed": mixed_sweep, "rich": rich_sweep, "good": good_sweep}
    return [load_frames(make(folder / name)) for name, make in makers.items()]


@pytest.mark.parametrize("name", list(FRAMES))
def test_each_frame_has_the_rows_of_all_and_the_sweep_first(three: list[Frames], name: str) -> None:
    found, parts = getattr(merge(*three), name), [getattr(one, name) for one in three]
    assert list(found) == ["sweep", *types(FRAMES[name])]
    assert found.dtypes.astype(str).to_dict() == {"sweep": "string", **types(FRAMES[name])}
    expected = [one.name for one, part in zip(three, parts, strict=True) for _ in range(len(part))]
    assert found["sweep"].tolist() == expected
    same = [
        column
        for column in types(FRAMES[name])
        if column not in ("technique_label", "context", "cell_id")
    ]
    cells = [cell for part in parts for cell in part["cell_id"]]
    assert found["cell_id"].tolist() == [f"{s}/{c}" for s, c in zip(expected, cells, strict=True)]
    pd.testing.assert_frame_equal(found[same], pd.concat(parts, ignore_index=True)[same])


def test_labels_are_made_anew(tmp_path: Path) -> None:
    """Each sweep has one rate under the name; together they have two."""
    rates = {"a": 0.1, "b": 0.2}
    parts = [
        load_frames(write_sweep(tmp_path / name, [
            record(config(technique=technique(base_lr=rate), epochs=3 if name == "a" else 4))
        ]))
        for name, rate in rates.items()
    ]  # fmt: skip
    assert [one.runs["technique_label"].tolist() for one in parts] == [["naive"], ["naive"]]
    found = merge(*parts)
    for table in (found.planned, found.runs):
        assert table["technique_label"].tolist() == ["naive (base_lr=0.1)", "naive (base_lr=0.2)"]
        assert table["context"].tolist() == [("3 epochs",), ("4 epochs",)]
    labels = found.epochs.groupby("sweep")["technique_label"].unique()
    assert [list(label) for label in labels] == [["naive (base_lr=0.1)"], ["naive (base_lr=0.2)"]]


def test_a_cell_whose_config_is_unknown_has_no_label(three: list[Frames]) -> None:
    planned = merge(*three).planned
    assert planned.loc[~planned["known"], "technique_label"].isna().all()
    assert planned.loc[planned["known"], "technique_label"].notna().all()


def test_the_rest_is_joined(three: list[Frames]) -> None:
    found = merge(*three)
    assert found.name == "mixed + rich + good"
    assert found.title == "A sweep for the tests"
    assert found.techniques == ("naive", "lamb", "lars", "grow", "adascale")
    assert [problem.reason for problem in found.problems] == [p.reason for p in three[0].problems]
    assert merge(*(replace(one, sites=(site,)) for one, site in zip(three, "aba", strict=True))
                 ).sites == ("a", "b")  # fmt: skip
    assert found.unplanned == tuple(f"mixed/{name}" for name in three[0].unplanned)
    assert all((found.folder / problem.cell_id).parent.is_dir() for problem in found.problems)
    assert found.folder == three[0].folder.parent.resolve()


def test_merged_frames_merge_again(three: list[Frames]) -> None:
    first, *others = three
    step = merge(merge(first, others[0]), others[1])
    for part in fields(Frames):
        one, other = (getattr(frames, part.name) for frames in (step, merge(*three)))
        assert one.equals(other) if isinstance(one, pd.DataFrame) else one == other, part.name


def test_nothing_to_merge_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sweep"):
        merge()


def test_two_sweeps_of_one_name_are_told_apart_first(three: list[Frames]) -> None:
    with pytest.raises(ValueError, match="good: the name of two sweeps"):
        merge(three[2], three[2])
    found = merge(three[2], replace(three[2], name="later"))
    assert found.runs["sweep"].unique().tolist() == ["good", "later"]


def test_a_cell_of_two_sweeps_is_compared_as_two_runs(tmp_path: Path) -> None:
    items = [record(config(name, seed=seed)) for name in ("naive", "lamb") for seed in range(3)]
    both = [load_frames(write_sweep(tmp_path / name, items)) for name in ("one", "two")]
    frames = merge(*(replace(one, name=one.folder.name) for one in both))
    table = techniques.claims(Sweep(frames)).data
    assert table[["n", "n_reference"]].to_numpy().tolist() == [[6, 6]]
