"""Where somebody else than the user and root can put something that is run then."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import struct
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import image
import locks
import pytest
import setup as set_up
from build import inputs
from environments import Place

ANN, HER_GROUP, USERS = 4711, 4712, 100


@pytest.fixture
def ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user, with a group of her own name; bob and she are both in `users`, by their entries."""
    names = {ANN: ("ann", HER_GROUP), 0: ("root", 0)}
    groups = {HER_GROUP: ("ann", []), USERS: ("users", []), 0: ("root", [])}
    monkeypatch.setattr(os, "geteuid", lambda: ANN)
    monkeypatch.setattr(
        pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=names[uid][0], pw_gid=names[uid][1])
    )
    monkeypatch.setattr(
        grp,
        "getgrgid",
        lambda gid: SimpleNamespace(gr_name=groups[gid][0], gr_mem=groups[gid][1], gr_gid=gid),
    )
    monkeypatch.setattr(os, "listxattr", lambda _: [])


@pytest.mark.usefixtures("ann")
@pytest.mark.parametrize(
    ("owner", "group", "mode", "passing", "others"),
    [
        (ANN, HER_GROUP, 0o755, False, False),
        (ANN, HER_GROUP, 0o775, False, False),  # as Debian's umask 002 makes it
        (ANN, USERS, 0o775, False, True),  # nobody is listed in a group that is all users' own
        (ANN, USERS, 0o755, False, False),
        (ANN, 99, 0o775, False, True),  # a group without a name
        (ANN, HER_GROUP, 0o757, False, True),
        (0, 0, 0o755, False, False),
        (0, 0, 0o1777, True, False),
        (0, 0, 0o1777, False, True),
        (0, USERS, 0o2775, True, True),
        (1, HER_GROUP, 0o755, True, True),
        (1, HER_GROUP, 0o1777, True, True),
    ],
)
def test_who_may_write(owner: int, group: int, mode: int, *, passing: bool, others: bool) -> None:
    found = os.stat_result((0o040000 | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))
    assert locks.others_write(found, Path("/a"), passing=passing) == others


@pytest.mark.usefixtures("ann")
def test_a_private_group_is_not_alone_with_members_or_an_access_list(monkeypatch) -> None:
    found = os.stat_result((0o040775, 0, 0, 1, ANN, HER_GROUP, 0, 0, 0, 0))
    with monkeypatch.context() as patched:
        patched.setattr(os, "listxattr", lambda _: ["system.posix_acl_access"])
        assert locks.others_write(found, Path("/a"))
    for code, others in ((errno.ENOTSUP, False), (errno.EACCES, True)):
        with monkeypatch.context() as patched:
            patched.setattr(os, "listxattr", Mock(side_effect=OSError(code, "")))
            assert locks.others_write(found, Path("/a")) == others
    monkeypatch.setattr(
        grp, "getgrgid", lambda gid: SimpleNamespace(gr_name="ann", gr_mem=["bob"], gr_gid=gid)
    )
    assert locks.others_write(found, Path("/a"))


def test_a_real_access_list_is_seen(tmp_path: Path) -> None:
    entries = [(1, 7, 0xFFFFFFFF), (2, 7, 65534), (4, 5, 0xFFFFFFFF), (16, 7, 0xFFFFFFFF),
               (32, 5, 0xFFFFFFFF)]  # fmt: skip
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path, "system.posix_acl_access", listed)
    except OSError as error:
        pytest.skip(f"no access lists in this file system: {error}")
    assert locks.writable_by_others(tmp_path) == tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks at the folders above")
