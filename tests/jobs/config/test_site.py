"""Site files: read strictly, wrong ones refused with file, line and the nearest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.config.site import SITES, Site, load_site
from jobs.config.yamlfile import names_in
from train.errors import ConfigError


def write(folder: Path, text: str, name: str = "here.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_site(str(path))
    return str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize("name", names_in(SITES))
def test_every_site_that_is_shipped_loads(name: str) -> None:
    found = load_site(name)
    assert found.name == name
    assert found.source.parent == SITES
    assert found.site.title


def test_the_examples_are_there_and_differ_where_sites_do() -> None:
    dgx, cpu = load_site("dgx").site, load_site("cpu").site
    assert (dgx.gpus, dgx.gpu_support, dgx.image) == ("gpus-per-node", "nv", "gpu")
    assert (cpu.gpus, cpu.gpu_support, cpu.image, cpu.mpi) == ("none", "none", "cpu", "gloo")


def test_a_site_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    path = write(tmp_path, "ranks_per_node: 2\n", "two.yaml")
    assert load_site("two", tmp_path) == load_site(str(path))
    assert load_site("two", tmp_path).site == Site(ranks_per_node=2)


def test_all_kinds_of_values_are_read(tmp_path: Path) -> None:
    text = """
ranks_per_node: 4
mem_per_rank_gb: 2          # a whole number is a number of gigabytes, too
sbatch: {mail-type: FAIL, nice: 100, oversubscribe: true}
modules: [apptainer/1.3]
environment: {NCCL_DEBUG: WARN}
setup: ["ulimit -l unlimited"]
"""
    site = load_site(str(write(tmp_path, text))).site
    assert site.mem_per_rank_gb == 2.0
    assert site.sbatch == {"mail-type": "FAIL", "nice": 100, "oversubscribe": True}
    assert site.modules == ("apptainer/1.3",)


def test_an_unknown_site_names_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError, match=r"unknown site 'dqx'; did you mean 'dgx'\?.*known: auto"):
        load_site("dqx")
    with pytest.raises(
        ConfigError, match=r"no site file .*nowhere\.yaml; sites known by name: cpu"
    ):
        load_site("./nowhere.yaml")


def test_an_unknown_key_names_line_nearest_and_all(tmp_path: Path) -> None:
    text = refusal(tmp_path, "ranks_per_node: 2\n\npartitions: gpu\n")
    assert text.startswith("FILE:3: unknown key 'partitions'; did you mean 'partition'? known: ")
    assert "ranks_per_node" in text
    assert "slurm_conf" in text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ranks_per_node: two", "ranks_per_node: Input should be a valid integer, found 'two'"),
        ("ranks_per_node: 0", "ranks_per_node: Input should be greater than or equal to 1, found"),
        ("account: 1234", "account: Input should be a valid string, found 1234; quote it"),
        ("gpus: maybe", "gpus: Input should be 'none', 'gres', 'gpus-per-node' or 'gpus-per-task'"),
        ("exclusive: yes", "exclusive: Input should be a valid boolean, found 'yes'"),
        ("modules: apptainer", "modules: Input should be a valid "),
        ("environment: {A-B: x}", "environment: expected names of environment variables"),
        ("binds: ['/a,/b']", "binds: expected /SRC[:DEST[:ro]] without , and ^, found '/a,/b'"),
        ("binds: [data]", "binds: expected /SRC[:DEST[:ro]]"),
        ("sbatch: {mail_type: FAIL}", "sbatch: expected long names such as mail-type"),
        ("sbatch: {array: 0-3}", "sbatch: array is what this program sets by itself"),
        ("sbatch: {time: 5}", "sbatch: time belongs to the key 'time_min' of the site file"),
        ("gpu_type: a100", "gpu_type needs a way to ask for it"),
        ('partition: "gpu\\nrm -rf x"', "partition: expected a single line of text"),
        ('sbatch: {mail-user: "a\\nb"}', "sbatch: expected a single line of text"),
        ('setup: ["a\\nb"]', "setup: expected a single line of text"),
    ],
)
def test_wrong_values_name_line_and_key(tmp_path: Path, line: str, told: str) -> None:
    first = "" if line.startswith("ranks_per_node") else "ranks_per_node: 2\n"
    text = refusal(tmp_path, f"{first}{line}\n")
    assert text.startswith(f"FILE:{2 if first else 1}: {told}"), text


def test_what_a_site_must_say(tmp_path: Path) -> None:
    assert "'ranks_per_node' is missing" in refusal(tmp_path, "partition: gpu\n")


@pytest.mark.parametrize(
    ("option", "free", "taken"),
    [
        ("gres", {}, {"gpus": "gres"}),
        ("mem", {}, {"mem_per_rank_gb": 1.0}),
        ("exclusive", {}, {"exclusive": True}),
    ],
)
def test_options_that_a_key_leaves_open_may_be_set(
    option: str, free: dict[str, Any], taken: dict[str, Any]
) -> None:
    assert Site(ranks_per_node=1, sbatch={option: "x"}, **free).sbatch == {option: "x"}
    with pytest.raises(ValueError, match=f"{option} belongs to the key"):
        Site(ranks_per_node=1, sbatch={option: "x"}, **taken)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("time_min: 1\nsignal_s: 60", "signal_s"),
        ("sbatch: {clusters: other}", "clusters"),
        ("sbatch: {quiet: true}", "quiet"),
    ],
)
def test_what_would_lose_jobs_is_refused(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(f"ranks_per_node: 1\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        load_site(str(file))
