from pathlib import Path

import numpy as np
import pytest
from small_files import write_class_folders, write_picture

from vmivae.data.folder import load_folder
from vmivae.data.pictures import read_picture


def test_classes_are_numbered_by_name_and_files_sorted(tmp_path: Path) -> None:
    write_class_folders(tmp_path)
    source = load_folder(tmp_path)
    assert source.classes == ("ant", "bee", "cat")
    assert source.test is None
    assert source.channels == 3
    np.testing.assert_array_equal(source.train.labels, np.repeat([0, 1, 2], 4))
    np.testing.assert_array_equal(source.train.images[1], read_picture(tmp_path / "ant/1.png"))
    np.testing.assert_array_equal(source.train.images[8], read_picture(tmp_path / "cat/0.png"))


def test_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for number in range(3):
        write_picture(tmp_path / f"{number}.png", mode="L")
    source = load_folder(tmp_path)
    assert (len(source.train), source.train.labels, source.classes, source.channels) == (3, None, None, 1)


@pytest.mark.parametrize(("modes", "channels"), [(("L", "1"), 1), (("L", "RGB"), 3)])
def test_one_picture_in_colour_makes_a_colour_set(
    modes: tuple[str, str], channels: int, tmp_path: Path
) -> None:
    for mode in modes:
        write_picture(tmp_path / f"{mode}.png", mode=mode)
    assert load_folder(tmp_path).channels == channels


def test_own_split(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "train", each=4)
    write_picture(tmp_path / "test/bee/x.png")
    source = load_folder(tmp_path)
    assert source.test is not None
    assert (len(source.train), len(source.test)) == (12, 1)
    np.testing.assert_array_equal(source.test.labels, [1])


def test_pictures_lie_deeper_and_other_files_are_passed_over(tmp_path: Path) -> None:
    write_class_folders(tmp_path, each=1)
    write_picture(tmp_path / "bee/2019/may/x.PNG")
    write_picture(tmp_path / "bee/.thumbnails/x.png")
    (tmp_path / ".gitkeep").touch()
    (tmp_path / "bee/notes.txt").write_text("yellow")
    np.testing.assert_array_equal(load_folder(tmp_path).train.labels, [0, 1, 1, 2])


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "real"
    write_picture(root / "a.png")
    (root / "b.png").symlink_to("a.png")
    (tmp_path / "link").symlink_to(root)
    assert len(load_folder(tmp_path / "link").train) == 2
