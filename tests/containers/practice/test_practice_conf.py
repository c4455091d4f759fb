"""The cluster's files are the ones that were tried, and share nothing with another Slurm here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from containers.practice import conf
from containers.practice.place import DEFAULT, Place
from containers.practice.shape import shape_of

GOLDEN = Path(__file__).parent / "golden"
PLACE = Place(DEFAULT)
WITHOUT = shape_of("10.87.1.0/24", [0, 1], 16000)
WITH = shape_of("10.87.1.0/24", [0, 1], 16000, accounting=True)
FILES = {
    "slurm_with_accounting.conf": conf.slurm_conf(PLACE, WITH),
    "slurm_without_accounting.conf": conf.slurm_conf(PLACE, WITHOUT),
    "slurmdbd.conf": conf.slurmdbd_conf(PLACE, WITH),
    "gres.conf": conf.gres_conf(PLACE),
    "hosts": conf.hosts(WITHOUT, "laptop"),
    "database.sql": conf.database_sql(),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_the_ones_that_were_tried(name: str) -> None:
    assert FILES[name] == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", FILES)
def test_nothing_of_the_machines_own_slurm_is_used(name: str) -> None:
    paths = set(re.findall(r"=(/[^\s,]+)", FILES[name])) - {"/bin/true"}
    assert all(path.startswith(str(DEFAULT)) for path in paths)
    assert not re.search(r"Port=68\d\d", FILES[name])


def test_a_second_cluster_shares_no_path_with_the_first() -> None:
    other = Place(Path("/run/other"))
    assert str(DEFAULT) not in conf.slurm_conf(other, WITH)
    assert other.login_link != PLACE.login_link
    assert len(other.login_link) <= 15  # what the kernel allows
