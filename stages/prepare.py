"""Prepare the images of params.yaml; write data/prepared."""

import sys

from vmivae import stage, tracking
from vmivae.console import say
from vmivae.data import prepare
from vmivae.params import load_params


def main() -> None:
    params = load_params()
    with tracking.stage("prepare", params), stage.ProgressReporter() as progress:
        card = prepare("data/prepared", **params.data.model_dump(), progress=progress)
    say(card, sys.stdout)


if __name__ == "__main__":
    stage.run(main)
