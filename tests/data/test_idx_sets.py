import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
from small_files import fingerprint, idx_bytes, random_images, write_idx_set

from vmivae.data import prepare
from vmivae.data.idx_sets import load_emnist, load_fashion_mnist, load_kmnist, load_mnist
from vmivae.errors import DataError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("place", [".", "MNIST/raw"])
def test_files_are_used_where_they_lie(place: str, zipped: bool, tmp_path: Path) -> None:
    arrays = write_idx_set(tmp_path / place, zipped=zipped)
    source = load_mnist(tmp_path)
    assert source.test is not None
    np.testing.assert_array_equal(source.train.images, arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(source.train.labels, arrays["train-labels-idx1-ubyte"])
    np.testing.assert_array_equal(source.test.images, arrays["t10k-images-idx3-ubyte"])
    assert source.classes == tuple("0123456789")


@pytest.mark.parametrize(("split", "first"), [("letters", 1), ("digits", 0)])
def test_emnist_is_upright_and_its_letters_start_at_a(split: str, first: int, tmp_path: Path) -> None:
    images = random_images(10, 28, 28)
    for part in ("train", "test"):
        stem = tmp_path / f"emnist-{split}-{part}"
        Path(f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        Path(f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(np.arange(10) + first)))
    source = load_emnist(tmp_path, split)
    assert source.name == f"emnist/{split}"
    np.testing.assert_array_equal(source.train.images[3], images[3].T)
    np.testing.assert_array_equal(source.train.labels, np.arange(10))
    assert source.classes is not None
    assert source.classes[0] == ("a" if split == "letters" else "0")


def test_classes_are_those_of_torchvision(tmp_path: Path) -> None:
    from torchvision.datasets import EMNIST, KMNIST, FashionMNIST

    write_idx_set(tmp_path)
    assert load_fashion_mnist(tmp_path).classes == tuple(FashionMNIST.classes)
    assert load_kmnist(tmp_path).classes == tuple(KMNIST.classes)
    for split, classes in EMNIST.classes_split_dict.items():
        for part in ("train", "test"):
            stem = tmp_path / f"emnist-{split}-{part}"
            Path(f"{stem}-images-idx3-ubyte").write_bytes(idx_bytes(random_images(1, 28, 28)))
            Path(f"{stem}-labels-idx1-ubyte").write_bytes(idx_bytes(np.ones(1)))
        assert load_emnist(tmp_path, split).classes == tuple(name for name in classes if name != "N/A")


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_debians_fashion_mnist_goes_through_at_full_size(tmp_path: Path) -> None:
    before = sorted(DEBIAN.iterdir())
    card = prepare(tmp_path / "prepared", source="fashion_mnist", root=DEBIAN)
    assert (card.train.count, card.test.count, card.image_shape) == (60_000, 10_000, [1, 32, 32])
    assert card.train.label_histogram == dict.fromkeys(card.classes or (), 6000)
    # The mean of Fashion-MNIST's training pixels is 0.2860 in [0, 1].
    assert card.train.channel_mean == [pytest.approx(0.2860, abs=1e-3)]
    assert sorted(DEBIAN.iterdir()) == before


def test_a_read_only_folder_is_enough(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    write_idx_set(root, zipped=True)
    before = fingerprint(root)
    root.chmod(0o555)
    try:
        assert len(load_mnist(root).train) == 20
        assert fingerprint(root) == before
    finally:
        root.chmod(0o755)


def test_a_download_is_whole_and_used_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = tmp_path / "published"
    write_idx_set(published, zipped=True)
    asked: list[str] = []

    def give(urls: list[str], folder: Path, md5: str) -> None:
        asked.append(urls[0])
        name = urls[0].rsplit("/", 1)[1]
        (folder / name).write_bytes((published / name).read_bytes())

    monkeypatch.setattr("vmivae.data.idx_sets.from_mirrors", give)
    root = tmp_path / "raw"
    first = load_kmnist(root)
    again = load_kmnist(root)
    assert len(asked) == 4
    np.testing.assert_array_equal(first.train.images, again.train.images)
    assert sorted(path.name for path in (root / "KMNIST/raw").iterdir()) == sorted(
        path.name for path in published.iterdir()
    )


def test_emnist_takes_its_four_files_out_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give(urls: list[str], folder: Path, md5: str) -> None:
        with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
            for split in ("letters", "digits"):
                for part in ("train", "test"):
                    for kind, array in (("images-idx3", np.zeros((2, 28, 28))), ("labels-idx1", np.ones(2))):
                        name = f"gzip/emnist-{split}-{part}-{kind}-ubyte.gz"
                        archive.writestr(name, gzip.compress(idx_bytes(array)))

    monkeypatch.setattr("vmivae.data.idx_sets.from_mirrors", give)
    assert len(load_emnist(tmp_path, "letters").train) == 2
    assert len(list((tmp_path / "EMNIST/raw").iterdir())) == 4


def test_a_download_that_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(urls: list[str], folder: Path, md5: str) -> None:
        (folder / "train-images-idx3-ubyte.gz").write_bytes(b"half")
        raise OSError("connection reset")

    monkeypatch.setattr("vmivae.data.idx_sets.from_mirrors", break_off)
    with pytest.raises(DataError, match="connection reset"):
        load_mnist(tmp_path / "raw")
    assert list(tmp_path.iterdir()) == []
