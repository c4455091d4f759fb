"""The bars lead from the ideal step to the measured one, and the title says what the runs show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from analysis.plots.figure import Figure
from analysis.topics.scaling.loss import PARTS, loss
from analysis.topics.scaling.waterfall import MOST_PANELS, figure
from tests.analysis.builders import config, rank_steps, record, runs_frame, spread, technique
from train.record.run import RunRecord

SVG = "{http://www.w3.org/2000/svg}"


def run(step_s: float, gpus: int = 1, seed: int = 0, name: str = "naive", **changes) -> RunRecord:
    """Computes 100 ms; ranks beside others wait 20 ms for slower ones, a fifth of it negotiates."""
    seconds = {"input_s": 0.002, "exposed_s": 0.03 if gpus > 1 else 0.0, **changes}
    alike = {
        "step_s": spread(step_s), "input_s": spread(seconds["input_s"]),
        "compute_s": spread(0.1 + seed / 1e4), "communication_s": spread(0.05), "sampled": 9,
        "update_s": spread(0.01), "exposed_s": seconds["exposed_s"],
        "waiting_s": spread(0.02), "negotiation_s": spread(0.004),
    }  # fmt: skip
    steps = [rank_steps(rank).model_copy(update=alike) for rank in range(gpus)]
    of = config(gpus=gpus, seed=seed, technique=technique(name))
    return record(of, steps=tuple(steps), gradient_bytes=1_000_000)


def runs(step_s: float, gpus: int = 1, name: str = "naive", **changes) -> list[RunRecord]:
    return [run(step_s + seed / 1e4, gpus, seed, name, **changes) for seed in range(3)]


def drawn(items: list[RunRecord]) -> Figure:
    found = figure(loss(runs_frame(items)))
    assert found is not None
    return found


def texts(found: Figure, kind: str = "text") -> list[str]:
    root = ElementTree.fromstring(str(found.svg))
    return [e.text for e in root.iter(f"{SVG}{kind}") if e.text]


def test_bars_lead_from_the_ideal_step_to_the_measured_one() -> None:
    """102 ms alone; 131 ms of 4 ranks: 20 wait, 4 negotiate, 6 are sent, -1 is not explained."""
    found = drawn([*runs(0.102), *runs(0.140, 2), *runs(0.131, 4)])
    parts = found.data.set_index("part")["seconds"]
    expected = {"input": 0, "compute": 0, "exposed": 0.006, "waiting": 0.02, "negotiation": 0.004,
                "rest": -0.001}  # fmt: skip
    assert parts.to_dict() == pytest.approx(expected, abs=1e-12)
    assert (found.data["gpus"] == 4).all(), "the largest count alone"
    for row in found.data.itertuples():
        assert row.ideal_s + parts.sum() == pytest.approx(row.step_s)
    written = texts(found)
    for text in ("ideal step", "102", "+6.00", "+20.0", "+4.00", "-1.00", "measured step", "131"):
        assert text in written, text
    assert "naive, 4 ranks: waiting for slower ranks +20.0 ms, +19.6 % (" in "".join(
        tip for tip in texts(found, "title") if "waiting" in tip
    )


def test_gpus_are_named_as_gpus() -> None:
    gpu = {"device_kind": "gpu", "device": "A100"}
    made = loss(runs_frame([*runs(0.102), *runs(0.131, 4)]).assign(**gpu))
    found = figure(made, "GPU")
    assert found is not None and found.title.startswith("On 4 GPUs a step is")
    assert any("4 GPUs, batch" in text for text in texts(found))
    assert "GPUs" in [column.heading for column in made.columns]


def places(found: Figure, part: str) -> tuple[float, float]:
    """Left and right of its bar, in points of the drawing."""
    root = ElementTree.fromstring(str(found.svg))
    (path,) = (
        group.find(f".//{SVG}path") for group in root.iter(f"{SVG}g")
        if f": {PARTS[part]} " in str(group.findtext(f"{SVG}title"))
    )  # fmt: skip
    x = [float(at) for at in re.findall(r"[ML] ([\d.]+) ", path.attrib["d"])]
    return min(x), max(x)


def test_each_bar_begins_where_the_one_before_ends() -> None:
    found = drawn([*runs(0.102), *runs(0.131, 4)])
    sent, waiting, negotiation, rest = (
        places(found, part) for part in ("exposed", "waiting", "negotiation", "rest")
    )
    assert waiting[0] == pytest.approx(sent[1], abs=0.01)
    assert negotiation[0] == pytest.approx(waiting[1], abs=0.01)
    assert rest[1] == pytest.approx(negotiation[1], abs=0.01), "to the left"
    assert (waiting[1] - waiting[0]) / (sent[1] - sent[0]) == pytest.approx(20 / 6, rel=1e-3)
    assert (rest[1] - rest[0]) / (sent[1] - sent[0]) == pytest.approx(1 / 6, rel=1e-2)


def test_the_title_names_the_largest_loss_that_is_shown() -> None:
    one = [*runs(0.102), *runs(0.131, 4)]
    alone = drawn([run(0.102), run(0.131, 4)]).title
    assert alone == "On 4 ranks a step is not shown to be longer than the ideal one", "of one run"
    input_s = [
        run(0.102 + more, 4, seed, input_s=0.08 + more, exposed_s=0.0)
        for seed, more in enumerate((0.08, 0.0801, 0.0802))
    ]
    varied = [run(0.102 + seed / 1e4, 1, seed, input_s=0.002 + seed / 1e4) for seed in range(3)]
    found = drawn([*varied, *input_s]).title
    assert ") % longer than the ideal one; largest loss: waiting for input, " in found
    both = [*one, *runs(0.102, name="lamb"), *runs(0.2, 4, "lamb")]
    for reference in ("naive", "lamb"):
        found = figure(loss(runs_frame(both)), reference=reference)
        assert found is not None
        assert found.title.startswith(f"On 4 ranks a step of {reference} is "), "as the answer"
    faster = drawn([*runs(0.102), *runs(0.1, 2, exposed_s=0.0)])
    assert faster.title == "On 2 ranks a step is not shown to be longer than the ideal one"


def test_conditions_that_are_left_out_are_said() -> None:
    names = [f"t{i}" for i in range(MOST_PANELS + 1)]
    items = [run(0.102, 1, 0, name) for name in names]
    items += [run(0.12 + i / 1000, 2, 0, name) for i, name in enumerate(names)]
    found = drawn(items)
    assert found.caption.endswith(
        f"Shown: {MOST_PANELS} of {MOST_PANELS + 1} conditions, those of the most ranks, of these "
        "the reference and the largest losses."
    )
    assert "t0" not in set(found.data["condition"]), "the smallest loss"
    assert "n = 1" in found.caption


def test_without_parts_there_is_no_figure() -> None:
    assert figure(loss(runs_frame(runs(0.1)))) is None
    shared = [
        record(item.config, steps=item.steps, world_changes={"oversubscribed": True})
        for item in [*runs(0.1), *runs(0.2, 2)]
    ]
    assert figure(loss(runs_frame(shared))) is None
    assert figure(loss(runs_frame([record(steps=None)]))) is None
