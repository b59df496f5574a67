"""How much codes know about images: bounds on the mutual information of any fixed latent-variable model."""

from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.mutual_information.estimate import Estimate, EstimateConfig, estimate
from vmivae.mutual_information.q_network import (
    QNetwork,
    QNetworkConfig,
    fit_q_network,
    load_q_network,
    save_q_network,
)

__all__ = [
    "AggregatePosterior",
    "Estimate",
    "EstimateConfig",
    "QNetwork",
    "QNetworkConfig",
    "estimate",
    "fit_q_network",
    "load_q_network",
    "save_q_network",
]
