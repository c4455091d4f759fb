"""The waterfall adds up, blames what was injected, and says what it cannot know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.prediction.collectives import Link, ring
from analysis.stats.intervals import IDENTICAL
from analysis.table import Estimate, Table, plain_rows
from analysis.topics.scaling.cause import PARTS as LOSSES
from analysis.topics.scaling.cause import Cause, largest_cause
from analysis.topics.scaling.loss import (
    ONE_RUN,
    SAMPLED_LONGER,
    SHARED_CORES,
    loss,
)
from analysis.topics.scaling.step_parts import per_run
from tests.analysis.builders import config, record, runs_frame, spread
from tests.analysis.builders import rank_steps as rank_steps_of
from train.trainer.step_summaries import StepRow, rank_steps

ROOT = Path(__file__).parents[4]
ABOUT: dict[str, Any] = {
    "status": "completed", "technique": "naive", "technique_label": "naive", "context": "",
    "technique_settings": "{}", "dataset": "digits", "image_size": 8, "model": "cnn",
    "width": 1.0, "shortcuts": True, "epoch_images": pd.NA,
    "pretrained": pd.NA, "data_fraction": 1.0, "partition": "global", "framework": "horovod",
    "deterministic": False, "accumulation": 1, "scaling": "weak", "gpus": 1, "batch_per_rank": 16,
    "global_batch": 16, "device_kind": "cpu", "device": "Test CPU", "cores_per_rank": 1,
    "oversubscribed": False, "step_parts_why": pd.NA,
}  # fmt: skip
PARTS = ("step_s", "input_s", "compute_s", "communication_s", "exposed_s", "waiting_s",
         "negotiation_s")  # fmt: skip


def run(gpus: int, *parts: float | None, **changes: Any) -> dict[str, Any]:
    """``parts`` in the order of PARTS; all ranks compute as fast."""
    row = {**ABOUT, "gpus": gpus, "global_batch": 16 * gpus, "compute_fastest_s": parts[2]}
    return {**row, **dict(zip(PARTS, parts, strict=True)), **changes}


def frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    real = (*PARTS, "compute_fastest_s")
    types = {"step_parts_why": "string", "gradient_bytes": "Int64"}
    made = pd.DataFrame([{"gradient_bytes": 1_000_000, **row} for row in rows])
    return made.astype({**dict.fromkeys(real, "Float64"), **types})


def seconds(found: pd.DataFrame) -> dict[str, float]:
    return dict(zip(found["part"], found["seconds"], strict=True))


def causes(table: Table) -> list[Cause | None]:
    return [largest_cause(row) for row in plain_rows(table.data)]


def simulated(
    gpus: int,
    seed: int,
    *,
    input_s: float = 0.001,
    reduce_s: float = 0.02,
    slow: float = 0.0,
    saved: float = 0.0,
) -> dict[str, Any]:
    """A run through the code that makes records. Half of 0.1 s of computing hides communication;
    rank 0 computes ``slow`` seconds longer, and steps of one call save ``saved`` seconds."""
    random = np.random.default_rng([seed, gpus])
    rows: list[list[StepRow]] = [[] for _ in range(gpus)]
    for step in range(240):
        compute = 0.1 * random.lognormal(0, 0.01, gpus)
        compute[0] += slow
        waits = input_s * random.lognormal(0, 0.1, gpus)
        sampled = step % 12 == 0
        reduced = 0.0 if gpus == 1 else reduce_s * random.lognormal(0, 0.02)
        for rank in range(gpus):
            ready = waits + compute
            waiting = float(ready.max() - ready[rank])
            shows = max(0.0, reduced - 0.05)
            call = float(compute[rank]) + waiting + (reduced if sampled else shows - saved)
            rows[rank].append(
                StepRow(
                    epoch=step // 12, input_s=float(waits[rank]), call_s=call,
                    communication_s=waiting + reduced if sampled else None,
                    update_s=0.01 if sampled else None, rate=0.1, global_batch=16 * gpus,
                    loss=1.0, gradient_sq=1.0, small_sq=1.0, gain=1.0, skipped=False,
                    waiting_s=waiting if sampled and gpus > 1 else None,
                    negotiation_s=0.002 if sampled and gpus > 1 else None,
                )
            )  # fmt: skip
    ranks = [rank_steps(rank, own) for rank, own in enumerate(rows)]
    assert all(ranks)

    def mean(name: str) -> float | None:
        values = [getattr(rank, name) for rank in ranks]
        known = [v if isinstance(v, float) else v.mean for v in values if v is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    return run(
        gpus, *(mean(name) for name in PARTS),
        compute_fastest_s=min(rank.compute_s.mean for rank in ranks if rank),
    )  # fmt: skip


def sweep(counts: Sequence[int], runs: int = 3, **faults: float) -> pd.DataFrame:
    """The faults come with the second rank."""
    return frame([
        simulated(gpus, seed, **(faults if gpus > 1 else {}))
        for gpus in counts for seed in range(runs)
    ])  # fmt: skip


def test_parts_are_those_of_a_hand_worked_example() -> None:
    """Shown 0.30, of it 0.12 waiting, 0.02 negotiation; step 1.45 = 0.1 + 1.0 + 0.3 + rest 0.05."""
    found = loss(frame([
        run(1, 1.0, 0.04, 0.95, 0.0, 0.0, None, None),
        run(2, 1.45, 0.10, 1.00, 0.5, 0.30, 0.12, 0.02),
    ]))  # fmt: skip
    expected = {"input": 0.06, "compute": 0.05, "exposed": 0.16, "waiting": 0.12,
                "negotiation": 0.02, "rest": 0.04}  # fmt: skip
    assert seconds(found.parts) == pytest.approx(expected)
    row = plain_rows(found.table.data)[0]
    assert row["ideal_s"] == 1.0
    assert row["lost"] == pytest.approx(0.45)
    assert row["waiting"] == pytest.approx(0.12)
    assert row["lost_note"] == ONE_RUN and row["lost_low"] is None
    assert not found.parts["model"].any()


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_parts_add_up_exactly_to_what_is_lost(scaling: str) -> None:
    random = np.random.default_rng(1)
    rows = []
    for gpus in (2, 4, 8):
        for _ in range(4):
            parts = random.uniform(0.01, 1, len(PARTS))
            batch = 16 if scaling == "weak" else 64 // gpus
            rows.append(run(gpus, *parts, scaling=scaling, batch_per_rank=batch,
                            global_batch=gpus * batch))  # fmt: skip
    runs = frame(rows)
    found = loss(runs)
    steps = runs.groupby("gpus")["step_s"].mean()
    total = found.parts.groupby("gpus")["seconds"].sum()
    for gpus in (4, 8):
        ideal = steps[2] * (1 if scaling == "weak" else 2 / gpus)
        assert total[gpus] == pytest.approx(steps[gpus] - ideal, rel=1e-12)
    assert len(found.parts) == 2 * 6
    assert found.table.data["baseline_gpus"].tolist() == [2, 2]


def test_waiting_and_negotiation_are_at_most_what_is_exposed() -> None:
    found = loss(frame([
        run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None),
        run(2, 1.1, 0.0, 1.0, 0.9, 0.10, 0.40, 0.30),
        run(4, 1.1, 0.0, 1.0, 0.9, 0.10, 0.04, 0.30),
    ]))  # fmt: skip
    two, four = (seconds(found.parts[found.parts["gpus"] == k]) for k in (2, 4))
    assert (two["waiting"], two["negotiation"], two["exposed"]) == pytest.approx((0.1, 0, 0))
    assert (four["waiting"], four["negotiation"], four["exposed"]) == pytest.approx((0.04, 0.06, 0))


@pytest.mark.parametrize(
    ("fault", "part", "lost"),
    [
        ({"slow": 0.05}, "waiting", 0.05),
        ({"input_s": 0.06}, "input", 0.059),
        ({"reduce_s": 0.10}, "exposed", 0.05),
    ],
)
def test_an_injected_fault_is_blamed(fault: dict[str, float], part: str, lost: float) -> None:
    found = loss(sweep([1, 4], **fault))
    (cause,) = causes(found.table)
    assert cause is not None
    assert (cause.part, cause.decided) == (part, True)
    assert seconds(found.parts)[part] == pytest.approx(lost, rel=0.12)
    assert cause.share > 0.8
    assert cause.text.endswith("% of all that lengthens the step")
    assert abs(seconds(found.parts)["rest"]) < 0.1 * lost


def test_of_two_ranks_the_slower_one_is_blamed_for_waiting_alone() -> None:
    """Rank 1 computes 100 ms and waits 30 ms for rank 0, which waits for none; 8 ms are sent."""
    slow, fast = (
        rank_steps_of(rank, step, input_s, sent + waits).model_copy(
            update={"sampled": 9, "exposed_s": sent + waits, "update_s": spread(0.01),
                    "waiting_s": spread(waits), "negotiation_s": spread(0.0)}
        )
        for rank, step, input_s, sent, waits in ((0, 0.14, 0.002, 0.008, 0.0),
                                                 (1, 0.14, 0.002, 0.008, 0.03))
    )  # fmt: skip
    alone = rank_steps_of(0, 0.102, 0.002, 0.0).model_copy(
        update={"sampled": 9, "exposed_s": 0.0, "update_s": spread(0.01)}
    )
    assert (slow.compute_s.mean, fast.compute_s.mean) == pytest.approx((0.13, 0.1))
    items = [record(config(), steps=(alone,)), record(config(gpus=2), steps=(slow, fast))]
    found = seconds(loss(runs_frame(items)).parts)
    expected = {"input": 0, "compute": 0, "exposed": 0.008, "waiting": 0.03, "negotiation": 0,
                "rest": 0}  # fmt: skip
    assert found == pytest.approx(expected, abs=1e-12)
    older = [
        item.model_copy(update={"steps": tuple(
            rank.model_copy(update={"waiting_s": None}) for rank in item.steps or ()
        )}) for item in items
    ]  # fmt: skip
    found = seconds(loss(runs_frame(older)).parts)
    expected = {"input": 0, "compute": 0, "communication": 0.038, "rest": 0}
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_straggler_is_blamed_where_no_communication_shows() -> None:
    """The slowest rank's exposed time is then null, and so is that of the run."""
    runs = sweep([1, 4], slow=0.05, saved=0.01)
    assert runs[runs["gpus"] == 4]["exposed_s"].isna().all()
    found = loss(runs)
    (cause,) = causes(found.table)
    assert cause is not None and cause.part == "waiting"
    assert "exposed" not in seconds(found.parts)
    assert seconds(found.parts)["rest"] == pytest.approx(-0.01, rel=0.1)


