"""What a practice cluster installs, and that it starts no service of the machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from locks import SetupError

from containers.practice import needs

IN_A_PACKAGE = """
[ "$1" = install ] || exit 0
: >{place}/said
for program in /usr/sbin/invoke-rc.d /usr/bin/deb-systemd-invoke; do
    [ ! -e $program ] || $program no-such-service restart >>{place}/said 2>&1 || exit 9
done
"""


@pytest.fixture
def mounts() -> None:
    if os.geteuid() != 0 or subprocess.run([*needs.NO_SERVICES, "true"], check=False).returncode:
        pytest.skip("this machine lets root make no mounts")


@pytest.mark.usefixtures("mounts")
def test_packages_start_no_service_and_nothing_is_left_even_by_a_kill(
    tmp_path: Path, program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: killed during apt, it left a policy that kept every later service from starting."""
    before = sorted(path.name for path in Path("/usr/sbin").iterdir())
    mounted = Path("/proc/self/mountinfo").read_text()
    apt = program("apt-get", IN_A_PACKAGE.format(place=tmp_path))
    monkeypatch.setenv("PATH", f"{apt.parent}:/usr/sbin:/usr/bin:/sbin:/bin")
    needs.install(["munge"], os.environ)
    assert (tmp_path / "said").read_text() == "", "a service was asked to start"
    apt.write_text(f"{apt.read_text()}\n[ $1 = update ] || kill -9 $$\n")
    with pytest.raises(SetupError, match="exit code -9"):
        needs.install(["munge"], os.environ)
    assert sorted(path.name for path in Path("/usr/sbin").iterdir()) == before
    assert Path("/proc/self/mountinfo").read_text() == mounted
