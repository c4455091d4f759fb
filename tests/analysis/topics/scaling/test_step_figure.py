"""Parts of a step add up to the step, each condition by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.plots.figure import Figure
from analysis.topics.scaling.step_figure import MOST_ROWS, PARTS, figure
from tests.analysis.builders import config, rank_steps, record, spread
from tests.analysis.planned import sweep
from train.record.run import RunRecord

LACKS_EXPOSED = {"exposed": None, "missing": {"steps.exposed_s": "too short"}}


def run(
    seconds: float, exposed: float | None = 0.1, waits: float | None = None, name: str = "naive",
    **changes,
) -> RunRecord:  # fmt: skip
    """Of ``seconds`` a tenth waits for input, half is computing, an eighth of which updates; of two
    ranks or more that are waiting for each other ``waits``, the first computes 10 ms faster."""
    settings = {key: changes.pop(key) for key in ("gpus", "seed") if key in changes}
    steps = []
    for rank in range(settings.setdefault("gpus", 2)):
        step = rank_steps(rank, seconds, 0.1 * seconds, 0.4 * seconds)
        more = {"update_s": spread(0.0625 * seconds), "sampled": 9, "exposed_s": exposed}
        if waits is not None:
            more |= {"waiting_s": spread(waits), "negotiation_s": spread(0.02),
                     "compute_s": spread(0.5 * seconds - (0.01 if rank == 0 else 0))}  # fmt: skip
        steps.append(step.model_copy(update=more))
    return record(config(name, **settings), steps=tuple(steps), **changes)


def drawn(*items: RunRecord) -> Figure:
    found = figure(sweep(items))
    assert found is not None
    return found


def parts(*items: RunRecord) -> pd.DataFrame:
    """Those that are known, a row per condition."""
    return drawn(*items).data.set_index("name").dropna(axis="columns")


def tips(found: Figure) -> list[str]:
    root = ElementTree.fromstring(str(found.svg))
    return [e.text for e in root.iter("{http://www.w3.org/2000/svg}title") if e.text]


def test_parts_of_a_step_by_hand() -> None:
    """As the table of losses has them, with the update apart, which older records do not have; of
    two ranks that each wait 30 ms, the faster one computes 490 ms and the mean 495."""
    found = parts(run(1.0, 0.1, 0.03)).loc["naive"]
    assert found.to_dict() == pytest.approx({
        "input": 100, "compute": 427.5, "update": 62.5, "exposed": 50, "waiting": 35,
        "negotiation": 20, "rest": 305,
    })  # fmt: skip
    expected = {"input": 100, "compute": 437.5, "update": 62.5, "communication": 100, "rest": 300}
    assert parts(run(1.0)).loc["naive"].to_dict() == pytest.approx(expected)
    older = {"input": 100, "compute": 700, "communication": 200, "rest": 0}
    assert parts(record(config(gpus=2))).loc["naive"].to_dict() == pytest.approx(older)


def test_parts_add_up_to_the_mean_step_of_the_completed_runs() -> None:
    items = [run(1.0, gpus=1), run(3.0, gpus=1, seed=1), run(2.5)]
    found = drawn(*items, run(99.0, gpus=1, seed=2, status="diverged")).data.set_index("name")
    expected = {"naive, 1 rank, batch 16": 2000.0, "naive, 2 ranks, batch 32": 2500.0}
    assert found.sum(axis=1).to_dict() == pytest.approx(expected)


@pytest.mark.parametrize("others", [[], [run(1.0, seed=1)]])
def test_what_some_run_lacks_is_in_the_rest_and_said(others: Sequence[RunRecord]) -> None:
    """No mean of the runs that have it."""
    found = drawn(run(1.0, **LACKS_EXPOSED), *others)
    assert found.data[["communication", "exposed"]].isna().all(axis=None)
    assert found.data["rest"].tolist() == pytest.approx([400])
    words, rest = PARTS["exposed"][0], PARTS["rest"][0]
    assert f"Bars without {words} have it within {rest}." in found.caption
    assert "not known" not in drawn(run(1.0)).caption


def test_parts_that_do_not_fit_their_step_are_not_drawn() -> None:
    """0.1 + 0.5 + 0.6 are 1.2 s of parts in a step of 1 s; 0.1 + 0.5 + 0.45 fit it nearly."""
    none = drawn(run(1.0, 0.6))
    assert none.svg is None and none.data["rest"].tolist() == pytest.approx([-200])
    assert none.caption.startswith("Not drawn: 1 condition whose parts do not fit the step.")
    some = drawn(run(1.0, 0.6), run(1.0, 0.45, name="lamb"))
    assert [tip.split(":")[0] for tip in tips(some)] == ["lamb"] * 4
    assert "Not drawn: 1 condition" in some.caption
    assert "Not drawn" not in drawn(run(1.0)).caption


def test_all_counts_of_the_first_techniques_are_shown() -> None:
    counts = [2**n for n in range(5)]
    names = ["naive", "lamb", "other"]
    items = [run(1.0, gpus=gpus, name=name) for name in names for gpus in counts]
    found = drawn(*items)
    rows = [re.match(r"(\w+), (\d+) rank", name).groups() for name in found.data["name"]]
    assert rows[:5] == [("naive", str(gpus)) for gpus in counts]
    assert rows[10:] == [("other", "8"), ("other", "16")], "of what does not fit the most ranks"
    assert f"Shown: {MOST_ROWS} of {len(items)} conditions" in found.caption


def test_without_ranks_to_compare_the_largest_batches_are_shown() -> None:
    items = [run(1.0, name=name) for name in ("naive", "lamb")]
    items += [record(item.config.model_copy(update={"batch_per_rank": batch}), steps=item.steps)
              for item in items for batch in range(20, 26)]  # fmt: skip
    found = drawn(*items).data["name"]
    assert found.tolist()[:2] == ["naive, batch 50", "lamb, batch 50"]
    assert found.nunique() == MOST_ROWS and not found.str.contains("batch 32").any()


def test_without_parts_there_is_no_figure() -> None:
    assert figure(sweep([record(steps=None)])) is None
    assert figure(sweep([])) is None


@pytest.mark.filterwarnings("error")
def test_long_names_leave_room_for_the_bars() -> None:
    """Matplotlib warns where they do not."""
    of = sweep([run(1.0), run(2.0, name="lamb")])
    words = "nesterov (schedule=polynomial), 12 epochs, 0.4096 of the data"
    of.frames.runs["technique_label"] = [words, f"{words}, once more"]
    assert figure(of) is not None
