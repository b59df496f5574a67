"""Whole files or none: everything is written beside its target and then renamed onto it.

with together():
    write_csv(Path("plots/units.csv"), rows)
    write_json(Path("metrics/evaluation.json"), metrics)  # a full disk here leaves both as they were
"""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from vmivae.errors import NonFiniteError

_waiting: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("waiting", default=None)


@contextmanager
def together() -> Iterator[None]:
    """Whatever is replaced inside takes its place at the end, when all of it has been written.

    On an exception nothing remains and everything earlier is untouched.
    """
    written: list[tuple[Path, Path]] = []
    token = _waiting.set(written)
    try:
        yield
        for temporary, path in written:
            _put(temporary, path)
    finally:
        _waiting.reset(token)
        for temporary, _ in written:
            _discard(temporary)


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
        _finish(temporary, path)
    except BaseException:
        _discard(temporary)
        raise


@contextmanager
def replace_directory(path: Path) -> Iterator[Path]:
    """Yield a new empty folder beside `path`; on success it takes the place of `path`.

    On an exception nothing remains and an earlier `path` is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        # What is replaced within the folder is part of it.
        token = _waiting.set(None)
        try:
            yield temporary
        finally:
            _waiting.reset(token)
        temporary.chmod(0o755)
        for file in temporary.rglob("*"):
            _flush(file)
        _finish(temporary, path)
    except BaseException:
        _discard(temporary)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON.

    Raises:
        NonFiniteError: a number is NaN or infinite; names the file and the key.
    """
    for key, value in _numbers(content):
        if not math.isfinite(value):
            raise NonFiniteError(f"{path}: {key} is {value}, and results are finite numbers")
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


def _numbers(content: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Every floating-point number with its dotted key."""
    if isinstance(content, float):
        yield key, content
    elif isinstance(content, Mapping):
        for name, value in content.items():
            yield from _numbers(value, f"{key}.{name}".lstrip("."))
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            yield from _numbers(value, f"{key}[{index}]")


def _finish(temporary: Path, path: Path) -> None:
    waiting = _waiting.get()
    if waiting is None:
        _put(temporary, path)
    else:
        waiting.append((temporary, path))


def _put(temporary: Path, path: Path) -> None:
    """Rename a file or folder onto `path`; an earlier folder there goes last."""
    if temporary.is_dir() and path.exists():
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


def _discard(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Have the system write a file or folder to its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
