"""Every malformed input: one line that names the file, nothing written, nothing of the user's touched."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_files import (
    fingerprint,
    idx_bytes,
    random_images,
    write_class_folders,
    write_idx_set,
    write_picture,
)

from vmivae.data import prepare
from vmivae.errors import UserError

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
Build = Callable[[Path], dict[str, object] | None]


def idx(change: Callable[[Path], object]) -> Build:
    def build(root: Path) -> dict[str, object]:
        write_idx_set(root)
        change(root)
        return {"source": "mnist"}

    return build


def idx_images(content: Callable[[bytes], bytes]) -> Build:
    return idx(lambda root: (root / IMAGES).write_bytes(content((root / IMAGES).read_bytes())))


def gzipped_idx(content: Callable[[bytes], bytes]) -> Build:
    def change(root: Path) -> None:
        plain = (root / IMAGES).read_bytes()
        (root / IMAGES).unlink()
        (root / f"{IMAGES}.gz").write_bytes(content(plain))

    return idx(change)


def folder(change: Callable[[Path], object], source: str = "folder") -> Build:
    def build(root: Path) -> dict[str, object]:
        root.mkdir()
        change(root)
        return {"source": source}

    return build


def in_classes(change: Callable[[Path], object]) -> Build:
    def build(root: Path) -> None:
        write_class_folders(root)
        change(root)

    return folder(build)


def npz(**arrays: object) -> Build:
    def build(root: Path) -> dict[str, object]:
        root.mkdir()
        np.savez(root / "mine.npz", **arrays)
        return {"source": "npz"}

    return build


def npz_content(content: Callable[[bytes], bytes]) -> Build:
    def build(root: Path) -> dict[str, object]:
        npz(images=random_images(6, 8, 8))(root)
        (root / "mine.npz").write_bytes(content((root / "mine.npz").read_bytes()))
        return {"source": "npz"}

    return build


def npz_header(shape: tuple[int, ...]) -> Build:
    """An array whose header declares `shape` and that holds 64 bytes."""

    def build(root: Path) -> dict[str, object]:
        root.mkdir()
        array = io.BytesIO()
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(array, header)
        with zipfile.ZipFile(root / "mine.npz", "w") as archive:
            archive.writestr("images.npy", array.getvalue() + bytes(64))
        return {"source": "npz"}

    return build


def cifar(change: Callable[[dict[str, bytes]], object]) -> Build:
    def build(root: Path) -> dict[str, object]:
        root.mkdir()
        content = {f"data_batch_{number}.bin": bytes(3073 * 2) for number in range(1, 6)}
        content["test_batch.bin"] = bytes(3073)
        change(content)
        for name, batch in content.items():
            (root / name).write_bytes(batch)
        return {"source": "cifar10"}

    return build


def cifar_archive(root: Path) -> dict[str, object]:
    root.mkdir()
    with tarfile.open(root / "cifar-10-binary.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        member.size = 3073
        archive.addfile(member, io.BytesIO(bytes(3073)))
    return {"source": "cifar10"}


def bomb_png(path: Path) -> None:
    """A PNG of a few bytes that declares 60,000 × 60,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def outward_link(root: Path) -> None:
    write_picture(root / "a.png")
    write_picture(root.parent / "elsewhere/secret.png")
    (root / "b.png").symlink_to(root.parent / "elsewhere/secret.png")


def outward_class(root: Path) -> None:
    write_picture(root.parent / "elsewhere/secret.png")
    (root / "dog").symlink_to(root.parent / "elsewhere")


def truncated_picture(root: Path) -> None:
    write_picture(root / "a.png")
    write_picture(root / "b.png", size=(200, 200))
    (root / "b.png").write_bytes((root / "b.png").read_bytes()[:5000])


def split_folders(root: Path) -> None:
    for split in ("train", "test"):
        write_class_folders(root / split)


GREY = random_images(6, 8, 8)
UNIT = np.linspace(0, 1, 6 * 64, dtype=np.float32).reshape(6, 8, 8)
NAN = np.where(np.arange(6)[:, None, None] == 4, np.float32("nan"), UNIT)

