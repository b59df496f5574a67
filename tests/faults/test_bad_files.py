"""Files of users, damaged or malicious: no traceback, no hang, no memory beyond what is accepted."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import signal
import struct
import subprocess
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from workplace import Workplace, one_line

from vmivae.data import cifar10, idx, npz, prepare
from vmivae.data.cifar10 import load_cifar10
from vmivae.data.idx import read_idx
from vmivae.data.npz import load_npz
from vmivae.data.pictures import picture_channels, read_picture
from vmivae.errors import DataError, UserError

GREY = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail what hangs."""

    def hang(number: int, frame: object) -> None:
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def npy(header: bytes, version: int = 1, content: bytes = bytes(64)) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + content


def archive(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", kind) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return content.getvalue()


def array(values: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def header(shape: str = "(1, 8, 8)", kind: str = "'|u1'") -> bytes:
    return f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}}}\n".encode()


ARRAYS = {
    "a member without .npy": archive({"images": array(GREY)}),
    "a type that is an empty tuple": archive({"images.npy": npy(header(kind="()"))}),
    "a length that is no machine integer": archive({"images.npy": npy(header(f"(0, {10**30})"))}),
    "a length that is no number": archive({"images.npy": npy(header("(True, 8, 8)"))}),
    "a negative length": archive({"images.npy": npy(header("(-64,)"))}),
    "a header that opens and never closes": archive({"images.npy": npy(b"(" * 9000)}),
    "a header that is text without end": archive({"images.npy": npy(b"'''")}),
    "keys of different kinds": archive({"images.npy": npy(b"{1: 2, 'a': 3}\n")}),
    "LZMA, damaged": archive({"images.npy": array(GREY)}, zipfile.ZIP_LZMA).replace(b"\x5d\0\0", b"\xff\0\0"),
    "labels that are no text": archive(
        {"images.npy": array(GREY), "labels.npy": array(np.array([b"\xff"] * 6))}
    ),
    "labels that nothing can write": archive(
        {"images.npy": array(GREY), "labels.npy": array(np.array(["\ud800"] * 6))}
    ),
    "labels of Python objects": archive(
        {"images.npy": array(GREY), "labels.npy": npy(header("(6,)", "'|O'"))}
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_damaged_or_malicious_npz_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "set.npz").write_bytes(ARRAYS[name])
    with pytest.raises(DataError) as caught:
        prepare(tmp_path / "out/prepared", source="npz", root=tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@contextmanager
def memory(most: int) -> Iterator[None]:
    """Fail what has Python and NumPy hold more than `most` bytes at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most, f"{peak} bytes"


def test_an_npz_bomb_in_a_header(tmp_path: Path) -> None:
    bomb = archive({"images.npy": npy(bytes(60_000_000), 2, b"")})
    assert len(bomb) < 300_000
    (tmp_path / "set.npz").write_bytes(bomb)
    with memory(5_000_000), pytest.raises(DataError, match="damaged or no"):
        load_npz(tmp_path)


def test_an_npz_bomb_in_a_text(tmp_path: Path) -> None:
    text = npy(header("(6,)", "'|S10000000'"), content=bytes(60_000_000))
    (tmp_path / "set.npz").write_bytes(archive({"images.npy": array(GREY), "labels.npy": text}))
    with memory(5_000_000), pytest.raises(DataError, match="texts of more than 1000 characters"):
        load_npz(tmp_path)


def test_a_tar_bomb_in_a_header(tmp_path: Path) -> None:
    member = tarfile.TarInfo("pax")
    member.type, member.size = tarfile.XHDTYPE, 150_000_000
    content = gzip.compress(member.tobuf() + bytes(member.size), 1)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(content)
    with memory(2 * cifar10._MEMBER_BYTES), pytest.raises(DataError, match="truncated or damaged archive"):
        load_cifar10(tmp_path)


def test_a_tar_with_a_huge_file(tmp_path: Path) -> None:
    member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    member.size = 2**40
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(member.tobuf() + bytes(10_000)))
    with within(10), pytest.raises(DataError, match="bytes are accepted"):
        load_cifar10(tmp_path)


def test_a_pipe_where_a_picture_or_an_array_should_be(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    os.mkfifo(tmp_path / "set.npz")
    with within(10):
        with pytest.raises(DataError, match=r"b\.png: is no regular file"):
            prepare(tmp_path / "prepared", source="folder", root=tmp_path)
        with pytest.raises(DataError, match="got none"):
            load_npz(tmp_path)


def test_class_folders_that_no_text_can_name_and_ones_that_break_lines(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for name in (b"caf\xe9", b"b"):
        folder = root / os.fsdecode(name)
        folder.mkdir(parents=True)
        for number in range(3):
            Image.new("L", (8, 8)).save(folder / f"{number}.png")
    with pytest.raises(DataError, match=r"'caf\\udce9' is not UTF-8 text"):
        prepare(tmp_path / "prepared", source="folder", root=root)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_folders_deeper_than_pythons_recursion(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "raw/deep").mkdir(parents=True)
    inner = os.open(tmp_path / "raw/deep", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=inner)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    for name in ("1.png", "2.png"):
        copy = os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=inner)
        os.write(copy, (tmp_path / "a.png").read_bytes())
        os.close(copy)
    os.close(inner)
    try:
        card = prepare(tmp_path / "prepared", source="folder", root=tmp_path / "raw", image_size=8)
    finally:
        # pytest's own cleaning recurses.
        subprocess.run(["rm", "-r", tmp_path / "raw"], check=True)
    assert card.train.count + card.test.count == 2


def picture(kind: str, mode: str = "RGB", **options: object) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(content, kind, **options)
    return content.getvalue()


def tar() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as file:
        for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = 3073
            file.addfile(member, io.BytesIO(bytes(3073)))
    return content.getvalue()


def read_both(path: Path) -> None:
    picture_channels(path)
    read_picture(path)


IDX = struct.pack(">HBBIII", 0, 8, 3, 6, 8, 8) + GREY.tobytes()
LABELLED = archive({"images.npy": array(GREY), "labels.npy": array(np.array(list("abcdef")))})
PLAIN = archive({"images.npy": array(GREY), "factors.npy": array(np.eye(6, dtype=int))}, zipfile.ZIP_STORED)
Reader = Callable[[Path], object]
READERS: dict[str, tuple[str, bytes, Reader]] = {
    "idx": ("train-images-idx3-ubyte", IDX, lambda path: read_idx(path, 3)),
    "idx, gzipped": ("images.gz", gzip.compress(IDX), lambda path: read_idx(path, 3)),
    "npz, stored": ("set.npz", PLAIN, load_npz),
    "npz, deflated": ("set.npz", LABELLED, load_npz),
    "tar, gzipped": (
        "cifar-10-binary.tar.gz",
        gzip.compress(tar(), 1),
        lambda path: load_cifar10(path.parent),
    ),
    "png": ("a.png", picture("PNG"), read_both),
    "jpeg": ("a.jpg", picture("JPEG"), read_both),
    "gif": ("a.gif", picture("GIF", "P"), read_both),
    "webp": ("a.webp", picture("WEBP", lossless=True), read_both),
    "tiff": ("a.tif", picture("TIFF"), read_both),
    "tiff, compressed": ("a.tif", picture("TIFF", compression="tiff_lzw"), read_both),
    "bmp": ("a.bmp", picture("BMP"), read_both),
    "ppm": ("a.ppm", picture("PPM"), read_both),
}
CASES = 200
ACCEPTED = 2**20


def mutated(content: bytes, draws: np.random.Generator) -> bytes:
    """Some bytes changed, mostly near the start where headers are; or some cut out, repeated or put in."""
    changed = bytearray(content)
    for _ in range(draws.integers(1, 5)):
        near = min(len(changed), 160) if draws.random() < 0.6 else len(changed)
        place = int(draws.integers(near)) if near else 0
        length = int(draws.integers(1, 9))
        match draws.integers(5):
            case 0:
                changed[place : place + length] = draws.bytes(length)
            case 1:
                changed[place : place + length] = b"\xff" * length
            case 2:
                changed[place : place + length] = bytes(length)
            case 3:
                del changed[place : place + int(draws.integers(1, 400))]
            case _:
                changed[place:place] = changed[place : place + length * 4]
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_two_thousand_mutated_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    name, content, read = READERS[kind]
    seed = sum(kind.encode())
    draws = np.random.default_rng(seed)
    # A small limit, so that whatever goes beyond twice of it shows.
    for module in (idx, npz, cifar10):
        monkeypatch.setattr(module, "MAX_ARRAY_BYTES", ACCEPTED)
    monkeypatch.setattr(cifar10, "_MEMBER_BYTES", ACCEPTED)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", ACCEPTED // 3)
    path = tmp_path / name
    path.write_bytes(content)
    read(path)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = []
    for case in range(CASES):
        path.write_bytes(mutated(content, draws))
        try:
            with within(10), memory(2 * ACCEPTED + 500_000):
                read(path)
        except UserError as error:
            lines.append(str(error))
        except BaseException as error:
            error.add_note(f"seed {seed}, case {case}")
            raise
    assert len(lines) > CASES // 10
    assert not [line for line in lines if "\n" in line]
    # What decoders hold is not Python's to count.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 100_000


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "card without a hash": ("data/prepared/data_card.json", lambda text: b"{}", "train"),
    "card that is a list": ("data/prepared/data_card.json", lambda text: b"[1]", "train"),
    "images cut short": ("data/prepared/train_images.npy", lambda content: content[:-1], "train"),
    "images of objects": (
        "data/prepared/train_images.npy",
        lambda content: content.replace(b"'|u1'", b"'|O' "),
        "train",
    ),
    "images with a damaged header": (
        "data/prepared/test_images.npy",
        lambda content: content.replace(b"'|u1'", b"()   "),
        "train",
    ),
    "labels cut short": ("data/prepared/test_labels.npy", lambda content: content[:-1], "train"),
    "weights with a header of exabytes": (
        "models/vae/model.safetensors",
        lambda content: b"\xff" * 8 + content[8:],
        "evaluate",
    ),
    "weights that are a pickle": (
        "models/vae/model.safetensors",
        lambda content: b"cos\nsystem\n(S'true'\ntR.",
        "estimate_mi",
    ),
    "weights cut short": ("models/vae/model.safetensors", lambda content: content[:-4], "evaluate"),
    "model without units": (
        "models/vae/model.json",
        lambda text: json.dumps(json.loads(text) | {"latents": {}}).encode(),
        "evaluate",
    ),
    "model of terabytes": (
        "models/vae/model.json",
        lambda text: json.dumps(json.loads(text) | {"image_shape": [1, 10**6, 10**6]}).encode(),
        "evaluate",
    ),
    "model that is a list": ("models/vae/model.json", lambda text: b"[]", "estimate_mi"),
    "codes of objects": (
        "data/codes/test_codes.npy",
        lambda content: content.replace(b"'<f4'", b"'|O' "),
        "report",
    ),
    "curve without numbers": ("plots/training.csv", lambda text: b"epoch,step\n1,x\n", "report"),
    "scores that are no object": ("metrics/evaluation.json", lambda text: b"[1]", "report"),
    "scores without units": ("metrics/evaluation.json", lambda text: b"{}", "report"),
    "information without units": ("metrics/mi.json", lambda text: b"{}", "report"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_result_of_an_earlier_stage_is_named(place: Workplace, name: str) -> None:
    path, damage, stage = DAMAGE[name]
    file = place.root / path
    file.write_bytes(damage(file.read_bytes()))
    before = place.files()
    with pytest.raises(UserError) as caught:
        place.main(stage)
    line = str(caught.value)
    assert "\n" not in line
    assert Path(path).name in line or str(Path(path).parent) in line
    assert place.files() == before


def test_results_for_images_of_another_shape_are_refused(place: Workplace) -> None:
    place.set({"data.image_size": 12})
    place.main("prepare")
    for stage in ("evaluate", "estimate_mi", "report"):
        with pytest.raises(UserError, match=r"images: must be \(B, 1, 8, 8\) for this model"):
            place.main(stage)


@pytest.mark.slow
def test_a_corrupt_set_through_a_stage_of_its_own(place: Workplace) -> None:
    before = place.files()
    (place.root / "set.npz").write_bytes(ARRAYS["a header that opens and never closes"])
    done = place.run("prepare")
    assert done.returncode == 2
    assert one_line(done).startswith("error: set.npz: is damaged or no .npz file (")
    assert place.files() == before
