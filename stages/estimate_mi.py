"""Measure what the codes of models/vae know; write models/q_network, metrics/mi.json and plots."""

from dataclasses import asdict
from pathlib import Path

from vmivae import load_params, load_vae, stage, tracking
from vmivae.data import load_prepared
from vmivae.files import together, write_csv, write_json
from vmivae.mutual_information import EstimateConfig, estimate, save_q_network


def main() -> None:
    """Measure what the codes of models/vae know about the images of data/prepared."""
    params = load_params()
    settings = params.mutual_information.model_dump()
    split = settings.pop("split")
    with (
        stage.checkpoints("estimate_mi", params.train.checkpoint_seconds) as checkpoint,
        tracking.stage("estimate_mi", params),
        stage.ProgressReporter() as progress,
    ):
        images = getattr(load_prepared().measured(), split).tensor()
        model = load_vae("models/vae")
        result = estimate(
            model,
            images,
            EstimateConfig.from_dict(settings),
            seed=params.seed,
            device=params.train.device,
            progress=progress,
            checkpoint=checkpoint,
        )
        with together():
            save_q_network(result.q_network, Path("models/q_network"))
            write_csv(Path("plots/q_network.csv"), [asdict(row) for row in result.history])
            write_csv(Path("plots/information.csv"), result.rows())
            write_csv(Path("plots/interval.csv"), result.curve)
            write_json(Path("metrics/mi.json"), result.to_dict())


if __name__ == "__main__":
    stage.run(main)
