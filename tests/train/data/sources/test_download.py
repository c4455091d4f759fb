"""Downloads are whole and right, or absent; and the error says how to do without a network."""

from __future__ import annotations

import gzip
import http.server
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.train.data.raw_files import noise, published
from train.data.sources.download import Remote, fetch_all
from train.errors import DataError


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    file = tmp_path / "server" / "set.bin"
    file.parent.mkdir()
    file.write_bytes(noise(3_000_000))
    return published(file)


def refusing_url() -> str:
    """An address where nobody listens: the port was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/set.bin"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_is_fetched_once(tmp_path: Path, remote: Remote) -> None:
    folder = tmp_path / "data"
    fetch_all([remote], folder)
    assert (folder / "set.bin").read_bytes() == noise(3_000_000)
    (folder / "set.bin").write_bytes(b"mine")
    fetch_all([replace(remote, url="file:///nowhere")], folder)
    assert (folder / "set.bin").read_bytes() == b"mine"


def test_refused_connection_names_files_sums_and_folder(tmp_path: Path, remote: Remote) -> None:
    other = Remote("other.bin", "file:///nowhere", "f" * 64)
    with pytest.raises(DataError) as caught:
        fetch_all([replace(remote, url=refusing_url()), other], tmp_path / "data", "A blank CD")
    text = str(caught.value)
    assert "Connection refused" in text
    for part in ("set.bin", remote.sha256, "other.bin", "f" * 64):
        assert part in text
    assert str(tmp_path / "data") in text
    assert "DATA=DIR" in text
    assert "A blank CD will do, too." in text
    assert names(tmp_path / "data") == []


@pytest.mark.parametrize(
    "content", [noise(1000, 1), gzip.compress(noise(1000, 1))], ids=["plain", "packed"]
)
@pytest.mark.parametrize("unpacked", [False, True])
def test_wrong_content_is_removed(
    tmp_path: Path, remote: Remote, content: bytes, unpacked: bool
) -> None:
    """As a page that asks for a login."""
    wrong = tmp_path / "wrong"
    wrong.write_bytes(content)
    words = f"removed: {len(content):,} bytes, expected sha256 .*{remote.sha256}"
    with pytest.raises(DataError, match=words):
        fetch_all([replace(remote, url=wrong.as_uri(), unpacked=unpacked)], tmp_path / "data")
    assert names(tmp_path / "data") == []


def test_what_was_packed_again_is_fetched(tmp_path: Path) -> None:
    packed = tmp_path / "x-ubyte.gz"
    packed.write_bytes(gzip.compress(noise(1000)))
    remote = published(packed)
    packed.write_bytes(gzip.compress(noise(1000), 1, mtime=7))
    fetch_all([remote], tmp_path / "data")
    assert names(tmp_path / "data") == ["x-ubyte.gz"]


@pytest.fixture
def breaking_server() -> Iterator[str]:
    """Promises 3,000,000 bytes, sends 1,000 and hangs up; /missing is not there."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/missing" else 200)
            self.send_header("Content-Length", "3000000")
            self.end_headers()
            self.wfile.write(bytes(1000))

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("path", "told"), [("/set.bin", "1,000 bytes"), ("/missing", "Not Found")])
def test_broken_transfer_leaves_nothing(
    tmp_path: Path, remote: Remote, breaking_server: str, path: str, told: str
) -> None:
    with pytest.raises(DataError, match=told):
        fetch_all([replace(remote, url=breaking_server + path)], tmp_path / "data")
    assert names(tmp_path / "data") == []
