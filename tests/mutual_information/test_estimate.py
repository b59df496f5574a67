import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from known_models import NarrowEncoder, Table, correlated, orthogonal
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture as FittedMixture
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal

from vmivae.errors import ImpossibleEstimateError, ParameterError
from vmivae.model import VAE
from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.q_network import QNetwork
from vmivae.model.reference import GaussianMixture, LinearGaussian
from vmivae.mutual_information import (
    EstimateConfig,
    ImportanceConfig,
    QNetworkConfig,
    estimate,
    fit_q_network,
)

PRIOR = EstimateConfig(codes="prior", q_network=QNetworkConfig(steps=300), samples=4000, importance=None)
POSTERIOR = replace(PRIOR, codes="posterior")
BRIEF = QNetworkConfig(steps=3, batch_size=32)


def brief(**values: Any) -> EstimateConfig:
    """A Q that is hardly fitted, and the Barber–Agakov bound alone."""
    return EstimateConfig(**{"q_network": BRIEF, "importance": None, **values})


class TestKnownAnswers:
    def test_barber_agakov_meets_the_truth_of_orthogonal_maps(self) -> None:
        """One fit, twenty sets of fresh pairs: pooled, neither above the truth nor well below it."""
        model = orthogonal(6, [2.0, 1.0, 0.5])
        truth = float(model.information())
        network, _ = fit_q_network(model, config=QNetworkConfig(steps=600))
        results = [estimate(model, None, PRIOR, seed=seed, q_network=network) for seed in range(20)]
        z_scores = torch.tensor([(r.lower - truth) / r.lower_se for r in results])
        deficit = truth - sum(r.lower for r in results) / len(results)
        assert z_scores.mean() * math.sqrt(20) < 3
        assert 0.5 < z_scores.std() < 1.6
        assert deficit < 0.03

    def test_each_unit_of_an_orthogonal_map_meets_its_truth(self) -> None:
        model = orthogonal(6, [2.0, 1.0, 0.5])
        result = estimate(model, None, PRIOR)
        for part, truth in zip(result.per_unit.values(), model.unit_information(), strict=True):
            assert part["lower"] == pytest.approx(float(truth), abs=0.03 + 3 * part["se"])
        assert result.groups["continuous"]["lower"] == pytest.approx(result.lower)
        assert result.entropy == pytest.approx(1.5 * math.log(2 * math.pi * math.e), abs=0.1)

    @pytest.mark.slow
    @pytest.mark.parametrize("units", [2, 10])
    def test_bounds_of_correlated_maps_stay_below_the_truth(self, units: int) -> None:
        """A factorised Q misses the dependence of the units: below the truth, also by chance over seeds."""
        model = correlated(16, units)
        truth = float(model.information())
        results = [estimate(model, None, PRIOR, seed=seed) for seed in range(4)]
        assert sum((r.lower - truth) / r.lower_se for r in results) / math.sqrt(4) < 3
        for result in results:
            for part, exact in zip(result.per_unit.values(), model.unit_information(), strict=True):
                assert float(exact) - 0.1 < part["lower"] < float(exact) + 4 * part["se"]

    @pytest.mark.parametrize("codes", ["prior", "posterior"])
    def test_a_decoder_that_ignores_its_code_carries_nothing(self, codes: str) -> None:
        model = LinearGaussian(torch.zeros(5, 2), 1.0)
        images = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
        config = replace(PRIOR, codes=codes)
        results = [estimate(model, images, config)]
        for seed in (1, 2, 3):
            results.append(estimate(model, images, config, seed=seed, q_network=results[0].q_network))
        for result in results:
            for lower, se in [(result.lower, result.lower_se)] + [
                (part["lower"], part["se"]) for part in result.per_unit.values()
            ]:
                assert abs(lower) <= 0.02 + 3 * se
        # Noise below zero is reported as it is, never clamped.
        assert min(result.lower for result in results) < 0

    @pytest.mark.parametrize("codes", ["prior", "posterior"])
    def test_a_noiseless_k_way_code_carries_log_k(self, codes: str) -> None:
        model = Table(5 * torch.eye(6), scale=0.2)
        config = replace(PRIOR, codes=codes)
        result = estimate(model, 5 * torch.eye(6), config)
        assert result.lower == pytest.approx(math.log(6), abs=0.02)
        assert result.per_unit["c0"]["lower"] == pytest.approx(math.log(6), abs=0.02)
        assert result.groups["discrete"]["lower"] == pytest.approx(math.log(6), abs=0.02)

    def test_a_mixture_fitted_by_em_carries_what_its_responsibilities_say(self) -> None:
        fitted = FittedMixture(3, random_state=0).fit(load_iris().data[:, :2])
        model = GaussianMixture(
            *(torch.tensor(array, dtype=torch.float32) for array in (fitted.weights_, fitted.means_)),
            torch.tensor(fitted.covariances_, dtype=torch.float32),
        )
        codes = model.prior.sample((20_000,), torch.Generator().manual_seed(1))
        with torch.random.fork_rng():
            torch.manual_seed(2)
            pointwise = model.pointwise_information(model.likelihood(codes).sample())
        truth, truth_se = float(pointwise.mean()), float(pointwise.std()) / math.sqrt(20_000)
        result = estimate(model, None, PRIOR)
        noise = math.hypot(result.lower_se, truth_se)
        assert truth - 0.03 - 3 * noise < result.lower < truth + 3 * noise
        assert result.entropy == pytest.approx(float(model.prior.entropy()), abs=0.03)

    def test_prior_entropy_with_posterior_codes_would_exceed_the_truth(self) -> None:
        """Every image at the same narrow code: the prior's entropy would add 2.3 nats per unit."""
        model = NarrowEncoder(orthogonal(6, [8.0, 4.0]), mean=1.5, stddev=0.1)
        result = estimate(model, torch.zeros(20, 6), POSTERIOR)
        truth = model.information()
        assert result.lower < truth + 3 * result.lower_se
        assert result.lower == pytest.approx(truth, abs=0.05 + 3 * result.lower_se)
        assert result.entropy == pytest.approx(math.log(2 * math.pi * math.e * 0.1**2), abs=0.1)
        units = LinearGaussian(model.stddev * model.decoder.weight, model.decoder.scale).unit_information()
        for part, exact in zip(result.per_unit.values(), units.tolist(), strict=True):
            assert part["lower"] == pytest.approx(exact, abs=0.05 + 3 * part["se"])
        # The encoder itself says nothing about its images, whatever the decoder does.
        assert result.encoder_information == pytest.approx(0, abs=1e-4)

    def test_decoder_means_in_place_of_samples_would_exceed_the_truth(self) -> None:
        """Means of this decoder reveal the code exactly; its samples hardly at all."""
        model = orthogonal(6, [0.2, 0.1])
        result = estimate(model, None, PRIOR)
        truth = float(model.information())
        assert truth < 0.03
        assert result.lower < truth + 3 * result.lower_se

    def test_images_of_several_axes_are_read_too(self) -> None:
        generator = torch.Generator().manual_seed(0)
        flat = LinearGaussian(torch.randn(32 * 32, 1, generator=generator) / 32, 1.0)

        class Pictures:
            latents, prior = flat.latents, flat.prior

            def likelihood(self, codes):
                return Independent(Normal((codes @ flat.weight.T).reshape(-1, 1, 32, 32), 1.0), 3)

        config = EstimateConfig(
            codes="prior", q_network=QNetworkConfig(steps=40, batch_size=64), samples=1030, importance=None
        )
        result = estimate(Pictures(), None, config)
        assert result.q_network.image_shape == (1, 32, 32)
        assert result.lower < float(flat.information()) + 3 * result.lower_se


