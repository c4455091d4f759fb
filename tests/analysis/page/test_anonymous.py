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
from train.record.run import RunError

HOSTS = ("gpu10.centre.example", "gpu9.centre.example", "login1")
SECRETS = (*HOSTS, "gpu10", "gpu9", "centre.example", "gpu[9-10]", "10.1.2.3", "/home/ada",
           "My Images", "a line of the log", "disk of nas7", "GPU10", "gpu7", "node17", "fe80::1",
           "peer hydra", "gpu03", "from ada", "my_images")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = "folder:/home/ada/My Images"
    met = {"hostnames": HOSTS[:2], "nodes": 2}
    rejected = record(config(gpus=2, seed=2), world_changes={**met, "hostnames": (HOSTS[2],) * 2},
                      epoch_changes={"images": 300})  # fmt: skip
    told = failed(config(seed=3), what="disk of nas7 is full", where="/home/ada/x",
                  what_to_do="look at /home/ada/logs", log_tail=("a line of the log",))  # fmt: skip
    # its ranks met, so its hosts are known; those that its texts name are not
    met_then_failed = record(
        config(gpus=2, seed=4), status="failed", world_changes=met, error=RunError(
            what="lost the peer hydra", where="node17", what_to_do="see gpu7.centre.example",
            log_tail=("gpu03 at fe80::1",)))  # fmt: skip
    items = [
        *(record(config(gpus=2, seed=seed), world_changes=met, alarms=(
            "GPU10 is slower than gpu9.centre.example, see gpu[9-10], 10.1.2.3 and /home/ada/log",
        )) for seed in range(2)),
        record(config(gpus=2, seed=5), world_changes=met, alarms=("gpu10 waits for node17",)),
        record(config(gpus=2, dataset=images, image_size=32, seed=0), world_changes=met),
        rejected,
        told,
        met_then_failed,
    ]  # fmt: skip
    made = write_sweep(tmp_path_factory.mktemp("results") / "s", items, title="On login1")
    copied = made / "from ada"
    copied.mkdir()
    (copied / "record.json").write_text(record(config(seed=9)).model_dump_json())
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
    assert found.runs["hosts"].tolist() == [("node-2", "node-1")] * 4, "gpu9 is node-1"
    alarm = "node-2 is slower than node-1, see NODES, ADDRESS and PATH"
    assert found.runs["alarms"][0] == (alarm,)
    assert found.title == "On node-3", "a host that only a rejected record names"
    assert found.runs["alarms"][2] == (LEFT_OUT,), "no record names node17"
    assert found.runs["dataset"].tolist()[3] == "folder:folder-1"


def test_what_is_no_name_stays(folder: Path) -> None:
    before = load_frames(folder)
    after = without_names(before)
    numbers = before.runs.select_dtypes("number")
    assert after.runs[[*numbers]].equals(numbers)
    ids = zip(before.runs["cell_id"], after.runs["cell_id"], strict=True)
    assert [new for old, new in ids if old != new] == ["folder1-cnn-naive-g2-s0-b832a6"]
    for name in ("technique", "model", "started_at", "device", "condition"):
        assert after.runs[name].equals(before.runs[name]), name
    assert [problem.kind for problem in after.problems] == ["rejected", "failed", "failed"]
    assert "300 images processed, yet" in after.problems[0].reason
    assert len(after.unplanned) == 1


def alarm_of(folder: Path, text: str) -> str:
    """What an anonymous report has for an alarm of a run on gpu07.centre.example."""
    met = {"hostnames": ("gpu07.centre.example",)}
    frames = load_frames(write_sweep(folder, [record(alarms=text.split(" | "), world_changes=met)]))
    (found,) = without_names(frames).runs["alarms"]
    return str(found)


@pytest.mark.parametrize(
    "text",
    ["190 images/s", "2 / 3 of 6", "and/or", "made 9/10 of it", "at 12:30:05, e.g. in epoch 3",
     "from sha256:ab12", "bf16 took 1e-5 s", "epochs.jsonl lacks one", "a | b"],
)  # fmt: skip
def test_what_names_nothing_is_said(tmp_path: Path, text: str) -> None:
    assert alarm_of(tmp_path / "s", text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GPU07 and gpu07-ib0.", "node-1 and node-1-ib0."),
        ("GPU07.Other.Example:22 hangs", "node-1:22 hangs"),
        ("fe80::1, ::1 and fe80::a%eth0.", "ADDRESS, ADDRESS and ADDRESS."),
        ("::ffff:10.0.0.1 at 2001:db8::/32", "ADDRESS at ADDRESS/32"),
        ("lost node17", LEFT_OUT),
        ("lost node-1", LEFT_OUT),
        ("lost tcp://nid00123", LEFT_OUT),
        ("ip-10-0-0-5 is gone | gpu07 stays", f"{LEFT_OUT} | node-1 stays"),
        ("login.centre.example is gone", LEFT_OUT),
    ],
)
def test_other_machines_are_not_said(tmp_path: Path, text: str, shown: str) -> None:
    assert alarm_of(tmp_path / "s", text) == shown


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


def test_several_sweeps_name_no_folder_and_no_host(tmp_path: Path) -> None:
    """Cells are SWEEP/CELL there, a sweep has dashes, and a folder another name than its sweep."""
    met = {"hostnames": ("gpu07.centre.example",)}
    lost = record(
        config(dataset="folder:/data/secretproj", image_size=32, seed=2),
        status="failed",
        world_changes=met,
        error=RunError(what="", where="", what_to_do="", log_tail=()),
    )
    kept = [record(config(dataset="folder:/data/secretproj", image_size=32, seed=seed),
                   alarms=("waits for gpu07",)) for seed in range(2)]  # fmt: skip
    a = write_sweep(tmp_path / "my-sweep", [*kept, lost])
    b = write_sweep(tmp_path / "gpu07-other", [record(config(seed=3))])
    renamed = a.rename(tmp_path / "kept-of-may")
    assert CliRunner().invoke(app, ["report", str(renamed), str(b), "--anonymous"]).exit_code == 1
    (out,) = tmp_path.glob("*+*/report")
    files = [path for path in out.rglob("*") if path.is_file()]
    shown = "\n".join(path.read_text() for path in files)
    assert [name for name in ("secretproj", "gpu07") if name in shown] == []
    assert "my-sweep/folder1-cnn-naive-g1-s0" in shown and "waits for node-1" in shown
