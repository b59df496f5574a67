"""Training a VAE: objectives and the loop."""

from vmivae.training.loop import History, TrainConfig, train
from vmivae.training.objectives import Beta, Capacity, Objective, Ramp, make_objective

__all__ = ["Beta", "Capacity", "History", "Objective", "Ramp", "TrainConfig", "make_objective", "train"]