class SampledOnly(Distribution):
    """Another distribution without its mean, mode and variance."""

    def __init__(self, inner: Distribution) -> None:
        self.inner = inner
        super().__init__(inner.batch_shape, inner.event_shape, validate_args=False)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 - as torch has it
        return self.inner.sample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.inner.log_prob(value)


class Opaque:
    """A model whose likelihood offers what the protocol asks for and no more."""

    def __init__(self, model: Table) -> None:
        self.latents, self.prior, self.posterior = model.latents, model.prior, model.posterior
        self.model = model

    def likelihood(self, codes: Tensor) -> Distribution:
        return SampledOnly(self.model.likelihood(codes))


class TestCodes:
    @pytest.mark.parametrize("codes", ["prior", "posterior"])
    @pytest.mark.parametrize("family", ["gaussian", "flow"])
    def test_relaxed_codes_never_reach_the_decoder(self, codes: str, family: str) -> None:
        """Neither those that images are drawn from, nor those that are proposed for them."""
        model = Table(torch.eye(3), 1.0, continuous=2)
        effort = ImportanceConfig(images=8, samples=8, units="all")
        network = QNetworkConfig(family, steps=3, batch_size=32)
        estimate(model, torch.eye(3), EstimateConfig(codes, network, samples=100, importance=effort))
        blocks = torch.cat(model.decoded)[:, 2:]
        assert set(blocks.unique().tolist()) == {0.0, 1.0}
        assert (blocks.sum(-1) == 1).all()

    @pytest.mark.parametrize("codes", ["prior", "posterior"])
    def test_decoder_means_are_never_asked_for(self, codes: str) -> None:
        """A likelihood that can only be sampled and evaluated is enough: its mean raises an error."""
        effort = ImportanceConfig(images=8, samples=8, units="all")
        config = EstimateConfig(codes, BRIEF, samples=100, importance=effort)
        estimate(Opaque(Table(torch.eye(3), 1.0, continuous=2)), torch.eye(3), config)

    @pytest.mark.parametrize("given", [False, True])
    def test_pairs_of_the_bound_are_none_of_those_q_was_fitted_on(self, given: bool) -> None:
        """Also where Q was fitted before with the same seed."""
        model = Table(torch.eye(3), 1.0, continuous=2)
        config = brief(codes="prior", samples=1500)
        network = fit_q_network(model, config=config.q_network, seed=7)[0] if given else None
        estimate(model, None, config, seed=7, q_network=network)
        # Blocks of a few codes try the model out.
        decoded = torch.cat([codes for codes in model.decoded if len(codes) > 4])
        assert len(decoded.unique(dim=0)) == len(decoded)

    def test_every_sample_counts_also_those_of_the_last_smaller_batch(self) -> None:
        model = Table(torch.eye(3), 1.0)
        network, _ = fit_q_network(model, config=BRIEF)
        model.decoded.clear()
        result = estimate(model, None, brief(codes="prior", samples=1027), q_network=network)
        tried, decoded = model.decoded[:2], model.decoded[2:]
        assert [len(codes) for codes in tried] == [4, 2]
        assert sum(len(codes) for codes in decoded) == 1027 == result.samples

    def test_a_bound_drawn_from_the_posterior_uses_all_given_images(self) -> None:
        images = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
        result = estimate(orthogonal(6, [2.0]), images, brief(samples=50))
        assert result.images == 40
        assert result.encoder_limit == pytest.approx(math.log(40))


