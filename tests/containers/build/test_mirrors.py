"""Ways to packages: mirrors, certificates, settings of apt."""

from __future__ import annotations

import pytest
from build import mirrors
from locks import SetupError

TARGETS = """\
http://mirror.site/debian/ bookworm contrib
http://mirror.site/debian/ bookworm main
http://mirror.site/debian-security/ bookworm-security main
http://elsewhere/apt nodistro main
"""


def test_ca_bundle(tmp_path) -> None:
    bundle = tmp_path / "site.pem"
    bundle.write_text("certificates")
    assert mirrors.ca_bundle({}) is None
    assert mirrors.ca_bundle({"PIP_CERT": "/absent", "CA": str(bundle)}) == bundle
    with pytest.raises(SetupError, match="PIP_CERT=/absent found, expected a file"):
        mirrors.ca_bundle({"PIP_CERT": "/absent"})


def test_apt_settings_leave_out_this_machine_s_certificate_files(program) -> None:
    proxy = 'Acquire::http::Proxy "http://p:1";'
    program("apt-config", f"echo 'Acquire::https::CAInfo \"/etc/site.pem\";'\necho '{proxy}'")
    assert mirrors.apt_settings() == f"{proxy}\n"


def test_mirrors_are_the_machines_own_unless_the_user_names_others(monkeypatch) -> None:
    monkeypatch.setattr(mirrors, "index_targets", lambda: TARGETS)
    monkeypatch.setattr(mirrors, "debian_codename", lambda: "bookworm")
    assert mirrors.debian_mirror({}) == "http://mirror.site/debian"
    security = "http://mirror.site/debian-security"
    assert mirrors.security_mirror({}, "bookworm") == security
    named = {"DEBIAN_MIRROR": "http://mine/debian/", "DEBIAN_SECURITY_MIRROR": "http://mine/sec/"}
    assert mirrors.debian_mirror(named) == "http://mine/debian"
    assert mirrors.security_mirror(named, "bookworm") == "http://mine/sec"
    assert mirrors.security_mirror({}, "trixie") is None
    monkeypatch.setattr(mirrors, "debian_codename", lambda: "trixie")
    with pytest.raises(SetupError, match="DEBIAN_MIRROR=http"):
        mirrors.debian_mirror({})
