"""Train the VAE of params.yaml on data/prepared; write models/vae, metrics/train.json, plots/training.csv."""

from pathlib import Path

from vmivae import load_params, stage, tracking
from vmivae.data import binarized, load_prepared
from vmivae.files import together, write_csv, write_json
from vmivae.model import VAE, LatentSpec, save_vae
from vmivae.training import TrainConfig, make_information, make_objective, train


def main() -> None:
    """Train the VAE of params.yaml on data/prepared."""
    params = load_params()
    settings = params.train.model_dump()
    with (
        stage.checkpoints("train", settings.pop("checkpoint_seconds")) as checkpoint,
        tracking.stage("train", params) as run,
        stage.ProgressReporter() as progress,
    ):
        data = load_prepared()
        latents = LatentSpec(**params.latents.model_dump())
        objective = params.objective.model_dump()
        information = make_information(latents, **objective.pop("information"))
        model = VAE(data.card.image_shape, latents, **params.model.model_dump(), seed=params.seed)
        history = train(
            model,
            data.train.tensor(),
            make_objective(latents, **objective),
            TrainConfig(**settings),
            params.seed,
            information=information,
            draw=binarized if data.card.binarize == "dynamic" else None,
            on_epoch=run.log,
            progress=progress,
            checkpoint=checkpoint,
        )
        run.timing("images_per_second", history.images_per_second)
        with together():
            save_vae(model, Path("models/vae"))
            write_csv(Path("plots/training.csv"), history.rows)
            write_json(Path("metrics/train.json"), history.summary())


if __name__ == "__main__":
    stage.run(main)