class TestEncoder:
    def test_rate_is_encoder_information_plus_marginal_divergence(self) -> None:
        model = orthogonal(6, [3.0, 1.0])
        images = model.likelihood(model.prior.sample((300,), torch.Generator().manual_seed(0))).mean
        result = estimate(model, images, brief(samples=4000))
        noise = math.hypot(result.encoder_information_se, result.marginal_kl_se)
        assert result.rate == pytest.approx(result.encoder_information + result.marginal_kl, abs=4 * noise)
        assert result.rate == pytest.approx(float(model.posterior(images).kl(model.prior).mean()), rel=1e-5)
        assert 0 < noise < 0.1

    def test_lone_categorical_unit_agrees_with_the_exact_value(self) -> None:
        """`H(q̄(c)) − E H(q(c|x))`, computed without sampling, against the general route."""
        model = Table(torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), 1.0)
        images = torch.randn(30, 4, generator=torch.Generator().manual_seed(2)) * 2
        q = model.posterior(images)
        marginal = q.probs[0].mean(0)
        exact = float(-(marginal * marginal.log()).sum() - q.entropy().mean())
        result = estimate(model, images, brief(samples=20_000))
        assert exact > 0.3
        assert result.encoder_information == pytest.approx(exact, abs=4 * result.encoder_information_se)
        assert result.encoder_information_se < 0.01

    def test_information_near_log_n_is_warned_of(self) -> None:
        model = Table(5 * torch.eye(4), 0.1)
        distinct = estimate(model, 5 * torch.eye(4), brief(samples=100))
        assert "near its limit log N" in distinct.warnings[0]
        repeated = estimate(
            model,
            5 * torch.eye(4).repeat(9, 1),
            brief(samples=100),
        )
        assert repeated.warnings == []

    def test_prior_codes_have_no_encoder_numbers(self) -> None:
        result = estimate(orthogonal(6, [1.0]), None, brief(codes="prior"))
        assert result.encoder_information is result.rate is result.marginal_kl is result.images is None

    def test_an_impossible_categorical_information_stops(self) -> None:
        class Boastful(QNetwork):
            def units(self, features):
                q = super().units(features)
                q.log_probs = [torch.full_like(block, 2.0) for block in q.log_probs]
                return q

        with pytest.raises(ImpossibleEstimateError, match=r"above 1\.0986"):
            estimate(
                Table(torch.eye(3), 1.0),
                None,
                EstimateConfig(codes="prior", samples=50, importance=None),
                q_network=Boastful((3,), LatentSpec(0, (3,))),
            )