def test_nothing_lost_has_no_cause() -> None:
    found = loss(sweep([1, 2], reduce_s=0.001, runs=4))
    row = plain_rows(found.table.data)[0]
    assert abs(row["lost"]) < 0.02
    faster = {**row, "lost": -0.01, "lost_low": -0.02}
    assert largest_cause(faster) is None
    assert largest_cause({**row, "lost": 0.01, "lost_low": -0.001}) is None


def test_the_rounding_of_a_sum_is_no_part() -> None:
    all_of_it = Estimate(0.1, 0.09, 0.11)
    parts = {"lost": all_of_it, "compute": all_of_it, "rest": Estimate(5e-17)}
    none = Estimate(None)
    row: dict[str, Any] = {}
    for part in ("lost", *LOSSES):
        row |= parts.get(part, none).columns(part)
    assert largest_cause(row) == Cause("compute", 1.0, decided=True)


@pytest.mark.parametrize(("high", "decided"), [(0.12, False), (0.01, True), (None, True)])
def test_a_part_that_may_be_larger_leaves_it_undecided(high: float | None, decided: bool) -> None:
    """Also where its mean is below 0. Without an interval runs do not differ in it."""
    least = None if high is None else -0.2
    parts = {"lost": Estimate(0.1, 0.05, 0.15), "compute": Estimate(0.1, 0.08, 0.12),
             "waiting": Estimate(-0.001, least, high)}  # fmt: skip
    row: dict[str, Any] = {}
    for part in ("lost", *LOSSES):
        row |= parts.get(part, Estimate(None)).columns(part)
    assert largest_cause(row) == Cause("compute", 1.0, decided=decided)


