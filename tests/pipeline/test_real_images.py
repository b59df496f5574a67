"""Fashion-MNIST at full size through every stage, with little training."""

from pathlib import Path

import pytest
from repository import ALL, stages_run

from vmivae.data import load_prepared

DEBIAN = Path("/usr/share/datasets/fashion-mnist")

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_sixty_thousand_images_go_through_every_stage(another):
    another.set_params(
        {
            "data": {"source": "fashion_mnist", "root": str(DEBIAN), "image_size": 28},
            "train": {"epochs": 1, "batch_size": 512},
        }
    )
    assert stages_run(another.run("dvc", "repro")) == ALL
    data = load_prepared(another.root / "data/prepared")
    assert (data.train.images.shape, data.test.images.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    train, evaluation, mi = (another.metrics(name) for name in ("train", "evaluation", "mi"))
    assert train["steps"] == 60_000 // 512
    # A pixel that is guessed costs log 2: after one epoch the model must be far better than that.
    assert evaluation["distortion"] < 0.75 * 28 * 28 * 0.6931
    assert evaluation["images"] == 10_000
    assert mi["images"] == 60_000
    assert mi["lower"] - 2 * mi["lower_se"] < mi["upper"] + 2 * mi["upper_se"]
    assert "What the codes know about fashion_mnist" in (another.root / "reports/report.html").read_text(
        "utf-8"
    )
