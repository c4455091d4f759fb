"""Every figure of docs/results.md is that of the records beside it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.measured import (
    DRAWN,
    FIGURES,
    MEASURED,
    PAGE,
    PAIRS,
    figures,
    noise_growth,
    side_by_side,
    sweeps,
    table,
)
from train.config.run import RunConfig
from train.record.run import read_record

NUMBER = r"-?\d+(?:\.\d+)?"
EACH = pytest.mark.parametrize("sweep", sweeps(), ids=lambda folder: folder.name)


@EACH
def test_the_page_shows_the_table_of_the_records(sweep: Path) -> None:
    assert table(sweep) in PAGE.read_text(), ".venv/bin/python -m tests.measured prints it"


def test_the_page_shows_rows_side_by_side_as_their_records_do() -> None:
    text = side_by_side(MEASURED / "cifar10_techniques")
    assert text.count("\n") == 2 + len(PAIRS)
    assert text in PAGE.read_text(), ".venv/bin/python -m tests.measured prints it"


def test_the_page_shows_the_growth_of_the_noise_scale_run_by_run() -> None:
    fashion, resnet, *_ = noise_growth(MEASURED / "noise_networks", 1, 6)
    _, _, plain = noise_growth(MEASURED / "noise_networks", 1, 11)
    page = " ".join(PAGE.read_text().split())
    assert page.count(f"{fashion} on Fashion-MNIST") == 1
    assert f"of {fashion} and of {resnet}" in page
    assert f"to {plain} of the first" in page


@pytest.mark.parametrize("sweep", sorted({name for name, _ in FIGURES}))
def test_the_page_shows_the_figures_of_the_records(sweep: str) -> None:
    page = " ".join(PAGE.read_text().split())
    for name, (svg, caption) in figures(sweep).items():
        (kept, at), (drawn, there) = map(without_numbers, ((DRAWN / name).read_text(), svg))
        assert kept == drawn, f"{name}: .venv/bin/python -m tests.measured draws it"
        # the last digit is another processor's matter
        np.testing.assert_allclose(at, there, atol=0.02, err_msg=name)
        assert f"](figures/{name}) *{caption}*" in page


def without_numbers(svg: str) -> tuple[str, list[float]]:
    """Without names of paths, which are made of all their digits."""
    text = re.sub(r'(id="|url\(#|href="#)\w+', r"\1", svg)
    return re.sub(NUMBER, "", text), [float(number) for number in re.findall(NUMBER, text)]


@EACH
def test_records_are_those_of_clean_checkouts_and_their_own_configs(sweep: Path) -> None:
    files = sorted(sweep.glob("*/record.json"))
    assert files
    for file in files:
        record = read_record(file)
        assert record.provenance.git_dirty is False, f"{file}: from a changed checkout"
        assert isinstance(record.config, RunConfig)
        assert record.config.cell_id() == record.cell_id == file.parent.name


def test_the_tuned_recipe_reaches_what_it_was_asked_for() -> None:
    """Means over seeds, of the held-out images: at 4,096, 8,192 and 16,384 images a step."""
    wanted = {4096: 0.82, 8192: 0.79, 16384: 0.74}
    reached: dict[int, list[float]] = {}
    for file in (MEASURED / "cifar10_tuned").glob("*/record.json"):
        record = read_record(file)
        accuracy = record.epochs[-1].validation_accuracy
        assert accuracy is not None and record.data.train_images == 50_000
        assert len(record.epochs) == 12 and record.config.validate_on == "held_out"
        reached.setdefault(record.config.global_batch, []).append(accuracy)
    assert set(reached) == {1024, *wanted}  # at 1,024 nothing was asked for
    for batch, accuracies in reached.items():
        assert len(accuracies) >= 3
        assert sum(accuracies) / len(accuracies) >= wanted.get(batch, 0)
