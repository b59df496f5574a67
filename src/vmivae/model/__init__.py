"""Latent-variable models: the mix of codes, the networks, the VAE."""

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.protocol import LatentVariableModel
from vmivae.model.vae import VAE, load_vae, save_vae

__all__ = ["VAE", "CodeDistribution", "LatentSpec", "LatentVariableModel", "load_vae", "save_vae"]
