"""Training a VAE: objectives and the loop."""

from vmivae.training.information import Information, make_information
from vmivae.training.loop import History, TrainConfig, train
from vmivae.training.objectives import Beta, Capacity, Objective, Ramp, make_objective

__all__ = [
    "Beta",
    "Capacity",
    "History",
    "Information",
    "Objective",
    "Ramp",
    "TrainConfig",
    "make_information",
    "make_objective",
    "train",
]
