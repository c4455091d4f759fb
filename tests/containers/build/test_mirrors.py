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


def test_mirrors_are_the_machines_own_unless_the_user_names_others(program, monkeypatch) -> None:
    program("apt-get", f"echo '{TARGETS}'")
    monkeypatch.setattr(mirrors, "debian_codename", lambda: "bookworm")
    assert mirrors.debian_mirror({}) == "http://mirror.site/debian"
    own = "deb http://{0} bookworm main\ndeb http://{0} bookworm-updates main\n"
    assert mirrors.sources_list({}) == own.format("mirror.site/debian") + (
        "deb http://mirror.site/debian-security bookworm-security main\n"
    )
    named = {"DEBIAN_MIRROR": "http://mine/debian/", "DEBIAN_SECURITY_MIRROR": "http://mine/sec/"}
    assert mirrors.sources_list(named) == own.format("mine/debian") + (
        "deb http://mine/sec bookworm-security main\n"
    )
    program("apt-get")
    assert mirrors.sources_list({"DEBIAN_MIRROR": "http://m"}) == own.format("m")
    with pytest.raises(SetupError, match="DEBIAN_MIRROR=http"):
        mirrors.debian_mirror({})


def test_apt_while_building() -> None:
    ways = mirrors.apt_ways({"http_proxy": "http://p:1", "HTTP_PROXY": "http://p:1"}, ca=True)
    assert ways == 'Acquire::http::Proxy "http://p:1";\nAcquire::https::CAInfo "/mnt/ca.crt";\n'