MALFORMED: dict[str, tuple[Build, tuple[str, ...]]] = {
    # IDX
    "idx: empty file": (idx_images(lambda content: b""), (IMAGES, "is empty")),
    "idx: wrong magic": (
        idx_images(lambda content: b"\x00\x00\x0d\x03" + content[4:]),
        (IMAGES, "magic number must be 0x00000803", "got 0x00000d03"),
    ),
    "idx: labels in place of images": (
        idx(lambda root: (root / IMAGES).write_bytes((root / LABELS).read_bytes())),
        (IMAGES, "magic number must be 0x00000803", "got 0x00000801"),
    ),
    "idx: a web page": (idx_images(lambda content: b"<!DOCTYPE html>"), (IMAGES, "magic number")),
    "idx: ends in its header": (idx_images(lambda content: content[:10]), (IMAGES, "truncated", "header")),
    "idx: truncated": (
        idx_images(lambda content: content[:-100]),
        (IMAGES, "truncated", "20×28×28 = 15680 bytes"),
    ),
    "idx: trailing bytes": (idx_images(lambda content: content + b"x"), (IMAGES, "trailing bytes", "15680")),
    "idx: no images": (idx_images(lambda content: idx_bytes(np.zeros((0, 28, 28)))), (IMAGES, "is empty")),
    "idx: declares terabytes": (
        idx_images(lambda content: content[:4] + b"\xff" * 12 + content[16:]),
        (IMAGES, "declares", "accepted"),
    ),
    "idx: labels of another set": (
        idx(lambda root: (root / LABELS).write_bytes(idx_bytes(np.zeros(19)))),
        (LABELS, "19 labels", IMAGES, "20 images"),
    ),
    "idx: label out of range": (
        idx(lambda root: (root / LABELS).write_bytes(idx_bytes(np.full(20, 10)))),
        (LABELS, "labels must lie in 0 to 9", "got 10", "image 0"),
    ),
    "idx: a folder in place of a file": (
        idx(lambda root: ((root / IMAGES).unlink(), (root / IMAGES).mkdir())),
        ("mnist", IMAGES, "download failed", "network is unreachable"),
    ),
    "gzip: truncated": (
        gzipped_idx(lambda plain: gzip.compress(plain)[:-3000]),
        (f"{IMAGES}.gz", "truncated or damaged gzip"),
    ),
    "gzip: wrong checksum": (
        gzipped_idx(lambda plain: gzip.compress(plain)[:-8] + b"\0" * 8),
        (f"{IMAGES}.gz", "truncated or damaged gzip"),
    ),
    "gzip: damaged in the middle": (
        gzipped_idx(lambda plain: gzip.compress(plain)[:5000] + b"\xff" * 9 + gzip.compress(plain)[5009:]),
        (f"{IMAGES}.gz", "truncated or damaged gzip"),
    ),
    "gzip: bomb, expands far beyond its declared size": (
        gzipped_idx(lambda plain: gzip.compress(plain + bytes(50_000_000))),
        (f"{IMAGES}.gz", "trailing bytes"),
    ),
    "gzip: declares more than it can hold": (
        gzipped_idx(lambda plain: gzip.compress(plain[:4] + struct.pack(">III", 5000, 1000, 1000))),
        (f"{IMAGES}.gz", "truncated", "cannot hold"),
    ),
    "mnist: absent and offline": (
        lambda root: {"source": "mnist"},
        ("mnist", "not in", "MNIST/raw", "download failed", IMAGES, "t10k-labels-idx1-ubyte", "data.root"),
    ),
    "mnist: one of four absent and offline": (
        idx(lambda root: (root / LABELS).unlink()),
        ("mnist", f"put {LABELS} (as they are or as .gz)", "download failed"),
    ),
    "emnist: absent and offline": (
        lambda root: {"source": "emnist", "split": "letters"},
        ("emnist/letters", "EMNIST/raw", "emnist-letters-train-images-idx3-ubyte", "download failed"),
    ),
    "emnist: no split named": (lambda root: {"source": "emnist"}, ("data.split", "null")),
    # Others of torchvision's
    "svhn: absent and offline": (
        lambda root: {"source": "svhn"},
        ("svhn", "not in", "train_32x32.mat", "download failed"),
    ),
    "svhn: another file": (
        folder(lambda root: (root / "train_32x32.mat").write_bytes(b"no matrix"), "svhn"),
        ("train_32x32.mat", "not the published file", "MD5"),
    ),
    "celeba: absent and offline": (
        lambda root: {"source": "celeba"},
        ("celeba", "list_attr_celeba.txt", "img_align_celeba", "download failed"),
    ),
    "cifar10: absent and offline": (
        lambda root: {"source": "cifar10"},
        ("cifar10", "cifar-10-binary.tar.gz", "data_batch_1.bin", "download failed"),
    ),
    "cifar10: only the pickled version": (
        folder(lambda root: (root / "cifar-10-batches-py").mkdir(), "cifar10"),
        ("cifar10", "cifar-10-binary.tar.gz", "pickles"),
    ),
    "cifar10: truncated": (
        cifar(lambda content: content.update({"data_batch_3.bin": bytes(4000)})),
        ("data_batch_3.bin", "truncated", "4000 bytes"),
    ),
    "cifar10: empty file": (
        cifar(lambda content: content.update({"test_batch.bin": b""})),
        ("test_batch.bin", "truncated", "0 bytes"),
    ),
    "cifar10: label out of range": (
        cifar(lambda content: content.update({"test_batch.bin": b"\x0a" + bytes(3072)})),
        ("test_batch.bin", "labels must be 0 to 9", "got 10"),
    ),
    "cifar10: archive without the batches": (
        cifar_archive,
        ("cifar-10-binary.tar.gz", "does not contain", "data_batch_1.bin"),
    ),
    "cifar10: damaged archive": (
        lambda root: (
            cifar_archive(root),
            (root / "cifar-10-binary.tar.gz").write_bytes(
                (root / "cifar-10-binary.tar.gz").read_bytes()[:60]
            ),
            {"source": "cifar10"},
        )[-1],
        ("cifar-10-binary.tar.gz", "truncated or damaged"),
    ),
    # Folders of pictures
    "folder: missing": (lambda root: {"source": "folder"}, ("is no folder", "data.root")),
    "folder: empty": (folder(lambda root: None), ("has no pictures",)),
    "folder: no pictures among its files": (
        folder(lambda root: (root / "notes.txt").write_text("none")),
        ("has no pictures", ".png"),
    ),
    "folder: empty class": (in_classes(lambda root: (root / "dog").mkdir()), ("dog", "has no pictures")),
    "folder: pictures beside classes": (
        in_classes(lambda root: write_picture(root / "stray.png")),
        ("stray.png", "beside folders"),
    ),
    "folder: corrupt picture": (
        in_classes(lambda root: (root / "ant/2.png").write_bytes(b"no picture at all")),
        ("ant/2.png", "corrupt"),
    ),
    "folder: empty picture": (
        in_classes(lambda root: (root / "ant/2.png").write_bytes(b"")),
        ("ant/2.png", "corrupt"),
    ),
    "folder: truncated picture": (folder(truncated_picture), ("b.png", "corrupt", "truncated")),
    "folder: decompression bomb": (
        in_classes(lambda root: bomb_png(root / "ant/9.png")),
        ("ant/9.png", "too many pixels", "decompression bomb"),
    ),
    "folder: a script named as a picture": (
        in_classes(lambda root: (root / "ant/9.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n")),
        ("ant/9.jpg", "corrupt or no picture"),
    ),
    "folder: link out of the folder": (folder(outward_link), ("b.png", "link", "out of")),
    "folder: class that is a link out of the folder": (in_classes(outward_class), ("dog", "link", "out of")),
    "folder: broken link": (
        folder(lambda root: (write_picture(root / "a.png"), (root / "b.png").symlink_to(root / "none.png"))),
        ("b.png", "link", "nothing"),
    ),
    "folder: endless link": (
        in_classes(lambda root: (root / "ant/again").symlink_to(root)),
        ("ant/again", "link to a folder"),
    ),
    "folder: test without train": (
        folder(lambda root: write_picture(root / "test/a.png")),
        ("has the folder test alone", "train"),
    ),
    "folder: something beside train and test": (
        folder(lambda root: (split_folders(root), write_picture(root / "val/a.png"))),
        ("val", "neither train nor test"),
    ),
    "folder: class of test unknown to train": (
        folder(lambda root: (split_folders(root), write_picture(root / "test/dog/a.png"))),
        ("test/dog", "not among the classes", "ant, bee, cat"),
    ),
    "folder: one split with classes, one without": (
        folder(lambda root: (write_class_folders(root / "train"), write_picture(root / "test/a.png"))),
        ("test", "not among the classes"),
    ),
    "folder: one picture": (
        folder(lambda root: write_picture(root / "a.png")),
        ("1 images cannot be split", "data.test_fraction"),
    ),
    # Arrays
    "npz: missing": (lambda root: {"source": "npz"}, ("not found", "data.root")),
    "npz: none in the folder": (folder(lambda root: None, "npz"), ("must hold one .npz file", "got none")),
    "npz: two in the folder": (
        lambda root: (npz(images=GREY)(root), np.savez(root / "b.npz", images=GREY), {"source": "npz"})[-1],
        ("must hold one .npz file", "b.npz, mine.npz"),
    ),
    "npz: no images": (npz(pictures=GREY), ("mine.npz", "has no array images or x or imgs", "got pictures")),
    "npz: NaN": (npz(images=NAN), ("mine.npz: images", "NaN in image 4")),
    "npz: infinite": (npz(images=np.full((6, 8, 8), np.inf)), ("images must lie in [0, 1]", "inf")),
    "npz: above the range": (npz(images=UNIT * 255), ("images must lie in [0, 1]", "0 to 255")),
    "npz: below the range": (npz(images=UNIT - 0.5), ("images must lie in [0, 1]", "-0.5 to 0.5")),
    "npz: wide integers": (npz(images=GREY.astype(np.int64)), ("images must be uint8", "got int64")),
    "npz: complex": (npz(images=UNIT.astype(complex)), ("images must be uint8", "got complex128")),
    "npz: object array": (
        npz(images=np.array([GREY[0], None], dtype=object)),
        ("mine.npz: images", "Python objects", "never unpickled"),
    ),
    "npz: object labels": (
        npz(images=GREY, labels=np.array(["a", None, 1, 2, 3, 4], dtype=object)),
        ("mine.npz: labels", "Python objects"),
    ),
    "npz: flat images": (npz(images=random_images(6, 64)), ("images must be (N, H, W)", "got (6, 64)")),
    "npz: two channels": (npz(images=random_images(6, 8, 8, 2)), ("C = 1 or 3", "has neither")),
    "npz: channels first or last?": (
        npz(images=random_images(6, 3, 8, 3)),
        ("C = 1 or 3", "could be either"),
    ),
    "npz: no image": (npz(images=random_images(0, 8, 8)), ("images must be", "got (0, 8, 8)")),
    "npz: one image": (npz(images=random_images(1, 8, 8)), ("1 images cannot be split",)),
    "npz: too few labels": (npz(images=GREY, labels=np.arange(5)), ("labels must be (N,)", "N = 6", "(5,)")),
    "npz: one-hot labels": (npz(images=GREY, labels=np.eye(6, dtype=int)), ("labels must be (N,)", "(6, 6)")),
    "npz: labels with fractions": (
        npz(images=GREY, labels=np.linspace(0, 1, 6)),
        ("labels must be whole numbers or text", "got float64"),
    ),
    "npz: factors of another count": (
        npz(images=GREY, factors=np.zeros((5, 2), dtype=int)),
        ("factors must be (N, F)", "N = 6", "(5, 2)"),
    ),
    "npz: factors with fractions": (
        npz(images=GREY, factors=np.zeros((6, 2))),
        ("factors must be whole numbers",),
    ),
    "npz: factor names of another count": (
        npz(images=GREY, factors=np.zeros((6, 2), dtype=int), factor_names=np.array(["size"])),
        ("factor_names must be 2 texts", "(1,)"),
    ),
    "npz: train without test": (npz(train_images=GREY), ("has no array test_images or images_test",)),
    "npz: labels of train alone": (
        npz(train_images=GREY, test_images=GREY, train_labels=np.arange(6)),
        ("has labels for train but none for test",),
    ),
    "npz: splits of different shape": (
        npz(train_images=GREY, test_images=random_images(6, 9, 9)),
        ("differ in shape", "(8, 8)", "(9, 9)"),
    ),
    "npz: text and number labels": (
        npz(
            train_images=GREY,
            test_images=GREY,
            train_labels=np.array(list("abcdef")),
            test_labels=np.arange(6),
        ),
        ("labels must be text in both splits or numbers in both",),
    ),
    "npz: images twice": (npz(images=GREY, x=GREY), ("has images and x for the same thing",)),
    "npz: images with and without split": (
        npz(images=GREY, train_images=GREY, test_images=GREY),
        ("both images for train and images without a split",),
    ),
    "npz: truncated": (npz_content(lambda content: content[:200]), ("mine.npz", "damaged or no .npz file")),
    "npz: no zip": (npz_content(lambda content: b"text"), ("mine.npz", "damaged or no .npz file")),
    "npz: damaged array": (
        npz_content(lambda content: content[:250] + b"\xff" * 20 + content[270:]),
        ("mine.npz", "damaged"),
    ),
    "npz: declares more than it holds": (npz_header((100, 8, 8)), ("images is truncated", "6400 bytes")),
    "npz: declares terabytes": (npz_header((10**6, 10**3, 10**3)), ("images declares 1000000000000 bytes",)),
}


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("build", "words"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_input_is_one_clear_line(build: Build, words: tuple[str, ...], tmp_path: Path) -> None:
    root, out = tmp_path / "raw", tmp_path / "out/prepared"
    out.parent.mkdir()
    arguments = build(root) or {}
    before = fingerprint(tmp_path), sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError) as caught:
        prepare(out, root=root, **arguments)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message
    assert (fingerprint(tmp_path), sorted(tmp_path.rglob("*"))) == before
