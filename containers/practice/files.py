"""The cluster's folder and every file in it. Keys and states are closed to users."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import stat

from . import conf, daemons
from .place import GPUS, SPACES, Place, PracticeError
from .rooms import make_folders
from .shape import Shape


def write(place: Place, shape: Shape) -> None:
    """Mount the folder and fill it. Raises PracticeError where that cannot be."""
    before = os.umask(0o022)  # whatever root's own is: users must be able to read it
    try:
        _mount(place)
        _write(place, shape)
    finally:
        os.umask(before)


def _mount(place: Place) -> None:
    place.folder.mkdir(parents=True, exist_ok=True)
    if any(place.folder.iterdir()):
        raise PracticeError(
            f"{place.folder} holds files that are not this cluster's: look at them and remove the "
            "folder, or name another one with HOROSCALE_PRACTICE"
        )
    # /run is often mounted noexec and nodev: batch scripts and devices need their own
    options = "mode=755,exec,dev,nosuid"
    daemons.run(["mount", "-t", "tmpfs", "-o", options, "horoscale", str(place.folder)])


def _write(place: Place, shape: Shape) -> None:
    for folder, owner, mode in (
        (place.log, "slurm", 0o755), (place.pids, "root", 0o755),
        (place.folder / "state", "slurm", 0o700),
        (place.munge, "munge", 0o755), (place.munge / "private", "munge", 0o700),
        (place.devices, "root", 0o755),
    ):  # fmt: skip
        folder.mkdir()
        folder.chmod(mode)
        shutil.chown(folder, owner, None if owner == "root" else owner)
    for space in SPACES:
        make_folders(place, space)
    for number in range(GPUS):  # they answer like /dev/null: enough to be found and handed out
        device = place.devices / f"gpu{number}"
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.chmod(0o666)
    key = place.munge / "private" / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    shutil.chown(key, "munge", "munge")
    place.hosts.write_text(conf.hosts(shape, socket.gethostname()))
    (place.folder / "gres.conf").write_text(conf.gres_conf(place))
    (place.folder / "cgroup.conf").write_text(conf.cgroup_conf())
    place.slurm_conf.write_text(conf.slurm_conf(place, shape))
    if shape.accounting:
        secret = place.folder / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text(conf.slurmdbd_conf(place, shape))
        shutil.chown(secret, "slurm", "slurm")
        place.database.mkdir()
        (place.database / "first.sql").write_text(conf.database_sql())
        (place.database / "data").mkdir()
        for path in (place.database, place.database / "data"):
            shutil.chown(path, "mysql", "mysql")
    place.state.write_text(json.dumps(shape.as_json(), indent=1) + "\n")
