"""The files of one revision, read alike from a folder and from DVC's history."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem


@dataclass(frozen=True)
class Tree:
    """A checkout: the working folder, or a revision through DVC's file system.

    Args:
        fs: where the files are.
        root: the checkout's top within `fs`, without a slash at its end.
    """

    fs: AbstractFileSystem
    root: str

    @classmethod
    def folder(cls, root: str | Path = ".") -> Tree:
        """The checkout in a folder."""
        return cls(LocalFileSystem(), Path(root).resolve().as_posix())

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self.fs.exists(self._full(path)))

    def read_bytes(self, path: str) -> bytes:
        """Content of a file; `FileNotFoundError` if there is none."""
        content: bytes = self.fs.cat_file(self._full(path))
        return content

    def read_text(self, path: str) -> str:
        """Content of a UTF-8 file."""
        return self.read_bytes(path).decode("utf-8")

    def open(self, path: str) -> Any:
        """A binary file object for reading."""
        return self.fs.open(self._full(path), "rb")

    def files(self, path: str) -> list[str]:
        """Every file at or below `path`, sorted, without Python's caches; none if nothing is there."""
        if not self.exists(path):
            return []
        found = [str(file).removeprefix(self.root).lstrip("/") for file in self.fs.find(self._full(path))]
        return sorted(file for file in found if "__pycache__" not in file.split("/"))

    def fetch(self, path: str, folder: Path) -> Path:
        """Copy a file or a folder's files into `folder`, under the same relative path; returns its place."""
        for file in self.files(path):
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.read_bytes(file))
        return folder / path

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"
