"""Site files: read strictly, wrong ones refused with file, line and the nearest."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config import site as site_module
from jobs.config.site import SITES, Site, auto_file, layout_of, load_site, own_sites
from jobs.config.yamlfile import names_in
from tests.builders import refusal
from train.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "here.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", names_in(SITES))
def test_every_site_that_is_shipped_loads(name: str) -> None:
    loaded = load_site(name)
    assert (loaded.name, loaded.source.parent) == (name, SITES)
    assert loaded.site.title


def test_a_site_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    path = write(tmp_path, "ranks_per_node: 2\n")
    (tmp_path / "there.yml").write_text(path.read_text())
    assert load_site("here", tmp_path) == load_site(str(path))
    assert load_site("there", tmp_path).source == tmp_path / "there.yml"
    assert load_site("here", tmp_path).site == Site(ranks_per_node=2)
    with pytest.raises(ConfigError, match=r"unknown site 'dqx'; did you mean 'dgx'\?.*known: auto"):
        load_site("dqx")
    with pytest.raises(ConfigError, match="directory"):
        load_site(f"{tmp_path}/")
    with pytest.raises(ConfigError, match=r"unknown site '~nobody-here/x\.yaml'"):
        load_site("~nobody-here/x.yaml")


def test_a_users_own_sites_are_found_by_name_and_win(tmp_path: Path, monkeypatch) -> None:
    """An installation that users share may be read-only, and has sites for all of them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shared, own = tmp_path / "shared", own_sites()
    monkeypatch.setattr(site_module, "SITES", shared)
    for folder in (shared, own):
        folder.mkdir(parents=True)
    assert auto_file("c") == own / "auto-c.yaml"
    (shared / "auto-c.yaml").write_text("ranks_per_node: 2\n")
    assert auto_file("c") == shared / "auto-c.yaml"
    assert load_site("auto-c", shared).site.ranks_per_node == 2
    (own / "auto-c.yaml").write_text("ranks_per_node: 3\n")
    assert auto_file("c") == own / "auto-c.yaml"
    assert load_site("auto-c", shared).site.ranks_per_node == 3
    with pytest.raises(ConfigError, match=r"unknown site 'auto-d'; did you mean 'auto-c'"):
        load_site("auto-d", shared)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("partitions: gpu", "unknown key 'partitions'; did you mean 'partition'? known: title"),
        ("gpus: maybe", "gpus: should be 'none', 'gres', 'gpus-per-node' or 'gpus-per-task', f"),
        ("exclusive: yes", 'exclusive: should be a valid boolean, found "yes"'),
        ("environment: {A-B: x}", "environment.A-B.[key]: String should match pattern"),
        ("binds: ['/a,/b']", "binds.0: String should match pattern '^/[^,^]*$', found \"/a,/b\""),
        ("scratch: tmp", "scratch: String should match pattern '^/', found \"tmp\""),
        ("slurm_conf: slurm.conf", "slurm_conf: String should match pattern '^/', found"),
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
    path = write(tmp_path, f"ranks_per_node: 2\n{line}\n")
    assert refusal(load_site, str(path)).startswith(f"{path}:2: {said}")


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


def test_more_nodes_than_a_job_may_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs 3 nodes .* allows a job 2 .* at most gpus=8"):
        layout_of(9, Site(ranks_per_node=4, max_nodes=2))


@given(gpus=st.integers(1, 300), ranks=st.integers(1, 16))
def test_every_layout_holds_all_ranks_on_the_fewest_nodes(gpus: int, ranks: int) -> None:
    site = Site(ranks_per_node=ranks, max_nodes=math.ceil(gpus / ranks))
    try:
        layout = layout_of(gpus, site)
    except ConfigError as error:
        names = str(error).split("nearest: ")[1].split(" or ")
        low, high = (int(name.removeprefix("gpus=")) for name in names)
        assert low < gpus < high
        for count in (low, high):
            layout_of(count, site)  # what is named as possible is
        for count in range(low + 1, high):
            with pytest.raises(ConfigError):
                layout_of(count, site)
        return
    assert (layout.size, layout.nodes) == (gpus, math.ceil(gpus / ranks))
    assert 1 <= layout.ranks_per_node <= ranks
