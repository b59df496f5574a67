"""A Q with dependent units: spline flows for the real ones, autoregressive categorical ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import zuko
from torch import Tensor, nn
from torch.nn import functional as F

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.q_network import Proposal, QNetwork

CONTEXT = 64
TRANSFORMS = 3
HIDDEN = (128, 128)


class FlowQNetwork(QNetwork):
    """`Q(z|x̃) = Π_j Q(c_j|c_<j, x̃) · Q(z_0 … z_{D−1}|c, x̃)`, beside the unit heads of `QNetwork`.

    The real units are a coupling neural spline flow (Durkan et al. 2019) around the normal distribution of
    the unit heads: it has only to learn what these miss. The flow has no unit marginals in closed form; the
    heads, fitted beside it, give those.

    Args:
        image_shape, latents: as in `QNetwork`.
    """

    family = "flow"

    def __init__(self, image_shape: tuple[int, ...], latents: LatentSpec) -> None:
        super().__init__(image_shape, latents)
        self.context = nn.Sequential(nn.Linear(self.width, CONTEXT), nn.ReLU())
        before = [sum(latents.discrete[:j]) for j in range(len(latents.discrete))]
        self.classes = nn.ModuleList(
            nn.Sequential(nn.Linear(CONTEXT + known, CONTEXT), nn.ReLU(), nn.Linear(CONTEXT, classes))
            for known, classes in zip(before[1:], latents.discrete[1:], strict=True)
        )
        if latents.continuous:
            self.flow = zuko.flows.NSF(
                latents.continuous,
                CONTEXT + sum(latents.discrete),
                transforms=TRANSFORMS,
                hidden_features=HIDDEN,
                passes=2,
            )

    def proposal(self, images: Tensor, codes: Tensor, known: Collection[str] = ()) -> Proposal:
        """`Q(z_B|z_A, x̃)` of the units B that are not known, batch `(B,)`; known categorical units inform it.

        The flow gives all real units at once: where some are known, the unit heads propose the others.
        """
        features = self.features(images)
        return FlowProposal(self, self.context(features), self.units(features), codes, known)

    def score(self, codes: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """`log Q(z|x̃)`, `(B,)`, and `log Q_j(z_j|x̃)` of every unit's head, `(B, D + J)`, in nats."""
        features = self.features(images)
        heads = self.units(features)
        joint = FlowProposal(self, self.context(features), heads, codes, ())
        return joint.log_prob(codes), heads.log_prob_per_unit(codes)

    def objective(self, codes: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `log Q(z|x̃)`, and the loss to minimise: that of Q and of the unit heads together."""
        log_q, per_unit = self.score(codes, images)
        return log_q.mean(), -log_q.mean() - per_unit.sum(-1).mean()


class FlowProposal:
    """One batch of `Q(z_B|z_A, x̃)`.

    Args:
        network: the Q that this belongs to.
        context: what it reads of the images, `(B, CONTEXT)`.
        heads: its unit heads for the same images.
        codes: codes whose known units are given, `(B, size)`.
        known: A.
    """

    def __init__(
        self,
        network: FlowQNetwork,
        context: Tensor,
        heads: CodeDistribution,
        codes: Tensor,
        known: Collection[str],
    ) -> None:
        self._network, self._context, self._known = network, context, known
        latents = network.latents
        # The flow learns around the heads; what it learns must not move them.
        self._mean, self._stddev = heads.mean.detach(), heads.stddev.detach()
        self._log_probs = [block.detach() if j else block for j, block in enumerate(heads.log_probs)]
        self._given = latents.split(codes)[1]
        self._free_real = [unit for unit in latents.continuous_units if unit not in known]
        self._joint = bool(latents.continuous) and len(self._free_real) == latents.continuous
        self._heads = heads.marginal(self._free_real) if self._free_real else None

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Exact codes of the free units, `(*shape, B, n)`."""
        with torch.no_grad():
            onehots: list[Tensor] = []
            free: list[Tensor] = []
            for j, unit in enumerate(self._network.latents.discrete_units):
                if unit in self._known:
                    onehots.append(self._given[j].expand(*shape, *self._given[j].shape))
                    continue
                logits = self._class_log_probs(j, onehots, shape)
                nothing = logits.new_zeros(*logits.shape[:-1], 0)
                onehots.append(CodeDistribution(nothing, nothing, [logits]).sample((), generator))
                free.append(onehots[-1])
            return torch.cat([self._sample_real(onehots, shape, generator), *free], dim=-1)

    def log_prob(self, codes: Tensor) -> Tensor:
        """Log-density of exact codes of the free units, `(*shape, B, n)`: `(*shape, B)`, in nats."""
        latents, shape = self._network.latents, tuple(codes.shape[:-2])
        real, rest = codes.tensor_split([len(self._free_real)], dim=-1)
        onehots: list[Tensor] = []
        total = codes.new_zeros(codes.shape[:-1])
        for j, unit in enumerate(latents.discrete_units):
            if unit in self._known:
                onehots.append(self._given[j].expand(*shape, *self._given[j].shape))
                continue
            code, rest = rest.tensor_split([latents.discrete[j]], dim=-1)
            log_probs = self._class_log_probs(j, onehots, shape)
            total = total + torch.where(code > 0, log_probs, 0.0).sum(-1)
            onehots.append(code)
        return total + self._log_prob_real(real, onehots, shape)

    def _class_log_probs(self, unit: int, before: list[Tensor], shape: tuple[int, ...]) -> Tensor:
        """`log Q(c_j|c_<j, x̃)`, `(*shape, B, K_j)`: the head's, moved by what the units before it say."""
        head = self._log_probs[unit].expand(*shape, *self._log_probs[unit].shape)
        if unit == 0:
            return head
        inputs = torch.cat([self._expanded_context(shape), *before], dim=-1)
        return F.log_softmax(head + self._network.classes[unit - 1](inputs), dim=-1)

    def _flow(self, onehots: list[Tensor], shape: tuple[int, ...]) -> Any:
        return self._network.flow(torch.cat([self._expanded_context(shape), *onehots], dim=-1))

    def _expanded_context(self, shape: tuple[int, ...]) -> Tensor:
        return self._context.expand(*shape, *self._context.shape)

    def _sample_real(
        self, onehots: list[Tensor], shape: tuple[int, ...], generator: torch.Generator | None
    ) -> Tensor:
        if self._heads is None:
            return self._mean.new_zeros(*shape, len(self._mean), 0)
        if not self._joint:
            return self._heads.sample(shape, generator)
        noise = torch.randn(
            *shape, *self._mean.shape, generator=generator, device=self._mean.device, dtype=self._mean.dtype
        )
        standard: Tensor = self._flow(onehots, shape).transform.inv(noise)
        return self._mean + self._stddev * standard

    def _log_prob_real(self, real: Tensor, onehots: list[Tensor], shape: tuple[int, ...]) -> Tensor:
        if self._heads is None:
            return real.new_zeros(real.shape[:-1])
        if not self._joint:
            return self._heads.log_prob(real)
        standard = (real - self._mean) / self._stddev
        log_density: Tensor = self._flow(onehots, shape).log_prob(standard)
        return log_density - self._stddev.log().sum(-1)
