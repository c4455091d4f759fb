"""Clone to report on Debian 13, whose GCC 14 and Python 3.13 are newer than what Horovod expects.
The user's home, shell and umask are made for other programs.

Debian 13 is a folder made by debootstrap with nothing but what README asks for, and Python 3.11 of
this machine beside it. It is entered with pivot_root rather than chroot: namespaces that programs
make for themselves (Apptainer's, the practice cluster's) work in it as on a machine of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if (containers := str(ROOT / "containers")) not in sys.path:
    sys.path.append(containers)

from build.mirrors import (  # noqa: E402  (from containers, which is no package)
    CA_NAMES,
    PROXY_NAMES,
    apt_settings,
    ca_bundle,
    debian_mirror,
    proxies,
)
from locks import SetupError  # noqa: E402

SUITE = "trixie"
#: what README asks for, and certificates for git and pip
PACKAGES = ("make", "g++", "git", "ca-certificates", "python3", "python3-venv")
#: what is mounted is seen by nobody else, and what is started ends with the first of it
APART = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
#: what this user's home and shell hold for other programs
VISITOR = "visitor"
HOSTILE = {
    ".keras/keras.json": '{"image_data_format": "channels_first", "floatx": "float16"}',
    ".config/matplotlib/matplotlibrc": "text.usetex: True\nsavefig.bbox: tight\n",
    ".config/pip/pip.conf": "[global]\nuser = true\n",
    "modules/numpy.py": "raise ImportError('numpy of another program')\n",
}
ENTER = """
mount --rbind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
pivot_root . .
umount --lazy .
cd /
exec "$@"
"""


def entered(root: Path, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command as VISITOR of the machine whose files are in ``root``."""
    told = [f"{name}={value}" for name, value in environment.items()]
    user = ["setpriv", f"--reuid={VISITOR}", f"--regid={VISITOR}", "--init-groups"]
    return [*APART, "sh", "-ec", ENTER, str(root), "env", "-i", *told, *user, *command]


def surroundings() -> dict[str, str]:
    """Of the visitor's shell: this machine's ways to packages, and what other programs need."""
    ways = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name in CA_NAMES or name.lower() in PROXY_NAMES
    }
    path = f"{sys.base_prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    home = f"/home/{VISITOR}"
    return {**ways, "HOME": home, "LC_ALL": "C", "PYTHONPATH": f"{home}/modules", "PATH": path}


def copy(path: Path, root: Path, to: Path | None = None) -> None:
    """A file or folder of this machine to the same place there, or to another."""
    place = root / (to or path).relative_to("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        # packages of this machine's Python are none of a newcomer's
        skip = shutil.ignore_patterns("site-packages", "dist-packages", "__pycache__", "test")
        shutil.copytree(path, place, ignore=skip, dirs_exist_ok=True)
    else:
        shutil.copy(path, place)


def python() -> list[Path]:
    """The files of the Python 3.11 that runs this test."""
    base = Path(sys.base_prefix)
    folders = [Path(sysconfig.get_path(name)) for name in ("stdlib", "include")]
    libraries = base.glob("lib/libpython3.11.so*")
    wheels = sysconfig.get_config_var("WHEEL_PKG_DIR")  # Debian's own Python has its pip there
    return [base / "bin" / "python3.11", *folders, *libraries, *([Path(wheels)] if wheels else [])]


def troubles() -> Iterator[str]:
    """What keeps this machine from making a Debian 13 root."""
    if os.geteuid() != 0:
        yield f"root (found: user id {os.geteuid()})"
        return
    for program, package in (("debootstrap", "debootstrap"), ("git", "git")):
        if shutil.which(program) is None:
            yield f"{program} (package {package})"
    said = subprocess.run([*APART, "true"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        yield f"namespaces for mounts and processes (found: {said.stderr.strip()})"
    try:
        address = f"{debian_mirror(os.environ)}/dists/{SUITE}/InRelease"
        urllib.request.urlopen(address, timeout=60).close()
    except SetupError as error:
        yield str(error)
    except (OSError, ValueError) as error:
        yield f"a Debian mirror with {SUITE} ({address}: {error})"


@pytest.fixture
def debian13() -> Iterator[Path]:
    """A fresh minimal Debian 13 (766 MB, under a minute)."""
    if found := list(troubles()):
        pytest.skip(f"no Debian 13 root on this machine; missing: {'; '.join(found)}")
    # not pytest's own folder, which is kept
    with tempfile.TemporaryDirectory(prefix="horoscale-debian13-", dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        done = subprocess.run(
            [*APART, "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE,
             str(root), debian_mirror(os.environ)],
            env={**os.environ, **proxies(os.environ)}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
        settings = [Path("/etc/resolv.conf"), Path("/etc/hosts"), Path("/etc/pip.conf"),
                    ca_bundle(os.environ)]  # fmt: skip
        for path in [*settings, *python()]:
            if path is not None and path.exists():
                copy(path, root)
        if (own := Path.home() / ".config/pip/pip.conf").exists():
            copy(own, root, Path("/etc/xdg/pip/pip.conf"))
        (root / "root").chmod(0o711)  # where the Python that runs this test may be
        (root / "etc/apt/apt.conf.d/99machine").write_text(apt_settings())
        for name, text in HOSTILE.items():
            (file := root / "home" / VISITOR / name).parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        subprocess.run(
            ["chroot", str(root), "useradd", "--shell", "/bin/bash", VISITOR], check=True
        )
        yield root


@pytest.mark.slow
@pytest.mark.timeout(7200)  # 37 minutes on two cores that five others shared
def test_clone_to_report_in_a_hostile_home_with_gcc_14(debian13: Path) -> None:
    home = debian13 / "home" / VISITOR
    clone = home / "horoscale"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    owned = ["chroot", str(debian13), "chown", "--recursive", VISITOR, f"/home/{VISITOR}"]
    subprocess.run(owned, check=True)
    # this machine's Python may be in root's own folder, and is then used only if named
    python = f"PYTHON={sys.base_prefix}/bin/python3.11"
    command = f"umask 077; g++ -dumpversion && cd ~/horoscale && make sweep SWEEP=smoke {python}"
    done = subprocess.run(
        entered(debian13, ["bash", "-c", command], surroundings()),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.stdout.startswith("14\n")
    assert done.returncode == 0
    assert (clone / "results" / "smoke" / "report" / "report.html").is_file()
