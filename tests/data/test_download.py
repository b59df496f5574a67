import hashlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vmivae.data.download import fetch, from_mirrors
from vmivae.errors import DataError

CONTENT = b"published"
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A local server that publishes set.bin."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "set.bin").write_bytes(CONTENT)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_first_mirror_that_has_the_file_gives_it(address: str, tmp_path: Path) -> None:
    from_mirrors([f"{address}/gone/set.bin", f"{address}/set.bin"], tmp_path / "got", MD5)
    assert (tmp_path / "got/set.bin").read_bytes() == CONTENT


def test_another_file_under_the_address_is_refused_and_not_kept(address: str, tmp_path: Path) -> None:
    get = partial(from_mirrors, [f"{address}/set.bin"], md5="0" * 32)
    with pytest.raises(DataError, match="not found or corrupted"):
        fetch("toys", tmp_path / "raw", ["set.bin"], lambda place: get(place), "put set.bin there")
    assert not (tmp_path / "raw").exists()


def test_files_that_are_there_stay(address: str, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/set.bin").write_bytes(b"mine")
    fetch("toys", tmp_path / "raw", ["set.bin"], lambda at: from_mirrors([f"{address}/set.bin"], at, MD5), "")
    assert (tmp_path / "raw/set.bin").read_bytes() == b"mine"
    assert len(list((tmp_path / "raw").iterdir())) == 1


def test_the_time_limit_is_put_back(tmp_path: Path) -> None:
    def fail(_: Path) -> None:
        assert socket.getdefaulttimeout() is not None
        raise OSError("first line\nsecond line")

    with pytest.raises(
        DataError, match=r"toys: not in .*raw, and .*\(first line second line\); put it there"
    ):
        fetch("toys", tmp_path / "raw", ["set.bin"], fail, "put it there")
    assert socket.getdefaulttimeout() is None