def test_a_tie_is_said() -> None:
    rows = [run(1, 1.0 + s, 0.1, 0.9 + s, 0.0, 0.0, None, None) for s in (0, 0.01)]
    rows += [run(2, 1.4, 0.3 + s, 0.9, 0.2, 0.2 - s, 0.0, 0.0) for s in (0, 0.05)]
    (cause,) = causes(loss(frame(rows)).table)
    assert cause is not None and not cause.decided
    assert "undecided" in cause.text


def test_records_without_waiting_keep_it_in_communication() -> None:
    """As every step was once taken in parts, without an exposed time."""
    found = loss(frame([
        run(1, 1.0, 0.05, 0.95, 0.0, None, None, None),
        run(2, 1.4, 0.10, 1.00, 0.3, None, None, None),
    ]))  # fmt: skip
    expected = {"input": 0.05, "compute": 0.05, "communication": 0.3, "rest": 0.0}
    assert seconds(found.parts) == pytest.approx(expected)
    assert "within communication" in found.table.data["why"][0]


def test_stored_records_of_steps_in_parts_leave_no_rest() -> None:
    """Real records: their communication is all exposed, since every step was taken in parts."""
    rows = []
    for file in sorted((ROOT / "docs" / "measured" / "cifar10_techniques").glob("*/record.json")):
        steps = json.loads(file.read_text())["steps"]
        parts = [
            float(np.mean([rank[name]["mean"] for rank in steps]))
            for name in ("step_s", "input_s", "compute_s", "communication_s")
        ]
        fastest = min(rank["compute_s"]["mean"] for rank in steps)
        rows.append({**run(2, *parts, None, None, None), "series": 0, "compute_fastest_s": fastest})
    assert len(rows) == 72
    found = per_run(frame(rows), None)
    assert (found["shown_s"] > 0).all()
    assert found["rest_s"].abs().max() < 1e-3 * found["step_s"].min()


