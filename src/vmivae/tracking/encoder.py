"""The encoder as an MLflow model, from code: MLflow copies this file beside the weights and runs it."""

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import numpy.typing as npt


class Encoder(mlflow.pyfunc.PythonModel):  # type: ignore[misc, name-defined, unused-ignore]
    """Images `(B, C, H, W)` in [0, 1] to codes `(B, size)`: posterior means, then class probabilities."""

    def load_context(self, context: Any) -> None:
        from vmivae.model import load_vae

        self.model = load_vae(Path(context.artifacts["vae"])).eval()

    def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> npt.NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            codes = self.model.posterior(torch.as_tensor(model_input)).expectation
        result: npt.NDArray[np.float32] = codes.numpy()
        return result


mlflow.models.set_model(Encoder())
