"""Error against the number of training images: which runs make a series, and the law's exponent."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.records.load import load_frames
from tests.analysis.builders import TRAIN_IMAGES, config, record, runs_frame
from tests.measured import MEASURED, PAGE
from tests.measured.error_by_images import SEVERAL, figure, laws
from train.record.run import RunRecord

SHARES = (0.25, 0.5, 1.0)


def run(share: float, error: float, seed: int = 0, name: str = "naive") -> RunRecord:
    """As many steps at each number of images."""
    asked = config(name, seed=seed, data_fraction=share, epochs=int(4 / share), batch_per_rank=8)
    accuracies = [0.2] * (asked.epochs - 1) + [1 - error]
    return record(asked, accuracies=accuracies, train_images=int(TRAIN_IMAGES * share))


def made(*items: RunRecord) -> pd.DataFrame:
    return laws(runs_frame(items))


def test_the_exponent_is_the_slope_of_the_logarithms_with_its_interval() -> None:
    errors = {0.25: (0.8, 0.7, 0.75), 0.5: (0.6, 0.66, 0.63), 1.0: (0.5, 0.45, 0.52)}
    items = [run(s, e, seed) for s, own in errors.items() for seed, e in enumerate(own)]
    (row,) = made(*items).to_dict("records")
    x = np.log([TRAIN_IMAGES * share for share in SHARES])
    y = [np.mean(np.log(own)) for own in errors.values()]
    (slope, intercept), covariance = np.polyfit(x, y, 1, cov=True)
    half = stats.t.ppf(0.975, 1) * np.sqrt(covariance[0, 0])
    assert row["exponent"] == pytest.approx(slope)
    assert row["factor"] == pytest.approx(np.exp(intercept))
    ends = (row["exponent_low"], row["exponent_high"])
    assert ends == pytest.approx((slope - half, slope + half))
    assert (row["sizes"], row["n"]) == (3, 9)
    assert row["context"] == (), "without what sets the sizes"


def test_techniques_are_apart_and_two_sizes_make_no_law() -> None:
    items = [run(share, 0.4 * share**-0.5) for share in SHARES]
    items += [run(share, 0.3 * share**-0.25, name="lamb") for share in SHARES]
    found = made(*items)
    assert found["exponent"].tolist() == pytest.approx([-0.5, -0.25])
    assert not len(made(*items[:2]))
    assert not len(made())


def test_a_size_that_was_trained_for_several_lengths_makes_no_law() -> None:
    """Two lengths of each, or a law would hold over both."""
    items = [run(share, 0.4 * share**-0.5) for share in SHARES]
    longer = [
        record(
            config(data_fraction=share, epochs=epochs, batch_per_rank=8),
            accuracies=[0.2] * (epochs - 1) + [0.7],
            train_images=int(TRAIN_IMAGES * share),
        )
        for share, epochs in zip(SHARES, (32, 16, 8), strict=True)
    ]
    (row,) = made(*items, *longer).to_dict("records")
    assert pd.isna(row["exponent"]) and row["exponent_note"] == SEVERAL
    assert figure(runs_frame([*items, *longer])) is None


def test_the_figure_has_a_dot_per_run_and_names_the_exponents() -> None:
    items = [run(share, 0.4 * share**-0.5, seed) for share in SHARES for seed in (0, 1)]
    found = figure(runs_frame(items))
    assert found is not None and len(found.data) == 6
    assert found.title == "Error goes as the number of images to the power of -0.50"
    assert ">training images (log)<" in str(found.svg)
    assert figure(runs_frame(items[:4])) is None


def test_a_run_without_any_error_is_not_dropped_in_silence() -> None:
    """The runs that are left would be the bad ones; at the largest size none may be left."""
    for best in ((0.0, 0.1), (0.0, 0.0)):
        items = [run(share, 0.4, seed) for share in SHARES[:2] for seed in range(2)]
        items += [run(1.0, error, seed) for seed, error in enumerate(best)]
        (row,) = made(*items).to_dict("records")
        none = best.count(0.0)
        assert pd.isna(row["exponent"]) and (row["n"], row["sizes"]) == (6, 3)
        assert row["exponent_note"].startswith(f"{none} of 6 runs make no error")
        assert figure(runs_frame(items)) is None


def test_the_page_has_the_exponent_of_its_records() -> None:
    (row,) = laws(load_frames(MEASURED / "data_size", cache=False).runs).to_dict("records")
    value, low, high = (row[f"exponent{end}"] for end in ("", "_low", "_high"))
    said = f"to the power of {value:.2f} ({low:.2f} to {high:.2f})"
    assert said in " ".join(PAGE.read_text().split())
