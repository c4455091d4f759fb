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
    loaded = load_site(name)
    assert (loaded.name, loaded.source.parent) == (name, SITES)
    assert loaded.site.title


def test_a_site_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    path = write(tmp_path, "ranks_per_node: 2\n", "two.yaml")
    assert load_site("two", tmp_path) == load_site(str(path))
    assert load_site("two", tmp_path).site == Site(ranks_per_node=2)
    with pytest.raises(ConfigError, match=r"unknown site 'dqx'; did you mean 'dgx'\?.*known: auto"):
        load_site("dqx")
    with pytest.raises(ConfigError, match=r"unknown site '\./nowhere.yaml'; known: auto, local, c"):
        load_site("./nowhere.yaml")


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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("partitions: gpu", "unknown key 'partitions'; did you mean 'partition'? known: title"),
        ("account: 1234", "account: should be a valid string, found 1234"),
        ("gpus: maybe", "gpus: should be 'none', 'gres', 'gpus-per-node' or 'gpus-per-task', f"),
        ("exclusive: yes", 'exclusive: should be a valid boolean, found "yes"'),
        ("modules: apptainer", "modules: should be a valid array, found "),
        ("environment: {A-B: x}", "environment.A-B.[key]: String should match pattern"),
        ("binds: ['/a,/b']", "binds.0: String should match pattern '^/[^,^]*$', found \"/a,/b\""),
        ("binds: [data]", "binds.0: String should match pattern"),
        ("sbatch: {mail_type: FAIL}", "sbatch.mail_type.[key]: String should match pattern"),
        ("sbatch: {array: 0-3}", "sbatch: array is what this program sets by itself"),
        ("sbatch: {time: 5}", "sbatch: time belongs to the key 'time_min' of the site file"),
        # what would lose jobs
        ("sbatch: {clusters: other}", "sbatch: clusters is what this program sets by itself"),
        ("sbatch: {quiet: true}", "sbatch: quiet is what this program sets by itself"),
        ("signal_s: 3600", "signal_s 3600: a job has 3600 s"),
        ("gpu_type: a100", "gpu_type needs a way to ask for it"),
        ('partition: "gpu\\nrm -rf x"', "partition: expected a single line of text"),
        ('sbatch: {mail-user: "a\\nb"}', "sbatch: expected a single line of text"),
        ('setup: ["a\\nb"]', "setup: expected a single line of text"),
    ],
)
def test_wrong_values_name_line_and_key(tmp_path: Path, line: str, said: str) -> None:
    text = refusal(tmp_path, f"ranks_per_node: 2\n{line}\n")
    assert text.startswith(f"FILE:2: {said}"), text


def test_what_a_site_must_say(tmp_path: Path) -> None:
    text = "FILE:1: ranks_per_node: Field required"
    assert refusal(tmp_path, "partition: gpu\n") == text


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("gres", {"gpus": "gres"}),
        ("mem", {"mem_per_rank_gb": 1.0}),
        ("exclusive", {"exclusive": True}),
    ],
)
def test_options_that_a_key_leaves_open_may_be_set(option: str, key: dict[str, Any]) -> None:
    assert Site(ranks_per_node=1, sbatch={option: "x"}).sbatch == {option: "x"}
    with pytest.raises(ValueError, match=f"{option} belongs to the key"):
        Site(ranks_per_node=1, sbatch={option: "x"}, **key)
