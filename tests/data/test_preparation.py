"""From a source to files: splits, determinism, the data card, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_files import fingerprint, random_images, write_class_folders, write_idx_set

from vmivae.data import load_prepared, prepare
from vmivae.errors import DataError, ParameterError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def mnist5k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mnist5k") / "prepared"
    prepare(folder, source="mnist5k")
    return folder


def test_mnist5k_is_split_in_proportion_to_its_classes(mnist5k: Path) -> None:
    prepared = load_prepared(mnist5k)
    assert prepared.card.train.label_histogram == {str(digit): 450 for digit in range(10)}
    assert prepared.card.test.label_histogram == {str(digit): 50 for digit in range(10)}
    assert prepared.train.images.shape == (4500, 1, 32, 32)
    assert prepared.test.images.shape == (500, 1, 32, 32)
    # No test image among the training images (the 5,000 have no duplicates across the split).
    train = {image.tobytes() for image in prepared.train.images}
    assert not train & {image.tobytes() for image in prepared.test.images}


def test_mnist5k_images_belong_to_their_labels(mnist5k: Path) -> None:
    """Nearest class mean recognises most digits: images and labels were shuffled together."""
    prepared = load_prepared(mnist5k)
    train, test = (
        (split.images.reshape(len(split), -1) / 255, split.labels)
        for split in (prepared.train, prepared.test)
    )
    means = np.stack([train[0][train[1] == digit].mean(axis=0) for digit in range(10)])
    guesses = ((test[0][:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (guesses == test[1]).mean() > 0.7


def test_the_data_card_is_right(mnist5k: Path) -> None:
    prepared = load_prepared(mnist5k)
    card = prepared.card
    assert (card.source, card.image_shape, card.binarize) == ("mnist5k", [1, 32, 32], "none")
    assert card.train.channel_mean == [pytest.approx((prepared.train.images / 255).mean())]
    pixels = np.concatenate([prepared.train.images, prepared.test.images])
    assert card.grey_pixels == pytest.approx(((pixels > 0) & (pixels < 255)).mean())
    assert str(card) == "mnist5k: 4500 + 500 images 1×32×32, 10 classes"


def test_equal_arguments_give_equal_bytes_and_another_split_seed_another_split(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        prepare(tmp_path / name, source="digits", image_size=8, split_seed=seed)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a")["test_images.npy"] != contents(tmp_path / "c")["test_images.npy"]
    assert load_prepared(tmp_path / "a").card.hash != load_prepared(tmp_path / "c").card.hash


def test_the_global_random_state_is_left_alone_and_does_not_matter(tmp_path: Path) -> None:
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1]  # noqa: NPY002
    prepare(tmp_path / "a", source="digits")
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    prepare(tmp_path / "b", source="digits")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_digits_are_scaled_to_the_whole_range(tmp_path: Path) -> None:
    prepare(tmp_path / "a", source="digits", image_size=8)
    levels = np.unique(load_prepared(tmp_path / "a").train.images)
    np.testing.assert_array_equal(levels, np.rint(np.arange(17) * 255 / 16))


def test_the_hash_depends_on_the_arrays_alone(tmp_path: Path) -> None:
    """The same images from another place, in another format, are the same data."""
    arrays = write_idx_set(tmp_path / "plain")
    write_idx_set(tmp_path / "zipped/KMNIST/raw", zipped=True)
    first = prepare(tmp_path / "a", source="mnist", root=tmp_path / "plain")
    assert prepare(tmp_path / "b", source="kmnist", root=tmp_path / "zipped").hash == first.hash
    arrays["train-images-idx3-ubyte"][0, 14, 14] ^= 0xFF
    np.savez(
        tmp_path / "c.npz",
        train_images=arrays["train-images-idx3-ubyte"],
        test_images=arrays["t10k-images-idx3-ubyte"],
        train_labels=arrays["train-labels-idx1-ubyte"],
        test_labels=arrays["t10k-labels-idx1-ubyte"],
    )
    assert prepare(tmp_path / "c", source="npz", root=tmp_path / "c.npz").hash != first.hash


def test_threshold_makes_pixels_binary_and_dynamic_leaves_them_grey(tmp_path: Path) -> None:
    grey, threshold, dynamic = (
        prepare(tmp_path / kind, source="digits", binarize=kind) for kind in ("none", "threshold", "dynamic")
    )
    assert threshold.grey_pixels == 0
    assert set(np.unique(load_prepared(tmp_path / "threshold").train.images)) == {0, 255}
    assert dynamic.grey_pixels == grey.grey_pixels > 0
    assert (dynamic.binarize, threshold.binarize) == ("dynamic", "threshold")


@pytest.mark.parametrize(("channels", "count"), [("auto", 3), ("grey", 1), ("rgb", 3)])
def test_channels(channels: str, count: int, tmp_path: Path) -> None:
    write_class_folders(tmp_path / "raw")
    card = prepare(tmp_path / "out", source="folder", root=tmp_path / "raw", channels=channels)
    assert card.image_shape == [count, 32, 32]
    assert len(card.train.channel_mean) == count


@pytest.mark.parametrize(("fraction", "expected"), [(0.1, 1), (0.25, 3), (0.5, 6), (0.001, 1)])
def test_test_fraction(fraction: float, expected: int, tmp_path: Path) -> None:
    write_class_folders(tmp_path / "raw")
    card = prepare(tmp_path / "out", source="folder", root=tmp_path / "raw", test_fraction=fraction)
    assert (card.train.count, card.test.count) == (12 - expected, expected)


def test_a_class_of_one_image_does_not_stop_the_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=random_images(20, 8, 8), labels=np.arange(20) // 19)
    card = prepare(tmp_path / "out", source="npz", root=tmp_path / "a.npz", test_fraction=0.3)
    assert (card.train.count, card.test.count) == (14, 6)


def test_factors_and_labels_follow_their_images(tmp_path: Path) -> None:
    images = np.arange(100, dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2)
    factors = np.stack([np.arange(100), 100 - np.arange(100)], axis=1)
    np.savez(tmp_path / "a.npz", images=images, factors=factors, labels=np.arange(100) % 4)
    prepare(tmp_path / "out", source="npz", root=tmp_path, image_size=8)
    prepared = load_prepared(tmp_path / "out")
    for split in (prepared.train, prepared.test):
        assert split.factors is not None
        np.testing.assert_array_equal(split.factors[:, 0], split.images[:, 0, 0, 0])
        np.testing.assert_array_equal(split.factors.sum(axis=1), 100)
        np.testing.assert_array_equal(split.labels, split.images[:, 0, 0, 0] % 4)
    assert sorted(np.concatenate([prepared.train.factors[:, 0], prepared.test.factors[:, 0]])) == list(
        range(100)
    )  # type: ignore[index]


@pytest.mark.parametrize("source", ["folder", "npz", "mnist"])
def test_the_users_files_are_never_changed(source: str, tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    if source == "folder":
        write_class_folders(root)
    elif source == "npz":
        np.savez(root / "a.npz", images=random_images(20, 8, 8))
    else:
        write_idx_set(root, zipped=True)
    before = fingerprint(root)
    for _ in range(2):
        prepare(tmp_path / "out", source=source, root=root)
    assert fingerprint(root) == before


@pytest.mark.parametrize(("key", "value"), [("test_fraction", 0.2), ("split_seed", 3)])
def test_a_split_setting_has_no_effect_on_a_set_with_its_own_split(
    key: str, value: float, tmp_path: Path
) -> None:
    write_idx_set(tmp_path / "raw")
    with pytest.raises(ParameterError, match=rf"data\.{key}: has no effect, mnist .* got {value}"):
        prepare(tmp_path / "out", source="mnist", root=tmp_path / "raw", **{key: value})  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inside", [".", "deeper/raw"])
def test_the_images_may_not_lie_where_the_output_goes(inside: str, tmp_path: Path) -> None:
    root = tmp_path / "out" / inside
    write_class_folders(root)
    before = fingerprint(tmp_path)
    with pytest.raises(ParameterError, match=r"data\.root: must lie outside"):
        prepare(tmp_path / "out", source="folder", root=root)
    assert fingerprint(tmp_path) == before


def test_a_folder_that_is_no_prepared_set_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="out: holds files other than a prepared set"):
        prepare(tmp_path / "out", source="digits")
    assert (tmp_path / "out/thesis.txt").read_text() == "years of work"


def test_a_failure_leaves_the_earlier_set(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "raw")
    prepare(tmp_path / "out", source="folder", root=tmp_path / "raw")
    before = contents(tmp_path / "out")
    damaged = tmp_path / "raw/cat/3.png"
    damaged.write_bytes(damaged.read_bytes()[:1500])
    with pytest.raises(DataError, match="corrupt"):
        prepare(tmp_path / "out", source="folder", root=tmp_path / "raw")
    assert contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw"]


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int, str]] = []
    prepare(tmp_path / "out", source="digits", progress=lambda *call: calls.append(call))
    assert calls == [("images", 1024, 1797, "digits"), ("images", 1797, 1797, "digits")]


def test_preparing_starts_light(tmp_path: Path) -> None:
    write_idx_set(tmp_path / "raw")
    code = (
        "import sys; from vmivae.data import prepare; "
        f"prepare({str(tmp_path / 'out')!r}, source='mnist', root={str(tmp_path / 'raw')!r}); "
        "sys.exit(bool({'torch', 'sklearn', 'scipy', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
