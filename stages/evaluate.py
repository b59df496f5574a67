"""Score models/vae on data/prepared; write metrics/evaluation.json, plots/units.csv and data/codes."""

from pathlib import Path

from vmivae import load_params, load_vae, stage, tracking
from vmivae.data import load_prepared
from vmivae.evaluation import evaluate, write_codes
from vmivae.files import together, write_csv, write_json


def main() -> None:
    """Score models/vae on data/prepared."""
    params = load_params()
    with tracking.stage("evaluate", params), stage.ProgressReporter() as progress:
        model = load_vae("models/vae")
        data = load_prepared().measured()
        result = evaluate(
            model,
            data.train,
            data.test,
            params.evaluation.importance_samples,
            params.seed,
            device=params.train.device,
            progress=progress,
            factors=data.card.factors,
            repeats=params.evaluation.repeats,
        )
        labels = {"train": data.train.labels, "test": data.test.labels}
        with together():
            write_codes(Path("data/codes"), result.codes, labels)
            write_csv(Path("plots/units.csv"), result.units)
            write_json(Path("metrics/evaluation.json"), result.metrics)


if __name__ == "__main__":
    stage.run(main)
