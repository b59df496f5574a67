import json
import math
import os

import pytest

from vmivae.errors import NonFiniteError
from vmivae.files import read_json, replace_directory, replace_file, together, write_csv, write_json


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_replace_file_puts_the_new_content_in_place(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    for text in ("one", "two"):
        with replace_file(path) as temporary:
            assert temporary.parent == path.parent
            temporary.write_text(text)
        assert path.read_text() == text
    assert names(path.parent) == ["file.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_replace_file_leaves_an_earlier_file_alone_when_writing_fails(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), replace_file(path) as temporary:  # noqa: PT012 - inside it fails
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "before"
    assert names(tmp_path) == ["file.txt"]


def test_replace_file_never_shows_a_half_written_file(tmp_path):
    path = tmp_path / "file.txt"
    with replace_file(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"


def test_replace_directory_takes_the_place_of_the_whole_folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "stale").touch()
    with replace_directory(path) as temporary:
        assert names(temporary) == []
        (temporary / "sub").mkdir()
        (temporary / "sub" / "new").write_text("x")
        assert names(path) == ["stale"]
    assert names(path) == ["sub"]
    assert (path / "sub" / "new").read_text() == "x"
    assert names(tmp_path) == ["folder"]
    assert path.stat().st_mode & 0o777 == 0o755


def test_replace_directory_leaves_an_earlier_folder_alone_when_writing_fails(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "kept").touch()
    with pytest.raises(ValueError, match="full"), replace_directory(path) as temporary:  # noqa: PT012
        (temporary / "half").touch()
        raise ValueError("disk full")
    assert names(path) == ["kept"]
    assert names(tmp_path) == ["folder"]


def test_replace_directory_puts_the_earlier_folder_back_when_the_new_one_cannot_take_its_place(
    tmp_path, monkeypatch
):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "kept").touch()
    replace = os.replace

    def refuse(self, target):
        if (self / "new").exists():
            raise OSError("no")
        replace(self, target)

    monkeypatch.setattr(type(path), "replace", refuse)
    with pytest.raises(OSError, match="no"), replace_directory(path) as temporary:
        (temporary / "new").touch()
    assert names(path) == ["kept"]
    assert names(tmp_path) == ["folder"]


def test_json_round_trip_and_no_numbers_that_json_lacks(tmp_path):
    path = tmp_path / "metrics" / "numbers.json"
    content = {"b": 1.5, "a": {"é": [1, None, True]}}
    write_json(path, content)
    assert read_json(path) == content
    assert path.read_text("utf-8").startswith('{\n  "b": 1.5,\n  "a"')
    assert path.read_text("utf-8").endswith("}\n")
    assert "é" in path.read_text("utf-8")
    for wrong in (math.nan, math.inf):
        with pytest.raises(NonFiniteError, match=rf"numbers\.json: a\.b\[1\]\.c is {wrong}"):
            write_json(path, {"a": {"b": [1.0, {"c": wrong}]}})
    assert json.loads(path.read_text("utf-8")) == content


def test_csv_has_a_header_and_empty_cells_for_none(tmp_path):
    path = tmp_path / "rows.csv"
    write_csv(path, [{"unit": "z0", "rate": 0.5, "nmi": None}, {"unit": "c0", "rate": 1e-9, "nmi": 1}])
    assert path.read_bytes() == b"unit,rate,nmi\nz0,0.5,\nc0,1e-09,1\n"


def test_csv_rows_share_their_keys(tmp_path):
    with pytest.raises(ValueError, match="not in fieldnames"):
        write_csv(tmp_path / "rows.csv", [{"a": 1}, {"a": 1, "b": 2}])
    assert names(tmp_path) == []


def test_replaced_together_or_not_at_all(tmp_path):
    def write(number, fail=False):
        with together():
            write_json(tmp_path / "metrics/a.json", {"number": number})
            with replace_directory(tmp_path / "models/vae") as folder:
                write_json(folder / "model.json", {"number": number})
            write_csv(tmp_path / "plots/b.csv", [{"number": number}])
            assert not (tmp_path / "plots/b.csv").exists() or fail
            if fail:
                raise OSError(28, "No space left on device")

    write(1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert sorted(path.name for path in before) == ["a.json", "b.csv", "model.json"]
    with pytest.raises(OSError, match="No space left"):
        write(2, fail=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "plots/b.csv").unlink()
    write(3)
    assert read_json(tmp_path / "models/vae/model.json") == {"number": 3}
    assert read_json(tmp_path / "metrics/a.json") == {"number": 3}
    assert names(tmp_path / "models") == ["vae"]
