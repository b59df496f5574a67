"""Whole files or none: everything is written beside its target and then renamed onto it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; on success it becomes `path`.

    On an exception nothing remains and an earlier `path` is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replace_directory(path: Path) -> Iterator[Path]:
    """Yield a new empty folder beside `path`; on success it takes the place of `path`.

    On an exception nothing remains and an earlier `path` is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        for file in temporary.rglob("*"):
            _flush(file)
        if path.exists():
            before = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            path.replace(before)
            try:
                temporary.replace(path)
            except BaseException:
                before.replace(path)
                raise
            shutil.rmtree(before)
        else:
            temporary.replace(path)
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON; NaN and infinity are refused (`ValueError`)."""
    with replace_file(path) as temporary:
        temporary.write_text(
            json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n", "utf-8"
        )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that share their keys as CSV with a header."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _flush(path: Path) -> None:
    """Have the system write a file or folder to its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
