"""Latent-variable models: the mix of codes, the networks, the VAE."""

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.protocol import LatentVariableModel

__all__ = ["CodeDistribution", "LatentSpec", "LatentVariableModel"]
