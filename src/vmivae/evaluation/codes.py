"""The codes of a split as arrays that any tool reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmivae.files import replace_directory, write_json
from vmivae.model import CodeDistribution


def write_codes(
    path: Path, splits: dict[str, CodeDistribution], labels: dict[str, NDArray[np.int64] | None]
) -> None:
    """Write each split's codes, and its labels beside them, to the folder `path`; all files or none.

    - `{split}_codes.npy`: float32 `(N, size)`, the posterior expectation (means, then class probabilities);
    - `{split}_stddev.npy`: float32 `(N, D)`, the posterior standard deviations of the real units;
    - `{split}_labels.npy`: `(N,)`, where there are labels;
    - `codes.json`: the names of the units, and the columns `[start, stop]` of each.

    Args:
        path: the folder, replaced as a whole.
        splits: the posterior of each split's images, batch shape `(N,)`.
        labels: the labels of each split, or None.
    """
    latents = next(iter(splits.values())).latents
    with replace_directory(path) as folder:
        for name, posterior in splits.items():
            np.save(folder / f"{name}_codes.npy", posterior.expectation.float().numpy())
            np.save(folder / f"{name}_stddev.npy", posterior.stddev.float().numpy())
            known = labels[name]
            if known is not None:
                np.save(folder / f"{name}_labels.npy", np.asarray(known))
        write_json(
            folder / "codes.json",
            {
                "units": list(latents.units),
                "columns": {unit: [columns.start, columns.stop] for unit, columns in latents.columns.items()},
            },
        )
