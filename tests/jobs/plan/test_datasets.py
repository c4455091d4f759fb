"""Where prepared data go: with the raw data, or where these are read-only with the results."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.plan.datasets import store_for


@pytest.mark.parametrize(
    ("data", "read_only", "store"),
    [
        ("data", "", "data/prepared"),
        ("data/not/yet", "", "data/not/yet/prepared"),
        ("data", "data", "results/.prepared"),  # a class's data sets
        ("checkout/.data", "checkout", "results/.prepared"),  # an installation by root, no DATA=
        ("data", "data/prepared", "results/.prepared"),  # prepared by another user
        ("data", "checkout", "data/prepared"),  # DATA= of the user's own
        # where neither can be written
        ("data", ".", "data/prepared"),
    ],
)
def test_prepared_data_go_where_the_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, read_only: str, store: str
) -> None:
    for name in ("data/prepared" if read_only == "data/prepared" else "data", "checkout"):
        (tmp_path / name).mkdir(parents=True)
    closed = {tmp_path / read_only} if read_only else set()
    if read_only == ".":
        closed |= {tmp_path / "data"}

    def access(path: Path, mode: int) -> bool:  # root may write anywhere
        return path.exists() if mode == os.F_OK else path not in closed

    monkeypatch.setattr(os, "access", access)
    assert store_for(tmp_path / data, tmp_path / "results") == tmp_path / store
