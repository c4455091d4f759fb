"""A report that may be passed on names no host, no folder and no log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.page.anonymous import LEFT_OUT, without_names
from analysis.records.load import load_frames
from tests.analysis.builders import config, failed, record, write_sweep

HOSTS = ("gpu10.centre.example", "gpu9.centre.example", "login1")
SECRETS = (*HOSTS, "gpu10", "gpu9", "centre.example", "gpu[9-10]", "10.1.2.3", "/home/ada",
           "My Images", "a line of the log", "disk of nas7")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = "folder:/home/ada/My Images"
    met = {"hostnames": HOSTS[:2], "nodes": 2}
    rejected = record(config(gpus=2, seed=2), world_changes={**met, "hostnames": (HOSTS[2],) * 2},
                      epoch_changes={"images": 300})  # fmt: skip
    told = failed(config(seed=3), what="disk of nas7 is full", where="/home/ada/x",
                  what_to_do="look at /home/ada/logs", log_tail=("a line of the log",))  # fmt: skip
    items = [
        *(record(config(gpus=2, seed=seed), world_changes=met, alarms=(
            "gpu10 is slower than gpu9.centre.example, see gpu[9-10], 10.1.2.3 and /home/ada/log",
        )) for seed in range(2)),
        record(config(gpus=2, dataset=images, image_size=32, seed=0), world_changes=met),
        rejected,
        told,
    ]  # fmt: skip
    made = write_sweep(tmp_path_factory.mktemp("results") / "s", items, title="On login1")
    # the rest of the record is what a broken run left: its hosts can still be read
    broken = made / failed(config(seed=3)).cell_id / "record.json"
    assert json.loads(broken.read_text())["world"] is None
    return made


def test_no_file_of_an_anonymous_report_names_a_host_or_a_folder(folder: Path) -> None:
    def everything() -> str:
        files = [path for path in (folder / "report").rglob("*") if path.is_file()]
        return "\n".join(path.read_text() for path in files)

    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 1
    plain = everything()
    assert [secret for secret in SECRETS if secret not in plain] == [], (
        "the test would prove naught"
    )
    done = CliRunner().invoke(app, ["report", str(folder), "--anonymous"])
    assert done.exit_code == 1, done.output
    shown = everything()
    assert [secret for secret in SECRETS if secret in shown] == []
    assert str(folder) not in shown
    assert "node-2 node-1" in shown and LEFT_OUT in shown


def test_a_host_has_one_name_everywhere(folder: Path) -> None:
    found = without_names(load_frames(folder))
    assert found.runs["hosts"].tolist() == ["node-2 node-1"] * 3, "gpu9 is node-1"
    assert found.runs["alarms"][0] == ("node-2 is slower than node-1, see NODES, ADDRESS and PATH")
    assert found.title == "On node-3", "a host that only a rejected record names"
    assert found.runs["dataset"].tolist()[2] == "folder:folder-1"


def test_what_is_no_name_stays(folder: Path) -> None:
    before = load_frames(folder)
    after = without_names(before)
    numbers = before.runs.select_dtypes("number")
    assert after.runs[[*numbers]].equals(numbers)
    for name in ("cell_id", "technique", "model", "started_at", "device", "condition"):
        assert after.runs[name].equals(before.runs[name]), name
    assert [problem.kind for problem in after.problems] == ["rejected", "failed"]
    assert "300 images processed, yet" in after.problems[0].reason
    assert after.problems[1].log_tail == ()


@pytest.mark.parametrize("text", ["190 images/s", "2 / 3 of 6", "and/or", "made 9/10 of it"])
def test_a_slash_is_no_folder(tmp_path: Path, text: str) -> None:
    frames = load_frames(write_sweep(tmp_path / "s", [record(alarms=(text,))]))
    assert without_names(frames).runs["alarms"].tolist() == [text]


def test_a_sweep_without_a_run(tmp_path: Path) -> None:
    frames = load_frames(write_sweep(tmp_path / "s", [failed(config())]))
    assert [problem.reason for problem in without_names(frames).problems] == [LEFT_OUT]


def test_the_site_is_left_out_and_a_blank_host_is_no_name(tmp_path: Path) -> None:
    blank = record(config(gpus=2, seed=2), world_changes={"hostnames": ("", ".local")},
                   epoch_changes={"images": 300})  # fmt: skip
    frames = load_frames(write_sweep(tmp_path / "s", [record(config(seed=0)), blank]))
    named = replace(frames, attempts=frames.attempts.assign(site="uni-x-cluster"))
    found = without_names(named)
    assert found.attempts["site"].isna().all()
    assert found.problems[0].reason == frames.problems[0].reason
