"""Disks that are full and folders that cannot be written: one line, and earlier results as they were."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from workplace import STAGES, Workplace, one_line


class FullAfter:
    """Lets `left` writes, renames and new files pass and has the disk full from then on."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.hit = False

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.hit = True
            raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def full_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FullAfter]:
    """A disk that is full after so many changes made in this process, as far as Python can see them."""
    full = FullAfter(writes)

    def failing(module: object, name: str) -> None:
        original = getattr(module, name)

        def call(*arguments: object, **options: object) -> object:
            full()
            return original(*arguments, **options)

        patch.setattr(module, name, call)

    with monkeypatch.context() as patch:
        failing(os, "fsync")
        failing(os, "replace")
        failing(os, "rename")
        failing(os, "mkdir")
        failing(Path, "write_bytes")
        failing(Path, "write_text")
        yield full


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_disk_that_is_full_at_any_write(
    place: Workplace, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other results than those that are there, so that one that takes its place shows.
    place.set({"seed": 1, "data.split_seed": 1})
    before = place.files()
    names = {name.split("/")[-1] for name in before}
    errors = []
    # Each trial of the report draws all its figures once more.
    for writes in range(0, 200, 7 if stage == "report" else 1):
        with full_after(writes, monkeypatch) as full:
            try:
                place.main(stage)
            except OSError as error:
                errors.append(error.errno)
        if not full.hit:
            break
        after = place.files()
        left = {name.split("/")[-1] for name in after} - names
        assert not left, f"write {writes} leaves {left}"
        if after != before:
            # From the first rename on, results take their places; nothing but a rename comes after it.
            break
    assert len(errors) > 3
    assert set(errors) == {errno.ENOSPC}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MiB; only root can have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(512))


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_disk_that_is_full(place: Workplace, small_disk: Path, stage: str) -> None:
    checkout = place.copy(small_disk / "checkout")
    before = checkout.files()
    fill(small_disk / "filler")
    done = checkout.run(stage)
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in one_line(done)
    assert checkout.files() == before


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["prepare", "train"])
def test_a_disk_that_is_read_only(place: Workplace, small_disk: Path, stage: str) -> None:
    checkout = place.copy(small_disk / "checkout")
    before = checkout.files()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = checkout.run(stage, PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 2, done.stderr
    assert "Read-only file system" in one_line(done)
    assert checkout.files() == before


def test_a_file_where_a_folder_belongs(place: Workplace) -> None:
    subprocess.run(["rm", "-r", place.root / "plots"], check=True)
    (place.root / "plots").touch()
    before = place.files()
    with pytest.raises(OSError, match="plots"):
        place.main("evaluate")
    assert place.files() == before