class Noisy(nn.Module):
    """A model with the layers that behave differently in training, left in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = LatentSpec(2, (3,))
        self.decoder = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 7))
        self.encoder[1].eval()

    @property
    def prior(self) -> CodeDistribution:
        return CodeDistribution.prior(self.latents, self.decoder[0].weight.device)

    def likelihood(self, codes):
        assert not self.decoder.training
        return Independent(Normal(self.decoder(codes), 1.0), 1)

    def posterior(self, images):
        assert not self.encoder.training
        mean, log_stddev, logits = self.encoder(images).split([2, 2, 3], dim=-1)
        return CodeDistribution(mean, log_stddev.exp(), [logits])


class Wrapped:
    """Somebody's module inside an object that is none."""

    def __init__(self, module: Noisy) -> None:
        self.module = module
        self.latents, self.prior = module.latents, module.prior
        self.likelihood, self.posterior = module.likelihood, module.posterior


class TestFixedModel:
    @pytest.mark.parametrize("wrap", [lambda module: module, Wrapped])
    def test_parameters_buffers_and_modes_are_unchanged_bit_for_bit(self, wrap) -> None:
        torch.manual_seed(0)
        module = Noisy()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        modes = [part.training for part in module.modules()]
        estimate(wrap(module), torch.randn(20, 4), brief(samples=50))
        assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
        assert [part.training for part in module.modules()] == modes
        assert all(p.grad is None and p.requires_grad for p in module.parameters())

    def test_modes_are_restored_after_an_error(self) -> None:
        module = Noisy()
        with pytest.raises(ParameterError):
            estimate(module, None, EstimateConfig(q_network=BRIEF, importance=None))
        assert module.training
        assert module.decoder.training

    @pytest.mark.parametrize("enabled", [True, False])
    def test_random_state_and_gradient_mode_are_left_alone(self, enabled: bool) -> None:
        torch.manual_seed(5)
        state = torch.get_rng_state()
        with torch.set_grad_enabled(enabled):
            estimate(
                orthogonal(4, [1.0]),
                None,
                brief(codes="prior", samples=20),
            )
            assert torch.is_grad_enabled() is enabled
        assert torch.equal(state, torch.get_rng_state())

    def test_inference_mode_of_the_caller_is_no_hindrance(self) -> None:
        with torch.inference_mode():
            result = estimate(
                orthogonal(4, [1.0]),
                None,
                brief(codes="prior", samples=20),
            )
        assert math.isfinite(result.lower)

    def test_the_same_seed_gives_the_same_numbers(self) -> None:
        model, config = (
            orthogonal(4, [1.0]),
            brief(codes="prior", samples=20),
        )
        torch.manual_seed(1)
        first = estimate(model, None, config, seed=1)
        torch.manual_seed(2)
        again = estimate(model, None, config, seed=1)
        given = estimate(model, None, config, seed=1, q_network=first.q_network)
        assert first.to_dict() == again.to_dict() == given.to_dict()
        assert first.lower != estimate(model, None, config, seed=2).lower

    def test_double_precision_models_are_measured(self) -> None:
        model = LinearGaussian(torch.eye(3, 2, dtype=torch.float64), 1.0)

        class Double:
            latents = model.latents
            prior = CodeDistribution(torch.zeros(2).double(), torch.ones(2).double())
            likelihood = staticmethod(model.likelihood)

        result = estimate(Double(), None, brief(codes="prior", samples=20))
        assert math.isfinite(result.lower)