def test_no_exposed_time_is_said_with_its_reason() -> None:
    why = "steps of one call save more than their communication shows"
    found = loss(frame([
        run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None),
        run(2, 0.9, 0.0, 1.1, 0.3, None, 0.01, 0.01, step_parts_why=why),
        run(2, 1.2, 0.0, 1.1, 0.3, 0.1, 0.01, 0.01),
    ]))  # fmt: skip
    expected = {"input": 0.0, "compute": 0.1, "waiting": 0.01, "rest": -0.06}
    assert seconds(found.parts) == pytest.approx(expected)
    assert why in found.table.data["why"][0]


def test_shared_cores_are_refused_and_unusable_runs_left_out() -> None:
    found = loss(frame([
        run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None),
        run(2, 1.2, 0.0, 1.0, 0.2, 0.2, 0.1, 0.0),
        run(2, 9.0, 0.0, 1.0, 8.0, 8.0, 0.1, 0.0, status="diverged"),
        run(4, 1.9, 0.0, 1.5, 0.4, 0.4, 0.1, 0.0, oversubscribed=True),
    ]))  # fmt: skip
    assert found.parts["gpus"].unique().tolist() == [2]
    assert sum(seconds(found.parts).values()) == pytest.approx(0.2)
    shared = found.table.data.set_index("gpus")["why"]
    assert shared[4] == SHARED_CORES
    assert causes(found.table)[1] is None


