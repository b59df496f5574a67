import json

import numpy as np
import torch

from vmivae.evaluation import write_codes
from vmivae.model import CodeDistribution


def test_codes_are_posterior_expectations_beside_their_labels(tmp_path):
    def posterior(count):
        return CodeDistribution(
            torch.arange(2.0 * count).view(count, 2), torch.full((count, 2), 0.5), [torch.zeros(count, 4)]
        )

    (tmp_path / "codes").mkdir()
    (tmp_path / "codes" / "stale.npy").touch()
    labels = {"train": np.array([3, 1, 2]), "test": None}
    write_codes(tmp_path / "codes", {"train": posterior(3), "test": posterior(2)}, labels)

    assert sorted(path.name for path in (tmp_path / "codes").iterdir()) == [
        "codes.json",
        "test_codes.npy",
        "test_stddev.npy",
        "train_codes.npy",
        "train_labels.npy",
        "train_stddev.npy",
    ]
    codes = np.load(tmp_path / "codes" / "train_codes.npy", allow_pickle=False)
    assert codes.dtype == np.float32
    np.testing.assert_array_equal(codes, [[0, 1] + 4 * [0.25], [2, 3] + 4 * [0.25], [4, 5] + 4 * [0.25]])
    stddev = np.load(tmp_path / "codes" / "test_stddev.npy", allow_pickle=False)
    np.testing.assert_array_equal(stddev, np.full((2, 2), 0.5, dtype=np.float32))
    np.testing.assert_array_equal(
        np.load(tmp_path / "codes" / "train_labels.npy", allow_pickle=False), [3, 1, 2]
    )
    assert json.loads((tmp_path / "codes" / "codes.json").read_text()) == {
        "units": ["z0", "z1", "c0"],
        "columns": {"z0": [0, 1], "z1": [1, 2], "c0": [2, 6]},
    }
