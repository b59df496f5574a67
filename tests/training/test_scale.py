"""Sets larger than memory: they are read from their file while they are used."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.format import open_memmap

SOURCE = Path(__file__).parents[2] / "src"
SCRIPT = """
import resource, sys
import numpy as np
from vmivae.data import Split
from vmivae.model import VAE, LatentSpec
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.training import Beta, TrainConfig, train

# What a process allocates for itself, without the files that it maps.
resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))
images = Split(np.load(sys.argv[1], mmap_mode="r"), None, None).tensor()

class Enough(Exception):
    pass

def stop(what, done, total, state):
    if done:
        print(what, done, total)
        raise Enough

model = VAE((3, 64, 64), LatentSpec(4))
try:
    train(model, images, Beta(), TrainConfig(1, 4, device="cpu", compile=False), 0, progress=stop)
except Enough:
    pass
print(len(AggregatePosterior.of(model.posterior, images[:4096])))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_four_gigabytes_of_images_train_in_two(tmp_path: Path) -> None:
    count = 2**32 // (3 * 64 * 64)
    # Never written, the file has no blocks on the disk.
    open_memmap(tmp_path / "images.npy", mode="w+", dtype=np.uint8, shape=(count, 3, 64, 64))
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "images.npy")],
        env={"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"training 100 {count // 4}", "4096"]