def test_each_link_and_each_folder_on_the_way_counts(tmp_path: Path) -> None:
    """Who may write a folder may exchange what lies in it, unless it is sticky."""
    for name in ("a/deep", "b/deep", "c/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("../b/second")
    (tmp_path / "b" / "second").symlink_to(tmp_path / "c")
    place = tmp_path / "a" / "link" / "deep"
    assert locks.writable_by_others(place) is None
    assert locks.writable_by_others(place / "none" / "yet") is None
    for folder in ("a", "b", "c", "c/deep"):
        (tmp_path / folder).chmod(0o777)
        found = locks.writable_by_others(place)
        assert found is not None and found.samefile(tmp_path / folder)
        (tmp_path / folder).chmod(0o1777)
        assert (locks.writable_by_others(place) is None) == (folder != "c/deep")
        (tmp_path / folder).chmod(0o755)
    (tmp_path / "c" / "circle").symlink_to("circle")
    assert locks.writable_by_others(tmp_path / "c" / "circle" / "in") is None


def test_set_up_runs_nothing_from_where_others_can_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment, and images."""
    monkeypatch.setattr(locks, "LOCKS", tmp_path / "checkout" / "containers")
    place = Place(tmp_path / "checkout" / ".venv", "01234567-89ab")
    images = tmp_path / "checkout" / "containers" / "images"
    monkeypatch.setattr(image, "FOLDER", images)
    for folder in (place.folder, images):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    match = "others than you can change .*chmod go-w"
    with pytest.raises(locks.SetupError, match=match):
        set_up.prepare("login", place)
    with pytest.raises(locks.SetupError, match=match):
        image.make("cpu")
    (tmp_path / "checkout").chmod(0o777)  # whoever can write there changes the code itself
    locks.check_own(place.folder)
    outside = tmp_path / "outside"
    outside.mkdir()
    locks.check_own(outside)
    outside.chmod(0o777)
    with pytest.raises(locks.SetupError, match=match):
        locks.check_own(outside)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks at the folders above")
def test_above_an_environment_only_root_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As VENV= in the folder of a project, where a cluster's users have their room."""
    (tmp_path / "project" / "own").mkdir(parents=True)
    (tmp_path / "project").chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("own", "none yet"):
        with pytest.raises(locks.SetupError, match="project, and programs in"):
            locks.check_own(tmp_path / "project" / name)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid or ANN)
    locks.check_own(tmp_path / "project" / "own")
    (tmp_path / "project" / "own").chmod(0o777)
    with pytest.raises(locks.SetupError, match="own, and programs in"):
        locks.check_own(tmp_path / "project" / "own")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders of others")
@pytest.mark.parametrize("user", [0, 1002])
def test_members_of_a_shared_checkout_use_each_other_s_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    """Who may write the checkout changes its code anyway; who may not is still refused."""
    checkout, folder = tmp_path / "checkout", tmp_path / "checkout" / ".venv.envs"
    folder.mkdir(parents=True)
    monkeypatch.setattr(locks, "LOCKS", checkout / "containers")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    for mode, group, own_mode, accepted in (
        (0o2775, USERS, 0o2755, True),
        (0o2775, USERS, 0o2775, True),
        (0o2775, USERS, 0o2777, False),
        (0o2775, 4242, 0o2755, False),
        (0o2755, USERS, 0o2755, False),
        (0o2777, 4242, 0o2777, True),
    ):
        for path, owner, gid, bits in (
            (checkout, 2222, USERS, mode), (folder, 1001, group, own_mode)
        ):  # fmt: skip
            os.chown(path, owner, gid)
            path.chmod(bits)
        if accepted:
            locks.check_own(folder)
        else:
            with pytest.raises(locks.SetupError, match="others than you"):
                locks.check_own(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders of others")
def test_root_in_the_home_of_another_user_goes_on_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a job of CI in a container, or with sudo that keeps HOME. Seen: set-up refused."""
    for name in ("home", "root"):
        (tmp_path / name).mkdir()
    os.chown(tmp_path / "home", 1001, 0)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    account = SimpleNamespace(pw_name="root", pw_gid=0, pw_dir=str(tmp_path / "root"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account)
    own = tmp_path / "root" / ".cache" / "horoscale"
    assert locks.cache_folder() == own and inputs.work_folder() == own / "images"
    with pytest.raises(locks.SetupError, match=r"home, .* user 1001,") as refused:
        locks.check_own(tmp_path / "home" / "env")
    assert "chmod" not in str(refused.value), "it would not help"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders of others")
@pytest.mark.parametrize(("owner", "mode"), [(0, 0o2770), (2222, 0o755)])
@pytest.mark.parametrize("named", ["XDG_CACHE_HOME", "HOME"])
def test_a_user_s_cache_may_be_in_the_folder_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, owner: int, mode: int
) -> None:
    """Seen: it was passed over for the home, or refused, where the folder is the group's or a
    leader's."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(named, str(tmp_path / "project" / "ann"))
    (tmp_path / "project" / "ann").mkdir(parents=True)
    os.chown(tmp_path / "project" / "ann", 1001, 100)
    os.chown(tmp_path / "project", owner, 4242)
    (tmp_path / "project").chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    caches = tmp_path / "project" / "ann" / (".cache" if named == "HOME" else "") / "horoscale"
    assert locks.cache_folder() == caches and inputs.work_folder() == caches / "images"
    (caches / "images" / "tmp").chmod(0o777)
    with pytest.raises(locks.SetupError) if named == "HOME" else nullcontext():
        assert inputs.work_folder().is_relative_to(tmp_path / "home")


def test_a_link_that_cannot_be_followed_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one into a closed folder. Seen: Path.exists raised PermissionError."""
    (tmp_path / "cache").symlink_to("x" * 300)  # it raises for root, too
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    locks.check_own(tmp_path / "cache")
    assert locks.writable_by_others(tmp_path / "cache") is None
    assert inputs.work_folder() == tmp_path / "home" / ".cache" / "horoscale" / "images"