class TestInterface:
    def test_a_trained_here_vae_is_measured_from_uint8_images(self) -> None:
        model = VAE((1, 8, 8), LatentSpec(2, (3,)), architecture="mlp")
        images = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8)
        result = estimate(model, images, brief(samples=40))
        content = result.to_dict()
        assert list(content["per_unit"]) == ["z0", "z1", "c0"]
        assert list(content["groups"]) == ["continuous", "discrete"]
        assert content["upper"] is None
        assert content["width"] is content["decodes"] is content["proposal"] is None
        assert content["lower"] == content["barber_agakov"]
        assert [row["proposals"] for row in content["curve"]] == [1]
        assert not any("upper" in part for part in content["per_unit"].values())
        rows = result.rows()
        assert [row["unit"] for row in rows] == ["total", "continuous", "discrete", "z0", "z1", "c0"]
        assert rows[0]["lower_bits"] == pytest.approx(result.lower / math.log(2))

    def test_progress_is_reported(self) -> None:
        calls = []
        estimate(
            orthogonal(4, [1.0]),
            None,
            brief(codes="prior", samples=2060),
            progress=lambda *call: calls.append(call),
        )
        assert ("fitting Q", 3, 3) in [call[:3] for call in calls]
        assert [call[1] for call in calls if call[0] == "evaluating the bound"] == [2048, 2060]

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"codes": "both"}, "mutual_information.codes: must be one of posterior, prior, got both"),
            ({"samples": 1}, "mutual_information.samples: must be ≥ 2, got 1"),
            ({"q_network": {"steps": 0}}, "mutual_information.q_network.steps: must be ≥ 1, got 0"),
        ],
    )
    def test_settings_that_are_not_accepted_name_the_key(self, values: dict, words: str) -> None:
        with pytest.raises(ParameterError, match=words):
            EstimateConfig.from_dict(values)

    def test_what_is_missing_is_named(self) -> None:
        model = orthogonal(4, [1.0])
        with pytest.raises(ParameterError, match="images: at least one"):
            estimate(model, None, EstimateConfig())
        with pytest.raises(ParameterError, match="images: at least one"):
            estimate(model, torch.zeros(0, 4), EstimateConfig())

        for images in (torch.ones(4, 2) > 0, torch.ones(4, 2, dtype=torch.int64)):
            with pytest.raises(ParameterError, match="floating-point numbers or uint8 pixels, got torch"):
                estimate(model, images)
        with pytest.raises(ParameterError, match="images: must be a torch Tensor, got ndarray"):
            estimate(model, torch.zeros(3, 4).numpy(), brief())
        with pytest.raises(ParameterError, match="images: must be finite numbers, got NaN"):
            estimate(model, torch.full((3, 4), math.nan), brief())
        with pytest.raises(ParameterError, match="config: must be an EstimateConfig, got dict"):
            estimate(model, None, {"codes": "prior"})
        with pytest.raises(ParameterError, match=r"posterior: fails for images of shape \(3, 5\) \(mat1"):
            estimate(model, torch.zeros(3, 5), brief())

        class NoPosterior:
            latents, prior, likelihood = model.latents, model.prior, model.likelihood

        with pytest.raises(ParameterError, match="posterior"):
            estimate(NoPosterior(), torch.zeros(3, 4), EstimateConfig())

        class Unlike(NoPosterior):
            posterior = staticmethod(orthogonal(4, [1.0, 1.0]).posterior)

        class Priorless(NoPosterior):
            prior = None

        class Scattered(NoPosterior):
            def likelihood(self, codes):
                return Normal(codes @ model.weight.T, 1.0)

        with pytest.raises(ParameterError, match=r"model\.posterior: must be of"):
            estimate(Unlike(), torch.zeros(3, 4), EstimateConfig())
        with pytest.raises(ParameterError, match=r"model\.prior: must be a CodeDistribution"):
            estimate(Priorless(), None, EstimateConfig(codes="prior"))
        with pytest.raises(ParameterError, match=r"model\.likelihood: .*Independent"):
            estimate(Scattered(), None, EstimateConfig(codes="prior"))
        with pytest.raises(ParameterError, match="q_network"):
            estimate(model, None, EstimateConfig(codes="prior"), q_network=QNetwork((4,), LatentSpec(2)))
        with pytest.raises(ParameterError, match="device"):
            estimate(model, None, brief(codes="prior"), device="nowhere")
