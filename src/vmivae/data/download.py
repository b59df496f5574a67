"""Downloads of published sets: whole and verified, or nothing."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from vmivae.errors import DataError

_TIMEOUT_SECONDS = 20.0


def fetch(name: str, folder: Path, wanted: Sequence[str], get: Callable[[Path], None], advice: str) -> None:
    """Have `get` download into a temporary folder, then move the `wanted` files or folders to `folder`.

    What `folder` holds already is left as it is.

    Args:
        name: the set, for messages.
        folder: where the files are to be; made if it is missing.
        wanted: names of files or folders that `get` leaves in the folder that it is given.
        get: downloads; may raise anything.
        advice: what to do where the network does not allow it.

    Raises:
        DataError: the download failed or `folder` cannot be written. One line with `advice`.
    """
    timeout = socket.getdefaulttimeout()
    try:
        nearest = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
        with tempfile.TemporaryDirectory(prefix=".download.", dir=nearest) as temporary:
            socket.setdefaulttimeout(_TIMEOUT_SECONDS)
            get(Path(temporary))
            folder.mkdir(parents=True, exist_ok=True)
            for file in wanted:
                if not (folder / file).exists():
                    shutil.move(Path(temporary) / file, folder / file)
    except Exception as error:  # whatever a network, a mirror or a downloader comes up with
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: not in {folder}, and the download failed ({reason}); {advice}") from None
    finally:
        socket.setdefaulttimeout(timeout)


def from_mirrors(urls: Sequence[str], folder: Path, md5: str) -> None:
    """Download a file from the first of `urls` that gives it with the checksum `md5`.

    Raises:
        OSError: none did; the message has the reason of each.
    """
    from torchvision.datasets.utils import download_url

    failures = []
    for url in urls:
        try:
            download_url(url, folder, md5=md5)
            return
        except (OSError, RuntimeError) as error:
            failures.append(f"{url}: {error}")
    raise OSError("; ".join(failures))
