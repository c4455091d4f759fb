"""Continuing as another user: whose environment a command gets, and what root gives away."""

from __future__ import annotations

import grp
import os
import pwd
import sys
from pathlib import Path

import pytest
import users

from tests.sweeps import ROOT, copy_checkout, ran

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_other_user_s_own_environment_and_the_same_tokens(monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere/.cache")
    monkeypatch.setenv("NCCL_DEBUG", "a b")
    script = 'id -un; id -gn; echo "$HOME|$USER|$XDG_CACHE_HOME|$NCCL_DEBUG|$PATH|$1"'
    # whose group has another name, as at many a site
    done = ran(users.as_user(["sh", "-c", script, "sh", "c $HOME"], "nobody"))
    own = pwd.getpwnam("nobody")
    variables = f"{own.pw_dir}|nobody||a b|{users.SEARCH_PATH}|c $HOME"
    group = grp.getgrgid(own.pw_gid).gr_name
    assert group != "nobody" and done.stdout.splitlines() == ["nobody", group, variables]


@needs_root
def test_a_folder_is_given_with_all_below_it_and_made_where_it_is_missing(tmp_path) -> None:
    (tmp_path / "results" / "deep").mkdir(parents=True)
    (tmp_path / "results" / "deep" / "file").touch()
    users.give(tmp_path / "results", "nobody")
    users.give(tmp_path / "new" / "preflight", "nobody")
    given = [tmp_path / "results", *(tmp_path / "results").rglob("*"), tmp_path / "new/preflight"]
    assert [path.stat().st_uid for path in given] == [NOBODY] * 4
    assert (tmp_path / "new").stat().st_uid == 0


@needs_root
@pytest.mark.parametrize("second_name", ["symbolic link", "link to a folder", "hard link"])
def test_what_a_link_leads_to_is_never_given(tmp_path: Path, second_name: str) -> None:
    """The results belong to the user, so a link of that user may lead anywhere."""
    mine, given = tmp_path / "mine", tmp_path / "given"
    mine.mkdir()
    (mine / "file").touch()
    (given / "deep").mkdir(parents=True)
    link = given / "deep" / "link"
    if second_name == "hard link":
        link.hardlink_to(mine / "file")
    else:
        link.symlink_to(mine if "folder" in second_name else mine / "file")
    users.give(given, "nobody")
    assert mine.stat().st_uid == (mine / "file").stat().st_uid == 0
    assert (given / "deep").stat().st_uid == NOBODY
    assert link.lstat().st_uid == (0 if second_name == "hard link" else NOBODY)


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_another_user_s_link_on_the_way_is_refused_and_root_s_is_followed(tmp_path, mode) -> None:
    """As RESULTS=/home/ann/results, where results leads to /etc."""
    mine, home = tmp_path / "mine", tmp_path / "home"
    for folder in (mine, home):
        folder.mkdir()
    (home / "results").symlink_to("../mine")
    users.give(home / "results" / "smoke", "nobody")
    assert (mine / "smoke").stat().st_uid == NOBODY
    home.chmod(mode)
    os.chown(home, *((0, 0) if mode == 0o1777 else (NOBODY, NOBODY)))
    os.chown(home / "results", NOBODY, NOBODY, follow_symlinks=False)
    for name in ("results/etc", "results"):
        with pytest.raises(PermissionError, match="results is a link that others than root can"):
            users.give(home / name, "nobody")
    assert sorted(path.name for path in mine.iterdir()) == ["smoke"]
    assert mine.stat().st_uid == 0


@needs_root
@pytest.mark.parametrize(
    ("site", "mode", "results", "refused"),
    [
        ("site.yaml", 0o644, "results", None),
        ("closed/site.yaml", 0o644, "results", "closed/site.yaml"),
        ("site.yaml", 0o600, "results", "site.yaml"),
        ("site.yaml", 0o644, "closed/results", "closed/results"),
    ],
)
def test_root_s_command_goes_on_only_with_what_the_user_can_read(
    practice_user, open_folder: Path, site: str, mode: int, results: str, refused: str | None
) -> None:
    """As SITE= or RESULTS= below the home of root."""
    place = open_folder
    (place / "closed").mkdir(mode=0o700)
    (place / site).touch(mode)
    argv = [sys.executable, ROOT / "containers" / "practice", "login", "--give", place / results]
    argv += ["--make", place / "data" / "sets", "--read", place / site, "--", "id", "-un"]
    done = ran(argv)
    made = (place / "data" / "sets").stat()
    assert made.st_uid == 0, "a later command of root's writes there: no folder of another user"
    if refused is None:
        assert (done.returncode, done.stdout) == (0, "practice\n"), done.stderr
    else:
        said = f"practice, as whom root's command goes on, cannot read {place / refused}"
        assert done.returncode == 2 and said in done.stderr


@needs_root
@pytest.mark.parametrize("closed", [".", "containers/users.py"])
def test_a_checkout_that_root_alone_can_read_is_named(
    practice_user, open_folder: Path, closed: str
) -> None:
    """As umask 077 makes it; seen: a traceback, "No module named 'unprivileged'"."""
    checkout = copy_checkout(open_folder / "checkout")
    (checkout / closed).chmod(0o700)
    argv = [sys.executable, checkout / "containers" / "practice", "login", "--", "true"]
    done = ran(argv)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"only root can read {(checkout / closed).resolve()}" in done.stderr
    assert f"chmod -R go+rX {checkout}" in done.stderr


PREPARE = """
import sys
from pathlib import Path
from jobs.config.site import own_sites
from jobs.plan.datasets import store_for, train_images
from tests.builders import config
data, results = map(Path, sys.argv[1:])
print(*train_images([config()], data, store_for(data, results), results / "s").values())
own_sites()
"""


@needs_root
def test_users_share_an_installation_and_data_that_they_cannot_write(
    practice_user, open_folder: Path
) -> None:
    """Each has results and prepared data of its own; one of them has no home that it can write."""
    data = open_folder / "data"
    data.mkdir(mode=0o755)
    for user in (practice_user, "daemon"):
        results = open_folder / user
        users.give(results, user)
        argv = users.enter_argv([sys.executable, "-c", PREPARE, str(data), str(results)], user)
        done = ran(argv, cwd=ROOT)
        assert (done.returncode, done.stdout) == (0, "1437\n"), done.stderr
        assert {path.owner() for path in results.rglob("*")} == {user}
    assert list(data.iterdir()) == []