def test_the_model_divides_communication_by_a_ring() -> None:
    runs = frame([
        run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None),
        run(4, 1.5, 0.0, 1.0, 0.5, 0.5, 0.1, 0.1),
    ])  # fmt: skip
    link = Link(1e-3, 1e-8)
    found = loss(runs, link).parts
    parts, cost = seconds(found), ring(4, 1e6)
    share = cost.messages * link.alpha / cost.seconds(link)
    assert parts["latency"] == pytest.approx(0.3 * share)
    assert parts["latency"] + parts["bandwidth"] == pytest.approx(0.3)
    assert set(found[found["model"]]["part"]) == {"latency", "bandwidth"}
    assert sum(parts.values()) == pytest.approx(0.5)
    unknown = runs.assign(gradient_bytes=pd.array([None, None], "Int64"))
    assert "exposed" in seconds(loss(unknown, link).parts)


def test_the_interval_is_that_of_welch() -> None:
    random = np.random.default_rng(2)
    base, more = 1 + 0.02 * random.normal(size=4), 1.3 + 0.05 * random.normal(size=5)
    rows = [run(1, t, 0.0, t, 0.0, 0.0, None, None) for t in base]
    rows += [run(2, t, 0.0, t - 0.2, 0.2, 0.2, 0.1, 0.0) for t in more]
    found = loss(frame(rows)).parts.set_index("part").loc["compute"]
    test = stats.ttest_ind(more - 0.2, base, equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((low, high))
    assert found["n"] == 5


def test_a_share_with_an_interval_has_no_note_that_it_has_none() -> None:
    """Runs that wait equally long: their seconds have no variance, the ideal step has."""
    rows = [run(1, 1.0 + s, 0.1, 0.9, 0.0, 0.0, None, None) for s in (0, 0.01)]
    rows += [run(2, 1.4 + s, 0.1, 0.9, 0.3, 0.3, 0.2, 0.0) for s in (0, 0.01)]
    found = loss(frame(rows))
    row = found.table.data.iloc[0]
    assert row["waiting_low"] < row["waiting"] < row["waiting_high"]
    assert row["waiting_note"] is pd.NA
    part = found.parts.set_index("part").loc["waiting"]
    assert part["low"] is pd.NA and part["note"] == IDENTICAL


def test_intervals_of_the_shares_cover() -> None:
    """lost = step / ideal - 1 and one part, truths 0.30 and 0.25 of the ideal step."""
    random, series = np.random.default_rng(3), 1200
    rows = []
    for number in range(series):
        for gpus, step, sent in ((1, 1.0, 0.0), (4, 1.3, 0.25)):
            for _ in range(3):
                noise, more = random.normal(0, 0.03), random.normal(0, 0.02)
                rows.append(run(gpus, step + noise + more, 0.0, 1.0 + noise + 0.05 * (gpus > 1),
                                sent + more, sent + more, 0.0, 0.0, model=str(number)))  # fmt: skip
    data = loss(frame(rows)).table.data
    assert len(data) == series
    for name, truth in (("lost", 0.30), ("exposed", 0.25), ("compute", 0.05)):
        held = data[f"{name}_low"].le(truth) & data[f"{name}_high"].ge(truth)
        assert 0.93 <= held.mean() <= 0.985, name


def test_an_empty_frame_gives_empty_tables() -> None:
    found = loss(frame([run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None)]))
    assert found.table.data.empty and found.parts.empty
    assert loss(frame([run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None, status="failed")])).parts.empty


def test_shown_table_names_the_cause() -> None:
    shown = loss(sweep([1, 2], slow=0.05)).table.shown()
    headings = [column.heading for column in shown.columns]
    assert "waiting for slower ranks" in shown.rows[0][headings.index("largest loss")]
    assert {"lost", "waiting"} <= set(headings)
    assert "communication" not in headings, "no row has it"
    assert not any("n/a" in cell or "-0.0 " in cell for cell in shown.rows[0])


def test_small_steps_whose_sampled_ones_compute_longer_say_so() -> None:
    """Steps of one call save what a sampled one pays."""
    rows = [run(1, 0.008, 0.0, 0.016, 0.0, 0.0, None, None),
            run(2, 0.010, 0.0, 0.007, 0.004, 0.003, 0.001, 0.001)]  # fmt: skip
    (row,) = plain_rows(loss(frame(rows)).table.data)
    assert row["why"] == SAMPLED_LONGER
    assert row["lost"] == pytest.approx(0.25)
