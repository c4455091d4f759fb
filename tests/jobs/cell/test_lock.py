"""Who works on a sweep's folder, also where locks do not reach from one machine to another."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from jobs.cell import lock
from jobs.cell.lock import (
    BOOT_ID,
    LOCK_NAME,
    Holder,
    hold,
    holder,
    is_running,
    only_sweep,
    reach_of,
    signed,
)
from train.errors import ConfigError

HOST, OURS = os.uname().nodename, BOOT_ID.read_text().strip()
THEIRS = "00000000-1111-2222-3333-444444444444"


def mount(monkeypatch: pytest.MonkeyPatch, folder: Path, kind: str, options: str) -> None:
    """Have the table of mounts say so of the folder's file system."""
    device = folder.stat().st_dev
    where = f"{os.major(device)}:{os.minor(device)} / {folder}"
    table = folder / "mountinfo"
    table.write_bytes(  # one name is no UTF-8: whoever looks at mounts meets those of others
        b"9 1 0:0 / /media/\xfc rw - vfat /dev/sdb1 rw\n"
        + f"10 1 {where} rw shared:1 - {kind} srv:/x {options}\n".encode()
    )
    monkeypatch.setattr(lock, "MOUNTS", table)


@pytest.mark.parametrize(
    ("text", "kind", "options", "taken"),
    [
        ("process 7 on login2", "nfs4", "rw", False),  # of an earlier version: no proof
        (f"process 7 on {HOST}", "ext4", "rw", True),
        (f"process 7 on login2, boot {OURS}", "ext4", "rw", True),  # a container of this kernel
        (f"process 7 on {HOST}, boot {THEIRS}", "ext4", "rw", True),  # rebooted
        (f"process 7 on login2, boot {THEIRS}", "nfs4", "rw", False),  # whose locks reach nobody
        (f"process 7 on login2, boot {THEIRS}, nfs", "ext4", "rw", False),  # the server itself
        (f"process 7 on login2, boot {THEIRS}, nfs", "nfs4", "rw,local_lock=none", True),
        (f"process 7 on login2, boot {THEIRS}, nfs", "nfs4", "rw,local_lock=flock", False),
        (f"job 17_2, process 7 on login2, boot {THEIRS}, ceph", "ceph", "rw", True),
        (f"process 7 on login2, boot {THEIRS}, ceph", "nfs", "rw", False),  # exported once more
        ("\ufffd\ufffd", "nfs", "rw", True),  # nobody's
    ],
)
def test_the_lock_of_one_that_is_provably_gone_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: str, options: str, taken: bool
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    mount(monkeypatch, tmp_path, kind, options)
    file = folder / ".lock"
    file.write_text(text)
    if not taken:
        with pytest.raises(ConfigError, match="another machine") as refused, only_sweep(folder):
            pass
        assert f"{file} is signed by process 7 on login2;" in str(refused.value)
        assert str(refused.value).endswith(f"remove it: rm {shlex.quote(str(file))}")
        assert file.read_text() == text
        return
    with only_sweep(folder):
        ours = signed(file.read_text())
        reach = reach_of(folder.stat().st_dev)
        assert ours == Holder(os.getpid(), HOST, OURS, reach)
    assert file.read_text() == "", "signed off"


@pytest.mark.parametrize(
    ("kind", "options", "reach"),
    [
        ("nfs", "rw,vers=3,local_lock=none", "nfs"), ("nfs", "rw,nolock,local_lock=all", None),
        ("nfs4", "rw,local_lock=posix", "nfs"), ("nfs4", "rw,local_lock=all", None),
        ("lustre", "rw,flock,lazystatfs", "lustre"), ("lustre", "rw,localflock", None),
        ("lustre", "rw,lazystatfs", None), ("gpfs", "rw", "gpfs"), ("ceph", "rw", "ceph"),
        ("ext4", "rw", None), ("fuse.bindfs", "rw", None), ("beegfs", "rw", None),
    ],
)  # fmt: skip
def test_how_far_locks_reach(tmp_path, monkeypatch, kind: str, options: str, reach) -> None:
    device = tmp_path.stat().st_dev
    mount(monkeypatch, tmp_path, kind, options)
    assert reach_of(device) == reach
    assert reach_of(device + 1) is None
    monkeypatch.setattr(lock, "MOUNTS", tmp_path / "nowhere")
    assert reach_of(device) is None


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match=r"Operation not supported.*RESULTS=DIR"):
        only_sweep(tmp_path).__enter__()


def test_a_file_system_that_no_node_can_see(tmp_path: Path) -> None:
    """/dev/shm is memory of this machine; a disk of it may be served to others."""
    assert lock.local_file_system(Path("/dev/shm")) == "tmpfs"
    assert lock.local_file_system(tmp_path / "nowhere") is None


def test_one_sweep_per_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb" / "trial"
    with only_sweep(folder):
        who = rf"process {os.getpid()} on {HOST}"
        with (
            pytest.raises(ConfigError, match=rf"(?s)another make sweep .*{who}"),
            only_sweep(folder),
        ):
            pass


def test_the_lock_of_a_cell(tmp_path: Path) -> None:
    assert not is_running(tmp_path) and holder(tmp_path) is None
    with hold(tmp_path, job="17_2") as first:
        assert first and is_running(tmp_path)
        with hold(tmp_path) as second:
            assert not second
        found = holder(tmp_path)
        assert found is not None and (found.job, found.boot) == ("17_2", OURS)
        assert str(found) == f"job 17_2, process {os.getpid()} on {HOST}"
    assert not is_running(tmp_path) and (tmp_path / LOCK_NAME).read_text() == ""
    # a killed supervisor leaves its name, and no lock
    (tmp_path / LOCK_NAME).write_text("process 1 on somewhere")
    assert not is_running(tmp_path) and holder(tmp_path) is None
