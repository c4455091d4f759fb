"""Where somebody else than the user and root can put something that is run then."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import struct
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import image
import locks
import pytest
import setup as set_up
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
