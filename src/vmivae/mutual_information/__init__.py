"""How much codes know about images: bounds on the mutual information of any fixed latent-variable model."""

from vmivae.model.q_network import QNetwork
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.mutual_information.estimate import Estimate, EstimateConfig, ImportanceConfig, estimate
from vmivae.mutual_information.fit import QNetworkConfig, fit_q_network, load_q_network, save_q_network
from vmivae.mutual_information.flow import FlowQNetwork

__all__ = [
    "AggregatePosterior",
    "Estimate",
    "EstimateConfig",
    "FlowQNetwork",
    "ImportanceConfig",
    "QNetwork",
    "QNetworkConfig",
    "estimate",
    "fit_q_network",
    "load_q_network",
    "save_q_network",
]
