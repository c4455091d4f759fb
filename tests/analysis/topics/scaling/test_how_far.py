"""What is said and drawn of efficiency against ranks; every number is one of the tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.plots.figure import Figure, inline
from analysis.table import Table
from analysis.topics.scaling import how_far
from tests.analysis import planned
from tests.analysis.builders import config, rank_steps, record, spread
from train.config.run import RunConfig
from train.record.run import RunRecord


def run(gpus: int, seed: int, nodes: int = 1, name: str = "naive", **changes: Any) -> RunRecord:
    hosts = tuple(f"node{rank * nodes // gpus}" for rank in range(gpus))
    world = {"nodes": nodes, "hostnames": hosts} | changes.pop("world", {})
    rate = 100 * gpus * 0.9 ** (gpus - 1) + seed
    return record(config(name, gpus=gpus, seed=seed, batch_per_rank=2, **changes),
                  images_per_s=rate, world_changes=world)  # fmt: skip


def drawn(*items: RunRecord) -> Figure | None:
    return how_far.figure(planned.sweep(items))


def sweep(*counts: int, **changes: Any) -> list[RunRecord]:
    return [run(gpus, seed, **changes) for gpus in counts for seed in (0, 1)]


def tips(found: Figure) -> list[str]:
    titles = ElementTree.fromstring(str(found.svg)).iter("{http://www.w3.org/2000/svg}title")
    return [str(title.text) for title in titles]


def test_each_count_has_its_efficiency_with_its_interval() -> None:
    found = drawn(*sweep(1, 2, 4))
    assert found is not None and len(tips(found)) == 3
    assert tips(found)[0] == "naive, 1 rank: 1.00, 2 runs" and "(n = 2 completed" in found.caption
    assert found.data["efficiency"].tolist() == pytest.approx([1, 0.9, 0.73], abs=0.01)
    assert found.data["efficiency_low"][1] < 0.9 < found.data["efficiency_high"][1]
    svg = str(found.svg)
    assert all(f">{text}<" in svg for text in ("ideal", "0.9", "naive", "ranks (log)", "4"))
    assert "several nodes" not in svg and "forecast" not in found.caption


@pytest.mark.parametrize(("counts", "split"), [((1, 2, 4), 4), ((2, 4, 8), 4)])
def test_the_border_of_a_node_is_marked(counts: tuple[int, ...], split: int) -> None:
    items = [run(gpus, seed, nodes=2 if gpus >= split else 1) for gpus in counts for seed in (0, 1)]
    found = drawn(*items)
    assert found is not None and ">several nodes<" in str(found.svg)
    assert "ranks are on several nodes" in found.caption


def test_where_a_count_is_on_one_node_and_on_several_there_is_no_border() -> None:
    spread = [*sweep(1, 2, name="lamb"), *sweep(4, name="lamb", nodes=2)]
    found = drawn(*sweep(1, 2, 4), *spread)
    assert found is not None and found.data["panel"].nunique() == 1
    assert "several nodes<" not in str(found.svg)


def test_a_forecast_is_dashed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"series": 0, "technique_label": "naive", "context": "", "scaling": "weak",
           "batch_per_rank": 2, "global_batch": 16, "gpus": 8, "efficiency": 0.5,
           "efficiency_low": 0.4, "efficiency_high": 0.6}  # fmt: skip
    table = Table("forecast", "", (), pd.DataFrame([row, row | {"series": 7, "gpus": 16}]))
    monkeypatch.setattr(how_far, "ahead", lambda of: table)
    found = drawn(*sweep(1, 2, 4))
    assert found is not None and "a model's forecast" in found.caption
    assert found.data["kind"].tolist() == ["measured"] * 3 + ["forecast"]
    assert tips(found)[-1] == "naive, 8 ranks: 0.50 (0.40 to 0.60), forecast"
    assert str(found.svg).count(">naive<") == 1, "at the end of the forecast alone"


def test_batches_and_contexts_are_panels_of_their_own() -> None:
    found = drawn(*sweep(1, 2), *sweep(1, 2, framework="mirrored"))
    assert found is not None and found.data["panel"].nunique() == 2
    assert ">mirrored<" in str(found.svg)


def test_without_an_efficiency_there_is_no_figure() -> None:
    assert drawn(*sweep(2)) is None and drawn() is None
    assert drawn(*sweep(1, 2, world={"oversubscribed": True})) is None


def test_a_hostile_name_is_text_in_a_drawing() -> None:
    names = ('<script>alert("x")</script>', "$x$ CPU")
    found = drawn(*(run(gpus, seed, world={"device": names[seed // 2]})
                    for gpus in (1, 2) for seed in range(4)))  # fmt: skip
    assert found is not None
    page = inline(str(found.svg), found.key, found.title)
    assert "<script" not in page and "&lt;script&gt;" in page
    assert ">$x$ CPU</text>" in page, "a dollar sign starts no formula"


def rates(gpus: int, *found: float | None, name: str = "naive", **changes: Any) -> list[RunRecord]:
    """A run per throughput."""
    world = changes.pop("world", None)
    return [record(config(name, seed=seed, gpus=gpus, **changes), images_per_s=rate,
                   world_changes=world) for seed, rate in enumerate(found)]  # fmt: skip


def near(counts: dict[int, float], **changes: Any) -> list[RunRecord]:
    """Three runs of each rank count, which differ by a thousandth."""
    return [item for gpus, rate in counts.items()
            for item in rates(gpus, rate, 1.001 * rate, 1.002 * rate, **changes)]  # fmt: skip


def timed(
    gpus: int, step_s: float, median_s: float | None = None, sending: float = 0.02,
    name: str = "naive", compute_s: float | None = None,
) -> list[RunRecord]:  # fmt: skip
    """Three seeds; ``step_s``: by the throughput, ``median_s``: of the step that most are like.
    ``compute_s``: else all that the other parts leave."""
    update = {} if compute_s is None else {"compute_s": spread(compute_s)}
    return [
        record(config(name, gpus=gpus, seed=seed), images_per_s=16 * gpus / (step_s + seed / 1e4),
               steps=tuple(rank_steps(rank, (median_s or step_s) + seed / 1e4, 0.01, sending)
                           .model_copy(update=update) for rank in range(gpus)), wall_s=3600)
        for seed in range(3)
    ]  # fmt: skip


def one_epoch(*counts: int, **changes: Any) -> list[RunRecord]:
    """Of one epoch, which is left out of the throughput."""
    return [item for gpus in counts for item in rates(gpus, None, None, epochs=1, **changes)]


def lost(*counts: int) -> list[RunConfig]:
    return [config(gpus=gpus) for gpus in counts]


class Case(NamedTuple):
    """``said``: parts of the answer in their order, ... between them."""

    items: Sequence[RunRecord]
    said: str
    key: str = "more_ranks"
    gone: Sequence[RunConfig] = ()
    unsaid: str = "None"


ONE = rates(1, 99.5, 100.0, 100.5)
THREE = [*near({1: 100, 2: 190, 4: 320})]
STRONG = {"batch_per_rank": 64, "scaling": "strong"}
CASES = {
    "ranks": Case(
        THREE, "At 4 ranks, naive reaches an efficiency of 0.80 (0.80 to 0.80), 3 runs. That is "
        "3.20 times the throughput of 1 rank. Its efficiency is below 0.9 from 4 ranks on.",
        "scaling"),
    "an efficiency that recovers is not below from there on": Case(
        near({1: 100, 2: 176, 4: 388, 8: 680}), "below 0.9 from 8 ranks on", "scaling"),
    "a low efficiency is one whose interval is low": Case(
        [*ONE, *rates(8, 560.0, 680.0, 800.0)], "efficiency of 0.84", "scaling",
        unsaid="below 0.9"),
    "one run has no interval": Case([*ONE, *rates(8, 640.0)], "of 0.80", "scaling",
                                    unsaid="below 0.9"),
    "stalls between usual steps have no cause": Case(
        # half of all steps take twice as long on 4 ranks; the median does not see them
        [*timed(1, 0.160), *timed(2, 0.200, 0.165), *timed(4, 0.270, 0.170)],
        "Compared with 1, 4 ranks have 63 % of the throughput that the median step gives: what "
        "makes other steps longer is in no model.", "scaling", unsaid="loss"),
    "the reference, though lamb scales best and lars worst": Case(
        [run for name, step in {"lamb": 0.12, "naive": 0.15, "lars": 0.3}.items()
         for run in (*timed(1, 0.11, sending=0.01, name=name),
                     *timed(2, step, sending=step - 0.1, name=name))],
        "At 2 ranks, naive reaches an efficiency of 0.73 (0.7...The main loss is communication",
        "scaling", unsaid="lars"),
    "a loss that no part explains": Case(
        [*timed(1, 0.16, compute_s=0.1), *timed(2, 0.2, compute_s=0.1)],
        "No single measured part explains the loss.", "scaling"),
    # each mode, workload and device is answered or counted
    "weak and strong": Case(
        [*near({1: 100, 2: 190}), *near({1: 100}, **STRONG),
         *near({2: 120}, batch_per_rank=32, scaling="strong")],
        "At 2 ranks, naive (weak, 16 per rank) reaches an efficiency of 0.95 (0.95 to 0.95), 3 "
        "runs. At 2 ranks, naive (strong, 64) reaches an efficiency of 0.60", "scaling"),
    "workloads": Case(
        [*near({1: 100, 2: 190, 4: 300}), *near({1: 90, 2: 170}, dataset="mnist")],
        "At 4 ranks, naive (digits)...At 2 ranks, naive (mnist) reaches", "scaling"),
    "what workloads gain": Case(
        [*near({1: 100, 2: 190, 4: 300}), *near({1: 90, 2: 100}, dataset="mnist")],
        "Yes, up to 2 ranks with naive (digits)...No with naive (mnist): the second rank adds"),
    "many workloads are counted": Case(
        [item for size in (8, 16, 32, 64) for item in near({1: 100, 2: 190}, batch_per_rank=size)],
        "The table has 2 more series.", "scaling"),
    "weak without a throughput": Case(
        [*near({1: 100}, **STRONG), *near({2: 120}, batch_per_rank=32, scaling="strong"),
         *one_epoch(1, 2)],
        "At 2 ranks, naive (3 epochs)...1 and 2 ranks with naive (1 epoch...have no efficiency: "
        "throughput leaves out the first epoch", "scaling"),
    # what is missing
    "one epoch": Case(
        one_epoch(1, 2, 4), "1, 2 and 4 ranks have no efficiency: throughput leaves out the first "
        "epoch of a run, and these have one: train 2 or more.", "scaling"),
    "the planned baseline is lost": Case(
        near({2: 200, 4: 400}), "At 4 ranks, naive reaches an efficiency of 1.00 (0.998 to 1.002) "
        "relative to 2 ranks (planned baseline: 1), 3 runs. 1 rank has no usable run.", "scaling",
        gone=lost(1)),
    "the largest count is lost": Case(
        near({1: 100, 2: 190}), "At 2 ranks...4 and 8 ranks have no usable run.", "scaling",
        gone=lost(8, 4)),
    "all but one are lost": Case(near({1: 100}), "2 ranks have no usable run.", "scaling",
                                 gone=lost(2)),
    "shared cores": Case(
        [*near({1: 100}), *rates(2, 100, 101, world={"oversubscribed": True})],
        "2 ranks have no efficiency: ranks share cores", "scaling"),
    "another device": Case(
        [*near({1: 100}), *near({2: 300, 4: 600}, world={"device": "B"})],
        "At 4 ranks, naive (B) reaches an efficiency of 1.00 (0.998 to 1.002) relative to 2 ranks "
        "(planned baseline: 1), 3 runs. 1 rank with naive (B) has no usable run. 2 and 4 ranks "
        "with naive (Test CPU) have no usable run.", "scaling"),
    # rank counts with different epochs: their contexts come in another order than they
    "gains between neighbours": Case(
        [*near({1: 100}, epochs=12), *near({2: 190}, epochs=6), *near({4: 240}, epochs=3)],
        "Yes, up to 2 ranks: the second rank adds 90 % (90 to 90 %) of one rank's throughput "
        "(required: 70 %). Each added rank gives 26 % (26 to 27 %) from 2 to 4."),
    "low from the count on that is": Case(
        [*near({1: 100}, epochs=3), *near({4: 300}, epochs=12), *near({8: 560}, epochs=6)],
        "below 0.9 from 4 ranks on", "scaling"),
    # what added ranks give
    "one pays": Case(near({1: 100, 2: 184}), "Yes: the second rank adds 84 % (84 to 84 %) of one "
                     "rank's throughput (required: 70 %)."),
    "some pay": Case(
        [*near({1: 100, 2: 190, 4: 350, 8: 560}),
         *near({16: 1000}, world={"nodes": 4, "hostnames": (*"abcd" * 4,)})],
        "Yes, up to 4 ranks: each rank from 2 to 4 adds 84 % (84 to 85 %) of the throughput that a "
        "rank had before (required: 70 %). Each added rank gives 60 % (60 to 60 %) from 4 to 8, "
        "79 % (78 to 79 %) from 8 to 16 (1 to 4 nodes)."),
    "no doubling": Case(near({3: 300, 4: 400, 6: 600, 8: 800, 12: 1200, 16: 1250}),
                        "Yes, up to 12 ranks"),
    "none pays": Case(near({2: 100, 4: 120, 8: 230}),
                      "No: each rank from 2 to 4 adds 20 % (20 to 20 %) of the throughput that a "),
    "perhaps": Case([*ONE, *rates(2, 160.0, 175.0, 190.0)],
                    "Undecided: the second rank adds 75 % (41 to 116 %) of one rank's"),
    "without an interval": Case(
        [*rates(1, 100.0), *rates(2, 133.0)],
        "Untested: the second rank adds 33 % of one rank's throughput (required: 70 %), without "
        "an interval."),
    "a loss by less than the digits": Case(
        [item for gpus, rate in ((1, 100.0), (2, 99.8))
         for item in rates(gpus, rate, rate + 1e-4, rate + 2e-4)],
        "Two ranks are slower: 0.998 (0.998 to 0.998) times one."),
    "no gain": Case([*ONE, *rates(2, 85.0, 89.0, 94.0)],
                    "Two ranks are not shown to be faster: 0.89 (0.79 to 1.01) times one."),
    "much, perhaps": Case([*ONE, *rates(2, 120.0, 170.0, 190.0)],
                          "Two ranks are not shown to be faster: 1.57"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_sentence_says_what_its_numbers_say(name: str) -> None:
    items, said, key, gone, unsaid = CASES[name]
    techniques = [*dict.fromkeys(item.config.technique.name for item in items)]
    of = planned.sweep(items, lost=gone, techniques=techniques)
    text = {one.key: one.text for one in how_far.answers(of)}[key]
    assert re.search(".*".join(map(re.escape, said.split("..."))), text), text
    assert unsaid not in text and len(text) <= 300
